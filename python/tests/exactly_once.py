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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

import belady

EPOCHS = 2
BATCH = 6
EVERY = 3  # steps from checkpoint to checkpoint
LATEST = 16  # the last step that a kill is drawn for
SLACK = 6  # steps that a rank may be ahead of that, so that none has ended before
STEP_S = 0.004
PATIENCE_S = 60.0


class Shape(NamedTuple):
    """How a run is started."""

    world: int
    workers: int


class Point(NamedTuple):
    """When something is killed: one rank has read so many steps, and all others have begun."""

    rank: int
    steps: int


# Told of a rank's process, and how to see that it has come to where it waits for the launcher.
Kill = Callable[[subprocess.Popen[bytes], Callable[[], bool]], None]


def train(
    source: str, folder: Path, rank: int, shape: Shape, hold: int, resume: Optional[str]
) -> None:
    """One rank: read, write down, save. A step is written before the state that contains it.

    After `hold` steps it waits for the launcher, as ranks of a training wait for one another.
    """
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
                    if step == hold:
                        _until((folder / "go").exists)
        # A name of its own: at the last step some ranks may have another state, from before it.
        save(folder / f"state-{rank}-{step + 1}", loader.state_dict())


def save(path: Path, state: dict[str, Any]) -> None:
    part = path.with_name("part-" + path.name)
    part.write_text(json.dumps(state))
    part.rename(path)


class Run:
    """A training that is killed and resumed. `counts` is what was read and never forgotten.

    It prints what happens, and what the daemon's `log` says meanwhile, for whoever has to find out
    why it went wrong.
    """

    def __init__(self, source: str, folder: Path, seed: int, log: Callable[[], str]) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        self._source = source
        self._folder = folder
        self._log = log
        self._draw = random.Random(seed)
        self._leg = 0
        self._state: Optional[Path] = None
        print(f"{source} in {folder}, seed {seed}")

    def leg(self, shape: Shape, kill: Optional[Kill]) -> None:
        """Train from the last checkpoint on until killed, or to the end.

        `kill` is given the process of a rank that is drawn, at a step that is drawn.
        """
        self._leg += 1
        folder = self._folder / str(self._leg)
        folder.mkdir()
        point = Point(self._draw.randrange(shape.world), self._draw.randint(1, LATEST))
        print(f"leg {self._leg}: {shape} from {self._state and self._state.read_text()},",
              "to the end" if kill is None else f"{kill.__name__} at {point}")
        logged = len(self._log())
        ranks = [
            self._start(folder, rank, shape, 0 if kill is None else point.steps + SLACK)
            for rank in range(shape.world)
        ]
        try:
            if kill is not None:
                self._kill_at(point, kill, folder, ranks)
            # A launcher ends all ranks when one has died.
            _until(lambda: any(p.poll() for p in ranks) or all(map(_over, ranks)))
        finally:
            for rank, process in enumerate(ranks):
                print(f"rank {rank}: process {process.pid}, exit code {process.poll()}")
                process.kill()
                process.wait()
            for path in sorted(folder.iterdir()):
                print(f"-- {path.name}\n{path.read_text()}")
            print(f"-- the daemon's log\n{self._log()[logged:]}")
        assert kill is not None or not any(process.returncode for process in ranks), "a rank failed"
        self._account(folder, shape.world)

    def _kill_at(
        self, point: Point, kill: Kill, folder: Path, ranks: list[subprocess.Popen[bytes]]
    ) -> None:
        def at(steps: int) -> bool:
            return len(_lines(folder, point.rank)) >= steps

        def reached() -> bool:
            assert not any(map(_over, ranks)), "a rank ended before anything was killed"
            return at(point.steps) and all(_lines(folder, rank) for rank in range(len(ranks)))

        _until(reached)
        kill(ranks[point.rank], lambda: at(point.steps + SLACK))
        (folder / "go").touch()

    def _start(self, folder: Path, rank: int, shape: Shape, hold: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, self._source, str(folder), str(rank),
                   str(shape.world), str(shape.workers), str(hold)]
        if self._state is not None:
            command.append(str(self._state))
        # One name for all, as launchers give it: the daemon holds their beginnings together.
        environment = {**os.environ, "BELADY_JOB": self._folder.name}
        with open(folder / f"errors-{rank}", "wb") as errors:
            return subprocess.Popen(command, stderr=errors, env=environment)

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
        assert all(state == states[0] for state in states), f"the ranks' states differ: {states}"
        self._state = folder / f"state-0-{last}"
        for rank in range(world):
            for step, epoch, ids in _lines(folder, rank):
                if step <= last:
                    self.counts.update((epoch, i) for i in ids)

    def check(self, samples: int) -> None:
        """Every sample of every epoch was read once."""
        missing = [(e, i) for e in range(EPOCHS) for i in range(samples) if not self.counts[e, i]]
        twice = [key for key, n in self.counts.items() if n > 1]
        assert not missing and not twice, f"(epoch, sample) missing {missing}, twice {twice}"


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


def kill_trainer(process: subprocess.Popen[bytes], _: Callable[[], bool]) -> None:
    process.kill()
    process.wait(PATIENCE_S)


def kill_worker(process: subprocess.Popen[bytes], waits: Callable[[], bool]) -> None:
    """One of a rank's worker processes: PyTorch then ends the rank with an error. Between two
    epochs, where there are none, or only such as are done, it goes on, and is killed itself."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    with suppress(ProcessLookupError):
        if children:
            os.kill(int(children[0]), signal.SIGKILL)
    _until(lambda: _over(process) or waits())
    kill_trainer(process, waits)


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]),
          Shape(int(sys.argv[4]), int(sys.argv[5])), int(sys.argv[6]),
          sys.argv[7] if len(sys.argv) > 7 else None)
