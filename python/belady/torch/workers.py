"""Worker processes: PyTorch's own, each reading its share of a rank's batches from the daemon.

PyTorch deals batch i to worker i mod k, seeds worker w with base_seed + w, and carries results over
in order. All of that stays PyTorch's: the stock loader runs over a dataset whose items are whole
batches, transformed and collated. With its first task of an epoch a worker is told its share of it
and opens a session for that, so the daemon knows it ahead.

With in_order=False PyTorch gives a task to whichever worker is free, so there are no shares:
workers read each batch when asked, and a session of the loop's process has the daemon read ahead.

A loop that is left must not wait for what its workers wait for: the loop's process and its workers
share a number, that of the last run that nobody wants any more, and workers look at it while they
wait.
"""

from __future__ import annotations

import ctypes
import inspect
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from multiprocessing.sharedctypes import RawValue
from typing import Any, NamedTuple, Optional

import torch
import torch.utils.data
from torch._utils import ExceptionWrapper

from belady import wire
from belady.computed import Source
from belady.dataset import Dataset
from belady.decode import Meter
from belady.epochs import Ids
from belady.errors import BadRequest, BeladyError, LoaderClosed, OrderDrift, WaitTimeout
from belady.ondemand import OnDemand
from belady.options import PREFETCH_FACTOR
from belady.reading import GivenUp, Reading, given_up
from belady.replacing import LASTING, Swap
from belady.sampling import Plan
from belady.session import SAY_AFTER_S, Batch, Stats
from belady.shape import Shaper
from belady.source import begin
from belady.torch import draw_seed


class Options(NamedTuple):
    """What the stock loader is given as the user gave it."""

    num_workers: int
    pin_memory: bool
    pin_memory_device: str
    timeout: float
    worker_init_fn: Optional[Callable[[int], None]]
    multiprocessing_context: Any
    generator: Any
    prefetch_factor: Optional[int]
    persistent_workers: bool
    in_order: bool


class Task(NamedTuple):
    """One batch for a worker; with its first of an epoch all those that it will be asked for."""

    # Counts the times that these workers began an epoch.
    run: int
    epoch: int
    number: int
    ids: Ids
    share: Optional[Sequence[Ids]]
    # Which of the epoch's batches the share is, if that can be told.
    part: Optional[dict[str, Any]]
    # How often the loop's process has begun to read the order.
    begins: int


class Outcome(NamedTuple):
    """What came of a task."""

    number: int
    value: Any
    error: Optional[ExceptionWrapper]
    stats: dict[str, Any]
    swaps: list[Swap]
    # What reading warned of; the loop's process says it.
    said: list[tuple[type[Warning], str]]
    # That a daemon could not be had, for later workers to know.
    given_up: Optional[GivenUp]


