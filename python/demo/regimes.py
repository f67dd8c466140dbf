"""Three regimes, each measured for the stock loader and for Belady over the same samples.

Speeds are those of the fastest epoch on each side, from Belady's second on: its first, which fills
its memory, is one of many in a training.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple

from torch.utils.data import default_collate

import belady
from demo import node, samples, stock

WORKERS = (0, 2, 4)
BATCH = 16
SEED = 7
RATE = 50e6  # of the slow origin, bytes a second
LATENCY_S = 0.015
STAGING = 24 << 20
LEAST_S = 3.0  # so long each configuration is measured, and one epoch at least

Say = Callable[[str], None]


class Speed(NamedTuple):
    """Of the best number of workers."""

    samples_a_second: float
    workers: int
    origin_bytes: int  # an epoch


class Row(NamedTuple):
    regime: str
    stock: Speed
    belady: Speed
    roofline: float  # samples a second


def slow_origin(files: Path, work: Path, say: Say) -> Row:
    """Half of the dataset can be kept; the rest comes at the origin's rate, every epoch.

    Roofline: the bytes that the origin counted, at its rate. That those are few enough, the table
    shows beside it.
    """
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    with node.SlowOrigin(files, RATE, LATENCY_S) as origin:
        with node.serving(work / "slow", size // 2 + STAGING, STAGING):
            dataset = belady.Dataset(origin.s3, samples.OfSample(samples.blob))
            theirs = stock.Remote(origin.http, names(dataset), samples.blob)
            regime, stocks, ours = _compare("slow origin, half kept", theirs, dataset,
                                            origin.bytes, origin.bytes, say)
    return Row(regime, stocks, ours, len(theirs) * RATE / ours.origin_bytes)


def warm_page_cache(files: Path, process: int, say: Say) -> Row:
    """Nothing is slow: the kernel has every file in memory."""
    return _local("local disk, warm page cache", files, samples.blob, process, say)


def decode_bound(files: Path, process: int, say: Say) -> Row:
    """The processors are busy decoding, and no loader makes them faster."""
    return _local("decode-bound JPEG", files, samples.photo, process, say)


def _local(
    regime: str, files: Path, transform: Callable[[Any, int], Any], process: int, say: Say
) -> Row:
    """Roofline: the loop's own work on every core, with nothing to read and nothing to carry."""
    dataset = belady.Dataset(files, samples.OfSample(transform))
    theirs = stock.Files(str(files), names(dataset), transform)
    contents = [theirs.read(i) for i in range(len(theirs))]
    before = _own_work(contents, transform)
    row = _compare(regime, theirs, dataset, lambda: node.from_disk(os.getpid()),
                   lambda: node.from_disk(process), say)
    alone = max(before, _own_work(contents, transform))
    return Row(*row, alone * (os.cpu_count() or 1))


def names(dataset: belady.Dataset) -> list[str]:
    return [dataset.name_of(i) for i in range(len(dataset))]


def _compare(
    regime: str, theirs: stock.Files, dataset: belady.Dataset, stock_count: Callable[[], int],
    belady_count: Callable[[], int], say: Say,
) -> tuple[str, Speed, Speed]:
    """Epochs through both loaders; what the origin gave is counted on the origin's side."""
    best = Speed(0.0, 0, 0)
    for workers in WORKERS:
        say(f"{regime}: stock loader, {workers} workers")
        loader = stock.loader(theirs, BATCH, SEED, workers)
        best = max(best, _timed(loader, workers, stock_count))
    with belady.DataLoader(dataset, BATCH, shuffle=True, seed=SEED) as first:
        say(f"{regime}: Belady, first epoch")
        _epoch(first)
        say(f"{regime}: Belady, 0 workers")
        ours = _timed(first, 0, belady_count)
    for workers in WORKERS[1:]:
        say(f"{regime}: Belady, {workers} workers")
        with belady.DataLoader(dataset, BATCH, shuffle=True, seed=SEED,
                               num_workers=workers) as loader:
            ours = max(ours, _timed(loader, workers, belady_count))
    return regime, best, ours


def _timed(loader: Iterable[Any], workers: int, count: Callable[[], int]) -> Speed:
    """The fastest of some epochs: what else runs on the machine only ever slows one down."""
    best, end = Speed(0.0, 0, 0), time.perf_counter() + LEAST_S
    while time.perf_counter() < end:
        before, began = count(), time.perf_counter()
        read = _epoch(loader)
        seconds = time.perf_counter() - began
        best = max(best, Speed(read / seconds, workers, count() - before))
    return best


def _epoch(loader: Iterable[Any]) -> int:
    return sum(len(ids) for _, ids in loader)


def _own_work(contents: list[bytes], transform: Callable[[Any, int], Any]) -> float:
    """Samples a second of transform and collate alone, in this process."""
    return _timed(_InMemory(contents, transform), 0, lambda: 0).samples_a_second


class _InMemory:
    """Batches of bytes that are in memory already."""

    def __init__(self, contents: list[bytes], transform: Callable[[Any, int], Any]) -> None:
        self._contents = contents
        self._transform = transform

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self._contents), BATCH):
            part = self._contents[start : start + BATCH]
            yield default_collate([self._transform(d, start + i) for i, d in enumerate(part)])
