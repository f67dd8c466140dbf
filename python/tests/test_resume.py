"""Positions: before and after a restart at any other world, every sample once."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler

import belady
from conftest import Node

N = 211


def loaders(files: Path, world: int, **options: Any) -> list[belady.DataLoader]:
    return [
        belady.DataLoader(files, shuffle=True, collate_fn=list, rank=rank, world_size=world,
                          **options)
        for rank in range(world)
    ]


def ids(batch: list[belady.Sample]) -> list[int]:
    return [s.id for s in batch]


def read(loader: belady.DataLoader, batches: int | None = None) -> list[list[int]]:
    """So many batches of an epoch, or the rest of it; the loader is then where it was left."""
    out: list[list[int]] = []
    iterator = iter(loader)
    while batches is None or len(out) < batches:
        try:
            out.append(ids(next(iterator)))
        except StopIteration:
            break
    return out


def test_resume_at_another_world(node: Node, files: Path) -> None:
    draw = random.Random(2)
    for _ in range(8):
        world, later = draw.randint(1, 4), draw.randint(1, 4)
        size, later_size = draw.randint(1, 30), draw.randint(1, 30)
        epoch = draw.randint(0, 3)
        before: Counter[int] = Counter()
        states: list[dict[str, Any]] = []
        first = loaders(files, world, batch_size=size, seed=9)
        stop = draw.randint(0, len(first[0]))
        for loader in first:
            loader.set_epoch(epoch)
            for batch in read(loader, stop):
                before.update(batch)
            states.append(json.loads(json.dumps(loader.state_dict())))
            loader.close()
        assert all(state == states[0] for state in states)
        assert len(json.dumps(states[0])) <= 1024
        after: Counter[int] = Counter()
        for loader in loaders(files, later, batch_size=later_size, seed=9):
            loader.load_state_dict(states[0])
            for batch in read(loader):
                after.update(batch)
            loader.close()
        both = before + after
        case = (world, later, size, later_size, epoch, stop)
        assert set(both) == set(range(N)), case
        padding = sum(both.values()) - N
        assert padding < max(world, later), case


def test_same_world_continues(node: Node, files: Path) -> None:
    for options in ({}, {"drop_last": True}, {"sampler_drop_last": True}):
        whole, half = loaders(files, 2, batch_size=10, seed=4, **options)
        half.close()
        epochs = [read(whole) for _ in range(2)]
        whole.close()
        for stop in (0, 1, 7, len(epochs[0])):
            first, _ = loaders(files, 2, batch_size=10, seed=4, **options)
            assert read(first, stop) == epochs[0][:stop]
            state = first.state_dict()
            first.close()
            second, _ = loaders(files, 2, batch_size=10, seed=4, **options)
            second.load_state_dict(state)
            assert read(second) == epochs[0][stop:]
            assert read(second) == epochs[1]
            second.close()


def test_state_between_epochs(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 50, True, seed=1, collate_fn=list) as loader:
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, 0)
        iterator = iter(loader)
        next(iterator)
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, 50)
        for _ in iterator:
            pass
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
        loader.set_epoch(6)
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (6, 0)


def test_a_loaded_position_survives_set_epoch(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 50, True, seed=1, collate_fn=list) as loader:
        loader.set_epoch(3)
        want = read(loader)
        loader.set_epoch(3)
        read(loader, 2)
        state = loader.state_dict()
    with belady.DataLoader(files, 50, True, seed=1, collate_fn=list) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(3)
        assert read(loader) == want[2:]
        loader.set_epoch(3)
        assert read(loader) == want


def test_drawn_order(node: Node, files: Path) -> None:
    """Without a seed the drawn one is in the state, and a resumed epoch draws nothing."""
    torch.manual_seed(1)
    with belady.DataLoader(files, 50, True, collate_fn=list) as loader:
        want = read(loader)
        after = torch.rand(1)
    torch.manual_seed(1)
    with belady.DataLoader(files, 50, True, collate_fn=list) as loader:
        read(loader, 2)
        state, generator = loader.state_dict(), torch.get_rng_state()
    torch.manual_seed(2)
    with belady.DataLoader(files, 50, True, collate_fn=list) as loader:
        loader.load_state_dict(state)
        torch.set_rng_state(generator)
        assert read(loader) == want[2:]
        assert torch.equal(torch.rand(1), after)


WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "processes": {"num_workers": 2},
    "persistent": {"num_workers": 1, "persistent_workers": True},
    "threads": {"num_workers": 2, "worker_type": "thread"},
}


@pytest.mark.parametrize("workers", WORKERS)
def test_generators_are_resumed(node: Node, files: Path, workers: str) -> None:
    """The permutation that was drawn is drawn again, and the generator ends where it would have."""
    def loader_of(seed: int, size: int = 50) -> belady.DataLoader:
        return belady.DataLoader(
            files, size, True, generator=torch.Generator().manual_seed(seed), collate_fn=list,
            **WORKERS[workers],
        )

    with loader_of(1) as loader:
        epochs = [read(loader) for _ in range(3)]
        end = loader.generator.get_state()
    with loader_of(1) as loader:
        states = [loader.state_dict()]
        iterator = iter(loader)
        states.append(loader.state_dict())
        for _ in range(2):
            next(iterator)
            states.append(loader.state_dict())
        assert len(list(iterator)) == 3
        states.append(loader.state_dict())
    assert [s["position"] for s in states] == [0, 0, 50, 100, 0]
    rest = [epochs[0], epochs[0], epochs[0][1:], epochs[0][2:], []]
    for i, state in enumerate(states):
        assert len(pickle.dumps(state)) <= 6000
        with loader_of(2) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            assert loader.state_dict() == state
            if rest[i]:
                assert read(loader) == rest[i], i
            assert [read(loader) for _ in range(2)] == epochs[1:], i
            assert torch.equal(loader.generator.get_state(), end), i
    with loader_of(2, size=30) as loader:
        loader.load_state_dict(states[3])
        assert sum(read(loader), []) == sum(rest[3], [])


def test_states_without_a_generators_state(node: Node, files: Path) -> None:
    with belady.DataLoader(
        files, 50, True, generator=torch.Generator(), collate_fn=list
    ) as loader:
        read(loader, 1)
        state = loader.state_dict()
        for other in (None, "", "AAAA", state["generator"][:400]):
            with pytest.raises(belady.StateMismatch, match="generator"):
                loader.load_state_dict({**state, "generator": other})
        loader.load_state_dict(state)


def test_samplers_are_skipped(node: Node, files: Path) -> None:
    sampler = [i * 7 % N for i in range(100)]
    with belady.DataLoader(files, 9, sampler=sampler, collate_fn=list) as loader:
        want = read(loader)
        read(loader, 4)
        state = loader.state_dict()
    with belady.DataLoader(files, 9, sampler=sampler, collate_fn=list) as loader:
        loader.load_state_dict(state)
        assert read(loader) == want[4:]
    for size in (1, 7, 50):  # samples are counted
        with belady.DataLoader(files, size, sampler=sampler, collate_fn=list) as loader:
            loader.load_state_dict(state)
            assert sum(read(loader), []) == sampler[36:]
            assert read(loader, 1)[0] == sampler[:size]


@pytest.mark.parametrize("workers", WORKERS)
def test_other_samples_are_not_gone_on_with(node: Node, files: Path, workers: str) -> None:
    """A sampler that gives other samples, or other batches, than it gave before the checkpoint."""
    def batches(size: int) -> dict[str, Any]:
        return {"batch_sampler": BatchSampler(range(100), size, False), "collate_fn": list,
                **WORKERS[workers]}

    with belady.DataLoader(files, **batches(9)) as loader:
        want = read(loader)
        read(loader, 4)
        state = loader.state_dict()
    with belady.DataLoader(files, **batches(9)) as loader:
        loader.load_state_dict(state)
        assert read(loader) == want[4:]
    with belady.DataLoader(files, **batches(10)) as loader:
        loader.load_state_dict(state)
        with pytest.raises(belady.StateMismatch, match="batch sampler gives other samples"):
            read(loader)
        assert loader.state_dict() == state, "it is still to be read"
    with belady.DataLoader(files, 9, sampler=range(100), collate_fn=list) as loader:
        with pytest.raises(belady.StateMismatch, match="kind of order"):
            loader.load_state_dict(state)
        read(loader, 4)
        state = loader.state_dict()
    with belady.DataLoader(
        files, 9, sampler=range(1, 101), collate_fn=list, **WORKERS[workers]
    ) as loader:
        loader.load_state_dict(state)
        with pytest.raises(belady.StateMismatch, match="sampler gives other samples"):
            read(loader)


def test_samplers_in_a_world(node: Node, files: Path) -> None:
    """One rank's state is good for the others of an equal world, and for no other world."""
    def loader_of(rank: int, world: int) -> belady.DataLoader:
        sampler = DistributedSampler(range(N), world, rank, seed=3)  # type: ignore[arg-type]
        return belady.DataLoader(
            files, 8, sampler=sampler, rank=rank, world_size=world, collate_fn=list
        )

    with loader_of(1, 2) as loader:
        want = read(loader)
    with loader_of(0, 2) as loader:
        between = loader.state_dict()
        read(loader, 3)
        state = loader.state_dict()
    with loader_of(1, 2) as loader:
        loader.load_state_dict(state)
        assert read(loader) == want[3:]
    with loader_of(0, 3) as loader:
        with pytest.raises(belady.StateMismatch, match="world of 2, and this one is of 3"):
            loader.load_state_dict(state)
        loader.load_state_dict(between)


