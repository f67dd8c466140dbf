"""Worker threads: one reads, k transform and collate, the loop takes what is ready.

Threads share one interpreter and one set of random generators. They pay where transforms leave the
interpreter (decoding, resizing, NumPy, PyTorch) or wait; nothing is copied between processes. What
a transform draws from global generators depends on timing: draw from one made for the sample.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, Deque, NamedTuple, Optional

from belady.delivery import Delivery
from belady.epochs import Epoch, Progress
from belady.errors import LoaderClosed, SampleError, WaitTimeout
from belady.feed import Feed
from belady.sampling import Drawn, draw
from belady.session import SAY_AFTER_S, Batch
from belady.shape import Shaper

_JOIN_S = 1.0
# How long the reading thread may take to see that it is stopped.
_LOOK_S = 0.2


class Options(NamedTuple):
    """How many threads, how far ahead of the loop, and in which order."""

    threads: int
    # Batches that are read before the loop has taken the first of them.
    window: int
    in_order: bool
    timeout_s: float
    init: Optional[Callable[[int], None]]


class Threads:
    """The threads of one loader, for one epoch or, if they persist, for all."""

    def __init__(self, options: Options) -> None:
        self.options = options
        # No epoch was begun with them yet.
        self.fresh = True
        self._failed: Optional[BaseException] = None
        self._ids = count()
        self._executor = ThreadPoolExecutor(options.threads, "belady", self._begin)

    def _begin(self) -> None:
        if self.options.init is not None:
            try:
                self.options.init(next(self._ids))
            except BaseException as e:
                self._failed = e

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        return self._executor.submit(self._run, work)

    def _run(self, work: Callable[[], Any]) -> Any:
        if self._failed is not None:
            raise self._failed
        return work()

    def close(self, drop: bool = True) -> None:
        """Take no more. What has begun runs to its end; what has not is dropped, or runs too."""
        self._executor.shutdown(wait=False, cancel_futures=drop)


class _Flow:
    """What the reading thread and the iterator share. No thread holds the iterator: when the loop
    lets go of it, its finalizer stops them."""

    def __init__(
        self, delivery: Delivery, work: Callable[[Batch], Any], threads: Threads, persist: bool
    ) -> None:
        options = threads.options
        self._delivery = delivery
        self._work = work
        self._threads = threads
        self._persist = persist
        self._window = options.window
        self._in_order = options.in_order
        self._stopped = False
        # Guards what follows.
        self._changed = threading.Condition(threading.Lock())
        self._batches: Deque[tuple[int, Future[Any]]] = deque()
        self._ended = False
        # Why nothing comes any more, if it is not the epoch's end: whoever asks is told, each time.
        self._fatal: Optional[BaseException] = None

    # -- the reading thread

    def read(self) -> None:
        delivery = self._delivery
        try:
            while self._has_room():
                number = delivery.number
                try:
                    batch = delivery.next()
                except SampleError as e:
                    self._put(number, _failed(e))
                    continue
                except BaseException as e:
                    self._fatal = e
                    return
                if batch is None:
                    return
                self._put(number, self._submit(batch))
                del batch
        finally:
            if not self._persist:
                self._threads.close(drop=self._stopped)
            if self._stopped:
                with self._changed:
                    self._batches.clear()  # their leases, which closing would wait for
            delivery.close()
            with self._changed:
                self._ended = True
                if self._stopped:
                    self._batches.clear()
                self._changed.notify_all()

    def _has_room(self) -> bool:
        with self._changed:
            while not self._stopped and len(self._batches) >= self._window:
                self._changed.wait(_LOOK_S)
            return not self._stopped

    def _submit(self, batch: Batch) -> Future[Any]:
        held = [batch]  # emptied by whoever runs it, so that the lease ends with the work
        del batch
        try:
            future = self._threads.submit(lambda: self._run(held))
        except RuntimeError as e:  # closed meanwhile
            return _failed(e)
        future.add_done_callback(self._notify)
        return future

    def _run(self, held: list[Batch]) -> Any:
        if self._stopped:
            held.clear()
            raise LoaderClosed()
        return self._work(held.pop())

    def _put(self, number: int, future: Future[Any]) -> None:
        with self._changed:
            self._batches.append((number, future))
            self._changed.notify_all()

    def _notify(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- the loop's thread

    def take(self, seconds: float) -> Optional[tuple[int, Future[Any]]]:
        """A batch that is done, if there is one within some seconds. StopIteration at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._over() or self._ready() is not None, seconds)
            at = self._ready()
            if at is not None:
                taken = self._batches[at]
                del self._batches[at]
                self._changed.notify_all()
                return taken
            if self._over():
                raise self._fatal or StopIteration()
            return None

    def _ready(self) -> Optional[int]:
        if self._in_order:
            return 0 if self._batches and self._batches[0][1].done() else None
        return next((i for i, (_, f) in enumerate(self._batches) if f.done()), None)

    def _over(self) -> bool:
        return self._ended and not self._batches

    def waits_for(self) -> str:
        """What keeps the loop waiting."""
        if self._batches:
            return "to be transformed"
        return "to be read; `belady status` shows what the daemon does"

    def stop(self) -> None:
        """End the threads soon. From finalizers too, which may come while this very thread has the
        lock, so it waits for nothing: where the lock is taken the reading thread looks itself."""
        self._stopped = True
        self._delivery.cancel()
        if self._ended:
            self._batches.clear()  # their leases; otherwise the reading thread does it
        elif self._changed.acquire(False):
            self._changed.notify_all()
            self._changed.release()


