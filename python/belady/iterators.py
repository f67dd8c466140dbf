"""One epoch of a loader: batch after batch, in its process or through worker processes.

An iterator that is dropped, early or not, ends its sessions; views in hand stay.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Optional

from belady.computed import Source
from belady.epochs import Epoch, Ids, Order, Progress
from belady.errors import LoaderClosed
from belady.feed import Feed
from belady.shape import Shaper

if TYPE_CHECKING:
    from belady.torch.workers import Options


class LocalIterator:
    """One epoch, transformed and collated in the loop's own process."""

    def __init__(
        self, feed: Feed, epoch: Epoch, shape: Shaper, finish: Callable[[Any], Any]
    ) -> None:
        order = feed.order
        self._feed = feed
        self._order = order
        self._dealing = order.dealing()
        self._shape = shape
        self._finished = finish
        self.progress = Progress(epoch, order)
        self._session: Optional[Source] = None
        self._rest: Optional[Iterator[Any]] = None
        self._taken = 0
        self._opened = False
        self._closed = False
        self._over = False
        if order.batch_sampler is not None:
            self._rest = iter(order.batch_sampler)
        # A resumed epoch drew before its checkpoint, and the generators' states come from there.
        if epoch.position == 0 and "torch" in sys.modules:
            from belady.torch import draw_seed

            draw_seed(order.generator)  # base_seed, which the stock loader draws for every epoch
        if order.foreseen:
            self._begin()

    def _begin(self) -> None:
        """Open the session; what the stock loader draws at the first `next` is drawn here."""
        self._opened = True
        order, epoch = self._order, self.progress.epoch
        if order.kind == "explicit":
            self._rest, batches = order.sampled(self._rest)
            if epoch.position < len(batches):
                self._session = self._feed.open(epoch, batches, epoch.position)
            else:
                self._over = True
            return
        epoch = self.progress.epoch = order.drawn(epoch)
        if self._dealing.batches(epoch.position) == 0:
            self._over = True
            return
        self._session = self._feed.open(epoch, None, 0)

    def __iter__(self) -> LocalIterator:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise LoaderClosed("the loader was closed: make a new one")
        if not self._opened:
            self._begin()
        batch = None
        if not self._over and self._session is not None:
            batch = self._session.next()
        if batch is None:
            self._finish()
            raise StopIteration
        self._taken += 1
        if batch.last:
            self._over = True
            session, self._session = self._session, None
            if session is not None:
                self._feed.park(session)
        out = self._finished(self._shape(batch))
        self.progress.given = self._taken
        return out

    def _finish(self) -> None:
        if not self.progress.exhausted:
            self.progress.exhausted = True
            if self._rest is not None:
                next(self._rest, None)
        self._end()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self) -> None:
        self._closed = True
        self._end()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not sys.is_finalizing():
            self._end()


class WorkerIterator:
    """One epoch through worker processes, which end with it."""

    def __init__(self, feed: Feed, epoch: Epoch, shape: Shaper, options: Options) -> None:
        from belady.torch import workers

        self._feed = feed
        self.progress = Progress(epoch, feed.order)
        reading = feed.reading_of_workers(options.num_workers)
        self._results: Optional[Iterator[tuple[Any, dict[str, Any]]]] = workers.start(
            self._batches, lambda todo: workers.Batches(reading, shape, todo), options,
            resumed=epoch.position > 0,
        )

    def _batches(self) -> Sequence[Ids]:
        """All that is left of this rank's epoch. What is drawn for it is drawn here."""
        order: Order = self._feed.order
        epoch = self.progress.epoch
        if order.kind == "explicit":
            source = None if order.batch_sampler is None else iter(order.batch_sampler)
            rest, batches = order.sampled(source)
            next(rest, None)
            return batches[epoch.position :]
        epoch = self.progress.epoch = order.drawn(epoch)
        ids = order.expected(epoch)
        dealing = order.dealing()
        size = dealing.batch
        end = size * dealing.batches(epoch.position)
        return [ids[at : at + size] for at in range(0, end, size)]

    def __iter__(self) -> WorkerIterator:
        return self

    def __next__(self) -> Any:
        if self._results is None:
            raise LoaderClosed("the loader was closed: make a new one")
        try:
            out, stats = next(self._results)
        except StopIteration:
            self.progress.exhausted = True
            raise
        self._feed.stats.add(stats)
        self.progress.given += 1
        return out

    def close(self) -> None:
        results, self._results = self._results, None
        if results is not None:
            from belady.torch import workers

            workers.stop(results)
