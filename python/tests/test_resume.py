"""Positions: before and after a restart at any other world, every sample once."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

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


def test_samplers_are_skipped(node: Node, files: Path) -> None:
    sampler = [i * 7 % N for i in range(100)]
    with belady.DataLoader(files, 9, sampler=sampler, collate_fn=list) as loader:
        want = read(loader)
        read(loader, 4)
        state = loader.state_dict()
    with belady.DataLoader(files, 9, sampler=sampler, collate_fn=list) as loader:
        loader.load_state_dict(state)
        assert read(loader) == want[4:]


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
