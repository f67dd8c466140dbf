"""What is asked wrongly is refused at once, by the exception that is documented, in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import belady
from conftest import Node, temporary

URL = "synth://bad?samples=100&size=1KB"
RAGGED = "synth://ragged?samples=100&size=1KB&spread=0.5"
BIG = "synth://toolarge?samples=300&size=1MB"


def loader(source: Any = URL, *arguments: Any, **options: Any) -> belady.DataLoader:
    return belady.DataLoader(source, *arguments, **{"collate_fn": list, **options})


def read(made: belady.DataLoader) -> list[Any]:
    with made:
        return list(made)


def loaded(change: dict[str, Any]) -> None:
    with loader(URL, 8, True, seed=1) as made:
        made.load_state_dict({**made.state_dict(), **change})


def with_state(state: Any) -> None:
    with loader(URL, 8, True, seed=1) as made:
        made.load_state_dict(state)


def with_epoch(epoch: Any) -> None:
    with loader(URL, 8, True, seed=1) as made:
        made.set_epoch(epoch)


def after_closing() -> None:
    made = loader(URL, 8)
    made.close()
    iter(made)


def while_closing() -> None:
    made = loader(URL, 8)
    iterator = iter(made)
    next(iterator)
    made.close()
    next(iterator)


# What is done, what it raises, and a part of what that says.
CASES: dict[str, tuple[Callable[[], Any], type[BaseException], str]] = {
    # types
    "dataset: number": (lambda: loader(3), TypeError, "of type int"),
    "dataset: list": (lambda: loader([b"a"]), TypeError, "of type list"),
    "dataset: PyTorch's": (lambda: loader(torch.utils.data.TensorDataset(torch.zeros(2))),
                           TypeError, "keep PyTorch's DataLoader"),
    "batch_size: text": (lambda: loader(URL, "8"), TypeError, "batch_size is '8'"),
    "batch_size: fraction": (lambda: loader(URL, 8.0), TypeError, "batch_size is 8.0"),
    "seed: text": (lambda: loader(URL, 8, True, seed="7"), TypeError, "seed is '7'"),
    "seed: long": (lambda: loader(URL, 8, True, seed=1 << 64), ValueError, "64 bits"),
    "num_workers: nothing": (lambda: loader(URL, num_workers=None), TypeError, "num_workers"),
    "timeout: text": (lambda: loader(URL, timeout="1"), TypeError, "timeout is '1'"),
    "rank: text": (lambda: loader(URL, rank="0", world_size=2), TypeError, "rank is '0'"),
    "collate_fn: number": (lambda: loader(collate_fn=3), TypeError, "collate_fn is 3"),
    "collate_fn: a name": (lambda: loader(collate_fn="stak"), TypeError, "'stak'"),
    "transform: number": (lambda: belady.Dataset(URL, 3), TypeError, "transform is 3"),
    "generator: number": (lambda: loader(URL, 8, True, generator=3), TypeError, "generator is 3"),
    "epoch: text": (lambda: with_epoch("3"), TypeError, "epoch is '3'"),
    "epoch: below 0": (lambda: with_epoch(-1), belady.BadRequest, "epoch -1 is out of range"),
    "epoch: beyond": (lambda: with_epoch(1 << 24), belady.BadRequest, "0 to 16777215"),
    "index: text": (lambda: belady.Dataset(URL)["a"], TypeError, "integer"),
    "sampler: text": (lambda: read(loader(sampler=["a"])), TypeError, "integer"),
    "sampler: outside": (lambda: read(loader(sampler=[100])), belady.BadRequest, "sample 100"),
    "sampler: below": (lambda: read(loader(sampler=[-101])), belady.BadRequest, "sample -101"),
    "batch_sampler: outside": (lambda: read(loader(batch_sampler=[[3], [100]])),
                               belady.BadRequest, "sample 100"),
    "sampler: number": (lambda: loader(sampler=5), TypeError, "sampler is 5"),
    "batch_sampler: number": (lambda: loader(batch_sampler=5), TypeError, "batch_sampler is 5"),
    "batch_sampler: flat": (lambda: read(loader(batch_sampler=[1, 2])), TypeError,
                            "batch_sampler gave 1"),
    "mesh: number": (lambda: loader(mesh=5), TypeError, "mesh is 5"),
    "shuffle: text": (lambda: loader(shuffle="no"), TypeError, "shuffle is 'no'"),
    "shuffle: number": (lambda: loader(shuffle=0), TypeError, "shuffle is 0"),
    "drop_last: number": (lambda: loader(drop_last=1), TypeError, "drop_last is 1"),
    "copy: text": (lambda: loader(copy="no"), TypeError, "copy is 'no'"),
    "in_order: nothing": (lambda: loader(in_order=None), TypeError, "in_order is None"),
    "sampler_drop_last: text": (lambda: loader(sampler_drop_last="x"), TypeError,
                                "sampler_drop_last is 'x'"),
    "persistent_workers: number": (lambda: loader(num_workers=1, persistent_workers=1), TypeError,
                                   "persistent_workers is 1"),
    "worker_init_fn: number": (lambda: loader(num_workers=1, worker_init_fn=3), TypeError,
                               "worker_init_fn is 3"),
    "rank: below 0": (lambda: loader(rank=-1, world_size=2), belady.BadRequest,
                      "rank -1 is outside of a world of 2: ranks are 0 to 1"),
    "rank: alone": (lambda: loader(rank=-1), belady.BadRequest, "without world_size="),
    "world_size: alone": (lambda: loader(world_size=2), belady.BadRequest, "without rank="),
    "world_size: 0": (lambda: loader(world_size=0), belady.BadRequest, "world_size is 0"),
    "world_size: 0, rank 0": (lambda: loader(rank=0, world_size=0), belady.BadRequest,
                              "must be at least 1"),
    "decode_jpeg: nothing": (lambda: belady.decode_jpeg(None), TypeError, "batch is a NoneType"),
    "decode_jpeg: device": (lambda: belady.decode_jpeg(b"x", device="nope"),
                            belady.DecoderUnavailable, "'nope', which names no device"),
    "dataset: ''": (lambda: belady.Dataset(""), ValueError, "a name, a path or a URL"),
    # states
    "state: nothing": (lambda: with_state(None), TypeError, "state_dict()"),
    "state: empty": (lambda: with_state({}), belady.StateMismatch, "version"),
    "state: dataset": (lambda: loaded({"content": "0" * 64}), belady.StateMismatch, "dataset"),
    "state: seed": (lambda: loaded({"seed": 2}), belady.StateMismatch, "seed"),
    "state: order": (lambda: loaded({"order": "explicit"}), belady.StateMismatch, "order"),
    "state: position": (lambda: loaded({"position": 101}), belady.StateMismatch, "position is 101"),
    "state: fraction": (lambda: loaded({"position": 2.5}), belady.StateMismatch, "2.5"),
    "state: epoch": (lambda: loaded({"epoch": None}), belady.StateMismatch, "epoch is None"),
    # what is closed, too large, or ragged
    "closed": (after_closing, belady.LoaderClosed, "make a new one"),
    "closed while read": (while_closing, belady.LoaderClosed, "make a new one"),
    "batch over the arena": (lambda: read(loader(BIG, 256)), belady.ArenaTooSmall, "MiB"),
    "ragged": (lambda: read(loader(RAGGED, 8, collate_fn="stack")), belady.RaggedBatch,
               "cannot be stacked"),
    "dataset: unknown": (lambda: len(belady.Dataset("nowhere")), belady.UnknownDataset, "nowhere"),
    "dataset: no driver": (lambda: len(belady.Dataset("ftp://a/b")), belady.DatasetAddFailed,
                           "no driver for ftp"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(node: Node, case: str) -> None:
    ask, error, part = CASES[case]
    with pytest.raises(error) as caught:
        ask()
    text = str(caught.value)
    assert part in text, text
    assert "\n" not in text and not text.endswith("."), text


EMPTY: dict[str, dict[str, Any]] = {
    "loop": {},
    "threads": {"num_workers": 2, "worker_type": "thread"},
    "processes": {"num_workers": 2},
    "any order": {"num_workers": 2, "worker_type": "thread", "in_order": False},
}


@pytest.mark.parametrize("mode", EMPTY)
@pytest.mark.parametrize("off", [False, True])
def test_an_empty_batch(
    node: Node, files: Path, mode: str, off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads, with a daemon and without one."""
    if off:
        monkeypatch.setenv("BELADY", "off")
    with pytest.raises(belady.BadRequest, match="^batch 1 of the batch sampler is empty, and an"):
        read(loader(files, batch_sampler=[[1, 2], [], [3]], **EMPTY[mode]))


