"""Which rank this process is, of how many, and how an epoch is dealt to them.

Everything but `here` is pure. The counts follow docs/format/order.md, "Dealing, by stride".
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from belady.errors import BadRequest


class World(NamedTuple):
    """Data-parallel coordinates: equal ones read equal samples."""

    rank: int
    size: int


# Variables of the launchers, most specific first. Slurm's are those of a job *step*: in a batch
# script that was not started by srun SLURM_NTASKS is set too, and one process would read a part.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))


def from_environment(env: Mapping[str, str]) -> World:
    """What torchrun or srun says; a world of one otherwise.

    >>> from_environment({"RANK": "3", "WORLD_SIZE": "8"})
    World(rank=3, size=8)
    """
    for rank, size in _LAUNCHERS:
        if env.get(rank) and env.get(size):
            try:
                return checked(int(env[rank]), int(env[size]))
            except ValueError as e:
                raise BadRequest(
                    f"${rank} is {env[rank]!r} and ${size} is {env[size]!r}: give rank= and"
                    " world_size= instead"
                ) from e
    return World(0, 1)


# What launchers say of the ranks on each node; Slurm has "8(x3),4" for four nodes.
_PER_NODE = ("LOCAL_WORLD_SIZE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
             "SLURM_TASKS_PER_NODE")
# Where none says it: the accelerators that nodes have.
_PER_NODE_USUAL = 8


def on_a_node(world: int, env: Mapping[str, str] = os.environ) -> int:
    """How many ranks of a world share a node, at most.

    >>> on_a_node(64, {"SLURM_TASKS_PER_NODE": "4,16(x2)"}), on_a_node(512, {}), on_a_node(2, {})
    (16, 8, 2)
    """
    for variable in _PER_NODE:
        counts = [int(n) for n in re.findall(r"(?:^|,)(\d+)(?:\(x\d+\))?", env.get(variable, ""))]
        if max(counts, default=0):
            return min(world, max(counts))
    return min(world, _PER_NODE_USUAL)


def checked(rank: int, size: int) -> World:
    if size < 1:
        raise BadRequest(f"world_size is {size}, but must be at least 1")
    if not 0 <= rank < size:
        raise BadRequest(f"rank {rank} is outside of a world of {size}: ranks are 0 to {size - 1}")
    return World(rank, size)


# Dimensions of a mesh along which ranks read different samples, as PyTorch's recipes name them.
_DATA_PARALLEL = ("dp", "ddp", "fsdp", "data", "data_parallel", "dp_replicate", "dp_shard",
                  "replicate", "shard")


def of_mesh(mesh: Any) -> World:
    """This rank's place along a mesh's data-parallel dimensions, the first of them outermost.

    A mesh of one dimension is data-parallel whatever its name. Ranks that differ in another
    dimension only (tensor, pipeline or context parallel) read the same samples.
    """
    if not all(hasattr(mesh, name) for name in ("mesh_dim_names", "size", "get_local_rank")):
        raise TypeError(f"mesh is {mesh!r}, but must be a DeviceMesh or None")
    names: Sequence[str] = tuple(mesh.mesh_dim_names or ())
    dimensions = range(len(names)) if names else range(mesh.ndim)
    if len(dimensions) > 1:
        dimensions = [i for i in dimensions if names and names[i] in _DATA_PARALLEL]
    if not len(dimensions):
        raise BadRequest(
            f"none of the mesh's dimensions {', '.join(names) or '(they have no names)'} is known"
            ' to be data-parallel: give that part of it, as in mesh=mesh["dp"]'
        )
    rank, size = 0, 1
    for i in dimensions:
        rank = rank * mesh.size(i) + mesh.get_local_rank(i)
        size *= mesh.size(i)
    return checked(rank, size)


def here(rank: Optional[int], size: Optional[int], mesh: Any = None) -> World:
    """Arguments, then torch.distributed, then the launcher's environment."""
    if mesh is not None:
        if rank is not None or size is not None:
            raise BadRequest("mesh= says which rank this is: leave rank= and world_size= away")
        return of_mesh(mesh)
    if rank is not None or size is not None:
        if size is None:
            raise BadRequest("rank= was given without world_size=")
        if rank is None and size > 1:
            raise BadRequest(f"world_size={size} was given without rank=")
        return checked(rank or 0, size)
    if "torch" in sys.modules:
        from belady.torch import distributed

        found = distributed()
        if found is not None:
            return checked(*found)
    return from_environment(os.environ)


class Dealing(NamedTuple):
    """How an epoch of n entries is dealt: to how many ranks, in what batches, cut how."""

    samples: int
    world: int
    batch: int
    drop_last: bool
    sampler_drop_last: bool

    def of_rank(self, position: int) -> int:
        """Entries each rank reads from a position on.

        >>> Dealing(10, 3, 2, False, False).of_rank(0), Dealing(10, 3, 2, False, True).of_rank(0)
        (4, 3)
        """
        left = max(0, self.samples - position)
        return left // self.world if self.sampler_drop_last else -(-left // self.world)

    def batches(self, position: int) -> int:
        """Batches each rank reads from a position on."""
        entries = self.of_rank(position)
        return entries // self.batch if self.drop_last else -(-entries // self.batch)

    def position(self, start: int, batches: int) -> int:
        """c after so many batches from a start: the epoch's entries that the loops were given.

        >>> Dealing(10, 3, 2, False, False).position(0, 1)
        6
        """
        return min(self.samples, start + batches * self.batch * self.world)
