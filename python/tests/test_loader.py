"""belady.DataLoader against torch.utils.data.DataLoader: the same batches, draws and refusals."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import random
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, WeightedRandomSampler

import belady
from belady import daemon
from belady.world import Dealing, from_environment, of_mesh
from conftest import Node, eventually, image_folder

StockLoader = torch.utils.data.DataLoader
Batches = list[list[tuple[bytes, int, str]]]


def plain(sample: belady.Sample) -> tuple[bytes, int, str]:
    return bytes(sample), sample.label, sample.name


def ours(loader: belady.DataLoader) -> Batches:
    return list(loader)


@pytest.fixture
def dataset(node: Node, files: Path) -> belady.Dataset:
    return belady.Dataset(files, transform=plain)


def stock(files: Path, **options: Any) -> Any:
    return StockLoader(image_folder(files), collate_fn=list, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("shuffle", [True, False])
def test_distributed(dataset: belady.Dataset, files: Path, world: int, shuffle: bool) -> None:
    reference = image_folder(files)
    for rank in {0, world - 1}:
        for drop_last, sampler_drop_last in ((False, False), (True, True)):
            sampler = DistributedSampler(
                reference, world, rank, shuffle=shuffle, seed=7, drop_last=sampler_drop_last,
            )
            theirs = stock(files, batch_size=9, sampler=sampler, drop_last=drop_last)
            with belady.DataLoader(
                dataset, 9, shuffle, collate_fn=list, drop_last=drop_last, seed=7, rank=rank,
                world_size=world, sampler_drop_last=sampler_drop_last,
            ) as loader:
                assert len(loader) == len(theirs)
                for epoch in range(3):
                    sampler.set_epoch(epoch)
                    assert ours(loader) == list(theirs)


def test_set_epoch(dataset: belady.Dataset, files: Path) -> None:
    sampler = DistributedSampler(image_folder(files), 2, 1, seed=3)
    theirs = stock(files, batch_size=16, sampler=sampler)
    with belady.DataLoader(
        dataset, 16, True, collate_fn=list, seed=3, rank=1, world_size=2
    ) as loader:
        for epoch in (5, 5, 0, 1, 9):
            sampler.set_epoch(epoch)
            loader.sampler.set_epoch(epoch)
            assert ours(loader) == list(theirs)


def test_world_without_a_seed(dataset: belady.Dataset, files: Path) -> None:
    theirs = stock(files, batch_size=20, sampler=DistributedSampler(image_folder(files), 2, 0))
    with belady.DataLoader(dataset, 20, True, collate_fn=list, rank=0, world_size=2) as loader:
        assert ours(loader) == list(theirs)


@pytest.mark.parametrize("options", [
    {"shuffle": True}, {"shuffle": False}, {"shuffle": True, "drop_last": True},
    {"shuffle": True, "batch_size": 300}, {},
], ids=str)
def test_global_generator(dataset: belady.Dataset, files: Path, options: dict[str, Any]) -> None:
    """Without a seed both the batches and everything drawn around them are the stock loader's."""
    options = {"batch_size": 16, **options}

    def run(loader: Any) -> list[Any]:
        out: list[Any] = []
        for _ in range(3):
            iterator = iter(loader)
            out.append(torch.rand(1).item())  # the model's draws, between base_seed and the seed
            for batch in iterator:
                out.append((batch, torch.rand(1).item()))
        return out

    torch.manual_seed(11)
    theirs = run(stock(files, **options))
    torch.manual_seed(11)
    with belady.DataLoader(dataset, collate_fn=list, **options) as loader:
        assert run(loader) == theirs


def samplers(n: int) -> dict[str, Callable[[], dict[str, Any]]]:
    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(5)

    weights = [float(i % 5) for i in range(n)]
    return {
        "generator": lambda: {"shuffle": True, "generator": generator(), "batch_size": 10},
        "weighted": lambda: {
            "sampler": WeightedRandomSampler(weights, 150, generator=generator()),
            "batch_size": 8, "drop_last": True,
        },
        "list": lambda: {"sampler": [4, 4, 0, n - 1], "batch_size": 3},
        "batches": lambda: {
            "batch_sampler": BatchSampler(range(0, n, 3), 11, drop_last=False),
        },
    }