@pytest.mark.parametrize("workers", ["none", "threads"])
def test_an_epoch_that_cannot_begin_is_still_due(node: Node, workers: str) -> None:
    """Where the daemon refuses, the position that was loaded stays."""
    url = "synth://due?samples=2000&size=1MB"
    options: dict[str, Any] = {"seed": 1, "collate_fn": list, **WORKERS[workers]}
    with belady.DataLoader(url, 2, True, **options) as loader:
        state = {**loader.state_dict(), "epoch": 3, "position": 512}
    with belady.DataLoader(url, 256, True, **options) as loader:
        loader.load_state_dict(state)
        for _ in range(2):
            with pytest.raises(belady.ArenaTooSmall):
                iter(loader)
            assert loader.state_dict() == state


@pytest.mark.parametrize("workers", WORKERS)
def test_set_epoch_after_iter(node: Node, files: Path, workers: str) -> None:
    """An iterator that has returned nothing follows, as the stock loader's does without workers,
    and the position is that of what is read."""
    options: dict[str, Any] = {"collate_fn": list, **WORKERS[workers]}
    with belady.DataLoader(files, 50, True, seed=1, **options) as loader:
        loader.set_epoch(3)
        want = [ids(batch) for batch in loader]
    with belady.DataLoader(files, 50, True, seed=1, **options) as loader:
        iterator = iter(loader)
        loader.set_epoch(3)
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (3, 0)
        assert [ids(next(iterator)) for _ in range(2)] == want[:2]
        state = loader.state_dict()
        assert (state["epoch"], state["position"]) == (3, 100)
        assert [ids(batch) for batch in iterator] == want[2:]
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (4, 0)
    with belady.DataLoader(files, 50, True, seed=1, **options) as loader:
        loader.load_state_dict(state)
        assert read(loader) == want[2:]


