"""Every batch of a daemon's is held against the order that this process computes from the spec.

Not against what the daemon was told or said: the two sides compute apart, so a defect of either, or
a PyTorch whose order is not the one its version had, shows at the batch where it begins. It is said
once, to the user and to the daemon, and from that batch on the right samples are read by id.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Any, Callable, Optional

from belady import notice, order, wire
from belady.computed import Computed, Reader, Relay
from belady.errors import OrderDriftWarning
from belady.reading import Reading
from belady.session import Batch, Session, Stats

# Longer orders are not computed here: an epoch of this many takes 0.1 s.
CHECKED_MAX = 1 << 22


def checkable(spec: dict[str, Any]) -> bool:
    """True if an order is known here, or can be computed at little cost."""
    kind = spec["kind"]
    if kind == "explicit":
        return True
    computed = kind == "sequential" or (
        kind in ("torch-random", "torch-distributed") and "torch" in sys.modules
    )
    return computed and int(spec["samples"]) <= CHECKED_MAX


def _equal(expected: memoryview, ids: Sequence[int]) -> bool:
    if isinstance(ids, memoryview):  # compared where they lie
        return expected == ids
    return expected.tolist() == list(ids)


class Checked(Relay):
    """A source that gives the batches of the order, whatever the session delivers.

    `on_demand` makes the reader that asks for samples by id.
    """

    def __init__(
        self, session: Session, reading: Reading, stats: Stats, on_demand: Callable[[], Reader],
        batches: Sequence[Sequence[int]],
    ) -> None:
        """`batches` is an explicit order's only epoch."""
        super().__init__(session, stats)
        self._session: Optional[Session] = session
        self._reading = reading
        self._on_demand = on_demand
        self._batches = batches
        self._of = (-1, 0)
        self._ids = memoryview(b"")

    def next(self) -> Optional[Batch]:
        if self._session is None:
            return self._source.next()
        due = self._source.due
        # Known before the session goes on: what is interrupted while it is computed is still due.
        expected = self._expected(due) if due.epoch < self._reading.epochs else None
        batch = self._source.next()
        if batch is None:
            return None
        if batch.epoch != due.epoch:  # an error stood in place of the epoch's last batch
            due = wire.Start(batch.epoch, 0, batch.number)
            expected = self._expected(due)
        if expected is not None and _equal(expected, batch.ids):
            return batch
        self._stats.discount(batch)
        self._drifted(self._session, due)
        return self._source.next()

    def _expected(self, due: wire.Start) -> memoryview:
        if self._batches:
            due_now = self._batches[due.batch] if due.batch < len(self._batches) else ()
            return memoryview(array.array("I", due_now))
        spec = self._reading.order
        if self._of != (due.epoch, due.position):
            rank = self._reading.rank
            self._ids = memoryview(order.of_rank(spec, due.epoch, rank, due.position))
            self._of = (due.epoch, due.position)
        at = due.batch * int(spec["batch"])
        return self._ids[at : at + int(spec["batch"])]

    def _drifted(self, session: Session, due: wire.Start) -> None:
        r = self._reading
        session.report_drift(due.epoch, due.batch)
        session.close()
        self._session, self._ids = None, memoryview(b"")
        self._source = Computed(
            r.order, r.epochs, r.rank, due, self._stats, self._on_demand(), self._batches
        )
        notice.warn(
            f"from batch {due.batch} of epoch {due.epoch} on the daemon's order of {r.dataset} is"
            " not PyTorch's: the right samples are read one batch at a time from here on, which is"
            " slower; report it, with `belady version` and torch.__version__",
            OrderDriftWarning,
        )
