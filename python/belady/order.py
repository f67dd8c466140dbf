"""The order of an epoch, computed in this process from its spec (docs/format/order.md).

It is what PyTorch's own generator gives, so it can be held against what a daemon delivers, and it
is what is read where there is no daemon.
"""

from __future__ import annotations

import array
import subprocess
from typing import Any

from belady import daemon
from belady.errors import BadRequest, BeladyError, DaemonUnavailable
from belady.world import Dealing


def dealing(spec: dict[str, Any]) -> Dealing:
    return Dealing(
        spec["samples"], spec.get("world", 1), spec["batch"], spec.get("drop_last", False),
        spec.get("sampler_drop_last", False),
    )


def of_rank(spec: dict[str, Any], epoch: int, rank: int, position: int) -> array.array[int]:
    """The ids a rank reads in an epoch from a position on, before `drop_last` cuts them, as u32.

    >>> of_rank({"kind": "sequential", "samples": 5, "batch": 2, "world": 2}, 0, 1, 0).tolist()
    [1, 3, 0]
    """
    kind = spec["kind"]
    if kind not in ("sequential", "torch-random", "torch-distributed") or (
        kind == "torch-random" and epoch
    ):
        raise BadRequest(f"epoch {epoch} of order {kind} is not computed by this package")
    if kind == "sequential":
        return _sequential(dealing(spec), rank, position)
    try:
        from belady.torch import dealt, entries
    except ImportError:
        return _printed(spec, epoch, rank, position)
    seed = int(spec["seed"]) + (epoch if kind == "torch-distributed" else 0)
    return dealt(entries(spec["samples"], seed), position, rank, dealing(spec))


def _sequential(deal: Dealing, rank: int, position: int) -> array.array[int]:
    count, n = deal.of_rank(position), deal.samples
    first = position + rank
    last = first + count * deal.world
    if last - deal.world < n:
        return array.array("I", range(first, last, deal.world))
    return array.array("I", (i % n for i in range(first, last, deal.world)))


def _printed(spec: dict[str, Any], epoch: int, rank: int, position: int) -> array.array[int]:
    """Where PyTorch is not installed `belady order` computes the same."""
    deal = dealing(spec)
    try:
        command = daemon.binary()
    except DaemonUnavailable as e:
        raise BadRequest(
            f"order {spec['kind']} cannot be computed: PyTorch is not installed, and there is no"
            " `belady` binary: install one of them, or set shuffle=False"
        ) from e
    arguments = [
        command, "order", "--kind", spec["kind"], "--samples", str(deal.samples),
        f"--seed={spec['seed']}", "--epoch", str(epoch), "--world", str(deal.world),
        "--rank", str(rank), "--from", str(position), "--batch", str(deal.batch),
    ]
    if deal.sampler_drop_last:
        arguments.append("--drop-last")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BeladyError(done.stderr.strip().rpartition("belady: ")[2] or "`belady order` failed")
    return array.array("I", map(int, done.stdout.split()))
