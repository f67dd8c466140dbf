"""What a loader cannot be asked for: PyTorch's own refusals, and what Belady adds to them."""

from __future__ import annotations

import multiprocessing
import operator
import sys
from importlib.util import find_spec
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, Optional

from belady import wire
from belady.epochs import EPOCHS
from belady.errors import BadRequest
from belady.shape import STACK

if TYPE_CHECKING:
    from belady.loader import DataLoader

PROCESS, THREAD = "process", "thread"
RAISE, REPLACE = "raise", "replace"
ARENA = "arena"
# What a loader is made from once: attributes that cannot be set after.
FIXED = frozenset((
    "batch_sampler", "batch_size", "dataset", "drop_last", "generator", "lookahead", "on_error",
    "order", "persistent_workers", "sampler", "seed", "shuffle", "timeout", "worker_type", "world",
))
# PyTorch's default where there are workers.
PREFETCH_FACTOR = 2


def whole(name: str, value: Any) -> int:
    """An argument that must be a whole number, of whatever type, as Python's."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}, but must be a whole number")
    return operator.index(value)


def whole_if_given(name: str, value: Any) -> Optional[int]:
    return None if value is None else whole(name, value)


def refuse_no_bools(**flags: Any) -> None:
    """Raise for the first argument that must be True or False and is neither."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}, but must be True or False")


def checked_epoch(epoch: Any) -> int:
    epoch = whole("epoch", epoch)
    if not 0 <= epoch < EPOCHS:
        raise BadRequest(f"epoch {epoch} is out of range: epochs are 0 to {EPOCHS - 1}")
    return epoch


def refuse(loader: DataLoader, shuffle: Optional[bool]) -> None:
    """Raise for the first pair of arguments that exclude each other, or value out of range."""
    _refuse_order(loader, shuffle)
    _refuse_workers(loader)
    if loader.on_error not in (RAISE, REPLACE):
        raise ValueError(f"on_error is {loader.on_error!r}, but must be 'raise' or 'replace'")
    if loader.pin_memory not in (True, False, ARENA):
        raise ValueError(f"pin_memory is {loader.pin_memory!r}, but must be a bool or 'arena'")
    if not 1 <= loader.lookahead <= wire.CREDIT_MAX:
        raise ValueError(f"lookahead is {loader.lookahead}, but must be 1 to {wire.CREDIT_MAX}")
    in_processes = loader.num_workers > 0 and loader.worker_type == PROCESS
    if loader.pin_memory == ARENA and in_processes:
        raise ValueError(
            "pin_memory='arena' excludes worker processes, whose batches do not lie in the arena:"
            " use worker_type='thread', or pin_memory=True"
        )
    if loader.collate_fn == STACK and (
        not loader.dataset.raw or in_processes or loader.batch_size is None
    ):
        raise ValueError(
            'collate_fn="stack" excludes transform, worker processes and batch_size=None'
        )
    if loader.collate_fn not in (None, STACK) and not callable(loader.collate_fn):
        raise TypeError(
            f'collate_fn is {loader.collate_fn!r}, but must be a callable, "stack" or None'
        )
    _refuse_without_torch(loader, in_processes)
    if loader.collate_fn is None and loader.dataset.raw:
        raise BadRequest(
            "default_collate cannot put undecoded samples together: give the dataset a transform,"
            " or the loader collate_fn=list"
        )


def _refuse_without_torch(loader: DataLoader, in_processes: bool) -> None:
    if in_processes:
        need_torch("num_workers > 0", "give worker_type='thread', or num_workers=0")
    if loader.pin_memory:
        need_torch("pin_memory", "leave it away")
    if loader.collate_fn == STACK:
        need_torch('collate_fn="stack"', "give collate_fn=list")
    if loader.collate_fn is None and not loader.dataset.raw:
        need_torch("collate_fn=None, which is PyTorch's default_collate,", "give collate_fn=list")


def need_torch(what: str, instead: str) -> None:
    """BadRequest where something needs PyTorch and that is not installed."""
    try:
        found = "torch" in sys.modules or find_spec("torch") is not None
    except ImportError:
        found = False
    if not found:
        raise BadRequest(f"{what} needs PyTorch, which is not installed: install it, or {instead}")


def _refuse_order(loader: DataLoader, shuffle: Optional[bool]) -> None:
    order = loader.order
    for name, given in (("sampler", order.sampler), ("batch_sampler", order.batch_sampler)):
        if given is not None and not hasattr(given, "__iter__") and not hasattr(
            given, "__getitem__"
        ):
            raise TypeError(f"{name} is {given!r}, but must be an iterable or None")
    sampled = order.sampler is not None or loader.batch_sampler is not None
    if order.sampler is not None and shuffle:
        raise ValueError("sampler and shuffle exclude each other")
    if loader.batch_sampler is not None and (
        loader.batch_size != 1 or shuffle or order.sampler is not None or loader.drop_last
    ):
        raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if loader.batch_size is None and loader.drop_last:
        raise ValueError("batch_size=None excludes drop_last")
    if loader.batch_size is not None and loader.batch_size < 1:
        raise ValueError(f"batch_size is {loader.batch_size}, but must be at least 1")
    if loader.seed is not None and not -(1 << 63) <= loader.seed < 1 << 63:
        raise ValueError(f"seed is {loader.seed}, but must fit into 64 bits")
    if loader.seed is not None and (sampled or loader.generator is not None):
        raise ValueError("seed excludes sampler, batch_sampler and generator")
    if loader.generator is not None and not hasattr(loader.generator, "get_state"):
        raise TypeError(f"generator is {loader.generator!r}, but must be a torch.Generator")
    if loader.generator is not None and loader.world.size > 1 and not sampled:
        raise BadRequest("generator shuffles one rank only: give seed= in a world of several")


def _refuse_workers(loader: DataLoader) -> None:
    if loader.num_workers < 0:
        raise ValueError("num_workers must not be negative")
    if not isinstance(loader.timeout, (int, float)):
        raise TypeError(f"timeout is {loader.timeout!r}, but must be a number of seconds")
    if loader.timeout < 0:
        raise ValueError("timeout must not be negative")
    if loader.worker_type not in (PROCESS, THREAD):
        raise ValueError(
            f"worker_type is {loader.worker_type!r}, but must be 'process' or 'thread'"
        )
    if loader.worker_init_fn is not None and not callable(loader.worker_init_fn):
        raise TypeError(
            f"worker_init_fn is {loader.worker_init_fn!r}, but must be a callable or None"
        )
    context = loader.multiprocessing_context
    if loader.num_workers == 0:
        if loader.prefetch_factor is not None or loader.persistent_workers or context is not None:
            raise ValueError(
                "prefetch_factor, persistent_workers and multiprocessing_context need"
                " num_workers > 0"
            )
        return
    if loader.prefetch_factor is not None and loader.prefetch_factor < 1:
        raise ValueError("prefetch_factor must be at least 1")
    if loader.worker_type == THREAD:
        if context is not None:
            raise ValueError("multiprocessing_context is for worker processes, not for threads")
        return
    if isinstance(context, str):
        if context not in multiprocessing.get_all_start_methods():
            raise ValueError(
                f"multiprocessing_context is {context!r}, but must be one of"
                f" {', '.join(multiprocessing.get_all_start_methods())}"
            )
    elif context is not None and not isinstance(context, BaseContext):
        raise TypeError("multiprocessing_context must be a start method's name or a context")
    if not loader.in_order:
        from belady.torch.workers import refuse_order

        refuse_order()
