"""The scripts in examples/ do what they say."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Node

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_compiles(script: Path, tmp_path: Path) -> None:
    """All of them, those that need a GPU to run too."""
    py_compile.compile(str(script), str(tmp_path / "out"), doraise=True)


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments], capture_output=True, text=True,
        timeout=120, check=False, env=dict(os.environ),
    )


@pytest.mark.parametrize("ranks, workers, padding", [("2,3", "0,1", 0), ("3,2", "1,0", 1)])
def test_kill_and_resume(node: Node, ranks: str, workers: str, padding: int) -> None:
    """721 samples cannot be dealt evenly: one is repeated, as DistributedSampler does."""
    samples = 721 if padding else 720
    source = f"synth://kill{samples}?samples={samples}&size=2KB"
    done = run("kill_and_resume.py", source, "--ranks", ranks, "--workers", workers, "--batch", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"killed with SIGKILL after\s+step (\d+) .*resumed from step (\d+), position (\d+):"
        r" missing (\d+), twice (\d+)", done.stdout, re.S,
    )
    assert found, done.stdout
    killed, resumed, position, missing, twice = map(int, found.groups())
    assert 0 < resumed <= killed and position == resumed * 6 * int(ranks[0])
    assert (missing, twice) == (0, padding)
    assert (f"of which padding {padding}" in done.stdout) == (padding > 0)


def test_kill_and_resume_refuses_what_is_too_small(node: Node) -> None:
    done = run("kill_and_resume.py", "synth://few?samples=20&size=1KB")
    assert done.returncode == 1 and "give more, or a smaller --batch" in done.stderr
