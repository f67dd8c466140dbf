"""A training loop of fixed compute a batch, and what its loader made of it.

    training.py belady DATASET BATCH EPOCHS COMPUTE_SECONDS SEED
    training.py stock SAMPLES SIZE RATE LATENCY_SECONDS BATCH COMPUTE_SECONDS WORKERS

`belady` reads epochs from the daemon that the environment names and prints a JSON object at the end
of each. `stock` reads the beginning of an epoch through PyTorch's loader, for a few seconds, and
prints its rate. Its origin is played by the dataset: each read sleeps for the latency and for its
bytes at the whole rate, as if the workers did not share it, which can only flatter the loader.
Every sample is copied into one buffer; the compute of a batch includes that.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader

import belady

STOCK_SECONDS = 5.0
# A batch is this much longer than a usual one at most, for the buffer.
LARGEST = 4 << 20


class Loop:
    """Copies a batch, then computes for what is left of its time."""

    def __init__(self, compute_s: float) -> None:
        self._compute_s = compute_s
        self._room = memoryview(bytearray(LARGEST))
        self.batches = 0

    def step(self, views: list[Any]) -> None:
        begun = time.monotonic()
        for view in views:
            self._room[: len(view)] = view
        rest = self._compute_s - (time.monotonic() - begun)
        if rest > 0:
            time.sleep(rest)
        self.batches += 1


def ours(name: str, batch: int, epochs: int, compute_s: float, seed: int) -> None:
    begun = time.monotonic()
    loader = belady.DataLoader(name, batch, shuffle=True, seed=seed, collate_fn=list)
    n = len(loader.dataset)
    waited: dict[str, float] = {}
    for _ in range(epochs):
        loop, seen, size, first = Loop(compute_s), bytearray(n), 0, 0
        for samples in loader:
            for sample in samples:
                seen[sample.id] = 1
                size += len(sample.data)
            first = first or size
            loop.step([sample.data for sample in samples])
        end = time.monotonic()
        if sum(seen) != n:
            sys.exit(f"training: an epoch brought {sum(seen)} of {n} samples: the figures are void")
        stats = loader.stats()
        now = {k[len("belady/stall_") : -len("_seconds")]: v for k, v in stats.items()
               if k.startswith("belady/stall_") and k != "belady/stall_seconds"}
        print(json.dumps({
            "seconds": end - begun, "batches": loop.batches, "bytes": size, "first_bytes": first,
            "stall": {cause: s - waited.get(cause, 0.0) for cause, s in now.items()},
        }), flush=True)
        begun, waited = end, now
    loader.close()


class Throttled(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Samples from an origin that has a latency and a rate."""

    def __init__(self, samples: int, size: int, seconds: float) -> None:
        self.samples, self.seconds = samples, seconds
        self.data = bytes(size)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, i: int) -> bytes:
        time.sleep(self.seconds)
        return self.data


def stock(
    samples: int, size: int, rate: float, latency_s: float, batch: int, compute_s: float,
    workers: int,
) -> None:
    dataset = Throttled(samples, size, latency_s + size / rate)
    loader: Any = DataLoader(dataset, batch, True, num_workers=workers, collate_fn=list)
    loop, begun, read = Loop(compute_s), 0.0, 0
    for views in loader:
        loop.step(views)
        now = time.monotonic()
        if not begun:
            begun = now  # starting the workers is not counted
        else:
            read += len(views)
            if now - begun > STOCK_SECONDS:
                break
    print(json.dumps({"samples_per_second": read / (now - begun)}))


def main() -> None:
    a = sys.argv[2:]
    if sys.argv[1] == "belady":
        ours(a[0], int(a[1]), int(a[2]), float(a[3]), int(a[4]))
    else:
        stock(int(a[0]), int(a[1]), float(a[2]), float(a[3]), int(a[4]), float(a[5]), int(a[6]))


if __name__ == "__main__":
    main()
