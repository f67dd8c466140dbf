"""Datasets below PyTorch's own DataLoader: read on demand, in any process."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, random_split

import belady
from belady import notice
from conftest import (
    BELADY,
    DEADLINE_S,
    Node,
    eventually,
    image_folder,
    temporary,
    write_files,
)


def plain(sample: belady.Sample) -> tuple[bytes, int, str]:
    return bytes(sample), sample.label, sample.name


def length(sample: belady.Sample) -> int:
    return len(sample.data)


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 2}, {"num_workers": 1, "multiprocessing_context": "forkserver"},
], ids=["here", "fork", "forkserver"])
def test_stock_loaders(node: Node, files: Path, options: dict[str, Any]) -> None:
    dataset = belady.Dataset(files, plain)
    assert dataset[3] == image_folder(files)[3]  # a session that forked workers must not use
    torch.manual_seed(1)
    want = list(DataLoader(image_folder(files), 20, True, collate_fn=list))  # type: ignore
    torch.manual_seed(1)
    assert list(DataLoader(dataset, 20, True, collate_fn=list, **options)) == want  # type: ignore


def test_indices(node: Node, files: Path) -> None:
    reference, dataset = image_folder(files), belady.Dataset(files, plain)
    assert dataset[-1] == reference[-1] and dataset[np.int64(7)] == reference[7]
    assert dataset.__getitems__([5, 0, 5]) == [reference[5], reference[0], reference[5]]
    assert dataset.__getitems__([]) == []
    assert list(dataset) == reference  # ends with IndexError, as sequences do
    for bad in (len(reference), -len(reference) - 1):
        with pytest.raises(IndexError):
            dataset[bad]
    assert pickle.loads(pickle.dumps(dataset))[9] == reference[9]
    first, second = random_split(dataset, [200, 11])  # type: ignore[arg-type]
    assert sorted([*first, *second]) == sorted(reference)
    assert Subset(dataset, [4, 2])[0] == reference[4]  # type: ignore[arg-type]


def test_threads(node: Node, files: Path) -> None:
    reference, dataset = image_folder(files), belady.Dataset(files, plain)
    wrong: list[int] = []

    def read(start: int) -> None:
        wrong.extend(i for i in range(start, 60, 3) if dataset[i] != reference[i])

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_image_folder(node: Node, images: Path) -> None:
    reference = image_folder(images)
    dataset = belady.ImageFolder(
        images, transform=lambda n: n * 2, target_transform=lambda t: -t, loader=length
    )
    assert dataset[10] == (2 * len(reference[10][0]), -reference[10][1])
    assert dataset.samples == [(str(images / name), label) for _, label, name in reference]
    assert dataset.classes == ["class0", "class1", "class2"]
    with belady.DataLoader(dataset, 50) as loader:
        got = [pair for x, y in loader for pair in zip(x.tolist(), y.tolist())]
    assert got == [(2 * len(data), -label) for data, label, _ in reference]


def test_images_are_decoded_by_pillow(
    node: Node, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for Pillow, which the tests do not need otherwise."""
    class Image(types.ModuleType):
        def open(self, file: Any) -> Any:
            return types.SimpleNamespace(convert=lambda mode: (mode, file.read()))

    monkeypatch.setitem(sys.modules, "PIL", types.ModuleType("PIL"))
    monkeypatch.setattr(sys.modules["PIL"], "Image", Image("PIL.Image"), raising=False)
    data, label, _ = image_folder(images)[8]
    assert belady.ImageFolder(images)[8] == (("RGB", data), label)


def test_sessions_end_with_the_dataset(node: Node, files: Path) -> None:
    dataset = belady.Dataset(files, plain)
    dataset[0]
    assert node.ranks() == 1
    del dataset
    eventually(lambda: node.ranks() == 0, "the dataset's session is gone", 1.0)


def test_long_scans_are_said(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who scans, and by who waits for another to do it."""
    monkeypatch.setattr(notice, "SAY_AFTER_S", 0.1)
    slow = temporary() / "belady"
    slow.write_text(f'#!/bin/sh\n[ $1 = dataset ] && sleep 0.5\nexec {BELADY} "$@"\n')
    slow.chmod(0o700)
    monkeypatch.setenv("BELADY_BIN", str(slow))
    folder = write_files(temporary(), 3)
    with pytest.warns(UserWarning, match=f"the scan of {folder}"):
        assert len(belady.Dataset(folder)) == 3
    folder = write_files(temporary(), 4)
    dataset = belady.Dataset(folder)
    with open(node.folder / f".{dataset.name}.scan.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(0.5, fcntl.flock, (lock, fcntl.LOCK_UN))
        release.start()
        with pytest.warns(UserWarning, match=f"another process to scan {folder}"):
            assert len(dataset) == 4
        release.join()


def test_waiting_for_a_lock_that_is_removed(node: Node) -> None:
    """Who waited for it takes the one that is there now, so that one process scans at a time."""
    dataset = belady.Dataset(write_files(temporary(), 5))
    path = node.folder / f".{dataset.name}.scan.lock"
    with open(path, "w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            scanned = pool.submit(len, dataset)
            eventually(lambda: has_opened(path), "it waits for the first lock")
            path.unlink()
            with open(path, "w") as second:
                fcntl.flock(second, fcntl.LOCK_EX)
                fcntl.flock(first, fcntl.LOCK_UN)
                eventually(lambda: has_opened(path), "it waits for the second lock")
                assert not scanned.done()
                fcntl.flock(second, fcntl.LOCK_UN)
            assert scanned.result(DEADLINE_S) == 5
    assert not path.exists()


def has_opened(path: Path) -> bool:
    """Twice: by the test itself, and by who waits."""
    opened = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            opened += os.path.samestat(path.stat(), os.fstat(int(fd)))
    return opened == 2
