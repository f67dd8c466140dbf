"""A loader's sessions: one that is due where an epoch begins, and one parked between epochs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from belady import wire
from belady.computed import Source
from belady.epochs import EPOCHS, Epoch, Ids, Order
from belady.errors import BeladyError
from belady.ondemand import ONCE_AN_EPOCH
from belady.reading import Reading
from belady.replacing import Replacing, Swap
from belady.session import Stats
from belady.source import begin
from belady.world import on_a_node

if TYPE_CHECKING:
    from belady.torch.arena import Arena

# How often each order was begun in this process.
_begun: Counter[str] = Counter()
# What is sent to a worker ahead cannot be taken back for another that the loop waits for.
_LOOKAHEAD_OF_WORKERS = 2


class Feed:
    """Opens sessions for one loader and counts what all of them delivered.

    Where all epochs are foreseen one session serves epoch after epoch: while none is read it is
    parked here, and the next epoch's first batches already wait in it.
    """

    def __init__(
        self, order: Order, lookahead: int, timeout_s: float, copy: bool, packed: bool,
        replacing: Optional[Replacing] = None, arena: Optional[Arena] = None,
    ) -> None:
        self.order = order
        self.lookahead = lookahead
        self.stats = Stats()
        self.replacing = replacing
        self.arena = arena
        self._timeout_s = timeout_s
        self._copy = copy
        self._packed = packed
        self._parked: Optional[Source] = None
        self._begins = 0
        self._last: Optional[Epoch] = None
        self._said_replaced = False
        self._closed = False

    def open(self, epoch: Epoch, batches: Optional[Sequence[Ids]] = None) -> Source:
        """A session that is due at an epoch's beginning or position; the parked one if it is.

        `batches` is what is known of what a sampler has left of it.
        """
        foreseen = self.order.foreseen
        start = wire.Start(epoch.number if foreseen else 0, 0 if batches else epoch.position, 0)
        parked, self._parked = self._parked, None
        if parked is not None:
            if foreseen and parked.ours and parked.due == start:
                return parked
            parked.close()
        dataset, world = self.order.dataset, self.order.world
        reading = Reading(
            dataset.name, self.order.spec(epoch.seed), EPOCHS if foreseen else 1, world.rank,
            on_a_node(world.size), self.lookahead, self._timeout_s, self._copy, dataset.place,
            dataset.files, self._packed, arena=self.arena, begins=self.begins(epoch),
        )
        return begin(reading, start, self.stats, batches or ())

    def begins(self, epoch: Epoch) -> int:
        """How often this process has begun to read this order as this rank, in this loader and
        others like it; to go on with a later epoch is no beginning. By that the daemon knows which
        beginnings of a run's ranks should be at one position."""
        last, self._last = self._last, epoch
        if last is None or epoch.position or epoch.number <= last.number:
            order = self.order
            key = f"{order.dataset.name} {order.world} {order.spec(None)}"
            _begun[key] += 1
            self._begins = _begun[key]
        return self._begins

    def begin_anew(self) -> None:
        """What is opened next is no going on: nothing was read of what was opened before."""
        self._last = None

    def reading_of_workers(self, workers: int) -> Reading:
        """What each of so many workers opens, with the batches that are its own.

        How long a batch may take is counted where the loop waits for it, not there.
        """
        dataset = self.order.dataset
        order: dict[str, Any] = {"kind": "explicit", "samples": len(dataset)}
        if self.order.batch_sampler is None and self.order.batch_size is not None:
            order["batch"] = self.order.largest()  # room for two is set aside for each
        return Reading(
            dataset.name, order, 1, 0, on_a_node(self.order.world.size) * workers,
            min(self.lookahead, _LOOKAHEAD_OF_WORKERS), 0.0, self._copy, dataset.place,
            dataset.files, policy="" if self.order.kind == "explicit" else ONCE_AN_EPOCH,
        )

    def park(self, session: Source) -> None:
        """Keep a session whose epoch has ended for the next one. Who reads without a daemon is
        not kept: the next epoch looks for one."""
        if session.direct or self._closed or self._parked or not self.order.foreseen:
            session.close()
        else:
            self._parked = session

    def read_ahead(self, epoch: int, workers: int, batches: int) -> None:
        """Have the daemon read an epoch's first batches before workers ask for them, if the epoch
        is foreseen. Just those: what is read far ahead is in the way of who reads now.

        Nothing is lost where that cannot be, for want of memory say: whoever reads says so.
        """
        if not self.order.foreseen or self._closed or self.order.dataset.place.off:
            return
        self.unpark()
        first = self.order.left(Epoch(epoch), batches)
        reading = self.reading_of_workers(workers)
        # A job of its own: what nobody is given is no part of the record of what was.
        reading = replace(reading, job=f"{reading.job}-ahead")
        with suppress(BeladyError):
            self._parked = reading.attach_ahead(Stats(), first)

    def unpark(self) -> None:
        """The parked session's epoch is being read by others."""
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.close()

    def count(self, swaps: Iterable[Swap]) -> None:
        """Count samples that were replaced, and tell of the first."""
        for swap in swaps:
            self.stats.replaced += 1
            if not self._said_replaced:
                self._said_replaced = True
                warnings.warn(
                    f"{swap}; further ones are only counted, in stats() as belady/replaced",
                    stacklevel=3,
                )

    def close(self) -> None:
        self._closed = True
        self.unpark()
