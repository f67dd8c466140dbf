"""belady.attach: the stock loader stays what it is, and its reads find what they ask for."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)

import belady
from conftest import Node, eventually, image_folder

SLOW = "throttle+synth://{}?samples=240&size=20KB&throttle.latency=2ms&throttle.concurrency=4"


def plain(sample: belady.Sample) -> tuple[bytes, int, str]:
    return bytes(sample), sample.label, sample.name


def number(sample: belady.Sample) -> int:
    return sample.id


class Shuffled(Sampler[int]):
    """A sampler of a user's own, which draws from Python's generator as it goes."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.orders = 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        self.orders += 1
        for i in range(self.n):
            yield (i * 7 + random.randrange(self.n)) % self.n


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights(n: int) -> list[float]:
    return [1.0 + i % 5 for i in range(n)]


# What a loader is given beside its dataset, and how much attach knows then.
LOADERS: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "in order": (lambda d: {"batch_size": 16}, "exact"),
    "one by one": (lambda d: {"batch_size": None, "sampler": SequentialSampler(d)}, "exact"),
    "shuffled": (lambda d: {"batch_size": 16, "shuffle": True}, "this epoch"),
    "a generator": (
        lambda d: {"batch_size": 16, "shuffle": True, "generator": generator(3)}, "exact"),
    "sampler's generator": (
        lambda d: {"batch_size": 16, "sampler": RandomSampler(d, generator=generator(3))}, "exact"),
    "the global generator": (
        lambda d: {"batch_size": 16,
                   "sampler": RandomSampler(d, generator=torch.default_generator)}, "this epoch"),
    "with replacement": (
        lambda d: {"batch_size": 16, "sampler": RandomSampler(d, True, 300)}, "this epoch"),
    "longer than an epoch": (
        lambda d: {"batch_size": 16, "sampler": RandomSampler(d, False, len(d) * 2 + 9)},
        "this epoch"),
    "weighted": (
        lambda d: {"batch_size": 16, "sampler": WeightedRandomSampler(weights(len(d)), 200)},
        "this epoch"),
    "of a subset": (
        lambda d: {"batch_size": 16, "sampler": SubsetRandomSampler(range(3, 90))}, "this epoch"),
    "distributed": (
        lambda d: {"batch_size": 16, "drop_last": True,
                   "sampler": DistributedSampler(d, 2, 1, seed=5)}, "exact"),
    "a batch sampler": (
        lambda d: {"batch_sampler": BatchSampler(RandomSampler(d), 13, True)}, "this epoch"),
    "batches of a list": (
        lambda d: {"batch_sampler": [[1, 2], [5, -3, 0], [1]]}, "exact"),
    "unknown": (lambda d: {"batch_size": 16, "sampler": Shuffled(len(d))}, "read-ahead only"),
}


def epochs(
    loader: Any, count: int, draw: Callable[[], object] = lambda: torch.rand(1)
) -> list[Any]:
    """All that some epochs of a training loop give, and the generators' states after each."""
    out: list[Any] = []
    for epoch in range(count):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            out.append(batch)
            draw()
        out.append(torch.get_rng_state().tolist())
        if loader.generator is not None:
            out.append(loader.generator.get_state().tolist())
    return out


