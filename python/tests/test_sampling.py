"""Samplers that do not end, or do not say when: read in windows, the same batches as PyTorch's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Sampler

import belady
from belady import sampling
from conftest import Node, image_folder, temporary, write_files

MODES: list[dict[str, Any]] = [
    {}, {"num_workers": 2}, {"num_workers": 3, "persistent_workers": True},
    {"num_workers": 2, "worker_type": "thread"},
]


class Endless(Sampler[int]):
    """Permutation after permutation, as detection frameworks train; it has no length."""

    def __init__(self, n: int, end: int | None = None) -> None:
        self.n, self.end = n, end
        self.gave = 0

    def _forever(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(5)
        while True:
            yield from torch.randperm(self.n, generator=generator).tolist()

    def __iter__(self) -> Iterator[int]:
        for i in islice(self._forever(), self.end):
            self.gave += 1
            yield i


class Bucketed:
    """Batches of unequal length without an end."""

    def __init__(self, n: int, end: int | None = None) -> None:
        self.ids, self.end = Endless(n), end

    def __iter__(self) -> Iterator[list[int]]:
        ids = iter(self.ids)
        for k in islice(iter(int, 1), self.end):
            yield list(islice(ids, k + 1 + self.ids.gave % 13))


class Understated(Bucketed):
    """It goes on after its length, which PyTorch's loaders never look at."""

    def __len__(self) -> int:
        return 3


def plain(sample: belady.Sample) -> tuple[bytes, int]:
    return bytes(sample), sample.label


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "WINDOW_SAMPLES", 64)


SAMPLERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "endless": lambda n: {"sampler": Endless(n), "batch_size": 10},
    "one by one": lambda n: {"sampler": Endless(n), "batch_size": None},
    "batches": lambda n: {"batch_sampler": Bucketed(n)},
    "longer than it says": lambda n: {"batch_sampler": Understated(n)},
    "ends": lambda n: {"sampler": Endless(n, 333), "batch_size": 10},
    "ends with a window": lambda n: {"sampler": Endless(n, 140), "batch_size": 10},
    "drops": lambda n: {"sampler": Endless(n, 333), "batch_size": 10, "drop_last": True},
    "batches that end": lambda n: {"batch_sampler": Bucketed(n, 33)},
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("case", SAMPLERS)
def test_as_stock(node: Node, files: Path, case: str, mode: dict[str, Any]) -> None:
    reference = [(data, label) for data, label, _ in image_folder(files)]
    make = SAMPLERS[case]
    collate: Any = (lambda item: item) if case == "one by one" else list
    stock: Any = torch.utils.data.DataLoader(
        reference, collate_fn=collate, **make(211)  # type: ignore[arg-type]
    )
    want = list(islice(stock, 45))
    with belady.DataLoader(
        belady.Dataset(files, plain), collate_fn=collate, **mode, **make(211)
    ) as loader:
        assert list(islice(loader, 45)) == want
        if "ends" in case:
            assert len(want) < 45
            assert list(loader) == want
        assert loader.stats()["belady/direct_batches"] == 0


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_only_a_window_is_read_ahead(node: Node, files: Path, mode: dict[str, Any]) -> None:
    sampler = Endless(211)
    with belady.DataLoader(files, 8, sampler=sampler, collate_fn=list, **mode) as loader:
        iterator = iter(loader)
        for taken in range(1, 41):
            next(iterator)
            ahead = sampler.gave - 8 * taken
            assert ahead <= 3 * 64  # what is begun, and what is in flight
        with pytest.raises(TypeError):
            len(loader)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_resumed(node: Node, files: Path, mode: dict[str, Any]) -> None:
    """Behind the first window; and from a position in it."""
    dataset = belady.Dataset(files, plain)
    with belady.DataLoader(dataset, 7, sampler=Endless(211), collate_fn=list) as loader:
        want = list(islice(loader, 40))
    for taken in (3, 25):
        with belady.DataLoader(
            dataset, 7, sampler=Endless(211), collate_fn=list, **mode
        ) as loader:
            got = list(islice(loader, taken))
            state = json.loads(json.dumps(loader.state_dict()))
        assert state["position"] == 7 * taken
        with belady.DataLoader(
            dataset, 7, sampler=Endless(211), collate_fn=list, **mode
        ) as loader:
            loader.load_state_dict(state)
            assert got + list(islice(loader, 40 - taken)) == want
        with belady.DataLoader(
            dataset, 30, sampler=Endless(211), collate_fn=list, **mode
        ) as loader:  # batches begin anywhere in a window
            loader.load_state_dict(state)
            assert sum(islice(loader, 3), []) == sum(want, [])[7 * taken :][:90]


def test_a_sample_is_absent_where_a_window_ends(node: Node) -> None:
    folder = write_files(temporary(), 40)
    dataset = belady.Dataset(folder, plain)
    order = list(islice(Endless(40), 100))
    (folder / dataset.name_of(order[63])).unlink()
    for on_error, lost in (("raise", 1), ("replace", 0)):
        with belady.DataLoader(
            dataset, 8, sampler=Endless(40, 96), collate_fn=len,
            on_error=on_error,  # type: ignore[arg-type]
        ) as loader:
            got, errors = 0, 0
            iterator = iter(loader)
            while True:
                try:
                    got += next(iterator)
                except StopIteration:
                    break
                except belady.SampleAbsent:
                    errors += 1
            where = [at // 8 for at, id in enumerate(order[:96]) if id == order[63]]
            assert errors == lost * len(where)
            assert got == 96 - 8 * errors


def test_a_sampler_that_is_longer_than_it_says(node: Node, files: Path) -> None:
    """PyTorch would go on and this could not, at the right batch: it is said, and not cut."""

    class Wrong(Endless):
        def __len__(self) -> int:
            return 25

    with belady.DataLoader(files, 10, sampler=Wrong(211), collate_fn=list) as loader:
        with pytest.raises(belady.BadRequest, match="len"):
            list(loader)
