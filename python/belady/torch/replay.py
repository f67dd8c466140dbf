"""What a stock loader's sampler is about to give, without touching the sampler or any generator.

A sampler of a known class is copied, with copies of its generators and of the samplers below it,
and the copy's own `__iter__` is run: nothing of PyTorch's is written again here. What is drawn from
the global generator is drawn at once, when the copy is first asked, and the generator is set back.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple, Optional

import torch
from torch.utils.data import DistributedSampler

from belady.torch import draw_seed

# How much of an order is known ahead.
EXACT = "exact"
THIS_EPOCH = "this epoch"
READ_AHEAD_ONLY = "read-ahead only"

# Classes whose __iter__ depends on nothing but themselves, their generator and the sampler below.
_KNOWN = {
    "torch.utils.data.sampler": {
        "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler",
        "BatchSampler",
    },
    "torch.utils.data.distributed": {"DistributedSampler"},
    "torchdata.stateful_dataloader.sampler": {
        "RandomSampler", "BatchSampler", "StatefulDistributedSampler",
    },
    "accelerate.data_loader": {"SeedableRandomSampler", "BatchSamplerShard", "SkipBatchSampler"},
}
# Of those, the ones that draw from the global generator when they have none of their own.
_DRAWING = {"RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"}
_BELOW = ("sampler", "batch_sampler")


class Forecast(NamedTuple):
    """How much is known of a loader's order, and why."""

    known: str
    why: str


def forecast(index_sampler: Any, replayable: bool) -> Forecast:
    """What can be said of the orders that a sampler gives."""
    known, drawing = EXACT, ""
    for sampler in _chain(index_sampler):
        owner = _iterates(sampler)
        if owner is None or owner.__name__ in _KNOWN.get(owner.__module__, ()):
            if owner is not None and owner.__name__ in _DRAWING and _global(sampler.generator):
                known, drawing = THIS_EPOCH, owner.__name__
        elif replayable:
            known = THIS_EPOCH if known == EXACT else known
        else:
            return Forecast(
                READ_AHEAD_ONLY,
                f"{type(sampler).__name__} is not known: batches are read when workers are handed"
                " them; say replayable=True if iterating a copy of it has no other effect",
            )
    if drawing:
        return Forecast(known, f"{drawing} draws from PyTorch's global generator")
    names = " over ".join(type(s).__name__ for s in _chain(index_sampler))
    if known == THIS_EPOCH:
        return Forecast(known, f"{names} is replayed when an epoch begins")
    return Forecast(known, f"{names} follows from its state alone")


def distributed_sampler(index_sampler: Any) -> Optional[Any]:
    """The shuffling DistributedSampler in a loader's chain of samplers, if there is one."""
    for sampler in _chain(index_sampler):
        if isinstance(sampler, DistributedSampler) and sampler.shuffle:
            return sampler
    return None


class Replay:
    """Epochs of a loader's sampler, from a copy of all that they depend on as it is now."""

    def __init__(self, loader: Any, replayable: bool) -> None:
        # Draw all of an epoch when it begins, within what the generators are kept through.
        self._at_once = replayable
        self._clones: dict[int, torch.Generator] = {}
        generator = loader.generator
        self._base: Optional[torch.Generator] = None if generator is None else self._own(generator)
        self._again = not loader.persistent_workers  # base_seed is drawn for every iterator
        self._dataset = loader.dataset
        self._sampler: Any = self._replica(loader._index_sampler)
        self._batched = loader.batch_sampler is not None

    def epoch(self, draws_base_seed: bool) -> Iterator[list[int]]:
        """The epoch that begins now; base_seed is drawn before it where that is still to come."""
        with _generators_kept(self._at_once):
            if draws_base_seed:
                draw_seed(self._base)
            return self._begun(iter(self._sampler))

    def rest(self, live: Any) -> Iterator[list[int]]:
        """What is left of the epoch that a stateful iterator of torchdata's is in."""
        with _generators_kept(self._at_once):
            it = iter(self._sampler)
            it.load_state_dict(copy.deepcopy(live.state_dict()))
            if self._base is not None:
                draw_seed(self._base)  # there base_seed is drawn after the epoch's permutation
                self._again = False
            return self._begun(it)

    def following(self) -> Iterator[list[int]]:
        """The epoch after the one that was read to its end, if the training loop is as usual."""
        sampler = distributed_sampler(self._sampler)
        if sampler is not None:
            sampler.set_epoch(sampler.epoch + 1)
        return self.epoch(self._again and self._base is not None)

    def _begun(self, it: Iterator[Any]) -> Iterator[list[int]]:
        """All of an epoch. Known samplers draw from the global generator with their first step,
        unless they were given it as theirs."""
        first = list(it) if self._at_once else list(islice(it, 1))
        return self._batches(chain(first, it))

    def _batches(self, items: Iterator[Any]) -> Iterator[list[int]]:
        for item in items:
            yield [int(i) for i in item] if self._batched else [int(item)]

    def _own(self, generator: torch.Generator) -> torch.Generator:
        if generator is torch.default_generator:
            self._at_once = True  # steps after the first draw from it, too
            return generator
        clone = self._clones.get(id(generator))
        if clone is None:
            clone = torch.Generator(device=generator.device)
            clone.set_state(generator.get_state())
            self._clones[id(generator)] = clone
        return clone

    def _replica(self, sampler: Any) -> Any:
        owner = _iterates(sampler)
        if owner is None:
            return sampler
        own = {
            name: self._own(value) if isinstance(value, torch.Generator) else self._replica(value)
            for name, value in vars(sampler).items()
            if isinstance(value, torch.Generator) or name in _BELOW and hasattr(value, "__iter__")
        }
        if owner.__name__ in _KNOWN.get(owner.__module__, ()):
            replica = copy.copy(sampler)
            vars(replica).update(own)
            return replica
        shared = {id(vars(sampler)[name]): value for name, value in own.items()}
        return copy.deepcopy(sampler, {id(self._dataset): self._dataset, **shared})


def _global(generator: Optional[torch.Generator]) -> bool:
    return generator is None or generator is torch.default_generator


def _chain(sampler: Any) -> Iterator[Any]:
    """A sampler and those below it."""
    while sampler is not None:
        yield sampler
        below = getattr(sampler, "__dict__", {})
        sampler = next(
            (below[name] for name in _BELOW if hasattr(below.get(name), "__iter__")), None
        )


def _iterates(sampler: Any) -> Optional[type]:
    """The class whose `__iter__` a sampler has; None for lists and the like, which just are."""
    if isinstance(sampler, (list, tuple, range, torch.Tensor)):
        return None
    return next((c for c in type(sampler).__mro__ if "__iter__" in vars(c)), object)


@contextmanager
def _generators_kept(python_too: bool) -> Iterator[None]:
    """Leaves PyTorch's global generator as it is; for unknown samplers Python's and NumPy's too."""
    state, drawn = torch.get_rng_state(), random.getstate()
    numpy: Any = sys.modules.get("numpy") if python_too else None
    by_numpy = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if python_too:
            random.setstate(drawn)
        if numpy is not None:
            numpy.random.set_state(by_numpy)