def seeded() -> None:
    torch.manual_seed(1)
    random.seed(1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_nothing_changes(node: Node, files: Path, kind: str, workers: int) -> None:
    options, known = LOADERS[kind]
    reference = image_folder(files)
    seeded()
    want = epochs(
        DataLoader(reference, collate_fn=list, num_workers=workers, **options(reference)), 2
    )
    seeded()
    dataset = belady.Dataset(files, plain)
    loader: Any = DataLoader(dataset, collate_fn=list, num_workers=workers, **options(dataset))
    attachment = belady.attach(loader)
    assert attachment.known == known
    got = epochs(loader, 2)
    assert got == want
    assert attachment.drifted == 0


def test_python_generators_are_left_alone(node: Node, files: Path) -> None:
    """A user's own sampler that may be replayed: its copy draws, its original does as before."""
    for kind, ahead in (("this epoch", True), ("read-ahead only", False)):
        sampler = Shuffled(211)
        loader: Any = DataLoader(belady.Dataset(files, number), 16, sampler=sampler)
        random.seed(4)
        stock: Any = DataLoader(range(211), 16, sampler=Shuffled(211))  # type: ignore[arg-type]
        want = [b.tolist() for b in stock]
        state = random.getstate()
        random.seed(4)
        attachment = belady.attach(loader, replayable=ahead)
        assert attachment.known == kind
        assert [b.tolist() for b in loader] == want
        assert random.getstate() == state and sampler.orders == 1 and attachment.drifted == 0


def fetched(node: Node, name: str) -> tuple[int, int]:
    """Samples that were fetched from the origin, and reads that found theirs in memory."""
    (dataset,) = (d for d in node.status()["datasets"] if d["dataset"] == name)
    pump = dataset["pump"]
    return pump["misses"], pump["hits"] + pump["shared"]


@pytest.mark.parametrize("attached, options", [
    (False, {}), (False, {"num_workers": 2}), (True, {}), (True, {"num_workers": 2}),
    (True, {"num_workers": 2, "persistent_workers": True}),
    (True, {"num_workers": 1, "multiprocessing_context": "spawn"}),
    (True, {"num_workers": 1, "multiprocessing_context": "forkserver"}),
], ids=["alone", "alone-fork", "here", "fork", "persistent", "spawn", "forkserver"])
def test_reads_find_their_samples(
    own_node: Node, attached: bool, options: dict[str, Any]
) -> None:
    """A slow origin: each sample is fetched once, by whoever knows first that it is wanted."""
    own_node.add("slow", SLOW.format("slow"))
    dataset = belady.Dataset("slow", number)
    loader: Any = DataLoader(dataset, 8, shuffle=True, **options)
    if attached:
        assert belady.attach(loader).known == "this epoch"
    assert sorted(i for batch in loader for i in batch.tolist()) == list(range(240))
    misses, found = fetched(own_node, "slow")
    assert misses == 240
    assert found == (240 if attached else 0)


def test_fetches_run_ahead_of_the_loop(own_node: Node) -> None:
    """After one batch the loop waits, and the daemon reads on: the next ones wait for nothing."""
    own_node.add("slow", SLOW.format("slow"))

    def fetched_after_one_batch(attach: bool) -> int:
        loader: Any = DataLoader(belady.Dataset("slow", number), 8, shuffle=True)
        if attach:
            belady.attach(loader)
        it = iter(loader)
        next(it)
        if attach:
            eventually(lambda: fetched(own_node, "slow")[0] == 240, "all were fetched")
        found = fetched(own_node, "slow")[0]
        list(it)
        return found

    assert fetched_after_one_batch(attach=False) == 8
    own_node.stop()
    own_node.start()
    assert fetched_after_one_batch(attach=True) == 240


def test_next_epoch_is_read_ahead(own_node: Node) -> None:
    """An exact order crosses the epoch's end: what comes next waits before it begins."""
    own_node.add("slow", SLOW.format("slow"))
    dataset = belady.Dataset("slow", number)
    sampler: Any = DistributedSampler(dataset, 4, 2, seed=8)  # type: ignore[arg-type]
    loader: Any = DataLoader(dataset, 8, sampler=sampler)
    attachment = belady.attach(loader)
    first = {i for batch in loader for i in batch.tolist()}
    sampler.set_epoch(1)
    second = set(sampler)
    eventually(
        lambda: fetched(own_node, "slow")[0] == len(first | second), "the next epoch was fetched"
    )
    assert {i for batch in loader for i in batch.tolist()} == second
    assert attachment.drifted == 0


def test_half_of_it_kept(own_node: Node) -> None:
    """Far more than fits: batches pass through staging, each sample fetched about once an epoch."""
    own_node.add("large", "synth://large?samples=2400&size=100KB")
    dataset = belady.Dataset("large", number)
    loader: Any = DataLoader(dataset, 32, shuffle=True, num_workers=2)
    attachment = belady.attach(loader)
    before = 0
    for _ in range(2):
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(2400))
        misses = fetched(own_node, "large")[0]
        assert misses - before <= 2400 + 64  # batches at an edge may be read twice
        before = misses
    assert attachment.drifted == 0


