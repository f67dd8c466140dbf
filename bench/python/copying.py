"""Copy every sample of a dataset that is wholly in memory: Belady, PyTorch, and bare memory.

    copying.py FOLDER SAMPLES SIZE BATCH ROUNDS list|stack

Writes the files first if they are not there, reads them through a daemon that the environment names
and that has room for all of them, and prints one JSON object. Whatever the loader, every sample is
copied into one buffer of a batch, which is reused. The first batch of an epoch starts the clock:
starting workers is not counted.

One sample in a hundred, drawn at random, is put aside out of that buffer and compared with its file
at the epoch's end. The clock stands still for both, because bare memory does neither: it is a copy
more, and into fresh memory it took a twelfth of an epoch. Where it goes is memory that was touched
before, so that the daemon is given some microseconds for nothing and no more.

Epochs take some 50 ms and what else runs on the machine meets some of them, so Belady and bare
memory are compared round by round: ours, bare, bare, ours. A drift meets both alike, and the ratio
is the median of the rounds', not that of two medians.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Union

import torch
from torch.utils.data import DataLoader, DistributedSampler

import belady

SEED = 3
STOCK_WORKERS = (0, 1, 2, 4)
STOCK_EPOCHS = 2
STOCK_SECONDS = 3.0  # the slowest configurations are not read to the end
WARM_EPOCHS = 2


class Read(NamedTuple):
    """What one epoch took, from its first batch on."""

    seconds: float
    samples: int

    @property
    def each(self) -> float:
        """Seconds a sample."""
        return self.seconds / self.samples


class Files(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """What a stock loader reads: a file a sample, from the page cache."""

    def __init__(self, paths: list[str], tensors: bool) -> None:
        self.paths = paths
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Union[bytes, torch.Tensor]:
        with open(self.paths[i], "rb", buffering=0) as file:
            data = file.read()
        return torch.frombuffer(data, dtype=torch.uint8) if self.tensors else data


class Bench:
    def __init__(self, folder: Path, samples: int, size: int, batch: int) -> None:
        self.folder, self.samples, self.size, self.batch = folder, samples, size, batch
        self.paths = _files(folder, samples, size)
        self.sampler: Any = DistributedSampler(range(samples), 1, 0, seed=SEED)
        self.target = torch.empty(batch, size, dtype=torch.uint8)
        self.view = memoryview(self.target.numpy()).cast("B")
        self.draw = random.Random(SEED)
        self.aside = bytearray(max(1, samples // 100) * size)
        self.checked = 0

    # -- ways to put a batch into the buffer

    def put_list(self, batch: list[Any]) -> int:
        at, view = 0, self.view
        for data in batch:
            end = at + len(data)
            view[at:end] = data
            at = end
        return len(batch)

    def put_samples(self, batch: list[belady.Sample]) -> int:
        at, view = 0, self.view
        for sample in batch:
            data = sample.data
            end = at + len(data)
            view[at:end] = data
            at = end
        return len(batch)

    def put_tensor(self, batch: torch.Tensor) -> int:
        n = len(batch)
        self.target[:n].copy_(batch)
        return n

    def put_stacked(self, batch: tuple[torch.Tensor, torch.Tensor]) -> int:
        return self.put_tensor(batch[0])

    # -- an epoch

    def order(self, epoch: int) -> list[int]:
        self.sampler.set_epoch(epoch)
        return list(self.sampler)

    def read(
        self, batches: Iterable[Any], put: Callable[[Any], int], epoch: int,
        limit_s: float = float("inf"),
    ) -> Read:
        """Copy an epoch's batches, then compare what was put aside."""
        order, size, aside = self.order(epoch), self.size, self.aside
        drawn = sorted(self.draw.sample(range(self.samples), len(aside) // size))
        at = first = kept = 0
        begun = seconds = 0.0
        for batch in batches:
            end = at + put(batch)
            if first:
                seconds += time.perf_counter() - begun
            else:
                first = end
            while kept < len(drawn) and drawn[kept] < end:
                row = (drawn[kept] - at) * size
                aside[kept * size : (kept + 1) * size] = self.view[row : row + size]
                kept += 1
            at = end
            if seconds > limit_s:
                break
            begun = time.perf_counter()
        for i, position in enumerate(drawn[:kept]):
            file = Path(self.paths[order[position]])
            if aside[i * size : (i + 1) * size] != file.read_bytes():
                sys.exit(f"copying: what came at position {position} of epoch {epoch} is not"
                         f" sample {order[position]}: the figures are void")
        self.checked += kept
        return Read(seconds, at - first)

    # -- the three sides

    def stock(self, workers: int, collate: str) -> float:
        """The best epoch of a configuration, in samples a second."""
        tensors = collate == "default"
        loader: Any = DataLoader(
            Files(self.paths, tensors), self.batch, sampler=self.sampler, num_workers=workers,
            collate_fn=None if tensors else list,
        )
        put = self.put_tensor if tensors else self.put_list
        best = 0.0
        for epoch in range(STOCK_EPOCHS):
            self.sampler.set_epoch(epoch)
            read = self.read(loader, put, epoch, STOCK_SECONDS)
            best = max(best, read.samples / read.seconds)
        return best

    def bare(self, whole: memoryview, epoch: int) -> Read:
        """Sample by sample, as a loop over views copies them, from as much shared memory."""
        order, size, batch, view = self.order(epoch), self.size, self.batch, self.view
        begun = time.perf_counter()
        for position, i in enumerate(order):
            at = position % batch * size
            view[at : at + size] = whole[i * size : (i + 1) * size]
        return Read(time.perf_counter() - begun, len(order))

    def gather(self, whole: torch.Tensor, epoch: int) -> Read:
        """Batch by batch, the fastest there is in PyTorch."""
        order = torch.tensor(self.order(epoch))
        begun = time.perf_counter()
        for at in range(0, self.samples, self.batch):
            ids = order[at : at + self.batch]
            torch.index_select(whole, 0, ids, out=self.target[: len(ids)])
        return Read(time.perf_counter() - begun, self.samples)


def _files(folder: Path, samples: int, size: int) -> list[str]:
    folder = folder / "class"
    if not folder.exists():
        folder.mkdir(parents=True)
        draw = random.Random(SEED)
        for i in range(samples):
            (folder / f"{i:07}").write_bytes(draw.randbytes(size))
    return [str(folder / f"{i:07}") for i in range(samples)]


def _memory(paths: list[str], size: int) -> mmap.mmap:
    """All files in memory that is shared, as the daemon's is."""
    fd = os.memfd_create("bare")
    os.ftruncate(fd, size * len(paths))
    whole = mmap.mmap(fd, size * len(paths))
    os.close(fd)
    for path in paths:
        whole.write(Path(path).read_bytes())
    return whole


def _rate(reads: list[Read]) -> float:
    """Of the median epoch: what else runs on the machine meets some and not others."""
    return 1 / statistics.median(r.each for r in reads)


def _epochs(loader: belady.DataLoader) -> Iterator[int]:
    """Epoch after epoch, the first ones untimed: they fill the daemon's memory."""
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield epoch
        epoch += 1


def run(b: Bench, rounds: int, form: str) -> dict[str, Any]:
    stacked = form == "stack"
    put: Callable[[Any], int] = b.put_stacked if stacked else b.put_samples
    shared = _memory(b.paths, b.size)
    whole = torch.frombuffer(shared, dtype=torch.uint8).view(b.samples, b.size)

    def limit(epoch: int) -> Read:
        return b.gather(whole, epoch) if stacked else b.bare(memoryview(shared), epoch)

    loader = belady.DataLoader(
        b.folder, b.batch, shuffle=True, seed=SEED, collate_fn="stack" if stacked else list
    )
    ours: list[Read] = []
    bare: list[Read] = []
    ratios: list[float] = []
    epochs = _epochs(loader)
    for _ in range(WARM_EPOCHS):
        b.read(loader, put, next(epochs))
        limit(0)
    for _ in range(rounds):
        epoch = next(epochs)
        before = b.read(loader, put, epoch)
        pair = limit(epoch), limit(epoch)
        after = b.read(loader, put, next(epochs))
        ours += before, after
        bare += pair
        ratios.append((pair[0].each + pair[1].each) / (before.each + after.each))
    cpu, begun, untouched = time.process_time(), time.perf_counter(), 0
    for _ in range(rounds):
        next(epochs)
        for _batch in loader:
            untouched += 1
    cpu, took = time.process_time() - cpu, time.perf_counter() - begun
    loader.close()
    out = {
        "belady": _rate(ours), "bare": _rate(bare), "ratio": statistics.median(ratios),
        "handout": rounds * b.samples / took, "handout_cpu_us": cpu / rounds / b.samples * 1e6,
        "stock": {
            f"{workers} workers, {collate}": b.stock(workers, collate)
            for workers in STOCK_WORKERS for collate in ("default", "list")
        },
    }
    return {**out, "checked": b.checked}


def main() -> None:
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    torch.set_num_threads(1)
    folder, samples, size, batch, rounds, form = sys.argv[1:]
    b = Bench(Path(folder), int(samples), int(size), int(batch))
    print(json.dumps(run(b, int(rounds), form)))


if __name__ == "__main__":
    main()