@pytest.mark.parametrize("case", ["generator", "weighted", "list", "batches"])
def test_samplers(dataset: belady.Dataset, files: Path, case: str) -> None:
    make = samplers(len(dataset))[case]

    def run(loader: Any) -> list[Any]:
        torch.manual_seed(3)
        return [(len(loader), list(loader), torch.rand(1).item()) for _ in range(3)]

    with belady.DataLoader(dataset, collate_fn=list, **make()) as loader:
        assert run(loader) == run(stock(files, **make()))


def test_default_collate(node: Node, files: Path) -> None:
    def decode(sample: belady.Sample) -> tuple[torch.Tensor, int]:
        return torch.tensor([len(sample.data), sum(sample.data)]), sample.label

    class Stock(torch.utils.data.Dataset):  # type: ignore[type-arg]
        reference = image_folder(files)

        def __len__(self) -> int:
            return len(self.reference)

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            data, label, _ = self.reference[i]
            return torch.tensor([len(data), sum(data)]), label

    sampler = DistributedSampler(Stock(), 1, 0, seed=2)
    with belady.DataLoader(belady.Dataset(files, decode), 32, True, seed=2) as loader:
        for (x, y), (x2, y2) in zip(loader, StockLoader(Stock(), 32, sampler=sampler)):
            assert torch.equal(x, x2) and torch.equal(y, y2)
            x.mul_(2)  # a copy, and so the user's own


def test_without_batches(dataset: belady.Dataset, files: Path) -> None:
    with belady.DataLoader(dataset, None, collate_fn=lambda item: item) as loader:
        assert list(loader) == image_folder(files)


def test_samples_by_name_and_label(node: Node, files: Path) -> None:
    reference = image_folder(files)
    dataset = belady.Dataset(files)
    assert len(dataset) == len(reference) == 211
    assert dataset.classes == ["class0", "class1", "class2"]
    assert dataset.class_to_idx["class2"] == 2
    assert list(dataset.targets) == [label for _, label, _ in reference]
    assert [dataset.name_of(i) for i in range(211)] == [name for _, _, name in reference]
    with pytest.raises(IndexError):
        dataset.name_of(211)


def test_generated_datasets(node: Node) -> None:
    url = "synth://numbers?samples=500&size=3KB"
    with belady.DataLoader(url, 50, True, seed=1, collate_fn=list) as loader:
        first = {s.id: bytes(s) for batch in loader for s in batch}
        again = {s.id: bytes(s) for batch in loader for s in batch}
    assert len(first) == 500 and first == again
    assert len(set(first.values())) == 500


def test_two_iterators_are_independent(dataset: belady.Dataset) -> None:
    with belady.DataLoader(dataset, 25, True, seed=1, collate_fn=list) as loader:
        alone = [ours(loader), ours(loader)]
        loader.set_epoch(0)
        first = iter(loader)
        loader.set_epoch(1)
        second = iter(loader)
        both = list(zip(first, second))
    assert [list(epoch) for epoch in zip(*both)] == alone


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unread_iterator_is_no_epoch(dataset: belady.Dataset, workers: int) -> None:
    """Frameworks make one to see whether they can; some say the epoch after they have made one."""
    with belady.DataLoader(
        dataset, 25, True, seed=1, collate_fn=list, num_workers=workers
    ) as loader:
        epochs = [ours(loader), ours(loader)]
        state = loader.state_dict()
    with belady.DataLoader(
        dataset, 25, True, seed=1, collate_fn=list, num_workers=workers
    ) as loader:
        iter(loader)
        assert loader.state_dict()["epoch"] == 0
        assert ours(loader) == epochs[0]
        next(iter(loader))  # this one is
        assert loader.state_dict()["epoch"] == 1
        loader.load_state_dict({**state, "epoch": 1, "position": 50})
        iter(loader)
        assert ours(loader) == epochs[1][2:]
        assert loader.state_dict()["epoch"] == 2


def test_an_epoch_set_after_its_iterator_was_made(dataset: belady.Dataset) -> None:
    with belady.DataLoader(dataset, 25, True, seed=1, collate_fn=list) as loader:
        epochs = [ours(loader), ours(loader)]
    with belady.DataLoader(dataset, 25, True, seed=1, collate_fn=list) as loader:
        iterator = iter(loader)
        loader.set_epoch(1)
        assert list(iterator) == epochs[1]
        assert loader.state_dict()["epoch"] == 2
        iterator = iter(loader)  # of an epoch that somebody chose
        loader.set_epoch(0)
        assert list(iterator) == epochs[1] and ours(loader) == epochs[0]