def test_others_have_room_while_a_loop_rests(own_node: Node) -> None:
    """A loader holds what comes next for as long as its loop takes, say for a validation of the
    same dataset: reads that nobody foresaw, of the same and of other batches, still go through."""
    own_node.stop()
    own_node.start("--ram", "64MiB")
    own_node.add("large", "synth://large?samples=600&size=200KB")
    dataset = belady.Dataset("large", number)
    loaders: list[Any] = [
        DataLoader(dataset, 32, sampler=RandomSampler(dataset, generator=generator(seed)))
        for seed in range(2)
    ]
    resting: list[Any] = []
    for loader in loaders:
        belady.attach(loader)
        resting.append(iter(loader))
        next(resting[-1])
    validation: Any = DataLoader(dataset, 64, num_workers=2, timeout=60)
    assert sum(len(batch) for batch in validation) == 600
    assert [sum(len(batch) for batch in it) for it in resting] == [600 - 32] * 2


def test_datasets_below_others(node: Node, files: Path) -> None:
    reference, dataset = image_folder(files), belady.Dataset(files, plain)
    node.add("tiny", "synth://tiny?samples=30&size=100")
    tiny = belady.Dataset("tiny", plain)
    few = [tiny[i] for i in range(30)]

    def joined(a: Any, b: Any) -> Any:
        part, rest = random_split(a, [120, 91], generator=generator(2))
        return ConcatDataset([Subset(part, range(0, 120, 3)), b, rest])

    torch.manual_seed(3)
    want = list(DataLoader(joined(reference, few), 9, True, collate_fn=list))
    torch.manual_seed(3)
    loader: Any = DataLoader(joined(dataset, tiny), 9, True, collate_fn=list, num_workers=2)
    attachment = belady.attach(loader)
    assert list(loader) == want and attachment.drifted == 0


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


class Wrapped(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)


@pytest.mark.parametrize("dataset, words", [
    (Endless(), "IterableDataset decides"), (Wrapped([1]), "reads a Wrapped"),
], ids=["iterable", "wrapped"])
def test_what_is_not_known_is_refused(dataset: Any, words: str) -> None:
    with pytest.raises(belady.BadRequest, match=words):
        belady.attach(DataLoader(dataset))
    with pytest.raises(belady.BadRequest, match="and not a builtins.list"):
        belady.attach([1, 2])


def test_set_epoch_was_forgotten(node: Node, files: Path) -> None:
    dataset = belady.Dataset(files, number)
    sampler: Any = DistributedSampler(dataset, 1, 0)  # type: ignore[arg-type]
    loader: Any = DataLoader(dataset, 50, sampler=sampler)
    belady.attach(loader)
    next(iter(loader))  # a sanity check is no epoch
    for epoch, forgotten in enumerate((False, False, True, False)):
        if not forgotten:
            sampler.set_epoch(epoch)
        with pytest.warns(UserWarning, match="set_epoch was not called since epoch 1"
                          ) if forgotten else nullcontext():
            list(loader)


def test_persistent_workers(node: Node, files: Path) -> None:
    """They keep one iterator for all epochs, and draw base_seed once."""
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "collate_fn": list}
    got: list[Any] = []
    for dataset in (image_folder(files), belady.Dataset(files, plain)):
        loader: Any = DataLoader(dataset, 20, True, generator=generator(6), **options)
        if isinstance(dataset, belady.Dataset):
            attachment = belady.attach(loader)
        seeded()
        for _ in range(2):
            next(iter(loader))  # left early: the next one begins anew
        got.append(epochs(loader, 3))
    assert got[0] == got[1] and attachment.drifted == 0


def test_two_iterators(node: Node, files: Path) -> None:
    dataset = belady.Dataset(files, number)
    loader: Any = DataLoader(dataset, 16, sampler=RandomSampler(dataset, generator=generator(1)))
    attachment = belady.attach(loader)
    one, two = iter(loader), iter(loader)
    orders = RandomSampler(range(211), generator=generator(1))
    begun = [next(one), next(two)]
    want = [list(orders), list(orders)]
    assert torch.cat([begun[0], *one]).tolist() == want[0][:211]
    assert len(torch.cat([begun[1], *two]).unique()) == 211
    assert attachment.drifted == 0