@pytest.mark.parametrize("workers", WORKERS)
def test_set_epoch_after_iter_of_a_drawn_order(node: Node, files: Path, workers: str) -> None:
    """Its number changes and not what is read, and the state is of what is read."""
    options: dict[str, Any] = {"collate_fn": list, **WORKERS[workers]}
    with belady.DataLoader(files, 50, True, **options) as loader:
        torch.manual_seed(4)
        want = read(loader)
    with belady.DataLoader(files, 50, True, **options) as loader:
        torch.manual_seed(4)
        iterator = iter(loader)
        loader.set_epoch(3)
        assert [ids(next(iterator)) for _ in range(2)] == want[:2]
        state = loader.state_dict()
        assert (state["epoch"], state["position"]) == (3, 100)
    with belady.DataLoader(files, 50, True, **options) as loader:
        loader.load_state_dict(state)
        assert read(loader) == want[2:]


def test_states_of_others(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 8, True, seed=1, collate_fn=list) as loader:
        state = loader.state_dict()
    others: list[tuple[Any, dict[str, Any], str]] = [
        (files, {"shuffle": True, "seed": 2}, "seed"),
        (files, {"shuffle": False}, "kind of order"),
        (files, {"sampler": [1]}, "kind of order"),
        ("synth://other?samples=211&size=1KB", {"shuffle": True, "seed": 1}, "dataset"),
    ]
    for dataset, options, what in others:
        with belady.DataLoader(dataset, 8, collate_fn=list, **options) as loader:
            with pytest.raises(belady.StateMismatch, match=what):
                loader.load_state_dict(state)
    with belady.DataLoader(files, 8, True, seed=1, collate_fn=list) as loader:
        with pytest.raises(belady.StateMismatch, match="version"):
            loader.load_state_dict({**state, "version": 99})
    with belady.DataLoader(files, 8, True, collate_fn=list) as loader:
        read(loader, 1)
        state = loader.state_dict()
        for wrong in ({k: v for k, v in state.items() if k != "seed"}, {**state, "seed": "1"}):
            with pytest.raises(belady.StateMismatch, match="seed"):
                loader.load_state_dict(wrong)
    with belady.DataLoader(
        files, 8, True, collate_fn=list, rank=0, world_size=2
    ) as loader:
        with pytest.raises(belady.StateMismatch, match="kind of order"):
            loader.load_state_dict(state)  # drawn for a world of one
