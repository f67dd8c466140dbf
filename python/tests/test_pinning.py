"""pin_memory: what can be seen without a GPU. gpu_check.py has the rest."""

from __future__ import annotations

import gc
import threading
import warnings
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

import belady
import belady.torch.pinning
from belady.torch.arena import Arena
from conftest import Node, eventually, image_folder


class Stream:
    """Work that was queued on a GPU: `done` of it."""

    def __init__(self) -> None:
        self.queued = 0
        self.done = 0

    def mark(self) -> Point:
        self.queued += 1
        return Point(self, self.queued)


class Point:
    def __init__(self, stream: Stream, at: int) -> None:
        self._stream = stream
        self._at = at

    def query(self) -> bool:
        return self._stream.done >= self._at

    def synchronize(self) -> None:
        self._stream.done = max(self._stream.done, self._at)


def refuse(*_: Any) -> Callable[[], None]:
    raise OSError("no such flag")


def test_leases_wait_for_copies_in_flight() -> None:
    stream, given_back = Stream(), []
    arena = Arena(lambda *_: lambda: None, stream.mark)
    arena.begin()
    arena.died(given_back.append, 1)
    arena.step()
    arena.step()
    arena.died(given_back.append, 2)
    assert given_back == [], "the stream has not come to where the first one died"
    stream.done = 1
    arena.step()
    assert given_back == [1]
    arena.end()
    assert given_back == [1, 2], "the last loop's end waits"
    arena.died(given_back.append, 3)
    assert given_back == [1, 2, 3], "without a loop each is waited for"


def test_registered_while_it_is_mapped(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps are registered before they are lent and undone before they go; bytes stay while the
    stream has not come past them."""
    stream = Stream()
    maps: dict[int, tuple[int, bool]] = {}

    def register(address: int, size: int, writable: bool) -> Callable[[], None]:
        maps[address] = size, writable
        return lambda: maps.pop(address) and None

    pinning = belady.torch.pinning.Pinning(lambda batch: batch, Arena(register, stream.mark))
    monkeypatch.setattr(belady.torch.pinning, "pinning", lambda *_: pinning)
    reference = image_folder(files)
    with belady.DataLoader(
        files, 8, True, seed=1, collate_fn=list, pin_memory="arena"
    ) as loader:
        for i, batch in enumerate(loader):
            assert all(bytes(s) == reference[s.id][0] for s in batch)
            assert maps and not any(writable for _, writable in maps.values())
            if i > 2:
                stream.done = stream.queued - 2
        del batch
    gc.collect()
    assert not maps
    eventually(lambda: node.ranks() == 0, "all leases are given back", 1.0)


def test_refused_registration_is_said_once() -> None:
    arena = Arena(refuse, Stream().mark)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        arena.register(1, 2, False)()
        arena.register(3, 4, True)()
    assert len(said) == 1 and "no such flag" in str(said[0].message)


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 1}, {"num_workers": 1, "worker_type": "thread"},
], ids=str)
@pytest.mark.parametrize("pin", [True, "arena"])
def test_without_an_accelerator(
    node: Node, files: Path, options: dict[str, Any], pin: Any
) -> None:
    """PyTorch's warning, and batches as they are."""
    assert not torch.cuda.is_available(), "this is gpu_check.py's then"
    if pin == "arena" and options == {"num_workers": 1}:
        options = {}
    with belady.DataLoader(
        belady.Dataset(files, length), 64, pin_memory=pin, **options
    ) as loader, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        total = sum(int(batch.sum()) for _ in range(2) for batch in loader)
    assert total == 2 * sum(len(data) for data, _, _ in image_folder(files))
    assert [str(w.message) for w in said if "no accelerator" in str(w.message)].__len__() == 1


def length(sample: belady.Sample) -> int:
    return len(sample)


def test_threads_pin_ahead_of_the_loop(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by: list[str] = []

    def move(batch: Any) -> Any:
        by.append(threading.current_thread().name)
        return batch

    monkeypatch.setattr(
        belady.torch.pinning, "pinning", lambda *_: belady.torch.pinning.Pinning(move, None)
    )
    with belady.DataLoader(
        belady.Dataset(files, length), 16, pin_memory=True, num_workers=1, worker_type="thread"
    ) as loader:
        iterator = iter(loader)
        eventually(lambda: len(by) == 2, "two batches are pinned before one is asked for")
        assert len(list(iterator)) == len(loader)
    assert all(name.startswith("belady") for name in by) and len(by) == len(loader)
