"""worker_type="thread": the same batches in the same order, from threads that end with the loop."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

import belady
from conftest import Node, eventually, fastest, image_folder, temporary, write_files
from test_workers import Eager

SLOW = "throttle+synth://slow?samples=100&size=100KB&throttle.rate=1KB"


def plain(sample: belady.Sample) -> tuple[bytes, int]:
    return bytes(sample), sample.label


def uneven(sample: belady.Sample) -> tuple[bytes, int]:
    """Batches that begin later are done earlier."""
    time.sleep(0.002 * (sample.id % 5))
    return plain(sample)


def lazy(sample: belady.Sample) -> belady.Sample:
    """It takes a while, and the lease stays in use."""
    time.sleep(0.002)
    return sample


def threads() -> int:
    return sum(t.name.startswith("belady") for t in threading.enumerate())


def loader_of(files: Any, transform: Any, **options: Any) -> belady.DataLoader:
    return belady.DataLoader(
        belady.Dataset(files, transform), 16, collate_fn=list, num_workers=3,
        worker_type="thread", **options,
    )


@pytest.mark.parametrize("persistent", [False, True])
def test_as_stock(node: Node, files: Path, persistent: bool) -> None:
    reference = image_folder(files)
    sampler = DistributedSampler(reference, 2, 1, seed=3)  # type: ignore[arg-type]
    with loader_of(
        files, uneven, shuffle=True, seed=3, rank=1, world_size=2, persistent_workers=persistent
    ) as loader:
        for epoch in range(3):
            sampler.set_epoch(epoch)
            got = [item for batch in loader for item in batch]
            assert got == [reference[i][:2] for i in sampler]
        assert loader.stats()["belady/batches"] == 3 * len(loader)
    eventually(lambda: threads() == 0, "threads end with the loader", 5.0)
    eventually(lambda: node.ranks() == 0, "and their session", 5.0)


ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "drawn": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(2)},
    "sampler": lambda: {"sampler": list(range(100, 0, -3)), "drop_last": True},
    "drawing batches": lambda: {"batch_sampler": Eager(8), "batch_size": 1},
    "drawing samples": lambda: {"sampler": Eager(None)},
    "drawing single samples": lambda: {"sampler": Eager(None), "batch_size": None},
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("case", ORDERS)
def test_draws_are_those_of_worker_processes(
    node: Node, files: Path, case: str, persistent: bool
) -> None:
    def run(loader: Any) -> list[Any]:
        torch.manual_seed(9)
        return [(list(loader), torch.rand(1).item()) for _ in range(2)]

    def options() -> dict[str, Any]:
        return {"batch_size": 16, "num_workers": 2, "collate_fn": list,
                "persistent_workers": persistent, **ORDERS[case]()}

    reference = [(data, label) for data, label, _ in image_folder(files)]
    theirs = run(torch.utils.data.DataLoader(reference, **options()))  # type: ignore[arg-type]
    dataset = belady.Dataset(files, plain)
    with belady.DataLoader(dataset, worker_type="thread", **options()) as loader:
        assert run(loader) == theirs


def test_out_of_order(node: Node, files: Path) -> None:
    """Every batch once, whichever is done first; a position never counts what is still due."""
    first = threading.Event()

    def held_up(sample: belady.Sample) -> int:
        if sample.id == 0:
            assert first.wait(20)
        return sample.id

    with loader_of(files, held_up, in_order=False) as loader:
        got = []
        for batch in loader:
            got.append(batch)
            if len(got) == 2:
                assert loader.state_dict()["position"] == 0
                first.set()
        assert got[0][0] != 0
        assert sorted(got) == [list(range(i, min(i + 16, 211))) for i in range(0, 211, 16)]
        assert loader.state_dict()["position"] == 0 and loader.state_dict()["epoch"] == 1


def test_exceptions_keep_their_type_and_place(node: Node, files: Path) -> None:
    def broken(sample: belady.Sample) -> int:
        if sample.id == 40:
            raise KeyError("no such colour")
        return sample.id

    with loader_of(files, broken) as loader:
        iterator = iter(loader)
        assert [next(iterator)[0] for _ in range(2)] == [0, 16]
        with pytest.raises(KeyError, match="no such colour") as caught:
            next(iterator)
        assert "class0" in " ".join(getattr(caught.value, "__notes__", [str(caught.value)]))
        assert loader.state_dict()["position"] == 32, "the batch that raised is still due"
        assert next(iterator)[0] == 48
        assert loader.state_dict()["position"] == 64


def test_resume(node: Node, files: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 4}
    with loader_of(files, uneven, **options) as loader:
        want = [item for batch in loader for item in batch]
    with loader_of(files, uneven, **options) as loader:
        iterator = iter(loader)
        got = [item for _ in range(5) for item in next(iterator)]
        state = loader.state_dict()
    assert state["position"] == 80
    with loader_of(files, uneven, **options) as loader:
        loader.load_state_dict(state)
        assert got + [item for batch in loader for item in batch] == want


@pytest.mark.parametrize("persistent", [False, True])
def test_abandoned(node: Node, files: Path, persistent: bool) -> None:
    """A loop that is left ends its threads and gives back its leases within a second, without being
    closed: those of batches that wait for the loop, and of those that nobody transformed yet."""
    gc.collect()  # exceptions that other tests caught hold frames, and those their samples
    loader = loader_of(files, lazy, shuffle=True, seed=1, persistent_workers=persistent)

    def leave() -> float:
        for batch in loader:
            break
        del batch
        began = time.monotonic()
        eventually(lambda: node.ranks() == 0, "leases are given back")
        eventually(lambda: threads() == (3 if persistent else 0), "threads end")
        return time.monotonic() - began

    fastest(1.0, leave)
    loader.set_epoch(0)
    assert sum(map(len, loader)) == 211
    loader.close()


def test_abandoned_while_waiting(node: Node) -> None:
    """The reading thread does not wait on for what nobody wants."""
    with loader_of(SLOW, plain, seed=1, shuffle=True) as loader:

        def leave() -> float:
            iterator = iter(loader)
            eventually(lambda: node.sessions() == 1, "it reads")
            time.sleep(0.05)
            began = time.monotonic()
            del iterator
            eventually(lambda: threads() == node.sessions() == 0, "threads and session end")
            return time.monotonic() - began

        fastest(1.0, leave)


def test_closed_while_waiting(node: Node) -> None:
    """A thread that waits for the daemon is told to leave."""

    def close() -> float:
        loader = loader_of(SLOW, plain, seed=1, shuffle=True)
        iterator = iter(loader)
        began = time.monotonic()
        loader.close()
        took = time.monotonic() - began
        with pytest.raises(belady.LoaderClosed):
            next(iterator)
        return took

    fastest(1.0, close)
    eventually(lambda: threads() == 0, "threads end", 5.0)


def test_stack_in_threads(node: Node) -> None:
    url = "synth://threads?samples=300&size=3KB&classes=4"
    options: dict[str, Any] = {"shuffle": True, "seed": 1, "collate_fn": "stack"}
    with belady.DataLoader(url, 32, **options) as loader:
        want = [(rows.clone(), labels) for rows, labels in loader]
    with belady.DataLoader(url, 32, num_workers=2, worker_type="thread", **options) as loader:
        for (rows, labels), (rows2, labels2) in zip(loader, want):
            assert torch.equal(rows, rows2) and torch.equal(labels, labels2)


def test_worker_init_fn(node: Node, files: Path) -> None:
    seen: list[int] = []
    with loader_of(files, plain, worker_init_fn=seen.append) as loader:
        list(loader)
    assert sorted(seen) == [0, 1, 2]

    def fail(worker: int) -> None:
        raise OSError(f"worker {worker} has no codec")

    with loader_of(files, plain, worker_init_fn=fail) as loader:
        with pytest.raises(OSError, match="no codec"):
            next(iter(loader))


def test_absent_samples(node: Node) -> None:
    """An error of one batch is raised at its turn, and the loop may go on."""
    folder = write_files(temporary(), 60)
    dataset = belady.Dataset(folder)
    gone = sorted((folder / "class1").glob("*.bin"))[0]
    absent = next(i for i in range(len(dataset)) if dataset.name_of(i).endswith(gone.name))
    gone.unlink()
    with belady.DataLoader(
        dataset, 8, collate_fn=list, num_workers=2, worker_type="thread"
    ) as loader:
        iterator = iter(loader)
        before = [next(iterator)[0].id for _ in range(absent // 8)]
        with pytest.raises(belady.SampleAbsent, match=gone.name):
            next(iterator)
        after = [batch[0].id for batch in iterator]
    assert before + [absent // 8 * 8] + after == list(range(0, 60, 8))
