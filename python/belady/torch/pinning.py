"""pin_memory: batches in page-locked memory, from which copies to a GPU need not be waited for.

The ring of pinned tensors is PyTorch's own: it keeps page-locked blocks when their tensors die and
hands them out again once every copy from them, on whatever stream, is done. So after the first few
batches pinning is a copy and no system call, and a block is never written to while anything, user
or GPU, still reads it. Workers pin ahead of the loop, each thread its own batches, processes
through PyTorch's pinning thread; only without workers does `next` do it.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from belady.torch.arena import Arena, cuda_arena


class Pinning(NamedTuple):
    """What is done to a finished batch, and who else is told of leases."""

    move: Callable[[Any], Any]
    arena: Optional[Arena]


def pinning(arena: bool, device: str) -> Optional[Pinning]:
    """None, with PyTorch's warning, where there is nothing to pin for."""
    if not _available(device):
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned"
            " memory won't be used.",
            stacklevel=5,
        )
        return None
    return Pinning(partial(pin_memory, device=device or None), cuda_arena() if arena else None)


def _available(device: str) -> bool:
    if device and not device.startswith("cuda"):
        return True
    accelerator: Any = getattr(torch, "accelerator", None)  # PyTorch 2.6 and newer
    return torch.cuda.is_available() or (accelerator is not None and accelerator.is_available())