def test_drift_is_said_and_served(node: Node, files: Path) -> None:
    """Somebody else draws from the sampler's generator: only the prediction was wrong."""
    dataset = belady.Dataset(files, number)
    shared = generator(1)
    loader: Any = DataLoader(dataset, 16, sampler=RandomSampler(dataset, generator=shared),
                             num_workers=2)
    attachment = belady.attach(loader)
    plain_iterator = type(loader)._get_iterator

    def meddled(self: Any) -> Any:
        shared.manual_seed(77)
        return plain_iterator(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataLoader, "_get_iterator", meddled)
        with pytest.warns(UserWarning, match="is not what its sampler's state foretold"):
            got = [b.tolist() for b in loader]
    assert sorted(sum(got, [])) == list(range(211))
    assert attachment.drifted == 1


def test_sessions_end(node: Node, files: Path) -> None:
    """An iterator that is left, and a loader that is dropped, leave nothing behind."""
    loader: Any = DataLoader(belady.Dataset(files, number), 16, True, num_workers=2)
    belady.attach(loader)
    it = iter(loader)
    next(it)
    assert node.ranks() >= 1
    del it
    eventually(lambda: node.ranks() == 0, "the iterator's sessions are gone", 5.0)
    exact: Any = DataLoader(belady.Dataset(files, number), 16)
    belady.attach(exact)
    list(exact)
    assert node.ranks() == 2  # one reads on demand, one has the next epoch's beginning ready
    del exact
    eventually(lambda: node.ranks() == 0, "the loader's sessions are gone", 1.0)


def test_detach(node: Node, files: Path) -> None:
    loader: Any = DataLoader(belady.Dataset(files, number), 16)
    attachment = belady.attach(loader)
    list(loader)
    attachment.detach()
    assert "_get_iterator" not in vars(loader)
    eventually(lambda: node.ranks() == 1, "only the reads' own session is left", 1.0)
    assert len(list(loader)) == 14
    again: Any = DataLoader(belady.Dataset(files, number), 16)
    attachment, batches = belady.attach(again), iter(again)
    next(batches)
    attachment.detach()
    assert len(list(batches)) == 13
    eventually(lambda: node.ranks() == 2, "nothing waits for a next epoch", 1.0)


def test_pickled_with_its_loader(node: Node, files: Path) -> None:
    dataset = belady.Dataset(files, number)
    loader: Any = DataLoader(dataset, 16, sampler=DistributedSampler(dataset, 1, 0))  # type: ignore
    belady.attach(loader)
    want = [b.tolist() for b in loader]
    again = pickle.loads(pickle.dumps(loader))
    assert [b.tolist() for b in again] == want
    assert node.ranks() == 4  # each has one that reads and one that reads ahead


def test_daemon_dies(own_node: Node, files: Path) -> None:
    """Reads go on with the next daemon, and so does reading ahead."""
    reference = image_folder(files)
    dataset = belady.Dataset(files, plain)
    loader: Any = DataLoader(dataset, 10, collate_fn=list)
    attachment = belady.attach(loader)
    got: list[Any] = []
    for i, batch in enumerate(loader):
        got += batch
        if i == 4:
            own_node.kill()
            own_node.start()
    assert got == reference and attachment.drifted == 0
    eventually(lambda: list(loader) != [] and own_node.ranks() == 2, "it is read ahead again")


def test_without_a_daemon(
    own_node: Node, files: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Reads say so and go on by themselves; there is nothing to read ahead with."""
    dataset, reference = belady.Dataset(files, plain), image_folder(files)
    assert len(dataset) == len(reference)
    loader: Any = DataLoader(dataset, 10, collate_fn=list)
    attachment = belady.attach(loader)
    own_node.stop()
    monkeypatch.setenv("BELADY_BIN", str(tmp_path / "none"))
    with pytest.warns(belady.DirectReadWarning, match="WITHOUT A DAEMON"):
        got = [item for batch in loader for item in batch]
    assert got == reference and attachment.drifted == 0
    monkeypatch.setenv("BELADY", "off")
    off: Any = DataLoader(belady.Dataset(files, plain), 10, collate_fn=list, num_workers=2)
    attachment = belady.attach(off)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [item for batch in off for item in batch] == reference
    assert attachment.drifted == 0
