"""num_workers: batches, augmentation and the parent's draws are the stock loader's, bit for bit."""

from __future__ import annotations

import inspect
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, get_worker_info

import belady
from belady import session, wire
from conftest import Node, eventually, fastest, image_folder

StockLoader = torch.utils.data.DataLoader
SLOW = "throttle+synth://slow?samples=100&size=100KB&throttle.rate=1KB"


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
    random.seed(5)  # the loop's process transforms where there are no workers
    np.random.seed(5)
    out: list[Any] = []
    for epoch in range(2):
        before(epoch)
        iterator = iter(loader)
        out.append(torch.rand(1).item())
        for batch in iterator:
            out.extend([x.tolist() for x in batch])
            out.append(torch.rand(1).item())
    return out


class Eager:
    """A sampler that draws when its iterator is made; of batches, or of samples without any."""

    def __init__(self, size: Optional[int]) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        drawn = torch.randperm(96)
        return iter(drawn.tolist() if self.size is None else drawn.view(-1, self.size).tolist())

    def __len__(self) -> int:
        return 96 // (self.size or 1)


EAGER: dict[str, Callable[[], dict[str, Any]]] = {
    "batches": lambda: {"batch_sampler": Eager(8)},
    "batches, generator": lambda: {
        "batch_sampler": Eager(8), "generator": torch.Generator().manual_seed(3),
    },
    "samples": lambda: {"sampler": Eager(None), "batch_size": 8},
    "single samples": lambda: {
        "sampler": Eager(None), "batch_size": None, "collate_fn": as_tensors,
    },
}


def as_tensors(item: tuple[Any, ...]) -> list[torch.Tensor]:
    return [torch.as_tensor(part) for part in item]


@pytest.mark.parametrize("case", EAGER)
@pytest.mark.parametrize("workers", [0, 2, -2])
def test_samplers_that_draw_at_once(node: Node, files: Path, case: str, workers: int) -> None:
    """The stock loader makes a sampler's iterator before it draws base_seed and, where it has
    workers, again after."""
    options: dict[str, Any] = {"num_workers": abs(workers), "persistent_workers": workers < 0}
    theirs = run(StockLoader(Stock(files), **options, **EAGER[case]()))
    dataset = belady.Dataset(files, decode)
    with belady.DataLoader(dataset, **options, **EAGER[case]()) as loader:
        assert run(loader) == theirs


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffled": lambda: {"shuffle": True},
    "in order": lambda: {"drop_last": True, "worker_init_fn": init},
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "sampler": lambda: {"sampler": torch.utils.data.RandomSampler(range(100))},
    "forkserver": lambda: {"shuffle": True, "multiprocessing_context": "forkserver"},
    "spawned": lambda: {
        "shuffle": True, "multiprocessing_context": "spawn", "persistent_workers": True,
    },
    "persistent": lambda: {"shuffle": True, "persistent_workers": True, "prefetch_factor": 1},
    "persistent, generator": lambda: {
        "shuffle": True, "persistent_workers": True, "generator": torch.Generator().manual_seed(4),
    },
    "persistent, in order": lambda: {"persistent_workers": True, "worker_init_fn": init},
}