class ThreadIterator:
    """One epoch, transformed and collated in threads of the loop's process."""

    def __init__(
        self, feed: Feed, epoch: Epoch, shape: Shaper, finish: Callable[[Any], Any],
        threads: Threads, persist: bool,
    ) -> None:
        order = feed.order
        self._feed = feed
        self._shape = shape
        self._work = lambda batch: finish(shape(batch))
        self._threads = threads
        self._persist = persist
        self._timeout_s = threads.options.timeout_s
        self._pid = os.getpid()
        self._turn = threading.RLock()
        self._received = 0
        self._closed = False
        self.progress = Progress(epoch, order)
        epoch = order.restored(epoch)
        # As with worker processes, all that the stock loader draws is drawn when an epoch begins,
        # and base_seed for the first only if they persist.
        if threads.fresh and epoch.position == 0:
            order.index_iterator()
            order.draw_base_seed(epoch)
        threads.fresh = False
        self._start(draw(order, epoch, order.index_iterator()))
        if feed.arena is not None:
            feed.arena.begin()
            weakref.finalize(self, feed.arena.end).atexit = False

    def _start(self, drawn: Drawn) -> None:
        self.progress.epoch = drawn.epoch
        delivery = Delivery(self._feed, drawn)
        delivery.run_out()
        self._flow = _Flow(delivery, self._work, self._threads, self._persist)
        self._reader = threading.Thread(
            target=self._flow.read, name="belady-reading", daemon=True
        )
        self._reader.start()
        self._stop = weakref.finalize(self, self._flow.stop)

    def move(self, number: int) -> None:
        """Read another epoch in place of this one, of which nothing was returned yet."""
        if not self._feed.order.foreseen or self._closed:
            self.progress.renumber(number)
            return
        self._stop()
        self._reader.join(_JOIN_S)
        if not self._persist:
            self._threads = Threads(self._threads.options)
        self._feed.begin_anew()
        self.progress.asked = Epoch(number)
        self._start(draw(self._feed.order, self.progress.asked, None))

    def __iter__(self) -> ThreadIterator:
        return self

    def __next__(self) -> Any:
        with self._turn:
            if self._closed or self._pid != os.getpid():
                raise LoaderClosed()
            if self._feed.arena is not None:
                self._feed.arena.step()
            try:
                number, future = self._wait()
            except StopIteration:
                self.progress.exhausted = True
                raise
            self._received += 1
            if self._shape.replacing is not None:
                self._feed.count(self._shape.replacing.told())
            error = future.exception()
            if error is not None:
                self.progress.raised(number)
                raise error
            self.progress.returned(number)
            return future.result()

    def _wait(self) -> tuple[int, Future[Any]]:
        began = time.monotonic()
        said = False
        while True:
            waited = time.monotonic() - began
            what = f"batch {self._received} of epoch {self.progress.epoch.number}"
            if self._timeout_s and waited >= self._timeout_s:
                raise WaitTimeout(f"{what} did not come within {self._timeout_s:g} s")
            if waited >= SAY_AFTER_S and not said:
                said = True
                warnings.warn(
                    f"waiting for {what} for {waited:.0f} s {self._flow.waits_for()}", stacklevel=3
                )
            left = self._timeout_s - waited if self._timeout_s else SAY_AFTER_S
            taken = self._flow.take(min(left, SAY_AFTER_S))
            if taken is not None:
                return taken

    def close(self) -> None:
        """Threads that transform end when their transform does."""
        self._closed = True
        self._flow.stop()
        if self._pid == os.getpid():
            self._reader.join(_JOIN_S)


def _failed(error: BaseException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
