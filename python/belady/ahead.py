"""What a stock loader will ask for, held in staging until it has been given it.

A loader's workers read on demand, each through a session of its own (`belady.ondemand`). One more
session, in the loader's own process, is told the batches that come: the daemon fetches them into
staging, and they stay there for as long as their leases are held here. So the workers' reads find
them. A lease is given back when the loader has returned its batch. No thread: what came is looked
at whenever the loader returns a batch.

At most half of this process's share of staging is held, so reads that nobody foresaw have room.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Deque, NamedTuple

from belady.connection import Lost
from belady.dataset import Dataset
from belady.errors import BeladyError, DaemonUnavailable
from belady.ondemand import ONCE_AN_EPOCH
from belady.reading import Reading
from belady.session import Batch, Session, Stats

# Batches that may be held ahead, however small.
BATCHES_MAX = 256


class _Told(NamedTuple):
    """A batch that the daemon knows of: the loader's number of it, and about how large it is."""

    number: int
    size: int


class _Line:
    """One dataset's session. Batches come in the order they were told in."""

    def __init__(self, dataset: Dataset, sharers: int, batch: int) -> None:
        """`batch` is a usual batch's length, for which the daemon makes room."""
        if dataset.place.off:
            raise DaemonUnavailable("BELADY=off: nothing is read ahead")
        order = {"kind": "explicit", "samples": len(dataset), "batch": batch}
        reading = Reading(
            dataset.name, order, 1, 0, sharers, BATCHES_MAX, 0.0, False, dataset.place,
            dataset.files, policy=ONCE_AN_EPOCH,
        )
        reading.start_once()  # here, where it is known before workers are made
        self._session: Session = reading.attach_ahead(Stats())
        self._limit = self._session.hold_bytes
        self._session.limit_hold(sys.maxsize)  # a private copy would keep nothing in staging
        self._mean = max(1, dataset.manifest.bytes // max(1, len(dataset)))
        self._told: Deque[_Told] = deque()
        self._size = 0
        self._usual = batch * self._mean
        self._came: Deque[Batch] = deque()

    @property
    def full(self) -> bool:
        return len(self._told) >= BATCHES_MAX or self._size + self._usual > self._limit

    def tell(self, number: int, ids: Sequence[int]) -> None:
        told = _Told(number, len(ids) * self._mean)
        if self._size + told.size <= self._limit:
            self._session.tell([ids])
            self._told.append(told)
            self._size += told.size

    def given(self, number: int) -> None:
        batch = self._session.poll()
        while batch is not None:
            self._came.append(batch)
            batch = self._session.poll()
        while self._came and self._told[0].number <= number:
            self._size -= self._told.popleft().size
            self._came.popleft()  # with its last reference the lease ends
        self._session.flush()

    def close(self) -> None:
        self._came.clear()
        self._session.close()


class ReadAhead:
    """A loader's next batches. Never raises: what is wrong with a read the read itself will say."""

    def __init__(self, sharers: int) -> None:
        """`sharers`: how many processes on this node hold batches of the same datasets."""
        self._sharers = sharers
        self._lines: dict[str, _Line] = {}
        # Why it ended, once it has: the daemon is gone, or refused; and how long that took to see.
        self.broken = ""
        self.broke_s = 0.0

    @property
    def full(self) -> bool:
        """No more is to be told now."""
        return bool(self.broken) or any(line.full for line in self._lines.values())

    def tell(self, number: int, wanted: Mapping[Dataset, Sequence[int]]) -> None:
        """The loader's batch of this number, which is larger than all before, needs these ids."""
        with self._ending():
            for dataset, ids in wanted.items():
                line = self._lines.get(dataset.name)
                if line is None:
                    line = _Line(dataset, self._sharers, len(ids))
                    self._lines[dataset.name] = line
                line.tell(number, ids)

    def given(self, number: int) -> None:
        """The loader has returned all batches up to this one."""
        with self._ending():
            for line in self._lines.values():
                line.given(number)

    def close(self) -> None:
        lines, self._lines = self._lines, {}
        for line in lines.values():
            with suppress(BeladyError, Lost):
                line.close()

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Ends it where the daemon is lost or refuses."""
        began = time.monotonic()
        try:
            yield
        except (BeladyError, Lost, OSError) as e:
            self.broke_s = time.monotonic() - began
            self.broken = str(e) or type(e).__name__
            self.close()
