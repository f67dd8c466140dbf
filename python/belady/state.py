"""What `state_dict` gives: a position, and what it is a position of.

A few hundred bytes that are equal on all ranks, good for any world size and batch size, where the
order follows from a seed or is none. Where the order is the user's, more is needed to be sure that
it is the same one again: a generator's state from before it drew the order, a digest of what a
sampler gave.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

from belady.epochs import EPOCHS, Epoch, Order
from belady.errors import StateMismatch

VERSION = 1


def of(order: Order, epoch: Epoch, begun: bool) -> dict[str, Any]:
    """The state at an epoch's position; `begun` if its base_seed was drawn, or will not be."""
    state: dict[str, Any] = {
        "version": VERSION,
        "epoch": epoch.number,
        "position": epoch.position,
        "samples": len(order.dataset),
        "content": order.dataset.manifest.content,
        "order": order.source,
        "seed": epoch.seed if order.kind == "torch-random" else order.seed,
        "shuffle": order.shuffle,
    }
    if order.source == "generator":
        if epoch.generator is None:
            from belady.torch import generator_state

            state.update(generator=generator_state(order.generator), begun=begun)
        else:
            state.update(generator=epoch.generator, begun=epoch.begun)
    if order.kind == "explicit" and epoch.position:
        state.update(world=order.world.size, rank=order.world.rank, digest=epoch.digest)
    return state


def read(order: Order, state: dict[str, Any]) -> Epoch:
    """Where a state says to go on; StateMismatch if this order cannot."""
    if not isinstance(state, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"a state is the dict that state_dict() returned, not of type {type(state).__name__}"
        )
    if state.get("version") != VERSION:
        raise StateMismatch(
            f"the state's version is {state.get('version')!r}, and {VERSION} is read"
        )
    mine = of(order, Epoch(0), False)
    for key, what in (
        ("content", "dataset"), ("samples", "dataset"), ("order", "kind of order"),
        ("shuffle", "kind of order"), ("seed", "seed"),
    ):
        if key == "seed" and order.kind == "torch-random":
            continue  # drawn, and so a part of the position
        if state.get(key) != mine[key]:
            raise StateMismatch(
                f"the state is of another {what}: its {key} is {state.get(key)!r} and this"
                f" loader's {mine[key]!r}"
            )
    most = sys.maxsize if order.kind == "explicit" else len(order.dataset)
    epoch = Epoch(_number(state, "epoch", EPOCHS), _number(state, "position", most))
    if order.kind == "torch-random" and (epoch.position or state.get("seed") is not None):
        epoch = epoch._replace(seed=_number(state, "seed", sys.maxsize))
    if order.source == "generator":
        begun = bool(state.get("begun"))
        epoch = epoch._replace(generator=_generator(order, state), begun=begun)
    if order.kind == "explicit" and epoch.position:
        epoch = epoch._replace(digest=_digest(order, state))
    return epoch


def _number(state: dict[str, Any], key: str, most: int) -> int:
    value = state.get(key)
    if not isinstance(value, int) or not 0 <= value <= most:
        raise StateMismatch(f"the state's {key} is {value!r}: state_dict() gave no such")
    return value


def _generator(order: Order, state: dict[str, Any]) -> str:
    """A generator's state that this order's generator can be set to."""
    from belady.torch import copy_of, set_generator_state

    drawn_from: Any = state.get("generator")
    try:
        set_generator_state(copy_of(order.generator), drawn_from)
    except ValueError as e:
        raise StateMismatch(f"the state's generator cannot be gone on with: {e}") from e
    return str(drawn_from)


def _digest(order: Order, state: dict[str, Any]) -> Optional[str]:
    """What this rank's samples must be the same as, if the state is this rank's."""
    world = _number(state, "world", sys.maxsize)
    if world != order.world.size:
        raise StateMismatch(
            f"the state is from inside an epoch in a world of {world}, and this one is of"
            f" {order.world.size}: a sampler of yours deals to ranks itself, so what the others"
            " have read is not known; resume in the same world, or at an epoch's beginning"
        )
    digest = state.get("digest")
    if not isinstance(digest, str):
        raise StateMismatch(f"the state's digest is {digest!r}: state_dict() gave no such")
    return digest if state.get("rank") == order.world.rank else None
