"""A training that is killed with SIGKILL at random points, and a count of every sample.

The story: rank processes read batches, write down the ids they were given, and save the loader's
state every few steps. At moments drawn from the seed a worker process, a trainer or the daemon is
killed. What was read after the last checkpoint is forgotten, as a training forgets it, and the run
goes on from there with other numbers of ranks and workers. In the end every sample of every epoch
must have been read once.

`train` is one rank's process; `Run` is what a launcher does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Optional

import belady

EPOCHS = 2
BATCH = 6
EVERY = 3  # steps from checkpoint to checkpoint
STEP_S = 0.004
PATIENCE_S = 60.0


class Shape(NamedTuple):
    """How a run is started."""

    world: int
    workers: int


def train(source: str, folder: Path, rank: int, shape: Shape, resume: Optional[str]) -> None:
    """One rank: read, write down, save. A step is written before the state that contains it."""
    with belady.DataLoader(
        source, BATCH, shuffle=True, seed=11, collate_fn=list, rank=rank,
        world_size=shape.world, num_workers=shape.workers,
    ) as loader:
        if resume is not None:
            loader.load_state_dict(json.loads(Path(resume).read_text()))
        step = 0
        with open(folder / f"read-{rank}", "w", buffering=1) as log:
            for epoch in range(loader.state_dict()["epoch"], EPOCHS):
                for batch in loader:
                    step += 1
                    log.write(json.dumps([step, epoch, [s.id for s in batch]]) + "\n")
                    time.sleep(STEP_S)
                    if step % EVERY == 0:
                        save(folder / f"state-{rank}-{step}", loader.state_dict())
        save(folder / f"state-{rank}-{step}", loader.state_dict())


def save(path: Path, state: dict[str, Any]) -> None:
    part = path.with_name("part-" + path.name)
    part.write_text(json.dumps(state))
    part.rename(path)


class Run:
    """A training that is killed and resumed. `counts` is what was read and never forgotten."""

    def __init__(self, source: str, folder: Path, seed: int) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        self.killed = 0
        self.errors = ""  # what the last leg's ranks wrote
        self._source = source
        self._folder = folder
        self._draw = random.Random(seed)
        self._leg = 0
        self._state: Optional[Path] = None

    def leg(self, shape: Shape, kill: Optional[Callable[[subprocess.Popen[bytes]], None]]) -> None:
        """Train from the last checkpoint on until killed, or to the end.

        `kill` is given one rank's process when that has read a number of steps that is drawn, and
        the others have begun.
        """
        self._leg += 1
        folder = self._folder / str(self._leg)
        folder.mkdir()
        ranks = [self._start(folder, rank, shape) for rank in range(shape.world)]
        try:
            if kill is not None:
                victim = self._draw.randrange(shape.world)
                steps = self._draw.randint(1, 12)
                least = [steps if rank == victim else 1 for rank in range(shape.world)]
                _until(lambda: any(map(_over, ranks)) or all(
                    len(_lines(folder, rank)) >= n for rank, n in enumerate(least)
                ))
                kill(ranks[victim])
                self.killed += 1
                # A launcher ends all ranks when one has died.
                if ranks[victim].poll() is not None:
                    for process in ranks:
                        process.kill()
            for process in ranks:
                process.wait(PATIENCE_S)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        self.errors = (folder / "errors").read_text()
        if kill is None and any(process.returncode for process in ranks):
            raise AssertionError(self.errors)
        self._account(folder, shape.world)

    def _start(self, folder: Path, rank: int, shape: Shape) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, self._source, str(folder), str(rank),
                   str(shape.world), str(shape.workers)]
        if self._state is not None:
            command.append(str(self._state))
        with open(folder / "errors", "ab") as errors:
            return subprocess.Popen(command, stderr=errors)

    def _account(self, folder: Path, world: int) -> None:
        """Count what the last checkpoint that all ranks have contains."""
        saved = set.intersection(
            *({int(p.name.split("-")[2]) for p in folder.glob(f"state-{rank}-*")}
              for rank in range(world))
        )
        if not saved:
            return
        last = max(saved)
        states = [(folder / f"state-{rank}-{last}").read_text() for rank in range(world)]
        assert all(state == states[0] for state in states), "the ranks' states differ"
        self._state = folder / f"state-0-{last}"
        for rank in range(world):
            for step, epoch, ids in _lines(folder, rank):
                if step <= last:
                    self.counts.update((epoch, i) for i in ids)

    def result(self, samples: int) -> tuple[int, int]:
        """How many samples of all epochs are missing, and how many were read more than once."""
        missing = sum(not self.counts[e, i] for e in range(EPOCHS) for i in range(samples))
        return missing, sum(n > 1 for n in self.counts.values())


def _lines(folder: Path, rank: int) -> list[Any]:
    path = folder / f"read-{rank}"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(True) if line[-1] == "\n"]


def _over(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "the training does not get on"
        time.sleep(0.002)


def kill_trainer(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(PATIENCE_S)


def kill_worker(process: subprocess.Popen[bytes]) -> None:
    """One of a rank's worker processes; PyTorch then ends the rank with an error."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    if children:  # none any more, between two epochs
        os.kill(int(children[0]), signal.SIGKILL)
        process.wait(PATIENCE_S)
    else:
        kill_trainer(process)


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]),
          Shape(int(sys.argv[4]), int(sys.argv[5])), sys.argv[6] if len(sys.argv) > 6 else None)
