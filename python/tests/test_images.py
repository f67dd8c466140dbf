"""belady.ImageFolder is torchvision's, whatever lies in the folders; and a path that changed is
noticed, as it is by a dataset that lists its files each time."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

import belady
from belady.scan import IMAGE_EXTENSIONS
from conftest import BELADY, Node, temporary


def content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))


def same(root: Path) -> None:
    """Every attribute and item, by index, by our loader and by theirs."""
    theirs: Any = ImageFolder(str(root), loader=content)
    ours = belady.ImageFolder(str(root), loader=bytes)
    assert ours.classes == theirs.classes and ours.class_to_idx == theirs.class_to_idx
    assert ours.samples == theirs.samples == ours.imgs
    assert list(ours.targets) == theirs.targets and len(ours) == len(theirs)
    expected = [theirs[i] for i in range(len(theirs))]
    assert [ours[i] for i in range(len(ours))] == expected
    with belady.DataLoader(ours, 4, collate_fn=list, num_workers=1) as loader:
        assert [item for batch in loader for item in batch] == expected
    stock: Any = DataLoader(ours, 4, collate_fn=list)  # type: ignore[arg-type]
    belady.attach(stock)
    assert [item for batch in stock for item in batch] == expected


STRAY = (
    "README", "top.jpg", ".DS_Store", "b/2.jpg", "b/10.JPG", "b/labels.csv", "b/.DS_Store",
    "b/half.jpg.part", "b/jpg", "a/deep/er/1.Tiff", "a/deep-er/2.webp", "a/deep/3.PNG",
    "a/deep/notes.txt", "a/zoé.jpeg", "C/1.ppm", "C/2.pgm", "C/3.bmp", "C/4.tif", "C/5.gif",
)


@pytest.mark.parametrize("how", ["daemon", "off", "no binary"])
def test_stray_files(node: Node, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = temporary()
    put(root, *STRAY)
    os.symlink("deep", root / "a" / "link")
    os.symlink("2.jpg", root / "b" / "3.jpg")
    if how != "daemon":
        monkeypatch.setenv("BELADY", "off")
    if how == "no binary":
        monkeypatch.setenv("BELADY_BIN", "/nowhere")
    same(root)
    assert len(belady.Dataset(root)) > len(belady.ImageFolder(root))


def test_extensions() -> None:
    assert IMAGE_EXTENSIONS == IMG_EXTENSIONS


@pytest.mark.parametrize("empty", [["b"], [".git", "b"], ["a", "b"], []])
def test_classes_without_images(node: Node, empty: list[str]) -> None:
    root = temporary()
    put(root, "top.jpg")
    for name in empty:
        put(root, f"{name}/deep/notes.txt")
    if empty and "a" not in empty:
        put(root, "a/1.jpg")
    with pytest.raises(FileNotFoundError) as theirs:
        ImageFolder(str(root))
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as ours:
            len(belady.ImageFolder(str(root)))
        assert str(ours.value).split(". ")[0] == str(theirs.value).split(". ")[0]
        assert isinstance(ours.value, belady.BeladyError)
    if empty == ["b"]:
        with pytest.raises(belady.errors.NotYetSupported, match="allow_empty=True: b in"):
            len(belady.ImageFolder(root, allow_empty=True))


@pytest.mark.parametrize("hidden", [".cache/1.jpg", "a/._1.jpg", "a/.thumbs/1.jpg"])
def test_hidden_images_are_refused(
    node: Node, hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchvision takes them: other batches must not come instead without a word."""
    root = temporary()
    put(root, "a/1.jpg", hidden)
    assert len(ImageFolder(str(root))) == 2
    with pytest.raises(belady.errors.DatasetAddFailed, match="begins with a dot"):
        len(belady.ImageFolder(root))
    monkeypatch.setenv("BELADY", "off")
    monkeypatch.setenv("BELADY_BIN", "/nowhere")
    with pytest.raises(belady.errors.DatasetAddFailed, match="begins with a dot"):
        len(belady.ImageFolder(root))