def test_the_last_epoch(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read, and the one behind it refused, with a daemon and without one."""
    orders: list[list[int]] = []
    for _ in range(2):
        with loader(files, 8, True, seed=1) as made:
            with pytest.raises(ValueError, match="^epoch 16777216 is out of range: epochs are 0"):
                made.set_epoch(1 << 24)
            made.set_epoch((1 << 24) - 1)
            orders.append([s.id for batch in made for s in batch])
        monkeypatch.setenv("BELADY", "off")
    assert orders[0] and orders[0] == orders[1]


def test_a_failed_scan_leaves_nothing(node: Node) -> None:
    with pytest.raises(belady.DatasetAddFailed):
        len(belady.Dataset(node.folder / "nothing here"))
    assert not list(node.folder.glob(".*.scan.lock"))


def test_negative_indices_count_from_the_end(node: Node) -> None:
    """As the stock loader's do, below which they index a sequence."""
    batches = read(loader(URL, 2, sampler=[-1, 5, -100]))
    assert [[s.id for s in batch] for batch in batches] == [[99, 5], [0]]


def test_another_world(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that was made before the ranks knew each other would read everything on each."""
    with loader(URL, 10, True, seed=1) as made, loader(URL, 10, True, seed=1, rank=0,
                                                       world_size=1) as told:
        next(iter(made))
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(belady.BadRequest, match="rank 0 of 1 and is read by rank 1 of 2"):
            iter(made)
        assert sum(1 for _ in told) == 10  # was told its world and stays in it
        with loader(URL, 10, True, seed=1) as later:
            later.load_state_dict(made.state_dict())
            assert sum(len(batch) for batch in later) == 45


def test_another_users_socket(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat(node.socket).st_uid + 1)
    with pytest.raises(belady.DaemonUnavailable, match="belongs to another user"):
        read(loader(URL, 8))


@pytest.mark.parametrize("found", ["nothing", "what cannot be run"])
def test_no_daemon_and_no_binary(files: Path, found: str) -> None:
    """In a process of its own, because this one has found a daemon."""
    folder = temporary()
    (folder / "belady").write_text("")
    variables = {"HOME": str(folder), "PATH": str(folder), "BELADY_SOCKET": str(folder / "s"),
                 "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    if found != "nothing":
        variables["BELADY_BIN"] = str(folder / "belady")
    script = f"import belady; len(belady.DataLoader({URL!r}, 8, collate_fn=list))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("belady.errors.DaemonUnavailable: "), last
    assert ("$BELADY_BIN names" if found != "nothing" else "no `belady` binary") in last
