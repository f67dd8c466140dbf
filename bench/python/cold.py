"""Read files that are not in the page cache through PyTorch's own DataLoader.

    cold.py FOLDER SAMPLES SIZE BATCH SECONDS

Writes the files first if they are not there, and prints samples a second for each number of workers
as one JSON object. Before each the kernel is told to forget the files' bytes; their names and sizes
it may keep, which is to the loader's advantage. Every sample is copied into one buffer of a batch;
the first batch of each worker starts the clock, and each reads for so many seconds at most.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from copying import SEED, Files
from torch.utils.data import DataLoader

WORKERS = (1, 2, 4, 8)


def write(folder: Path, samples: int, size: int) -> list[str]:
    """Files of random bytes, a thousand to a folder."""
    draw = random.Random(SEED)
    paths = []
    for i in range(samples):
        path = folder / f"{i // 1000:05}" / f"{i:08}"
        if i % 1000 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(draw.randbytes(size))
        paths.append(str(path))
    os.sync()  # bytes that are not on the disk yet cannot be forgotten
    return paths


def forget(paths: list[str]) -> None:
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read(paths: list[str], size: int, batch: int, workers: int, limit_s: float) -> float:
    """Samples a second of one epoch, or of the part of it that fits the time."""
    forget(paths)
    target = memoryview(torch.empty(batch, size, dtype=torch.uint8).numpy()).cast("B")
    generator = torch.Generator().manual_seed(SEED + workers)
    loader: Any = DataLoader(
        Files(paths, tensors=False), batch, shuffle=True, generator=generator,
        num_workers=workers, collate_fn=list,
    )
    begun, first, samples = 0.0, workers, 0
    for data in loader:
        at = 0
        for one in data:
            target[at : at + size] = one
            at += size
        if first:
            first -= 1
            begun = time.perf_counter()
            continue
        samples += len(data)
        if time.perf_counter() - begun > limit_s:
            break
    return samples / (time.perf_counter() - begun)


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    folder, samples, size, batch, limit_s = sys.argv[1:]
    paths = write(Path(folder), int(samples), int(size))
    rates = {
        f"{workers} workers": read(paths, int(size), int(batch), workers, float(limit_s))
        for workers in WORKERS
    }
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