def test_arguments(node: Node) -> None:
    root = temporary()
    put(root, "a/1.jpg")
    with pytest.raises(belady.errors.NotYetSupported, match="is_valid_file="):
        belady.ImageFolder(root, is_valid_file=os.path.isfile)
    assert len(belady.ImageFolder(root, allow_empty=True)) == 1
    with pytest.raises(TypeError, match="is given a belady.Sample and not a path"):
        belady.ImageFolder(root, loader=content)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["daemon", "off", "no binary"])
def test_changes_are_noticed(
    node: Node, how: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if how != "daemon":
        monkeypatch.setenv("BELADY", "off")
    if how == "no binary":
        monkeypatch.setenv("BELADY_BIN", "/nowhere")
    root = temporary()
    put(root, "b/1.jpg", "b/2.jpg", "c/deep/1.jpg", "c/1.jpg")
    (root / "c" / "none").mkdir()
    same(root)
    capfd.readouterr()
    put(root, "a/1.jpg", "c/deep/2.jpg")  # a class before the others, and a file far below
    same(root)
    said = capfd.readouterr().err
    if how != "no binary":
        assert said.count("2 added, 0 changed, 0 removed, now 6 samples") == 1
        assert str(root) in said
    put(root, "c/none/1.jpg")  # a folder of which no sample was known
    same(root)
    (root / "b" / "1.jpg").unlink()
    same(root)
    os.rename(root / "b", root / "d")
    same(root)
    assert len(belady.Dataset(root)) == len(belady.ImageFolder(root)) == 6


def test_what_did_not_change_is_not_listed_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor by ranks that wait for the one that lists it."""
    root = temporary()
    put(root, "a/1.jpg", "a/deep/2.jpg")
    for folder in ("a/deep", "a", "."):
        os.utime(root / folder, (1e9, 1e9))
    log = temporary() / "scans"
    counting = log.with_name("belady")
    counting.write_text(f'#!/bin/sh\necho >> {log}\nsleep 0.5\nexec {BELADY} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("BELADY_BIN", str(counting))

    def open_in(processes: int) -> int:
        code = f"import belady; print(len(belady.Dataset({str(root)!r})))"
        command = [sys.executable, "-c", code]
        ranks = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
        assert {rank.communicate(timeout=60)[0] for rank in ranks} == {b"2\n"}
        return len(log.read_text())

    assert open_in(3) == 1
    assert open_in(1) == 1
    (root / "a" / "1.jpg").rename(root / "a" / "3.jpg")
    assert open_in(3) >= 2
    assert belady.Dataset(root).name_of(0) == "a/3.jpg"


def test_a_root_that_is_gone_has_not_changed(node: Node) -> None:
    root = temporary() / "root"
    put(root, "a/1.jpg")
    assert len(belady.Dataset(root)) == 1
    root.rename(root.with_name("moved"))
    assert len(belady.Dataset(root)) == 1


def test_other_processes_are_not_given_another_scan(node: Node) -> None:
    root = temporary()
    put(root, "b/1.jpg")
    before = belady.Dataset(root)
    assert len(before) == 1
    sent = pickle.dumps(before)
    put(root, "a/1.jpg")
    assert len(belady.Dataset(root)) == 2
    with pytest.raises(belady.errors.ManifestError, match="start the run again"):
        pickle.loads(sent)


@pytest.mark.parametrize("mode", ["on", "off"])
def test_errors_name_the_command(
    node: Node, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which mends what no folder's time shows: a file that was written to in place."""
    monkeypatch.setenv("BELADY", mode)
    root = temporary()
    put(root, "a/1.jpg", "a/2.jpg")
    dataset = belady.ImageFolder(root, loader=bytes)
    assert len(dataset) == 2
    command = f"run: belady dataset add {dataset.name}$"
    (root / "a" / "1.jpg").write_bytes(b"other bytes")
    with pytest.raises(belady.SampleChanged, match=command):
        dataset[0]
    (root / "a" / "2.jpg").unlink()
    with pytest.raises(belady.SampleAbsent, match=command):
        dataset[1]
    del dataset
    done = subprocess.run(
        [BELADY, "dataset", "add", belady.ImageFolder(root).name], check=True, capture_output=True
    )
    assert b"1 changed, 1 removed" in done.stdout
    assert belady.ImageFolder(root, loader=bytes)[0] == (b"other bytes", 0)