@pytest.mark.parametrize("case", CASES)
def test_as_stock(node: Node, files: Path, case: str) -> None:
    workers = 1 if case in ("forkserver", "spawned") else 2
    theirs = run(StockLoader(Stock(files), 16, num_workers=workers, **CASES[case]()))
    dataset = belady.Dataset(files, decode)
    with belady.DataLoader(dataset, 16, num_workers=workers, **CASES[case]()) as loader:
        assert run(loader) == theirs


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_distributed(node: Node, files: Path, world: int, persistent: bool) -> None:
    sampler = DistributedSampler(Stock(files), world, world - 1, seed=8)
    stock = StockLoader(
        Stock(files), 16, sampler=sampler, num_workers=2, persistent_workers=persistent
    )
    theirs = run(stock, sampler.set_epoch)
    with belady.DataLoader(
        belady.Dataset(files, decode), 16, True, num_workers=2, seed=8, rank=world - 1,
        world_size=world, prefetch_factor=3, persistent_workers=persistent,
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


def seed_of_worker(sample: belady.Sample) -> int:
    info = get_worker_info()
    assert info is not None
    return int(info.seed)


def test_set_epoch_after_iter_leaves_the_seeds(node: Node, files: Path) -> None:
    """Workers that read another epoch are seeded as those they replace."""
    dataset = belady.Dataset(files, seed_of_worker)
    torch.manual_seed(1)
    base_seed = int(torch.empty((), dtype=torch.int64).random_().item())
    after = torch.rand(1)
    torch.manual_seed(1)
    with belady.DataLoader(dataset, 100, True, seed=1, num_workers=2) as loader:
        iterator = iter(loader)
        loader.set_epoch(2)
        assert torch.equal(torch.rand(1), after)
        assert [int(batch[0]) for batch in iterator] == [base_seed, base_seed + 1, base_seed]


class Numbered(belady.Dataset):
    worker = -1

    def item(self, sample: belady.Sample) -> int:
        return self.worker

    @property
    def raw(self) -> bool:
        return False


def number(worker: int) -> None:
    info = get_worker_info()
    assert info is not None and isinstance(info.dataset, Numbered)
    info.dataset.worker = worker


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_know_the_users_dataset(node: Node, files: Path, method: str) -> None:
    with belady.DataLoader(
        Numbered(files), 100, num_workers=2, worker_init_fn=number, multiprocessing_context=method
    ) as loader:
        assert [int(batch[0]) for batch in loader] == [0, 1, 0]


def fail(sample: belady.Sample) -> int:
    raise ZeroDivisionError("no colours")


def test_exceptions_and_the_end(node: Node, files: Path) -> None:
    with belady.DataLoader(belady.Dataset(files, fail), 4, num_workers=2) as loader:
        with pytest.raises(ZeroDivisionError, match="no colours") as caught:
            next(iter(loader))
    name = image_folder(files)[0][2]
    assert f"in the transform of sample 0, {name}" in str(caught.value)
    eventually(lambda: node.ranks() == 0, "workers leave no session")


def pid(sample: belady.Sample) -> int:
    return os.getpid()


@pytest.mark.parametrize("persistent", [False, True])
def test_the_next_epoch_is_read_ahead(node: Node, files: Path, persistent: bool) -> None:
    """Between epochs a session of the loop's process holds the next one's first batches."""
    with belady.DataLoader(
        belady.Dataset(files, pid), 16, True, seed=1, num_workers=2, collate_fn=list,
        persistent_workers=persistent,
    ) as loader:
        first = {p for batch in loader for p in batch}
        eventually(lambda: node.ranks() == 1, "the workers' sessions have ended, and one waits")
        second = {p for batch in loader for p in batch}
        assert len(first) == len(second) == 2
        assert (first == second) == persistent
    eventually(lambda: node.ranks() == 0, "nothing is left")


def test_one_origin_read_for_both(own_node: Node) -> None:
    """What was read ahead for the workers is not read again for them. The daemon keeps a part of
    the dataset, so each epoch has to fetch the rest, and no more."""
    url = "synth://ahead?samples=600&size=110KB"
    own_node.stop()
    own_node.start("--ram", "48MiB")

    def fetched() -> int:
        return int(own_node.status()["datasets"][0]["pump"]["fetched_bytes"])

    with belady.DataLoader(
        belady.Dataset(url, pid), 8, True, seed=1, num_workers=2, persistent_workers=True
    ) as loader:
        list(loader)
        eventually(lambda: own_node.ranks() == 1, "one session reads ahead")
        before = fetched()
        list(loader)
        eventually(lambda: own_node.ranks() == 1, "one session reads ahead")
        assert before > 600 * 110_000, "the first epoch and a part of the second were fetched"
        assert fetched() - before < 600 * 110_000


def test_drift_with_workers(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker is sent is held against the order; where it differs the right samples come."""
    windows = wire.windows

    def reversed_windows(batches: Any, epoch: int, flags: int) -> Any:
        if len(batches) > 1:  # not those that are asked for by their ids
            batches = [list(batch)[::-1] for batch in batches]
        return windows(batches, epoch, flags)

    monkeypatch.setattr(session.wire, "windows", reversed_windows)
    with belady.DataLoader(
        belady.Dataset(files), 16, True, seed=1, num_workers=2, collate_fn=list
    ) as loader:
        with pytest.warns(belady.OrderDriftWarning, match="from batch 0"):
            got = [sample.id for batch in loader for sample in batch]
        assert loader.stats()["belady/samples"] == 211
    assert got == list(DistributedSampler(Stock(files), 1, 0, seed=1))


def test_newer_iterators_have_persistent_workers(node: Node, files: Path) -> None:
    """As in PyTorch they serve one iterator at a time; the older one says so."""
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "collate_fn": list}
    with belady.DataLoader(files, 16, True, seed=1, **options) as loader:
        older = iter(loader)
        assert len(next(older)) == 16
        newer = iter(loader)
        assert len(next(newer)) == 16
        with pytest.raises(belady.LoaderClosed, match="newer"):
            next(older)
        assert sum(1 for _ in newer) == len(loader) - 1


@pytest.mark.parametrize("source", ["files", "slow"])
@pytest.mark.parametrize("persistent", [False, True])
def test_abandoned(node: Node, files: Path, persistent: bool, source: str) -> None:
    """A loop that is left has its workers give back what was sent ahead within a second, even those
    that wait for a batch; persistent ones go on afterwards."""
    loader = belady.DataLoader(
        SLOW if source == "slow" else files, 4, True, seed=1, num_workers=2, collate_fn=list,
        persistent_workers=persistent,
    )

    def leave() -> float:
        iterator = iter(loader)
        eventually(lambda: node.sessions() == 2, "both workers read")
        if source == "files":
            next(iterator)
        began = time.monotonic()
        del iterator
        eventually(lambda: node.sessions() == 0, "workers give back what they do not need")
        if source == "files":
            eventually(lambda: node.ranks() == 0, "and the daemon has it")
        return time.monotonic() - began

    fastest(1.0, leave)
    if source == "files":
        loader.set_epoch(0)
        assert sum(len(batch) for batch in loader) == 211
    loader.close()
    eventually(lambda: node.sessions() == 0, "nothing is left")


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_timeout(node: Node, files: Path, kind: Any) -> None:
    with belady.DataLoader(
        belady.Dataset(files, nap), 4, num_workers=1, worker_type=kind, timeout=0.2
    ) as loader:
        with pytest.raises(belady.WaitTimeout, match="batch 0.*0.2 s"):
            next(iter(loader))


def nap(sample: belady.Sample) -> int:
    time.sleep(0.4)
    return 0


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_long_waits_are_told_of(
    node: Node, files: Path, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belady.torch.workers.SAY_AFTER_S", 0.1)
    monkeypatch.setattr("belady.threads.SAY_AFTER_S", 0.1)
    with belady.DataLoader(
        belady.Dataset(files, nap), 2, num_workers=1, worker_type=kind, sampler=[0, 1]
    ) as loader:
        with pytest.warns(UserWarning, match="waiting for batch 0") as said:
            assert len(list(loader)) == 1
    assert len(said) == 1


INTERRUPTED = """
import multiprocessing, os, signal, sys, threading, time
import belady
from test_workers import SLOW, nap_long
source, workers, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
loader = belady.DataLoader(
    belady.Dataset(source, nap_long if workers else None), 4, collate_fn=list,
    num_workers=workers, worker_type=kind)
iterator = iter(loader)
at = []
def interrupt():
    at.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
took = []
while len(took) < 8 and (not took or took[-1] > 0.1):
    threading.Timer(0.3, interrupt).start()
    try:
        next(iterator)
    except KeyboardInterrupt:
        took.append(time.monotonic() - at[-1])
print(min(took), flush=True)
for process in multiprocessing.active_children():
    process.kill()
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["none", "process", "thread"])
def test_interrupted(node: Node, files: Path, kind: str) -> None:
    """Ctrl-C in `next` raises within 100 ms, whatever the daemon or the workers do: some of the
    times at least, because a machine may have other things to do."""
    arguments = [SLOW, "0", "process"] if kind == "none" else [str(files), "1", kind]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True,
        timeout=60, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        )},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) <= 0.1


def nap_long(sample: belady.Sample) -> int:
    time.sleep(5)
    return 0


def test_out_of_order_needs_a_newer_pytorch(node: Node, files: Path) -> None:
    dataset = belady.Dataset(files, pid)
    if "in_order" in inspect.signature(StockLoader).parameters:
        with belady.DataLoader(dataset, 16, num_workers=2, in_order=False) as loader:
            assert len(list(loader)) == len(loader)
            assert loader.stats()["belady/samples"] == 211
    else:
        with pytest.raises(belady.BadRequest, match="2.6.*thread"):
            belady.DataLoader(dataset, 16, num_workers=2, in_order=False)
