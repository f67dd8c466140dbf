"""Folders of symbolic links, as subsets of large datasets are made, beside real torchvision."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from torchvision.datasets import DatasetFolder

import belady
from conftest import Node, temporary, write_files


def pair(sample: belady.Sample) -> tuple[bytes, int]:
    return bytes(sample), sample.label


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def subset(whole: Path) -> Path:
    """A class of links to files, one of links to those of the first, and one that is a link."""
    root = temporary()
    for name in ("class0", "again"):
        (root / name).mkdir()
    for file in sorted((whole / "class0").rglob("*.bin"))[:20]:
        os.symlink(file, root / "class0" / file.name)
        os.symlink(Path("..", "class0", file.name), root / "again" / file.name)
    os.symlink(whole / "class1", root / "class1")
    return root


@pytest.mark.parametrize("daemon", [True, False])
def test_linked_subset(
    daemon: bool, node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not daemon:
        monkeypatch.setenv("BELADY", "off")
    root = subset(files)
    theirs = DatasetFolder(str(root), loader=read, is_valid_file=lambda _: True)
    ours = belady.Dataset(root, pair)
    assert ours.classes == theirs.classes
    assert [ours.name_of(i) for i in range(len(ours))] == [
        os.path.relpath(path, root) for path, _ in theirs.samples
    ]
    reference = list(DataLoader(theirs, 8, collate_fn=list))
    with belady.DataLoader(ours, 8, collate_fn=list) as loader:
        assert list(loader) == reference


@pytest.mark.parametrize("daemon", [True, False])
def test_what_a_link_leads_to_changed(
    daemon: bool, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not daemon:
        monkeypatch.setenv("BELADY", "off")
    whole = write_files(temporary(), 60)
    ours = belady.Dataset(subset(whole), pair)
    names = [ours.name_of(i) for i in range(len(ours))]
    changed, gone = sorted((whole / "class1").rglob("*.bin"))[:2]
    changed.write_bytes(b"others")
    gone.unlink()
    for path, error in ((changed, belady.SampleChanged), (gone, belady.SampleAbsent)):
        name = str(path.relative_to(whole))
        with pytest.raises(error, match=path.name):
            ours[names.index(name)]
