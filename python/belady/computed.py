"""Batches whose order is computed in this process and whose samples are read one batch at a time.

It stands in place of a session: where there is no daemon it reads files, and where a daemon's order
drifted it asks that daemon for the samples by id.
"""

from __future__ import annotations

import array
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Protocol

from belady import order, wire
from belady.errors import LoaderClosed, OrderDrift, SampleError
from belady.session import Batch, Stats


class Source(Protocol):
    """One rank's batches, in order: a session, or what stands in its place."""

    @property
    def due(self) -> wire.Start: ...

    @property
    def ours(self) -> bool: ...

    @property
    def direct(self) -> bool:
        """True if this process reads the samples itself, for want of a daemon."""
        ...

    def next(self) -> Optional[Batch]: ...

    def count_in(self, stats: Stats) -> None: ...

    def cancel(self) -> None:
        """End a wait in `next`, from another thread."""
        ...

    def close(self) -> None: ...


class Relay:
    """A source that stands before another, and may put a third in its place."""

    def __init__(self, source: Source, stats: Stats) -> None:
        self._source = source
        self._stats = stats

    @property
    def due(self) -> wire.Start:
        return self._source.due

    @property
    def ours(self) -> bool:
        return self._source.ours

    @property
    def direct(self) -> bool:
        return self._source.direct

    def count_in(self, stats: Stats) -> None:
        self._stats = stats
        self._source.count_in(stats)

    def cancel(self) -> None:
        self._source.cancel()

    def close(self) -> None:
        self._source.close()


class Reader(Protocol):
    """What reads samples by id: `belady.direct.Files`, `belady.ondemand.OnDemand`."""

    @property
    def direct(self) -> bool:
        """True if this process reads them itself."""
        ...

    def read(self, ids: Sequence[int]) -> Batch: ...

    def close(self) -> None: ...


class Computed:
    """A Source over a reader, which it closes."""

    def __init__(
        self,
        spec: dict[str, Any],
        epochs: int,
        rank: int,
        start: wire.Start,
        stats: Stats,
        reader: Reader,
        batches: Iterable[Sequence[int]] = (),
    ) -> None:
        """`batches` is an explicit order's only epoch."""
        self._spec = spec
        self._epochs = epochs
        self._rank = rank
        self._due = start
        self._stats = stats
        self._reader = reader
        self._explicit = list(batches)
        self._ids: Optional[array.array[int]] = None
        self._closed = False
        self._pid = os.getpid()
        if self._explicit:
            self._epochs = start.epoch + 1

    @property
    def due(self) -> wire.Start:
        return self._due

    @property
    def ours(self) -> bool:
        return self._pid == os.getpid()

    @property
    def direct(self) -> bool:
        return self._reader.direct

    def count_in(self, stats: Stats) -> None:
        self._stats = stats

    def next(self) -> Optional[Batch]:
        """The batch that is due; None after the job's last.

        After a SampleError, which stands in place of its batch, the one behind it is due.
        """
        if not self.ours:
            raise LoaderClosed(
                "this iterator belongs to the process that made it: begin a new one after fork"
            )
        if self._closed:
            raise LoaderClosed()
        due = self._due
        if due.epoch >= self._epochs:
            return None
        ids, last = self._wanted(due)
        began = time.monotonic()
        try:
            batch = self._reader.read(ids)
        except SampleError:
            self._advance(last)
            raise
        if list(batch.ids) != ids:
            raise OrderDrift(
                f"batch {due.batch} of epoch {due.epoch} was asked for by its ids and others came:"
                " report it, with `belady version` and torch.__version__"
            )
        stats = self._stats
        stats.stall_s["origin"] += time.monotonic() - began
        stats.batches += 1
        stats.direct_batches += self._reader.direct
        stats.samples += len(ids)
        stats.bytes += sum(batch.lengths)
        self._advance(last)
        return batch._replace(epoch=due.epoch, number=due.batch, last=last)

    def _advance(self, last: bool) -> None:
        due = self._due
        self._due = due._replace(batch=due.batch + 1)
        if last:
            self._due, self._ids = wire.Start(due.epoch + 1, 0, 0), None

    def _wanted(self, due: wire.Start) -> tuple[list[int], bool]:
        """The ids of a batch, and whether its epoch ends with it."""
        if self._explicit:
            return list(self._explicit[due.batch]), due.batch == len(self._explicit) - 1
        deal = order.dealing(self._spec)
        if self._ids is None:
            self._ids = order.of_rank(self._spec, due.epoch, self._rank, due.position)
        at = due.batch * deal.batch
        return self._ids[at : at + deal.batch].tolist(), due.batch == deal.batches(due.position) - 1

    def cancel(self) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._reader.close()
