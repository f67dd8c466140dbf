"""The only part of the package that imports PyTorch; imported when it is needed.

Draws from PyTorch's global generator are made here exactly as torch.utils.data makes them, so that
a script's other random numbers are what they would be with the stock loader.
"""

from __future__ import annotations

import array
import base64
import warnings
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import torch
import torch.distributed
import torch.utils.data
from torch.utils.data import default_collate, default_convert

from belady.errors import RaggedBatch
from belady.session import Batch
from belady.world import Dealing

__all__ = [
    "copy_of",
    "dealt",
    "default_collate",
    "default_convert",
    "distributed",
    "draw_seed",
    "entries",
    "generator_state",
    "numbers",
    "permutation",
    "set_generator_state",
    "stacked",
    "version",
]


# Bytes that a generator's state can have.
_GENERATOR_MAX = 1 << 16


def version() -> str:
    """The version whose orders are wanted."""
    return str(torch.__version__)


def draw_seed(generator: Optional[Any] = None) -> int:
    """An int64 from a generator, or the global one: base_seed, or RandomSampler's seed."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def generator_state(generator: Any) -> str:
    """Where a generator stands, as text: half of a CPU generator's 5 KB are zeros."""
    state = bytes(generator.get_state().tolist())
    return base64.b64encode(zlib.compress(state, 1)).decode()


def set_generator_state(generator: Any, state: str) -> None:
    """Put a generator where another of its kind stood. ValueError: that is no such state."""
    try:
        packed = base64.b64decode(state, validate=True)
        plain = zlib.decompressobj().decompress(packed, _GENERATOR_MAX)
        generator.set_state(torch.tensor(list(plain), dtype=torch.uint8))
    except (TypeError, ValueError, RuntimeError, zlib.error) as e:
        raise ValueError(f"it is no state of a generator like this one: {e}") from e


def copy_of(generator: Any) -> Any:
    """A generator of the same kind."""
    return torch.Generator(device=generator.device)


def distributed() -> Optional[tuple[int, int]]:
    """Rank and world size, once torch.distributed is initialised."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def entries(samples: int, seed: int) -> torch.Tensor:
    """P of docs/format/order.md: an epoch's permutation, from the seed of that epoch."""
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed))


def dealt(p: torch.Tensor, position: int, rank: int, dealing: Dealing) -> array.array[int]:
    """A rank's ids of what a position leaves of P (docs/format/order.md, "By stride")."""
    total = dealing.of_rank(position) * dealing.world
    q = p[position:][:total]
    while len(q) < total:
        q = torch.cat([q, p[: total - len(q)]])
    ids = array.array("I", bytes(4 * dealing.of_rank(position)))
    if ids:
        torch.frombuffer(ids, dtype=torch.int32).copy_(q[rank :: dealing.world])
    return ids


def permutation(samples: int, generator: Any) -> Iterable[int]:
    """RandomSampler with a generator of the user's."""
    sampler: Iterable[int] = torch.utils.data.RandomSampler(range(samples), generator=generator)
    return sampler


def numbers(column: Sequence[int]) -> torch.Tensor:
    """Ids or labels as int32, where they lie: a view, no copy."""
    if not isinstance(column, memoryview):  # read one by one
        return torch.tensor(column).to(torch.int32)
    if not column.readonly:
        return torch.frombuffer(column, dtype=torch.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot be written to; nobody does
        return torch.frombuffer(column, dtype=torch.int32)


def stacked(batch: Batch, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples of equal length as one uint8 tensor, a row each, and their labels out of all.

    The tensor lies where the daemon packed the batch, in memory lent to this session alone: writing
    to it is safe, and the lease lasts as long as the tensor or a view of it.
    """
    n, size = len(batch.ids), batch.lengths[0]
    if not batch.equal and min(batch.lengths) != max(batch.lengths):
        id, other = next((i, m) for i, m in zip(batch.ids, batch.lengths) if m != size)
        raise RaggedBatch(
            f"sample {batch.ids[0]} has {size} bytes and sample {id} has {other}, which cannot be"
            ' stacked: give a transform, or another collate_fn than "stack"'
        )
    if batch.block is not None:
        flat = torch.frombuffer(batch.block, dtype=torch.uint8)
        rows = flat.as_strided((n, size), (batch.stride, 1))
    elif size:
        rows = torch.frombuffer(bytearray().join(batch.views), dtype=torch.uint8).view(n, size)
    else:
        rows = torch.empty(n, 0, dtype=torch.uint8)
    ids = numbers(batch.ids)
    if len(labels) > 1 << 31:
        ids = ids.long() & 0xFFFFFFFF
    return rows, labels.index_select(0, ids).long()