def test_orders_of_all_kinds_at_once(dataset: belady.Dataset) -> None:
    with belady.DataLoader(dataset, 25, True, seed=1, collate_fn=list) as seeded:
        with belady.DataLoader(dataset, 25, sampler=range(100), collate_fn=list) as sampled:
            assert [len(batch) for batch, _ in zip(sampled, seeded)] == [25] * 4


def test_exceptions_name_the_sample(node: Node, files: Path) -> None:
    def broken(sample: belady.Sample) -> int:
        raise KeyError("no such colour")

    with belady.DataLoader(belady.Dataset(files, broken), 4) as loader:
        with pytest.raises(KeyError, match="no such colour") as caught:
            next(iter(loader))
    assert "class0" in " ".join(getattr(caught.value, "__notes__", [str(caught.value)]))


def test_refusals(node: Node, files: Path, dataset: belady.Dataset) -> None:
    with pytest.raises(belady.UnknownDataset, match="nowhere"):
        len(belady.Dataset("nowhere"))
    with pytest.raises(belady.DatasetAddFailed, match="absent"):
        len(belady.Dataset(files / "absent"))
    with pytest.raises(belady.BadRequest, match="transform"):
        belady.DataLoader(files, 4)
    with pytest.raises(belady.BadRequest, match="rank 2"):
        belady.DataLoader(dataset, rank=2, world_size=2)
    with pytest.raises(belady.BadRequest, match="without rank"):
        belady.DataLoader(dataset, world_size=2)
    for options in (
        {"batch_size": 0}, {"sampler": [1], "shuffle": True}, {"num_workers": -1},
        {"batch_size": None, "drop_last": True}, {"seed": 1, "sampler": [1]}, {"timeout": -1},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"lookahead": 0}, {"prefetch_factor": 2}, {"multiprocessing_context": "spawn"},
        {"num_workers": 1, "multiprocessing_context": "teleport"}, {"on_error": "ignore"},
        {"num_workers": 1, "worker_type": "fibre"}, {"num_workers": 1, "prefetch_factor": 0},
        {"num_workers": 1, "worker_type": "thread", "multiprocessing_context": "fork"},
        {"num_workers": 1, "pin_memory": "arena"}, {"pin_memory": "all"},
    ):
        with pytest.raises(ValueError):
            belady.DataLoader(dataset, **options)  # type: ignore[arg-type]
    with belady.DataLoader(dataset, 4, sampler=[10**6]) as loader:
        with pytest.raises(belady.BeladyError):
            next(iter(loader))
    with pytest.raises(belady.LoaderClosed):
        iter(loader)


def test_batch_too_large_for_the_arena(node: Node) -> None:
    url = "synth://big?samples=300&size=1MB"
    with belady.DataLoader(url, 256, seed=1, shuffle=True, collate_fn=list) as loader:
        with pytest.raises(belady.ArenaTooSmall):
            next(iter(loader))


def test_stats(dataset: belady.Dataset, files: Path) -> None:
    with belady.DataLoader(dataset, 50, seed=1, shuffle=True, collate_fn=list) as loader:
        ours(loader)
        stats = loader.stats()
    assert stats["belady/batches"] == 5 and stats["belady/samples"] == 211
    assert stats["belady/bytes"] == sum(len(data) for data, _, _ in image_folder(files))
    assert all(isinstance(value, (int, float)) for value in stats.values())


def test_positions_at_random() -> None:
    """c never passes n, ends at n, and what is left is what the rest of the epoch deals."""
    draw = random.Random(4)
    for _ in range(500):
        d = Dealing(draw.randint(1, 300), draw.randint(1, 9), draw.randint(1, 40),
                    draw.random() < 0.5, draw.random() < 0.5)
        total = d.batches(0)
        for k in range(total + 1):
            c = d.position(0, k)
            assert c <= d.samples
            assert d.batches(c) == total - k
        if not (d.drop_last or d.sampler_drop_last):
            assert d.position(0, total) == d.samples


def test_launchers() -> None:
    assert from_environment({}) == (0, 1)
    assert from_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == (0, 1)
    assert from_environment({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}) == (2, 4)
    with pytest.raises(belady.BadRequest, match="RANK"):
        from_environment({"RANK": "a", "WORLD_SIZE": "2"})


