"""Every batch is held against the order computed here; where it drifts the right samples come."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import belady
from belady import session, wire
from belady.computed import Computed
from belady.session import Batch, Stats
from conftest import Node, eventually, image_folder


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
    node: Node, dataset: belady.Dataset, files: Path, said: list[warnings.WarningMessage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's order is given from the first batch to the last, in this epoch and the next."""
    job = "a job that drifts"
    monkeypatch.setenv("BELADY_JOB", job)
    job = job.replace(" ", "%20")
    before = node.status()["drifts"]
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
    eventually(lambda: node.ranks() == 0, "no session is left")
    eventually(lambda: node.status()["drifts"] == before + 1, "the daemon counts it")
    assert "another order" in node.run("status").stdout
    eventually(lambda: "code=order-drift" in node.log(), "the daemon logs it")
    eventually(lambda: node.run("job", "verify", job).returncode == 1, "it is recorded")
    proof = node.run("job", "verify", job).stdout
    assert "rank 0 computed another order from batch 0 of epoch 0 on" in proof


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


def test_job_is_proved(
    node: Node, dataset: belady.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loops were given is what `job verify` proves, resumed epochs too."""
    monkeypatch.setenv("BELADY_JOB", "proved")
    options = {"seed": 4, "shuffle": True, "collate_fn": list}
    with belady.DataLoader(dataset, 20, **options) as loader:
        list(loader)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
    for rank in range(2):
        with belady.DataLoader(dataset, 20, rank=rank, world_size=2, **options) as loader:
            loader.load_state_dict(state)
            list(loader)

    def proof() -> str:
        done = node.run("job", "verify", "proved")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # A session's last words are written when the daemon has seen its end.
    eventually(lambda: "epoch 1 from position 60: ok: 2 of 2 ranks, 8 batches" in proof(),
               "the resumed epoch is proved")
    assert "epoch 0: ok: 1 of 1 ranks, 11 batches" in proof()
    assert "epoch 1: unfinished: rank 0 was sent" in proof()
    # What waits ahead of a loop that ends is no epoch that anybody left.
    assert "epoch 2: unfinished" not in proof()
    listed = json.loads(node.run("job", "ls", "--json").stdout)
    ours = [job for job in listed if job["id"] == "proved"]
    assert ours and ours[0]["orders"] == ["torch-distributed"] and ours[0]["world"] == 2
    assert node.run("job", "verify", "nobody").returncode == 1
    assert node.run("job", "verify", "proved", "--epoch", "-3").returncode == 2


def test_padding_is_listed(
    node: Node, dataset: belady.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PyTorch's sampler repeats to give 3 ranks of 211 samples 71 each is what is listed."""
    monkeypatch.setenv("BELADY_JOB", "padded")
    entries: list[int] = []
    for rank in range(3):
        with belady.DataLoader(
            dataset, 20, True, seed=4, collate_fn=list, rank=rank, world_size=3
        ) as loader:
            assert sum(len(batch) for batch in loader) == 71
        sampler = torch.utils.data.distributed.DistributedSampler(
            dataset, num_replicas=3, rank=rank, seed=4  # type: ignore[arg-type]
        )
        entries.extend(sampler)

    def proof() -> dict[str, Any]:
        (epoch, *_) = json.loads(node.run("job", "verify", "padded", "--json").stdout)["epochs"]
        return epoch

    eventually(lambda: all(r["batches_sent"] == 4 for r in proof()["ranks"]), "it is recorded")
    padding = proof()["padding"]
    one, two = entries[2 * 71 - 1], entries[-1]
    assert padding == [
        {"rank": 1, "batch": 3, "sample": one}, {"rank": 2, "batch": 3, "sample": two}
    ]
    assert Counter(entries) - Counter(range(len(dataset))) == Counter([one, two])
    text = node.run("job", "verify", "padded", "--epoch", "0").stdout
    assert f"; padding: sample {one} (rank 1), sample {two} (rank 2)\n" in text


def test_workers_are_proved(
    node: Node, dataset: belady.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What workers read is their shares of the rank's order, together the whole of it."""
    monkeypatch.setenv("BELADY_JOB", "workers")
    for options in ({"seed": 6, "num_workers": 2}, {"num_workers": 1}):
        with belady.DataLoader(dataset, 20, True, collate_fn=list, **options) as loader:
            iterator = iter(loader)
            first = [next(iterator) for _ in range(4)]
            state = loader.state_dict()
            del iterator
            loader.load_state_dict(state)
            assert len(first) + len(list(loader)) == 11
    want = "epoch 0 from position 80: ok: 1 of 1 ranks, 7 batches"

    def proof() -> str:
        done = node.run("job", "verify", "workers")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    eventually(lambda: proof().count(want) == 2, "the resumed epochs are proved")
    assert "sessions read orders that their client sent" not in proof()


class Lying:
    """A reader that gives other samples than it is asked for."""

    direct = False

    def close(self) -> None: ...

    def read(self, ids: list[int]) -> Batch:
        return Batch(0, 0, False, ids[::-1], [0] * len(ids), [memoryview(b"")] * len(ids), None)


def test_nothing_else_is_given() -> None:
    order = {"kind": "sequential", "samples": 10, "batch": 5}
    source = Computed(order, 1, 0, wire.Start(0, 0, 1), Stats(), Lying())
    with pytest.raises(belady.OrderDrift, match="batch 1 of epoch 0"):
        source.next()
