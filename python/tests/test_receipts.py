"""Every batch is held against the order computed here; where it drifts the right samples come."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import belady
from belady import session, wire
from belady.computed import Computed
from belady.session import Batch, Stats
from conftest import Node, image_folder


def other_order(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The daemon is asked for another order than this process computes."""
    attach = wire.attach

    def changed(request: dict[str, Any]) -> bytes:
        if request["order"]["kind"] == "explicit":
            return attach(request)
        return attach({**request, "order": {**request["order"], **changes}})

    monkeypatch.setattr(session.wire, "attach", changed)


@pytest.fixture
def dataset(node: Node, files: Path) -> belady.Dataset:
    return belady.Dataset(files)


@pytest.fixture
def said() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as all_of_them:
        warnings.simplefilter("always")
        yield all_of_them


def drifts(said: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in said if issubclass(w.category, belady.OrderDriftWarning)]


def test_no_drift(dataset: belady.Dataset, said: list[warnings.WarningMessage]) -> None:
    for options in ({"seed": 1}, {}, {"seed": 1, "rank": 1, "world_size": 2}):
        with belady.DataLoader(dataset, 20, True, collate_fn=list, **options) as loader:
            assert sum(len(list(loader)) for _ in range(2)) == 2 * len(loader)
    assert not drifts(said)


def test_drift_is_said_and_survived(
    dataset: belady.Dataset, files: Path, said: list[warnings.WarningMessage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's order is given from the first batch to the last, in this epoch and the next."""
    other_order(monkeypatch, seed=2)
    reference = image_folder(files)
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=1, rank=0, seed=1  # type: ignore[arg-type]
    )
    with belady.DataLoader(dataset, 20, True, seed=1, collate_fn=list) as loader:
        for epoch in range(2):
            sampler.set_epoch(epoch)
            got = [sample for batch in loader for sample in batch]
            assert [s.id for s in got] == list(sampler)
            assert all(bytes(s) == reference[s.id][0] for s in got)
        assert loader.stats()["belady/batches"] == 2 * len(loader)
        assert loader.stats()["belady/samples"] == 2 * len(dataset)
    assert len(drifts(said)) == 1
    assert "from batch 0 of epoch 0 on" in drifts(said)[0]


def test_drift_begins_later(
    dataset: belady.Dataset, said: list[warnings.WarningMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches before it are the daemon's; the batch where it begins is named."""
    import belady.torch

    p = belady.torch.entries(len(dataset), 1)
    p[[50, 51]] = p[[51, 50]]
    p[[199, 200]] = p[[200, 199]]
    monkeypatch.setattr(belady.torch, "entries", lambda *_: p)
    with belady.DataLoader(dataset, 10, True, seed=1, collate_fn=list) as loader:
        iterator = iter(loader)
        got = [sample.id for _ in range(5) for sample in next(iterator)]
        assert not drifts(said)
        state = loader.state_dict()
        got += [sample.id for batch in iterator for sample in batch]
        assert got == p.tolist()
        assert len(drifts(said)) == 1 and "from batch 5 of epoch 0 on" in drifts(said)[0]
        loader.load_state_dict(state)
        assert [sample.id for batch in loader for sample in batch] == p[50:].tolist()


class Lying:
    """A reader that gives other samples than it is asked for."""

    direct = False

    def read(self, ids: list[int]) -> Batch:
        return Batch(0, 0, False, ids[::-1], [0] * len(ids), [memoryview(b"")] * len(ids), None)


def test_nothing_else_is_given() -> None:
    order = {"kind": "sequential", "samples": 10, "batch": 5}
    source = Computed(order, 1, 0, wire.Start(0, 0, 1), Stats(), Lying())
    with pytest.raises(belady.OrderDrift, match="batch 1 of epoch 0"):
        source.next()