class Mesh:
    """A DeviceMesh as its documentation has it, seen from one rank."""

    def __init__(self, names: Optional[tuple[str, ...]], shape: tuple[int, ...], rank: int) -> None:
        self.mesh_dim_names = names
        self.ndim = len(shape)
        self._shape = shape
        self._at: list[int] = []
        for size in reversed(shape):
            self._at.insert(0, rank % size)
            rank //= size

    def size(self, dimension: int) -> int:
        return self._shape[dimension]

    def get_local_rank(self, dimension: int) -> int:
        return self._at[dimension]


def test_meshes(dataset: belady.Dataset) -> None:
    def worlds(names: Optional[tuple[str, ...]], shape: tuple[int, ...]) -> list[tuple[int, int]]:
        return [of_mesh(Mesh(names, shape, rank)) for rank in range(math.prod(shape))]

    assert worlds(None, (3,)) == worlds(("tokens",), (3,)) == [(0, 3), (1, 3), (2, 3)]
    assert worlds(("dp", "tp"), (2, 2)) == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert worlds(("pp", "dp"), (2, 2)) == [(0, 2), (1, 2), (0, 2), (1, 2)]
    both = worlds(("dp_replicate", "dp_shard", "tp"), (2, 2, 2))
    assert both == [(i // 2, 4) for i in range(8)]
    for names in (None, ("tp", "pp")):
        with pytest.raises(belady.BadRequest, match="data-parallel"):
            worlds(names, (2, 2))
    with pytest.raises(belady.BadRequest, match="mesh="):
        belady.DataLoader(dataset, mesh=Mesh(None, (2,), 0), rank=0, world_size=2)
    ranks = []
    for rank in range(4):
        with belady.DataLoader(
            dataset, 10, True, seed=1, collate_fn=list, mesh=Mesh(("dp", "tp"), (2, 2), rank)
        ) as loader:
            ranks.append(ours(loader))
    assert ranks[0] == ranks[1] != ranks[2] == ranks[3]


def test_nothing_is_left_open(node: Node, dataset: belady.Dataset) -> None:
    gc.collect()  # exceptions that other tests caught hold frames, and those their samples
    eventually(lambda: node.ranks() == 0, "other tests left nothing", 1.0)
    loader = belady.DataLoader(dataset, 10, True, seed=1, collate_fn=list)
    ours(loader)
    assert node.ranks() == 1  # it reads ahead into the next epoch
    loader.close()
    assert daemon.status(node.socket)["pid"] == node.process.pid  # type: ignore[union-attr]
    eventually(lambda: node.ranks() == 0, "the session is gone", 1.0)


def test_the_sampler_tells_what_is_read(dataset: belady.Dataset, files: Path) -> None:
    """`loader.sampler`: as long as this rank's epoch, with its samples."""
    n = len(dataset)
    for world in (1, 3):
        theirs = DistributedSampler(image_folder(files), world, world - 1, seed=7)
        with belady.DataLoader(
            dataset, 9, True, seed=7, rank=world - 1, world_size=world, collate_fn=list
        ) as loader:
            assert len(loader.sampler) == len(theirs)
            for epoch in range(2):
                theirs.set_epoch(epoch)
                assert list(loader.sampler) == list(theirs)
                list(loader)
    for options in ({"shuffle": True}, {}, {"batch_sampler": [[3, 1]]}):
        stock_loader = StockLoader(image_folder(files), **options)  # type: ignore[arg-type]
        with belady.DataLoader(dataset, collate_fn=list, **options) as loader:
            assert len(loader.sampler) == len(stock_loader.sampler) == n
            torch.manual_seed(2)
            mine = list(loader.sampler), torch.rand(1)
            torch.manual_seed(2)
            assert mine == (list(stock_loader.sampler), torch.rand(1))
    generators = [torch.Generator().manual_seed(6) for _ in range(2)]
    with belady.DataLoader(
        dataset, 9, True, generator=generators[0], collate_fn=list
    ) as loader:
        want = list(torch.utils.data.RandomSampler(range(n), generator=generators[1]))
        assert list(loader.sampler) == want


def test_whole_numbers_of_any_type(dataset: belady.Dataset) -> None:
    with belady.DataLoader(
        dataset, np.int64(50), True, seed=np.int32(3), rank=np.int8(1), world_size=np.uint8(2),
        num_workers=np.int64(0), lookahead=np.int64(3), collate_fn=list,
    ) as loader:
        loader.set_epoch(np.int64(2))  # type: ignore[arg-type]
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["epoch"], state["position"], state["seed"]) == (2, 100, 3)


def test_interrupted_while_the_order_is_computed(
    dataset: belady.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes between a batch and its comparison loses nothing."""
    import belady.order

    of_rank, calls = belady.order.of_rank, []

    def interrupted(*of: Any) -> Any:
        calls.append(of)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return of_rank(*of)

    monkeypatch.setattr(belady.order, "of_rank", interrupted)
    with belady.DataLoader(dataset, 20, collate_fn=list) as loader:
        iterator = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        got = [sample for batch in iterator for sample in batch]
        assert len(got) == len(dataset) and loader.stats()["belady/samples"] == len(dataset)
    assert len(calls) == 2


def test_samples_are_named_before_python_3_11(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the exception's text, or in the log if it has none."""
    from belady import sample

    def fail(sample: belady.Sample) -> int:
        raise raised

    monkeypatch.setattr(sample, "sys", types.SimpleNamespace(version_info=(3, 9)))
    for raised, said in ((KeyError("colour"), False), (KeyError(7), True), (ValueError(), True)):
        caplog.clear()
        with belady.DataLoader(belady.Dataset(files, fail), 4) as loader:
            with pytest.raises(type(raised)) as caught:
                next(iter(loader))
        assert ("sample 0, class0" in str(caught.value)) == (not said)
        assert ("in the transform of sample 0, class0" in caplog.text) == said


@pytest.mark.parametrize("options", [
    {"seed": 5, "shuffle": True}, {"shuffle": True}, {"sampler": range(200, 0, -1)},
    {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"},
], ids=str)
def test_one_iterator_for_several_threads(
    dataset: belady.Dataset, options: dict[str, Any]
) -> None:
    """Each batch goes to one of them, in the order in which they ask, and none is lost."""
    torch.manual_seed(3)
    with belady.DataLoader(dataset, 2, collate_fn=list, **options) as loader:
        want = ours(loader)
    torch.manual_seed(3)
    with belady.DataLoader(dataset, 2, collate_fn=list, **options) as loader:
        iterator = iter(loader)

        def drain(_: int) -> Batches:
            return list(iterator)

        with ThreadPoolExecutor(4) as threads, warnings.catch_warnings():
            warnings.simplefilter("error")
            parts = list(threads.map(drain, range(4)))
        place = {batch[0][2]: i for i, batch in enumerate(want)}
        assert sorted((b for part in parts for b in part), key=lambda b: place[b[0][2]]) == want
        for part in parts:
            numbers = [place[batch[0][2]] for batch in part]
            assert numbers == sorted(numbers)
        assert loader.stats()["belady/batches"] == len(want)
        assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [100_000, 2_000_000])
@pytest.mark.parametrize("options", [
    {}, {"shuffle": True, "seed": 7, "rank": 1, "world_size": 2}, {"drop_last": True},
    {"sampler": range(30)},
], ids=str)
def test_a_batch_larger_than_the_epoch(
    dataset: belady.Dataset, files: Path, size: int, options: dict[str, Any], workers: int
) -> None:
    """It holds what the rank reads, as in PyTorch, and takes no more memory than that."""
    with belady.DataLoader(dataset, 211, collate_fn=list, **options) as small:
        want = [] if "drop_last" in options else ours(small)
    with belady.DataLoader(
        dataset, size, collate_fn=list, num_workers=workers, **options
    ) as loader:
        assert ours(loader) == want and len(loader) == len(want)
        assert loader.stats()["belady/direct_batches"] == 0
    if "rank" not in options:
        theirs = stock(files, batch_size=size, num_workers=workers, **options)
        assert [[tuple(s) for s in batch] for batch in theirs] == want


def test_what_is_made_stays_so(dataset: belady.Dataset) -> None:
    with belady.DataLoader(dataset, 10, collate_fn=list) as loader:
        theirs = StockLoader([1, 2], 10)  # type: ignore[arg-type]
        for name in ("batch_size", "sampler", "drop_last", "dataset", "batch_sampler",
                     "persistent_workers"):
            for one in (loader, theirs):
                with pytest.raises(ValueError, match=name):
                    setattr(one, name, None)
        for name in ("seed", "shuffle", "lookahead", "timeout", "generator"):
            with pytest.raises(ValueError, match=f"{name} cannot be set after.*make a new one"):
                setattr(loader, name, 3)
        assert loader.batch_size == 10
        loader.tag = "the user's own"  # type: ignore[attr-defined]
        loader.collate_fn = len  # as in PyTorch, from the next iterator on
        assert next(iter(loader)) == 10
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled.*state_dict"):
                duplicate(loader)
