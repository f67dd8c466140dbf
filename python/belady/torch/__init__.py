"""The only part of the package that imports PyTorch; imported when it is needed.

Draws from PyTorch's global generator are made here exactly as torch.utils.data makes them, so that
a script's other random numbers are what they would be with the stock loader.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Callable, Optional

import torch
import torch.distributed
import torch.utils.data
from torch.utils.data import default_collate, default_convert

from belady.world import Dealing

__all__ = [
    "dealt",
    "default_collate",
    "default_convert",
    "distributed",
    "draw_seed",
    "entries",
    "permutation",
    "pin",
    "version",
]


def version() -> str:
    """The version whose orders are wanted."""
    return str(torch.__version__)


def draw_seed(generator: Optional[Any] = None) -> int:
    """An int64 from a generator, or the global one: base_seed, or RandomSampler's seed."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def distributed() -> Optional[tuple[int, int]]:
    """Rank and world size, once torch.distributed is initialised."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def entries(kind: str, samples: int, seed: int) -> torch.Tensor:
    """P of docs/format/order.md: an epoch's permutation, from the seed of that epoch."""
    if kind == "sequential":
        return torch.arange(samples)
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


def dealt(p: torch.Tensor, position: int, rank: int, dealing: Dealing) -> torch.Tensor:
    """A rank's ids of what a position leaves of P (docs/format/order.md, "By stride")."""
    total = dealing.of_rank(position) * dealing.world
    q = p[position:][:total]
    while len(q) < total:
        q = torch.cat([q, p[: total - len(q)]])
    return q[rank :: dealing.world]


def permutation(samples: int, generator: Any) -> Iterable[int]:
    """RandomSampler with a generator of the user's."""
    sampler: Iterable[int] = torch.utils.data.RandomSampler(range(samples), generator=generator)
    return sampler


def pin() -> Optional[Callable[[Any], Any]]:
    """What moves a batch to pinned memory; as in PyTorch a warning and nothing without CUDA."""
    if not torch.cuda.is_available():
        warnings.warn("pin_memory=True has no effect: no accelerator is found", stacklevel=3)
        return None
    from torch.utils.data._utils import pin_memory

    move: Callable[[Any], Any] = pin_memory.pin_memory
    return move
