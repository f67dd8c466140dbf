"""num_workers: batches, augmentation and the parent's draws are the stock loader's, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, get_worker_info

import belady
from conftest import Node, eventually, image_folder

StockLoader = torch.utils.data.DataLoader


def augment(data: bytes, label: int) -> tuple[torch.Tensor, int, int]:
    """What every generator that PyTorch seeds in a worker has to say about a sample."""
    info = get_worker_info()
    noise = torch.tensor([random.random(), np.random.rand(), torch.rand(1).item()])
    return noise + sum(data), label, -1 if info is None else info.id


def decode(sample: belady.Sample) -> tuple[torch.Tensor, int, int]:
    return augment(bytes(sample), sample.label)


class Stock(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, files: Path) -> None:
        self.reference = image_folder(files)

    def __len__(self) -> int:
        return len(self.reference)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int, int]:
        data, label, _ = self.reference[i]
        return augment(data, label)


def init(worker: int) -> None:
    torch.rand(worker + 1)


def run(loader: Any, before: Callable[[int], None] = lambda epoch: None) -> list[Any]:
    """Two epochs, and what the parent draws around them."""
    torch.manual_seed(5)
    out: list[Any] = []
    for epoch in range(2):
        before(epoch)
        iterator = iter(loader)
        out.append(torch.rand(1).item())
        for batch in iterator:
            out.extend([x.tolist() for x in batch])
            out.append(torch.rand(1).item())
    return out


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffled": lambda: {"shuffle": True},
    "in order": lambda: {"drop_last": True, "worker_init_fn": init},
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "sampler": lambda: {"sampler": torch.utils.data.RandomSampler(range(100))},
    "spawned": lambda: {"shuffle": True, "multiprocessing_context": "forkserver"},
}


@pytest.mark.parametrize("case", CASES)
def test_as_stock(node: Node, files: Path, case: str) -> None:
    workers = 1 if case == "spawned" else 2
    theirs = run(StockLoader(Stock(files), 16, num_workers=workers, **CASES[case]()))
    dataset = belady.Dataset(files, decode)
    with belady.DataLoader(dataset, 16, num_workers=workers, **CASES[case]()) as loader:
        assert run(loader) == theirs


@pytest.mark.parametrize("world", [1, 3])
def test_distributed(node: Node, files: Path, world: int) -> None:
    sampler = DistributedSampler(Stock(files), world, world - 1, seed=8)
    theirs = run(
        StockLoader(Stock(files), 16, sampler=sampler, num_workers=2), sampler.set_epoch
    )
    with belady.DataLoader(
        belady.Dataset(files, decode), 16, True, num_workers=2, seed=8, rank=world - 1,
        world_size=world, prefetch_factor=3,
    ) as loader:
        assert run(loader) == theirs
        assert loader.stats()["belady/batches"] == 2 * len(loader)


def test_resume_with_other_workers(node: Node, files: Path) -> None:
    def labels(batch: Any) -> list[int]:
        return [s.id for s in batch]

    options: dict[str, Any] = {"shuffle": True, "seed": 6, "collate_fn": list}
    with belady.DataLoader(files, 20, **options) as loader:
        want = [labels(batch) for batch in loader]
    with belady.DataLoader(files, 20, num_workers=2, **options) as loader:
        iterator = iter(loader)
        got = [labels(next(iterator)) for _ in range(3)]
        state = loader.state_dict()
        assert state["position"] == 60
        del iterator
    with belady.DataLoader(files, 20, num_workers=1, **options) as loader:
        loader.load_state_dict(state)
        assert got + [labels(batch) for batch in loader] == want


def fail(sample: belady.Sample) -> int:
    raise ZeroDivisionError("no colours")


def test_exceptions_and_the_end(node: Node, files: Path) -> None:
    with belady.DataLoader(belady.Dataset(files, fail), 4, num_workers=2) as loader:
        with pytest.raises(ZeroDivisionError, match="no colours"):
            next(iter(loader))
    eventually(lambda: node.ranks() == 0, "workers leave no session")
