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
from belady.torch.trial import Files
from belady.trial import serving
from demo import samples, stock
from demo.origin import SlowOrigin

WORKERS = (0, 2, 4)
BATCH = 16
SEED = 7
RATE = 50e6  # of the slow origin, bytes a second
LATENCY_S = 0.015
STAGING = 24 << 20
LEAST_S = 1.5  # so long each configuration is measured, and one epoch at least
TURNS = 2

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
    remark: str


def slow_origin(files: Path, work: Path, say: Say) -> Row:
    """Half of the dataset can be kept; the rest comes at the origin's rate, every epoch.

    Roofline: the bytes that the origin counted, at its rate. That those are few enough, the table
    shows beside it.
    """
    regime = "slow origin, half kept"
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    with SlowOrigin(files, RATE, LATENCY_S) as origin:
        with serving(work / "slow", str(size // 2 + STAGING), str(STAGING)):
            dataset = belady.Dataset(origin.s3, samples.OfSample(samples.blob))
            theirs = stock.Remote(origin.http, names(dataset), samples.blob)
            stocks = _stock(regime, theirs, origin.bytes, say)
            ours = _belady(regime, dataset, origin.bytes, say)
    return Row(regime, stocks, ours, len(theirs) * RATE / ours.origin_bytes,
               "what is not kept is fetched before it is asked for, at the origin's rate")


def warm_page_cache(files: Path, process: int, say: Say) -> Row:
    """Nothing is slow: the kernel has every file in memory."""
    row = _local("local disk, warm page cache", files, samples.blob, process, say)
    return row._replace(remark="no gain for a training that takes in fewer than"
                        f" {row.stock.samples_a_second:,.0f} samples a second")


def decode_bound(files: Path, process: int, say: Say) -> Row:
    """The processors are busy decoding, and no loader makes them faster."""
    row = _local("decode-bound JPEG", files, samples.photo, process, say)
    return row._replace(remark="no loader passes the roofline: decode on a GPU, or on more cores")


def _local(
    regime: str, files: Path, transform: Callable[[Any, int], Any], process: int, say: Say
) -> Row:
    """In turns, because what binds here is the processors, and those have other things to do too.

    Roofline: the loop's own work, with nothing to read and nothing to carry, on as many cores as
    there are, or as workers can use.
    """
    dataset = belady.Dataset(files, samples.OfSample(transform))
    theirs = Files(str(files), names(dataset), transform)
    work = _InMemory([theirs.read(i) for i in range(len(theirs))], transform)
    cores = min(os.cpu_count() or 1, max(WORKERS))
    stocks = ours = alone = Speed(0.0, 0, 0)
    for turn in range(1, TURNS + 1):
        called = f"{regime}, turn {turn} of {TURNS}"
        alone = max(alone, _timed(work, 0, lambda: 0))
        stocks = max(stocks, _stock(called, theirs, lambda: _from_disk(os.getpid()), say))
        ours = max(ours, _belady(called, dataset, lambda: _from_disk(process), say))
    return Row(regime, stocks, ours, alone.samples_a_second * cores, "")


def names(dataset: belady.Dataset) -> list[str]:
    return [dataset.name_of(i) for i in range(len(dataset))]


def _from_disk(process: int) -> int:
    """Bytes that a process and its ended children had the kernel read from a disk."""
    for line in Path(f"/proc/{process}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise OSError(f"/proc/{process}/io has no read_bytes")


def _stock(regime: str, dataset: Files, count: Callable[[], int], say: Say) -> Speed:
    best = Speed(0.0, 0, 0)
    for workers in WORKERS:
        say(f"{regime}: stock loader, {workers} workers")
        loader = stock.loader(dataset, BATCH, SEED, workers)
        best = max(best, _timed(loader, workers, count))
    return best


def _belady(regime: str, dataset: belady.Dataset, count: Callable[[], int], say: Say) -> Speed:
    best = Speed(0.0, 0, 0)
    for workers in WORKERS:
        say(f"{regime}: Belady, {workers} workers")
        with belady.DataLoader(
            dataset, BATCH, shuffle=True, seed=SEED, num_workers=workers,
            persistent_workers=workers > 0,
        ) as loader:
            if workers == 0:
                _epoch(loader)  # fills the daemon's memory
            best = max(best, _timed(loader, workers, count))
    return best


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


class _InMemory:
    """Batches of bytes that are in memory already."""

    def __init__(self, contents: list[bytes], transform: Callable[[Any, int], Any]) -> None:
        self._contents = contents
        self._transform = transform

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self._contents), BATCH):
            part = self._contents[start : start + BATCH]
            yield default_collate([self._transform(d, start + i) for i, d in enumerate(part)])
