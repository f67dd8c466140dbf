"""Three regimes, each measured for the stock loader and for Belady over the same samples.

Belady's first epoch, which fills its memory, is one of many in a training and left out. Where the
origin binds, the epochs after it are timed together, because what is read ahead for one epoch is
read in the time of another. Where the processors bind, speeds are those of the fastest epoch on
each side: what else they have to do only ever slows one down.
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
# What of the memory for kept samples must hold them; the rest is the arena's to lose.
KEPT = 0.98
EPOCHS = 3  # timed together
LEAST_S = 1.5  # so long fast configurations are measured, and one epoch at least
TURNS = 2

Say = Callable[[str], None]
Count = Callable[[], int]


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

    Roofline: the fewest bytes that an epoch has to read with so much memory, at the origin's rate,
    however many were read.
    """
    regime = "slow origin, half kept"
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    memory = size // 2
    least = least_bytes(size, memory)
    with SlowOrigin(files, RATE, LATENCY_S) as origin:
        with serving(work / "slow", str(memory + STAGING), str(STAGING)):
            dataset = belady.Dataset(origin.s3, samples.OfSample(samples.blob))
            theirs = stock.Remote(origin.http, names(dataset), samples.blob)
            stocks = _stock(regime, theirs, origin.bytes, say, _once)
            ours = _belady(regime, dataset, origin.bytes, say, _together)
    return Row(regime, stocks, ours, len(theirs) * RATE / least,
               f"{ours.origin_bytes / least:.3f} × the least bytes that so much memory allows")


def least_bytes(size: int, memory: int) -> float:
    """What an epoch over so many bytes must read, where so much memory keeps samples."""
    return max(0.0, size - KEPT * memory)


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
        alone = max(alone, _fastest(work, 0, lambda: 0))
        stocks = max(stocks, _stock(called, theirs, lambda: _from_disk(os.getpid()), say, _fastest))
        ours = max(ours, _belady(called, dataset, lambda: _from_disk(process), say, _fastest))
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


_Timed = Callable[[Iterable[Any], int, Count], Speed]


def _stock(regime: str, dataset: Files, count: Count, say: Say, timed: _Timed) -> Speed:
    best = Speed(0.0, 0, 0)
    for workers in WORKERS:
        say(f"{regime}: stock loader, {workers} workers")
        loader = stock.loader(dataset, BATCH, SEED, workers)
        best = max(best, timed(loader, workers, count))
    return best


def _belady(
    regime: str, dataset: belady.Dataset, count: Count, say: Say, timed: _Timed
) -> Speed:
    best = Speed(0.0, 0, 0)
    for workers in WORKERS:
        say(f"{regime}: Belady, {workers} workers")
        with belady.DataLoader(
            dataset, BATCH, shuffle=True, seed=SEED, num_workers=workers,
            persistent_workers=workers > 0,
        ) as loader:
            if workers == 0:
                _epoch(loader)  # fills the daemon's memory
            best = max(best, timed(loader, workers, count))
    return best


def _together(loader: Iterable[Any], workers: int, count: Count, epochs: int = EPOCHS) -> Speed:
    before, began = count(), time.perf_counter()
    read = sum(_epoch(loader) for _ in range(epochs))
    seconds = time.perf_counter() - began
    return Speed(read / seconds, workers, (count() - before) // epochs)


def _once(loader: Iterable[Any], workers: int, count: Count) -> Speed:
    return _together(loader, workers, count, 1)


def _fastest(loader: Iterable[Any], workers: int, count: Count) -> Speed:
    best, end = Speed(0.0, 0, 0), time.perf_counter() + LEAST_S
    while time.perf_counter() < end:
        best = max(best, _once(loader, workers, count))
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