class Batches(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """The worker's side. A task's item is its outcome; None in place of a task ends the session,
    and so does a task of a run that was left."""

    def __init__(self, reading: Reading, shape: Shaper, in_order: bool, left: Any) -> None:
        self._reading = reading
        self._shape = shape
        self._in_order = in_order
        self._left = left
        self._run = 0
        self._session: Optional[Source] = None
        self._reader: Optional[OnDemand] = None

    @property
    def dataset(self) -> Dataset:
        """The user's."""
        return self._shape.dataset

    def __getitem__(self, task: Optional[Task]) -> Optional[Outcome]:
        if task is None or task.run <= self._left.value:
            self._end()
            return None
        self._run = task.run
        stats = Stats()
        value, error = None, None
        decoding = Meter()
        said: list[tuple[type[Warning], str]] = []
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                batch = self._read(task, stats)
            said = [(w.category, str(w.message)) for w in caught]
            value = self._shape(batch)
        except Exception:
            info: Any = torch.utils.data.get_worker_info()
            error = ExceptionWrapper(where=f"in worker process {info.id}")
        stats.decode_s = decoding.seconds(self._shape.dataset.content)
        replacing = self._shape.replacing
        swaps = [] if replacing is None else replacing.told()
        known = given_up(self._reading.place.socket)
        return Outcome(task.number, value, error, asdict(stats), swaps, said, known)

    def _unwanted(self) -> bool:
        return bool(self._run <= self._left.value)

    def _read(self, task: Task, stats: Stats) -> Batch:
        try:
            return self._read_in_turn(task, stats) if self._in_order else self._ask(task, stats)
        except LASTING:
            if self._shape.replacing is None:
                raise
            empty = Batch(task.epoch, task.number, False, (), (), [], None)
            return self._shape.replacing.batch(list(task.ids), empty)

    def _read_in_turn(self, task: Task, stats: Stats) -> Batch:
        if task.share is not None:
            self._end()
            reading = replace(
                self._reading, share=task.part, begins=task.begins, unwanted=self._unwanted
            )
            self._session = begin(reading, wire.Start(0, 0, 0), stats, task.share)
        if self._session is None:
            raise BeladyError(f"batch {task.number} was asked for before its epoch was begun")
        self._session.count_in(stats)
        batch = self._session.next()
        if batch is None:
            raise BeladyError(f"the daemon ended before batch {task.number}")
        if batch.last:
            self._end()
        return batch

    def _ask(self, task: Task, stats: Stats) -> Batch:
        if self._reader is None:
            self._reader = OnDemand(replace(self._reading, unwanted=self._unwanted))
        batch = self._reader.read(task.ids)
        if list(batch.ids) != list(task.ids):
            raise OrderDrift(
                f"batch {task.number} of epoch {task.epoch} was asked for by its ids and others"
                " came: report it, with `belady version`"
            )
        stats.batches, stats.samples, stats.bytes = 1, len(batch.ids), sum(batch.lengths)
        stats.direct_batches = int(self._reader.direct)
        return batch

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if self._reader is not None:
            self._reader.close()


class _Init:
    """A worker's beginning: `get_worker_info().dataset` is the user's, as it is with the stock
    loader, for the user's function to change."""

    def __init__(self, function: Optional[Callable[[int], None]]) -> None:
        self._function = function

    def __call__(self, worker: int) -> None:
        info: Any = torch.utils.data.get_worker_info()
        vars(info)["dataset"] = info.dataset.dataset
        if self._function is not None:
            self._function(worker)


class _Tasks:
    """The stock loader's sampler: the tasks of the epoch that is being begun."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.run = 0
        self.epoch = 0
        self.begins = 0
        self.plan = Plan((), None, tuple)

    def __len__(self) -> int:
        return len(self.plan.batches)

    def __iter__(self) -> Iterator[Task]:
        k, epoch, (batches, whole, more) = self._workers, self.epoch, self.plan
        number, run, begins = 0, self.run, self.begins
        while batches:
            for i, ids in enumerate(batches):
                share = batches[i::k] if i < k else None
                part = None
                if share is not None and whole is not None:
                    part = {**whole, "first": i, "step": k}
                yield Task(run, epoch, number + i, ids, share, part, begins)
            number += len(batches)
            batches = more()


def _same(item: Any) -> Any:
    return item


class Pool:
    """The processes of one loader, for one epoch or, if they persist, for all."""

    def __init__(self, reading: Reading, shape: Shaper, options: Options) -> None:
        k = options.num_workers
        self.workers = k
        self.in_order = options.in_order
        # Batches that are asked for before the first of them is taken.
        self.in_flight = k * (options.prefetch_factor or PREFETCH_FACTOR)
        self._options = options
        self._generator: Any = options.generator or torch.default_generator
        # Where that stands before base_seed is drawn.
        self._unseeded: Any = None
        self._tasks = _Tasks(k)
        self._latest: Optional[Results] = None
        self._left = RawValue(ctypes.c_uint64, 0)
        extra: dict[str, Any] = {}
        if options.prefetch_factor is not None:
            extra["prefetch_factor"] = options.prefetch_factor
        if options.pin_memory_device:
            extra["pin_memory_device"] = options.pin_memory_device
        if not options.in_order:
            extra["in_order"] = False
        self._stock: Any = torch.utils.data.DataLoader(
            Batches(reading, shape, options.in_order, self._left), batch_size=None,
            sampler=self._tasks, collate_fn=_same, num_workers=k, pin_memory=options.pin_memory,
            worker_init_fn=_Init(options.worker_init_fn), generator=options.generator,
            multiprocessing_context=options.multiprocessing_context,
            persistent_workers=options.persistent_workers, **extra,
        )

    @property
    def fresh(self) -> bool:
        """No epoch was begun with them yet."""
        return self._latest is None

    def begin(
        self, epoch: int, begins: int, plan: Callable[[], Plan], resumed: bool
    ) -> Results:
        """Begin an epoch with all draws as the stock loader makes them: base_seed, then the
        sampler's. Persistent workers were seeded when they began, so base_seed is drawn once; a
        resumed epoch drew it before its checkpoint.

        The order must be known when the stock loader begins, before it has drawn base_seed. So both
        are drawn, and the generator is set back for the stock loader to draw base_seed again.
        """
        if self.fresh:
            self._unseeded = self._generator.get_state()
            if not resumed:
                draw_seed(self._generator)
        return self._start(epoch, begins, plan)

    def begin_instead(self, epoch: int, begins: int, plan: Callable[[], Plan]) -> Results:
        """Begin an epoch in place of the latest, of which nothing was read: its workers' seeds are
        the new one's."""
        if self._latest is not None:
            self._latest.leave()
        return self._start(epoch, begins, plan)

    def _start(self, epoch: int, begins: int, plan: Callable[[], Plan]) -> Results:
        if self._latest is not None:
            self._latest.supersede()
        self._tasks.epoch, self._tasks.begins = epoch, begins
        self._tasks.run += 1
        self._tasks.plan = plan()
        drawn = self._generator.get_state()
        self._generator.set_state(self._unseeded)
        try:
            self._latest = Results(
                iter(self._stock), self._options, self._tasks.run, self._left
            )
        finally:
            self._generator.set_state(drawn)
        return self._latest

    def close(self) -> None:
        if self._latest is not None:
            self._latest.close()


class Results:
    """What the workers made of one epoch's tasks."""

    def __init__(self, stock: Any, options: Options, run: int, left: Any) -> None:
        self._stock = stock
        self._run = run
        self._left = left
        self._workers = options.num_workers
        self._persist = options.persistent_workers
        self._timeout_s = options.timeout
        self._exhausted = False
        self._received = 0
        self._superseded = False

    def next(self) -> Outcome:
        if self._superseded:
            raise LoaderClosed(
                "persistent workers serve one iterator at a time, and a newer one has them: go on"
                " with that one, or leave persistent_workers False"
            )
        began = time.monotonic()
        said = False
        what = f"batch {self._received} of this epoch from {self._workers} workers"
        while True:
            waited = time.monotonic() - began
            if self._timeout_s and waited >= self._timeout_s:
                raise WaitTimeout(f"{what} did not come within {self._timeout_s:g} s")
            if waited >= SAY_AFTER_S and not said:
                said = True
                warnings.warn(
                    f"waiting for {what} for {waited:.0f} s: they still read it, which `belady"
                    " status` shows, or transform it",
                    stacklevel=4,
                )
            left = self._timeout_s - waited if self._timeout_s else SAY_AFTER_S
            outcome = self._wait(min(left, SAY_AFTER_S))
            if outcome is not None:
                self._received += 1
                return outcome

    def _wait(self, seconds: float) -> Optional[Outcome]:
        """The next outcome, if it comes within some seconds."""
        stock = self._stock
        stock._timeout = seconds
        try:
            outcome: Outcome = next(stock)
            return outcome
        except StopIteration:
            self._exhausted = True
            raise
        except RuntimeError as e:
            pinning = getattr(stock, "_pin_memory_thread", None)
            if not str(e).startswith("DataLoader timed out") or (
                pinning is not None and not pinning.is_alive()
            ):
                raise
            return None
        finally:
            stock._timeout = 0  # beginning another epoch waits for what is under way

    def supersede(self) -> None:
        """Another epoch is begun with the same processes."""
        self._superseded = True
        self._left.value = self._run

    def leave(self) -> None:
        """The loop was left. Persistent workers stay, but give back what was sent ahead to them."""
        if not self._persist:
            self.close()
        elif not self._exhausted and not self._superseded:
            self._left.value = self._run
            for queue in self._stock._index_queues:
                queue.put((-1, None))  # the next epoch's beginning drops the answer

    def close(self) -> None:
        """End the workers now, even where an exception's frames still hold their iterator."""
        self._left.value = max(self._left.value, self._run)
        self._stock._shutdown_workers()


def refuse_order() -> None:
    """Processes that yield whatever is done first are PyTorch's, where it has them."""
    if "in_order" not in inspect.signature(torch.utils.data.DataLoader).parameters:
        raise BadRequest(
            "in_order=False with worker processes needs PyTorch 2.6 or newer, and this is"
            f" {torch.__version__}: leave it True, or use worker_type='thread'"
        )
