"""Worker processes: PyTorch's own, each reading its share of a rank's batches from the daemon.

PyTorch deals batch i to worker i mod k, seeds worker w with base_seed + w, and carries results over
in order. All of that stays PyTorch's: the stock loader runs over a dataset whose item i is the
whole i-th batch, transformed and collated. Each worker opens a session of its own for the batches
it will be asked for, so the daemon knows them ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Optional

import torch
import torch.utils.data

from belady import wire
from belady.computed import Source
from belady.decode import Meter
from belady.errors import BeladyError
from belady.reading import Reading
from belady.session import Stats
from belady.shape import Shaper
from belady.source import begin


class Options(NamedTuple):
    """What the stock loader is given as the user gave it."""

    num_workers: int
    pin_memory: bool
    timeout: float
    worker_init_fn: Optional[Callable[[int], None]]
    multiprocessing_context: Any
    generator: Any
    prefetch_factor: Optional[int]


class Batches(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """Item i is batch i. In a worker only: it reads i, i + k, i + 2k and so on."""

    def __init__(self, reading: Reading, shape: Shaper, batches: Sequence[Sequence[int]]) -> None:
        self._reading = reading
        self._shape = shape
        self._batches = batches
        self._session: Optional[Source] = None
        self._due = 0
        self._step = 1

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, i: int) -> tuple[Any, dict[str, Any]]:
        stats = Stats()
        if self._session is None:
            info: Any = torch.utils.data.get_worker_info()
            self._due, self._step = i, info.num_workers if info else 1
            mine = self._batches[i :: self._step]
            self._session = begin(self._reading, wire.Start(0, 0, 0), stats, mine)
        if i != self._due:
            raise BeladyError(f"a worker was asked for batch {i} and {self._due} is due")
        self._due += self._step
        self._session.count_in(stats)
        batch = self._session.next()
        if batch is None:
            raise BeladyError(f"the daemon ended before batch {i}")
        decoding = Meter()
        item = self._shape(batch)
        stats.decode_s = decoding.seconds(self._shape.dataset.content)
        return item, asdict(stats)


def _same(item: Any) -> Any:
    return item


def start(
    batches: Callable[[], Sequence[Sequence[int]]],
    dataset: Callable[[Sequence[Sequence[int]]], Batches],
    options: Options,
    resumed: bool,
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Begin an epoch with all draws as the stock loader makes them: base_seed, then the sampler's.

    The workers must know the order when they start, before the stock loader has drawn it. So both
    are drawn, the generator is set back for the stock loader to draw base_seed again, and then left
    where it would be. A resumed epoch drew before its checkpoint and leaves the generator alone.
    """
    generator = options.generator or torch.default_generator
    before = generator.get_state()
    if not resumed:
        torch.empty((), dtype=torch.int64).random_(generator=generator)
    todo = batches()
    after = before if resumed else generator.get_state()
    generator.set_state(before)
    extra: dict[str, Any] = {}
    if options.prefetch_factor is not None:
        extra["prefetch_factor"] = options.prefetch_factor
    stock: Any = torch.utils.data.DataLoader(
        dataset(todo), batch_size=None, sampler=range(len(todo)), collate_fn=_same,
        num_workers=options.num_workers, pin_memory=options.pin_memory, timeout=options.timeout,
        worker_init_fn=options.worker_init_fn, generator=options.generator,
        multiprocessing_context=options.multiprocessing_context, **extra,
    )
    iterator: Iterator[tuple[Any, dict[str, Any]]] = iter(stock)
    generator.set_state(after)
    return iterator


def stop(results: Iterator[Any]) -> None:
    """End the workers now, even where an exception's frames still hold their iterator."""
    shut_down = getattr(results, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()
