"""The READMEs' examples run, and their three lines mean what the stock loader's did."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.transforms import CenterCrop, Compose, ToTensor

import belady
from conftest import Node, temporary
from three_lines import pictures, scripts

README = Path(__file__).resolve().parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.S)


def test_examples(node: Node, files: Path) -> None:
    loop, attach, resume = blocks("python")
    scope: dict[str, Any] = {"PATH": node.folder / "padded"}
    for i in range(40):
        folder = node.folder / "padded" / f"class{i % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.bin").write_bytes(bytes([i]) * (20 + i))
    exec(loop, scope)
    exec(attach, scope)
    scope["loader"] = belady.DataLoader(scope["dataset"], batch_size=8, shuffle=True, seed=7)
    exec(resume, scope)
    scope["loader"].close()


def test_three_lines(node: Node) -> None:
    """With real torchvision, whose transforms are given images."""
    (diff,) = blocks("diff")
    before = [line[1:] for line in diff.splitlines() if line[0] == "-"]
    after = [line[1:] for line in diff.splitlines() if line[0] == "+"]
    assert len(after) == 3
    folder = temporary()
    pictures(folder)
    transform = Compose([CenterCrop(16), ToTensor()])

    def run(lines: list[str], scope: dict[str, Any]) -> list[Any]:
        exec("\n".join(lines).replace("/data/train", str(folder)), scope)
        return [[x.tolist() for x in batch] for batch in scope["loader"]]

    def sampler(dataset: Any, seed: int) -> Any:
        return DistributedSampler(dataset, 1, 0, seed=seed)

    theirs = run(before, {"ImageFolder": ImageFolder, "transform": transform,
                          "DataLoader": DataLoader, "DistributedSampler": sampler})
    scope: dict[str, Any] = {"transform": transform}
    assert run(after, scope) == theirs
    scope["loader"].close()


def test_three_lines_of_the_project(node: Node) -> None:
    """With real torchvision: its ImageFolder, its augmentation, PyTorch's workers."""
    sides = scripts(temporary())
    assert len(sides.added) == 3

    def run(script: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True,
            timeout=120, check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    theirs = run(sides.stock)
    assert theirs.startswith("60 ")
    assert run(sides.belady) == theirs
