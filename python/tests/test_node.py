"""The ranks of a node share its daemon's staging, however many there are elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

import belady
from belady.world import on_a_node
from conftest import Node, eventually


@pytest.mark.parametrize("world, env, ranks", [
    (512, {}, 8),
    (4, {}, 4),
    (512, {"LOCAL_WORLD_SIZE": "16"}, 16),
    (2, {"LOCAL_WORLD_SIZE": "16"}, 2),
    (512, {"SLURM_NTASKS_PER_NODE": "4"}, 4),
    (512, {"SLURM_TASKS_PER_NODE": "4(x128)"}, 4),
    (14, {"SLURM_TASKS_PER_NODE": "2,5(x2),1(x2)"}, 5),
    (512, {"SLURM_STEP_TASKS_PER_NODE": "12(x2)", "SLURM_TASKS_PER_NODE": "4(x2)"}, 12),
    (512, {"LOCAL_WORLD_SIZE": "2", "SLURM_NTASKS_PER_NODE": "4"}, 2),
    (512, {"LOCAL_WORLD_SIZE": "many", "SLURM_NTASKS_PER_NODE": ""}, 8),
    (512, {"LOCAL_WORLD_SIZE": "0"}, 8),
])
def test_ranks_on_a_node(world: int, env: dict[str, str], ranks: int) -> None:
    assert on_a_node(world, env) == ranks


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"},
    {"sampler": range(200)},
], ids=str)
def test_a_rank_of_many(node: Node, options: dict[str, Any]) -> None:
    """Nodes elsewhere take nothing of this one's staging: a plain loop is lent every batch."""
    world = {} if "sampler" in options else {"shuffle": True, "seed": 1}
    with belady.DataLoader(
        "synth://many?samples=20000&size=8KB", 8, collate_fn=len, rank=0, world_size=512,
        **world, **options,
    ) as loader:
        for _ in range(2):
            assert sum(loader) == (200 if "sampler" in options else 40)
        assert loader.stats()["belady/private_copies"] == 0


def test_attached_in_a_large_world(own_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "512")
    dataset = belady.Dataset("synth://far?samples=400&size=20KB", lambda sample: sample.id)
    loader: Any = DataLoader(dataset, 8)
    belady.attach(loader)
    it = iter(loader)
    next(it)
    eventually(
        lambda: own_node.status()["datasets"][0]["pump"]["misses"] > 8, "it is read ahead"
    )
    assert len(list(it)) == 49
