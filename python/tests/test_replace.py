"""on_error="replace": the same replacement on every run, in every mode, and equal step counts."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DistributedSampler

import belady
from conftest import Node, temporary, write_files

SAMPLES = 90
MODES: dict[str, dict[str, Any]] = {
    "here": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_type": "thread"},
}


def named(sample: belady.Sample) -> tuple[int, str, bytes]:
    return sample.id, sample.name, bytes(sample)


def picky(sample: belady.Sample) -> tuple[int, str, bytes]:
    if sample.id in (7, 8, 30):
        raise ValueError("corrupt")
    return named(sample)


@pytest.fixture
def damaged() -> tuple[Path, set[int]]:
    """A folder that was scanned whole and then lost some samples: two neighbours and the last."""
    return write_files(temporary(), SAMPLES), {11, 12, SAMPLES - 1}


def damage(dataset: belady.Dataset, folder: Path, lost: set[int]) -> None:
    for id in lost:
        path = folder / dataset.name_of(id)
        if path.exists():
            os.unlink(path)


def stand_in(id: int, unusable: set[int]) -> int:
    while id in unusable:
        id = (id + 1) % SAMPLES
    return id


def epoch(loader: belady.DataLoader) -> list[list[int]]:
    return [[item[0] for item in batch] for batch in loader]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transform", [named, picky])
def test_replaced(
    node: Node, damaged: tuple[Path, set[int]], mode: str, transform: Any
) -> None:
    folder, lost = damaged
    dataset = belady.Dataset(folder, transform)
    damage(dataset, folder, lost)
    unusable = lost | ({7, 8, 30} if transform is picky else set())
    for rank in range(2):
        sampler = DistributedSampler(range(SAMPLES), 2, rank, seed=5)  # type: ignore[arg-type]
        with belady.DataLoader(
            dataset, 8, True, seed=5, rank=rank, world_size=2, collate_fn=list,
            on_error="replace", **MODES[mode],
        ) as loader, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for number in range(2):
                sampler.set_epoch(number)
                want = list(sampler)
                got = epoch(loader)
                assert [len(batch) for batch in got] == [8] * 5 + [5]
                assert sum(got, []) == [stand_in(id, unusable) for id in want]
                if number == 0:
                    expected = len([id for id in want if id in unusable])
                    assert loader.stats()["belady/replaced"] == expected
        told = [str(w.message) for w in said if "replaced by sample" in str(w.message)]
        assert len(told) == 1 and "class" in told[0], told


def test_bytes_and_position(node: Node, damaged: tuple[Path, set[int]]) -> None:
    """A replacement is whole, says who it is, and does not move the position."""
    folder, lost = damaged
    dataset = belady.Dataset(folder, named)
    damage(dataset, folder, lost)
    with belady.DataLoader(dataset, 10, collate_fn=list, on_error="replace") as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.warns(UserWarning, match="sample 11, .* was replaced by sample 13"):
            batch = next(iterator)
        assert loader.state_dict()["position"] == 20
    for id, name, data in batch:
        assert data == (folder / name).read_bytes() and dataset.name_of(id) == name


def test_stacked(node: Node) -> None:
    folder = temporary()
    for i in range(20):
        (folder / f"{i:02}.bin").write_bytes(bytes([i]) * 32)
    dataset = belady.Dataset(folder)
    assert len(dataset) == 20
    (folder / "03.bin").unlink()
    with belady.DataLoader(dataset, 5, collate_fn="stack", on_error="replace") as loader:
        with pytest.warns(UserWarning, match="03.bin"):
            rows = [row for batch, _ in loader for row in batch[:, 0].tolist()]
    assert rows == [0, 1, 2, 4, *range(4, 20)]


def test_without_a_daemon(
    damaged: tuple[Path, set[int]], node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lost = damaged
    monkeypatch.setenv("BELADY", "off")
    dataset = belady.Dataset(folder, picky)
    damage(dataset, folder, lost)
    with belady.DataLoader(
        dataset, 8, collate_fn=list, on_error="replace"
    ) as loader, pytest.warns(UserWarning, match="replaced"):
        got = sum(epoch(loader), [])
    assert got == [stand_in(id, lost | {7, 8, 30}) for id in range(SAMPLES)]


def test_a_dataset_that_is_all_broken(node: Node, files: Path) -> None:
    def broken(sample: belady.Sample) -> int:
        raise KeyError("nothing works")

    with belady.DataLoader(belady.Dataset(files, broken), 4, on_error="replace") as loader:
        with pytest.raises(KeyError, match="nothing works"):
            next(iter(loader))
