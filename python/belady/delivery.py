"""One epoch's batches, one after the other, from where it is begun or resumed."""

from __future__ import annotations

import array
import sys
from collections.abc import Iterator
from typing import Any, Optional

from belady.computed import Source
from belady.epochs import Epoch, Ids, Order
from belady.errors import BeladyError, SampleError
from belady.feed import Feed
from belady.replacing import LASTING
from belady.session import Batch


class Delivery:
    """Opens a session for an epoch, or takes the parked one, and parks it after the last batch.

    It belongs to one thread at a time; only `cancel` may come from another.
    """

    def __init__(self, feed: Feed, epoch: Epoch, source: Optional[Iterator[Ids]] = None) -> None:
        """What the stock loader draws for an epoch's order is drawn here. `source` is a batch
        sampler's iterator that was made before."""
        order: Order = feed.order
        self._feed = feed
        self._dealing = order.dealing()
        self._expected: Optional[array.array[int]] = None
        self._batches: Optional[list[Ids]] = None
        self._first = 0
        self._rest: Optional[Iterator[Any]] = None
        # Of the epoch, counted from where it was begun or resumed: the next one, and all.
        self.number = 0
        if order.kind == "explicit":
            self._rest, self._batches = order.sampled(source)
            self._first = epoch.position
            self.total = max(0, len(self._batches) - self._first)
        else:
            epoch = order.drawn(epoch)
            self.total = self._dealing.batches(epoch.position)
        self.epoch = epoch
        self._session: Optional[Source] = None
        if self.total:
            self._session = feed.open(epoch, self._batches, self._first)

    def next(self) -> Optional[Batch]:
        """The batch that is due; None after the epoch's last.

        After a SampleError, which stands in place of its batch, the one behind it is due.
        """
        session = self._session
        if session is None or self.number == self.total:
            return None
        number, start = self.number, session.due
        try:
            batch = session.next()
        except SampleError as e:
            self.number += 1
            replacing = self._feed.replacing
            if replacing is None or not isinstance(e, LASTING):
                raise
            empty = Batch(start.epoch, start.batch, self.number == self.total, (), (), [], None)
            return replacing.batch(self.ids(number), empty)
        if batch is None:
            raise BeladyError(f"the daemon ended before batch {number} of {self.total}")
        self.number += 1
        if batch.last:
            self._session = None
            self._feed.park(session)
        return batch

    def ids(self, number: int) -> list[int]:
        """What a batch of this epoch holds, as computed in this process."""
        if self._batches is not None:
            return list(self._batches[self._first + number])
        if self._expected is None:
            self._expected = self._feed.order.expected(self.epoch)
        at = number * self._dealing.batch
        return self._expected[at : at + self._dealing.batch].tolist()

    def exhaust(self) -> None:
        """The loop has come to the epoch's end: let the sampler come to its own."""
        rest, self._rest = self._rest, None
        if rest is not None:
            next(rest, None)

    def cancel(self) -> None:
        """End a wait in `next`, from another thread."""
        session = self._session
        if session is not None:
            session.cancel()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not sys.is_finalizing():
            self.close()
