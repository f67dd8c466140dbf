"""Ranks of one run begin at one position; whoever may rightly be elsewhere is let in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import belady
from belady import feed
from belady.reading import job_name
from conftest import BELADY, ROOT, Node


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are compared by how often their processes began: each test is one that begins."""
    monkeypatch.setattr(feed, "_begun", Counter())


def pair(files: Path, **options: Any) -> list[belady.DataLoader]:
    """The two ranks of a run, in one process."""
    return [
        belady.DataLoader(files, 10, True, seed=3, collate_fn=list, rank=rank, world_size=2,
                          **options)
        for rank in range(2)
    ]


def load(loader: belady.DataLoader, epoch: int, position: int) -> None:
    loader.load_state_dict({**loader.state_dict(), "epoch": epoch, "position": position})


def ids(batch: list[belady.Sample]) -> list[int]:
    return [s.id for s in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_unequal_states(node: Node, files: Path, workers: int) -> None:
    first, second = pair(files, num_workers=workers)
    with first, second:
        load(first, 0, 40)
        load(second, 0, 60)
        iterator = iter(first)
        next(iterator)
        with pytest.raises(belady.StateMismatch, match=(
            r"rank 1 of job \S+ begins at position 60 of epoch 0, but rank 0 \(process \d+\) began"
            " at position 40 of epoch 0: load the same checkpoint on every rank"
        )):
            next(iter(second))
        # Which is mended so, in this process or in a new one.
        load(second, 0, 40)
        rest = iter(second)
        assert not set(ids(next(rest))) & set(ids(next(iterator)))


SCRIPT = """
import os, sys, time, belady
loader = belady.DataLoader(sys.argv[1], 10, True, seed=3, collate_fn=list)
if loader.world.rank == 0:
    loader.load_state_dict({**loader.state_dict(), "position": 40})
iterator = iter(loader)
time.sleep(60)  # until torchrun ends it
"""


def test_one_rank_forgets_to_load(node: Node, files: Path, tmp_path: Path) -> None:
    """Under torchrun, which was given no name for the run."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--redirects=1",
         "--tee=1", "--monitor_interval=0.1", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
         str(script), str(files)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "BELADY_BIN": BELADY},
        capture_output=True, text=True, timeout=120, check=False,
    )
    said = re.findall(r"StateMismatch: rank (\d) of job train\.py-\d+ begins at position (\d+) of"
                      r" epoch 0, but rank (\d) .* began at position (\d+) of epoch 0", done.stderr)
    assert done.returncode != 0
    assert said in ([("0", "40", "1", "0")], [("1", "0", "0", "40")]), done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_that_run_apart(node: Node, files: Path, workers: int) -> None:
    """One is in the next epoch, reads the first one again or went back to a checkpoint, while the
    other begins or is where it was."""
    first, second = pair(files, num_workers=workers)
    with first, second:
        for loader in (first, second):
            load(loader, 0, 40)
        whole = [ids(batch) for batch in first]
        ahead = iter(first)
        next(ahead)
        behind = iter(second)
        next(behind)
        assert len(whole) == 1 + sum(1 for _ in behind)
        second.set_epoch(0)
        again = iter(second)
        next(again)
        load(second, 1, 20)
        back = iter(second)
        next(back)
        next(ahead)


def test_two_loaders_of_one_order(node: Node, files: Path) -> None:
    """One of them resumed, the other not, and on one rank only one of them is read now."""
    resumed, other = pair(files)
    fresh, later = pair(files)
    with resumed, other, fresh, later:
        load(resumed, 0, 40)
        load(other, 0, 40)
        next(iter(resumed))
        reading = iter(fresh)
        next(reading)
        resumed.close()
        next(iter(other))
        next(iter(later))
        next(reading)


def test_ranks_reconnect(own_node: Node, files: Path) -> None:
    """A daemon that comes back lets every rank go on where it was."""
    first, second = pair(files)
    with first, second:
        for loader in (first, second):
            load(loader, 0, 40)
        a, b = iter(first), iter(second)
        for _ in range(3):
            next(a)
        next(b)
        own_node.kill()
        own_node.start()
        assert 1 + sum(1 for _ in b) == 3 + sum(1 for _ in a)
        next(iter(first))


def test_runs_of_torchrun_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls each "none" unless it is told otherwise; they are not one job for that."""
    for variable in ("BELADY_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(variable, raising=False)
    assert job_name().endswith(f"-{os.getpid()}")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert job_name().endswith(f"-{os.getppid()}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert job_name() == "7"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    assert job_name() == "mine"
    monkeypatch.setenv("BELADY_JOB", "none")
    assert job_name() == "none"
