"""A loader's sessions: one that is due where an epoch begins, and one parked between epochs."""

from __future__ import annotations

from typing import Optional

from belady import wire
from belady.computed import Source
from belady.epochs import Epoch, Ids, Order
from belady.reading import Reading
from belady.session import Stats
from belady.source import begin

# The epoch after the last that an order can have. Training loops do not say how many they want.
_EPOCHS = 1 << 24


class Feed:
    """Opens sessions for one loader and counts what all of them delivered.

    Where all epochs are foreseen one session serves epoch after epoch: while none is read it is
    parked here, and the next epoch's first batches already wait in it.
    """

    def __init__(
        self, order: Order, lookahead: int, timeout_s: float, copy: bool, packed: bool
    ) -> None:
        self.order = order
        self.lookahead = lookahead
        self.stats = Stats()
        self._timeout_s = timeout_s
        self._copy = copy
        self._packed = packed
        self._parked: Optional[Source] = None
        self._closed = False

    def open(self, epoch: Epoch, batches: Optional[list[Ids]], skip: int) -> Source:
        """A session that is due at an epoch's beginning or position; the parked one if it is."""
        foreseen = self.order.foreseen
        start = wire.Start(epoch.number if foreseen else 0, 0 if batches else epoch.position, skip)
        parked, self._parked = self._parked, None
        if parked is not None:
            if foreseen and parked.ours and parked.due == start:
                return parked
            parked.close()
        dataset, world = self.order.dataset, self.order.world
        reading = Reading(
            dataset.name, self.order.spec(epoch.seed), _EPOCHS if foreseen else 1, world.rank,
            world.size, self.lookahead, self._timeout_s, self._copy, dataset.place, dataset.files,
            self._packed,
        )
        return begin(reading, start, self.stats, batches or ())

    def reading_of_workers(self, workers: int) -> Reading:
        """What each of so many workers opens, with the batches that are its own."""
        dataset = self.order.dataset
        order = {"kind": "explicit", "samples": len(dataset)}
        return Reading(
            dataset.name, order, 1, 0, self.order.world.size * workers, self.lookahead,
            self._timeout_s, self._copy, dataset.place, dataset.files,
        )

    def park(self, session: Source) -> None:
        """Keep a session whose epoch has ended for the next one."""
        if self._closed or self._parked is not None or not self.order.foreseen:
            session.close()
        else:
            self._parked = session

    def close(self) -> None:
        self._closed = True
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.close()
