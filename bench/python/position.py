"""What a position costs: its size, the time to take it, and the time to go on from it.

    position.py DATASET

The dataset is large. Prints one JSON object. Resuming is timed from `load_state_dict` to the first
batch, in the middle of an epoch: first with a daemon that has not opened the dataset yet, then
again with one that has.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from typing import Any

import torch

import belady

BATCH = 256
CALLS = 1000


def seeded(name: str) -> belady.DataLoader:
    return belady.DataLoader(name, BATCH, shuffle=True, seed=1, collate_fn=list)


def resume(name: str, state: dict[str, Any]) -> float:
    """Seconds to the first batch, which must be the one that is due."""
    with seeded(name) as loader:
        begun = time.perf_counter()
        loader.load_state_dict(state)
        batch = next(iter(loader))
        took = time.perf_counter() - begun
        order = torch.randperm(state["samples"], generator=torch.Generator().manual_seed(1))
        at = state["position"]
        if [s.id for s in batch] != order[at : at + BATCH].tolist():
            sys.exit("position: another batch came than the one that is due: the figures are void")
    return took


def calls(loader: belady.DataLoader) -> float:
    begun = time.perf_counter()
    for _ in range(CALLS):
        loader.state_dict()
    return (time.perf_counter() - begun) / CALLS


def imported() -> dict[str, Any]:
    """In the middle of an epoch that the user's generator shuffled. The state must be what another
    generator goes on from."""
    def loader_of(seed: int) -> belady.DataLoader:
        generator = torch.Generator().manual_seed(seed)
        source = "synth://imported?samples=1000&size=1KB"
        return belady.DataLoader(source, 10, shuffle=True, generator=generator, collate_fn=list)

    with loader_of(5) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        out = {"generator_bytes": len(pickle.dumps(state)), "generator_seconds": calls(loader)}
        due = [s.id for s in next(iterator)]
    with loader_of(6) as loader:
        loader.load_state_dict(state)
        if [s.id for s in next(iter(loader))] != due:
            sys.exit("position: the generator's state is not in the state: the figures are void")
    return out


def main() -> None:
    name = sys.argv[1]
    with seeded(name) as loader:
        state = loader.state_dict()
        out: dict[str, Any] = {"bytes": len(pickle.dumps(state)), "seconds": calls(loader)}
    state["position"] = state["samples"] // 2 // BATCH * BATCH
    out["resume_cold"], out["resume_warm"] = resume(name, state), resume(name, state)
    print(json.dumps({**out, **imported()}))


if __name__ == "__main__":
    main()
