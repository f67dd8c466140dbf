"""Both loaders over the same samples with the same work, timed. Called by belady.trial."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Callable, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import belady
from belady.verdict import Run

SEED = 7
SIDE = 224
# Batches whose order is compared.
_COMPARED = 8
# The share of a run's time from which on its later epochs say something.
_ENOUGH = 0.3


class Files(Dataset[Any]):
    """Files below a folder, as a plain PyTorch dataset reads them. `transform` is given a sample's
    bytes and its index."""

    def __init__(
        self, root: str, names: Sequence[str], transform: Callable[[Any, int], Any]
    ) -> None:
        self.root = root
        self.names = names
        self._transform = transform

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Any:
        return self._transform(self.read(i), i)

    def read(self, i: int) -> bytes:
        with open(os.path.join(self.root, self.names[i]), "rb") as file:
            return file.read()


class Item(NamedTuple):
    tensor: torch.Tensor
    id: int
    size: int
    decode_s: float


class Work:
    """What is done with a sample: decoded and cut to one size, or its bytes as a tensor."""

    def __init__(self, decode: bool) -> None:
        self.decode = decode

    def __call__(self, sample: belady.Sample) -> Item:
        return self.of(sample.data, sample.id)

    def of(self, data: Any, id: int) -> Item:
        if not self.decode:
            tensor = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
            return Item(tensor, id, len(data), 0.0)
        began = time.perf_counter()
        try:
            image = belady.decode_jpeg(data)
        except belady.DecodeError:
            image = torch.zeros(3, 1, 1)  # a file among the photos that is none
        spent = time.perf_counter() - began
        square = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)
        _, height, width = image.shape
        square[:, :height, :width] = image[:, :SIDE, :SIDE]
        return Item(square, id, len(data), spent)

    def collate(self, items: list[Item]) -> Batch:
        join = torch.stack if self.decode else torch.cat
        return (join([i.tensor for i in items]), [i.id for i in items],
                sum(i.size for i in items), sum(i.decode_s for i in items))


# Tensor, ids, bytes read, seconds spent decoding.
Batch = tuple[torch.Tensor, list[int], int, float]


class Bench(NamedTuple):
    """What all runs have in common."""

    work: Work
    batch: int
    compute_s: float
    samples: int
    # Called for every batch; raises to end a run.
    check: Callable[[], None]

    def stock(self, dataset: Any, workers: int, epoch: int, seconds: float) -> Run:
        sampler: Any = DistributedSampler(dataset, 1, 0, seed=SEED)
        loader: Any = DataLoader(
            dataset, self.batch, sampler=sampler, num_workers=workers,
            collate_fn=self.work.collate, persistent_workers=workers > 0,
        )
        run = Run.none("stock", workers)
        return self._run(run, _Epochs(loader, sampler, epoch, lambda: 0.0), seconds)

    def belady(
        self, dataset: belady.Dataset, workers: int, epoch: int, seconds: float
    ) -> tuple[Run, bool]:
        """The run, and whether its first batches hold the ids that DistributedSampler gives."""
        with belady.DataLoader(
            dataset, self.batch, shuffle=True, seed=SEED, num_workers=workers,
            collate_fn=self.work.collate,
        ) as loader:
            epochs = _Epochs(
                loader, loader, epoch, lambda: loader.stats()["belady/stall_origin_seconds"]
            )
            run = self._run(Run.none("Belady", workers), epochs, seconds)
        return run, epochs.first == self._order(epoch, epochs.first)

    def _order(self, epoch: int, like: list[list[int]]) -> list[list[int]]:
        sampler: Any = DistributedSampler(range(self.samples), 1, 0, seed=SEED)
        sampler.set_epoch(epoch)
        ids = iter(sampler)
        return [list(islice(ids, len(batch))) for batch in like]

    def _run(self, none: Run, epochs: _Epochs, seconds: float) -> Run:
        """Epochs for some seconds from the first batch on. Those after the first, in which caches
        are filled, stand for a training if there was time enough for them."""
        batches = epochs.begin()
        epochs.record(next(batches)[1])  # workers are started, the daemon is found
        end = time.perf_counter() + seconds
        early = self._part(none, epochs, batches, end)
        later = none._replace(later_epoch=True)
        while time.perf_counter() < end:
            later = self._part(later, epochs, epochs.begin(), end)
        return later if later.seconds >= seconds * _ENOUGH else early

    def _part(self, run: Run, epochs: _Epochs, batches: Iterator[Batch], end: float) -> Run:
        """One epoch, or what fits before the end, added to a run."""
        samples = size = 0
        wait_s = compute_s = decode_s = 0.0
        stalled = epochs.stalled()
        began = now = time.perf_counter()
        while now < end:
            self.check()
            batch = next(batches, None)
            got = time.perf_counter()
            wait_s += got - now
            if batch is None:
                break
            _, ids, read, spent = batch
            epochs.record(ids)
            samples, size, decode_s = samples + len(ids), size + read, decode_s + spent
            if self.compute_s:
                time.sleep(self.compute_s)
            now = time.perf_counter()
            compute_s += now - got
        return run._replace(
            samples=run.samples + samples, bytes=run.bytes + size,
            seconds=run.seconds + time.perf_counter() - began, wait_s=run.wait_s + wait_s,
            compute_s=run.compute_s + compute_s, decode_s=run.decode_s + decode_s,
            origin_s=run.origin_s + epochs.stalled() - stalled,
        )


class _Epochs:
    """A loader's epochs from one on, and the ids of that one's first batches."""

    def __init__(
        self, loader: Iterable[Batch], sampler: Any, epoch: int, stalled: Callable[[], float]
    ) -> None:
        self._loader = loader
        self._sampler = sampler
        self._epoch = self._next = epoch
        self.stalled = stalled
        self.first: list[list[int]] = []

    def begin(self) -> Iterator[Batch]:
        self._sampler.set_epoch(self._next)
        self._next += 1
        return iter(self._loader)

    def record(self, ids: list[int]) -> None:
        if self._next == self._epoch + 1 and len(self.first) < _COMPARED:
            self.first.append(ids)
