#!/usr/bin/env python3
"""Kill a training with SIGKILL in the middle of an epoch, resume it with other numbers of ranks and
workers, and prove that every sample of the epoch was trained on exactly once.

    python3 kill_and_resume.py [SOURCE] [--ranks 2,3] [--workers 0,2] [--batch 12] [--seed 1]

SOURCE is a path, a URL or a dataset's name. Real ranks train a real model: PyTorch's distributed
package averages their gradients on this machine. What the weights have seen is counted in a buffer
of the model, so it is saved, lost and restored together with them: a step after the last checkpoint
is forgotten by both.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import belady

EVERY = 3  # steps from checkpoint to checkpoint
STEP_S = 0.02  # what a larger model would take
WIDTH = 64


class Model(torch.nn.Module):
    def __init__(self, samples: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, 8)
        self.register_buffer("seen", torch.zeros(samples, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out


def features(sample: belady.Sample) -> tuple[torch.Tensor, int]:
    """The sample's first bytes as numbers, and which sample it is."""
    head = torch.zeros(WIDTH)
    data = sample.data[:WIDTH]
    if len(data):
        head[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return head / 255, sample.id


def train(source: str, folder: Path, batch: int, workers: int) -> None:
    """One rank, from the checkpoint on if there is one, to the end of the epoch."""
    checkpoint = folder / "checkpoint.pt"
    loader = belady.DataLoader(
        belady.Dataset(source, features), batch, shuffle=True, seed=5, num_workers=workers
    )  # rank and world size are torch.distributed's
    torch.manual_seed(0)
    model = Model(len(loader.dataset))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
    for x, ids in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        time.sleep(STEP_S)
        seen = torch.bincount(ids, minlength=len(model.seen))
        dist.all_reduce(seen)
        model.seen += seen
        step += 1
        if dist.get_rank() == 0:
            if step % EVERY == 0:
                save(checkpoint, model, loader, step)
            print(step, flush=True)
    if dist.get_rank() == 0:
        save(checkpoint, model, loader, step)
    loader.close()
    dist.barrier()


def save(path: Path, model: Model, loader: belady.DataLoader, step: int) -> None:
    """Whole or not at all: a kill in the middle leaves the checkpoint before."""
    part = path.with_suffix(".part")
    state = {"model": model.state_dict(), "loader": loader.state_dict(), "step": step}
    torch.save(state, part)
    part.rename(path)


def launch(
    source: str, folder: Path, batch: int, ranks: int, workers: int
) -> list[subprocess.Popen[str]]:
    """What torchrun does: a process for each rank. Only rank 0 speaks."""
    meeting = f"{folder}/meeting-{os.urandom(4).hex()}"  # a file by which ranks find one another
    with open(folder / "errors", "w") as errors:
        return [
            subprocess.Popen(
                [sys.executable, __file__, source, "--train", str(folder), meeting, str(rank),
                 str(ranks), str(workers), "--batch", str(batch)],
                stdout=subprocess.DEVNULL if rank else subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            )
            for rank in range(ranks)
        ]


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def kill_and_resume(
    source: str, ranks: tuple[int, int], workers: tuple[int, int], batch: int, seed: int
) -> dict[str, Any]:
    """Where the run was killed and where it went on, and what its weights saw in the end."""
    samples = len(belady.Dataset(source))
    steps = samples // (batch * ranks[0])
    if steps < 2 * EVERY:
        raise SystemExit(f"{samples} samples are {steps} steps: give more, or a smaller --batch")
    # In the first half, so that the epoch does not end while the signals are on their way.
    at = random.Random(seed).randint(EVERY, steps // 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = launch(source, folder, batch, ranks[0], workers[0])
        try:
            assert processes[0].stdout is not None
            reached = 0
            while reached < at and (line := processes[0].stdout.readline()):
                reached = int(line)
        finally:
            end(processes)
        for line in processes[0].stdout:
            reached = int(line)  # steps that were made while it was about to be killed
        if reached < at:
            raise SystemExit(f"the training ended too early: {(folder / 'errors').read_text()}")
        middle = torch.load(folder / "checkpoint.pt")
        processes = launch(source, folder, batch, ranks[1], workers[1])
        try:
            processes[0].communicate()
            if any([process.wait() for process in processes]):
                raise SystemExit(f"it did not resume: {(folder / 'errors').read_text()}")
        finally:
            end(processes)
        seen = torch.load(folder / "checkpoint.pt")["model"]["seen"]
    left = samples - middle["loader"]["position"]
    return {
        "samples": samples,
        "killed_after_step": reached,
        "resumed_from_step": middle["step"],
        "position": middle["loader"]["position"],
        # DistributedSampler evens out the ranks' shares by repeating a few samples.
        "padding": -left % ranks[1],
        "missing": int((seen == 0).sum()),
        "twice": int((seen > 1).sum()),
    }


def pair(text: str) -> tuple[int, int]:
    first, second = text.split(",")
    return int(first), int(second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("source", nargs="?", default="synth://kill?samples=1800&size=20KB")
    parser.add_argument("--ranks", type=pair, default=(2, 3), help="before, after")
    parser.add_argument("--workers", type=pair, default=(0, 2), help="of each rank: before, after")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1, help="of the moment of the kill")
    parser.add_argument("--train", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        folder, meeting, rank, world, workers = given.train
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(world)
        )
        train(given.source, Path(folder), given.batch, int(workers))
        return
    r = kill_and_resume(given.source, given.ranks, given.workers, given.batch, given.seed)
    print(
        f"{given.ranks[0]} ranks with {given.workers[0]} workers each, killed with SIGKILL after"
        f" step {r['killed_after_step']} of an epoch of {r['samples']} samples;\n"
        f"{given.ranks[1]} ranks with {given.workers[1]} workers each, resumed from step"
        f" {r['resumed_from_step']}, position {r['position']}:"
        f" missing {r['missing']}, twice {r['twice']}"
        + (f" (of which padding {r['padding']})" if r["padding"] else "")
    )
    sys.exit(1 if r["missing"] or r["twice"] > r["padding"] else 0)


if __name__ == "__main__":
    main()
