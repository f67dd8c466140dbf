"""One epoch of a loader: batch after batch, in its process or through worker processes.

An iterator that is dropped, early or not, ends its sessions; views in hand stay.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, Optional

from belady.computed import Source
from belady.delivery import Delivery
from belady.epochs import Epoch, Ids, Progress
from belady.errors import BeladyError, LoaderClosed
from belady.feed import Feed
from belady.reading import learn
from belady.sampling import Drawn, Plan, draw
from belady.session import Stats
from belady.shape import Shaper

if TYPE_CHECKING:
    from belady.torch.workers import Pool, Results


class LocalIterator:
    """One epoch, transformed and collated in the loop's own process."""

    def __init__(
        self, feed: Feed, epoch: Epoch, shape: Shaper, finish: Callable[[Any], Any]
    ) -> None:
        order = feed.order
        self._feed = feed
        self._shape = shape
        self._finish = finish
        self.progress = Progress(epoch, order)
        self.progress.epoch = order.restored(epoch)
        self._drawn: Optional[Drawn] = None
        self._delivery: Optional[Delivery] = None
        self._closed = False
        self._turn = RLock()  # threads that share the iterator take turns: each batch goes to one
        self._source = order.index_iterator()
        order.draw_base_seed(epoch)
        if feed.arena is not None:
            feed.arena.begin()
            weakref.finalize(self, feed.arena.end).atexit = False
        if order.foreseen:
            self._begin()

    def _begin(self) -> Delivery:
        """The stock loader draws for an order at the first `next`, and so must this."""
        if self._drawn is None:
            self._drawn = draw(self._feed.order, self.progress.epoch, self._source)
            self.progress.epoch = self._drawn.epoch
        self._delivery = Delivery(self._feed, self._drawn)
        return self._delivery

    def move(self, number: int) -> None:
        """Read another epoch in place of this one, of which nothing was returned yet."""
        if not self._feed.order.foreseen:
            self.progress.renumber(number)
            return
        if self._delivery is not None:
            self._delivery.close()
        self._feed.begin_anew()
        self._drawn = self._delivery = None
        self.progress.asked = self.progress.epoch = Epoch(number)

    def __iter__(self) -> LocalIterator:
        return self

    def __next__(self) -> Any:
        with self._turn:
            if self._closed:
                raise LoaderClosed()
            if self._feed.arena is not None:
                self._feed.arena.step()
            delivery = self._delivery or self._begin()
            number = delivery.number
            try:
                batch = delivery.next()
                if batch is not None:
                    out = self._finish(self._shape(batch))
            except BaseException:
                if delivery.number > number:
                    self.progress.raised(number)
                raise
            if batch is None:
                self.progress.exhausted = True
                delivery.close()
                raise StopIteration
            if self._shape.replacing is not None:
                self._feed.count(self._shape.replacing.told())
            self.progress.returned(number)
            return out

    def close(self) -> None:
        self._closed = True
        if self._delivery is not None:
            self._delivery.close()


class WorkerIterator:
    """One epoch through worker processes."""

    def __init__(self, feed: Feed, epoch: Epoch, pool: Pool) -> None:
        self._feed = feed
        self._pool = pool
        self._turn = RLock()
        self._received = 0
        self._total = 0
        self._ahead: Optional[Source] = None
        self.progress = Progress(epoch, feed.order)
        self.progress.epoch = feed.order.restored(epoch)
        resumed = epoch.position > 0
        if pool.fresh and not resumed:
            feed.order.index_iterator()
        self._results: Optional[Results] = pool.begin(
            epoch.number, feed.begins(epoch), self._batches, resumed
        )

    def move(self, number: int) -> None:
        """Read another epoch in place of this one, of which nothing was returned yet."""
        if not self._feed.order.foreseen or self._results is None:
            self.progress.renumber(number)
            return
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        self._feed.begin_anew()
        self.progress.asked = self.progress.epoch = Epoch(number)
        self._results = self._pool.begin_instead(
            number, self._feed.begins(self.progress.epoch), self._batches
        )

    def _batches(self) -> Plan:
        """What is known of what is left of this rank's epoch. What is drawn for that is drawn
        here."""
        order = self._feed.order
        epoch, first, sampled = draw(order, self.progress.epoch, order.index_iterator())
        self.progress.epoch = epoch
        more: Callable[[], Sequence[Ids]] = list
        if sampled is None:
            batches: Sequence[Ids] = order.left(epoch)
        else:
            batches, more = first, sampled.window
            sampled.run_out()
        self._total = len(batches)
        if not self._pool.in_order and batches:
            self._ahead = self._feed.open(epoch, None if sampled is None else first)
            self._ahead.count_in(Stats())
            self._leave_direct()
        return Plan(batches, order.whole(epoch), more)

    def __iter__(self) -> WorkerIterator:
        return self

    def __next__(self) -> Any:
        with self._turn:
            if self._results is None:
                raise LoaderClosed()
            try:
                outcome = self._results.next()
            except StopIteration:
                self.progress.exhausted = True
                raise
            self._received += 1
            self._feed.stats.add(outcome.stats)
            self._feed.count(outcome.swaps)
            learn(self._feed.order.dataset.place.socket, outcome.given_up)
            for category, text in outcome.said:
                warnings.warn(text, category, stacklevel=2)
            self._read_ahead()
            if outcome.error is not None:
                self.progress.raised(outcome.number)
                outcome.error.reraise()
            self.progress.returned(outcome.number)
            return outcome.value

    def _read_ahead(self) -> None:
        """Have the daemon read what the workers will ask for and do not know of yet.

        In order, each knows its share of this epoch, so only the next one's beginning is asked for,
        when they are done with this one. Out of order they know nothing: a session follows this
        epoch for them.
        """
        if self._ahead is not None:
            with suppress(BeladyError):  # a worker that reads the same says what is wrong
                self._ahead.next()
            self._leave_direct()
            if self._ahead is not None and self._received == self._total:
                self._feed.park(self._ahead)
                self._ahead = None
        elif self._pool.in_order:
            if self._received == 1:
                self._feed.unpark()
            if self._received == self._total:
                self._feed.read_ahead(
                    self.progress.epoch.number + 1, self._pool.workers, self._pool.in_flight
                )

    def _leave_direct(self) -> None:
        """Without a daemon nothing can be read ahead: what this process reads no worker finds."""
        if self._ahead is not None and self._ahead.direct:
            self._ahead.close()
            self._ahead = None

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        results, self._results = self._results, None
        if results is not None:
            results.close()

    def __del__(self) -> None:
        results = getattr(self, "_results", None)
        if results is not None and not sys.is_finalizing():
            results.leave()
