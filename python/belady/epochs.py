"""Which samples a loader reads in an epoch, in which order, and how far it has come.

An order is known ahead wherever it can be: seeded and sequential ones for all epochs, one whose
seed is drawn once it is drawn, a sampler's when it has been read to its end.
"""

from __future__ import annotations

import array
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from belady.dataset import Dataset
from belady.order import of_rank
from belady.world import Dealing, World

Ids = Sequence[int]


class Epoch(NamedTuple):
    """One epoch as an iterator reads it: where it begins, and its seed if that was drawn."""

    number: int
    position: int
    seed: Optional[int]


class Progress:
    """How far an iterator has come. The loader keeps it and not the iterator, whose end, when a
    loop is left early, is what gives its leases back."""

    __slots__ = ("epoch", "given", "exhausted", "_dealing", "_ahead", "_raised")

    def __init__(self, epoch: Epoch, order: Order) -> None:
        self.epoch = epoch
        # Batches from the epoch's beginning on that were all returned.
        self.given = 0
        self.exhausted = False
        self._dealing = None if order.kind == "explicit" else order.dealing()
        self._ahead: set[int] = set()
        self._raised: set[int] = set()

    @property
    def untouched(self) -> bool:
        """The loop was given nothing yet."""
        return not (self.given or self.exhausted or self._ahead or self._raised)

    def returned(self, number: int) -> None:
        """The loop was given a batch. Those that raised before it were passed over by the loop."""
        self._ahead |= self._raised
        self._raised.clear()
        self._ahead.add(number)
        while self.given in self._ahead:
            self._ahead.remove(self.given)
            self.given += 1

    def raised(self, number: int) -> None:
        """The loop was given an exception in place of a batch, which a checkpoint still has due."""
        self._raised.add(number)

    def position(self) -> Epoch:
        """Before the first batch that was not returned. Orders of a sampler count in batches."""
        e = self.epoch
        if self._dealing is None:
            return e._replace(position=e.position + self.given)
        return e._replace(position=self._dealing.position(e.position, self.given))


@dataclass(frozen=True)
class Order:
    """What a loader's arguments say about the order of its samples."""

    dataset: Dataset
    world: World
    batch_size: Optional[int]
    shuffle: bool
    seed: Optional[int]
    drop_last: bool
    sampler_drop_last: bool
    sampler: Optional[Iterable[int]]
    batch_sampler: Optional[Iterable[Ids]]
    generator: Any

    @property
    def kind(self) -> str:
        """As docs/format/order.md names it."""
        if self.sampler is not None or self.batch_sampler is not None:
            return "explicit"
        if not self.shuffle:
            return "sequential"
        if self.generator is not None:
            return "explicit"
        if self.seed is None and self.world.size == 1:
            return "torch-random"
        return "torch-distributed"

    @property
    def foreseen(self) -> bool:
        """True if all epochs are known from the beginning."""
        return self.kind in ("sequential", "torch-distributed")

    def dealing(self) -> Dealing:
        return Dealing(len(self.dataset), self.world.size, self.batch_size or 1, self.drop_last,
                       self.sampler_drop_last)

    def batches(self) -> int:
        """Batches of a whole epoch, on this rank."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self.sampler is not None:
            n = len(self.sampler)  # type: ignore[arg-type]
            size = self.batch_size or 1
            return n // size if self.drop_last else -(-n // size)
        return self.dealing().batches(0)

    def spec(self, drawn: Optional[int]) -> dict[str, Any]:
        """What the daemon is told (docs/format/order.md)."""
        spec: dict[str, Any] = {"kind": self.kind, "samples": len(self.dataset)}
        if self.world.size > 1:
            spec["world"] = self.world.size
        if self.kind == "explicit":
            return spec
        spec["batch"] = self.batch_size or 1
        if self.drop_last:
            spec["drop_last"] = True
        if self.sampler_drop_last:
            spec["sampler_drop_last"] = True
        if self.kind != "sequential":
            spec["seed"] = drawn if drawn is not None else self.seed or 0
            if "torch" in sys.modules:
                from belady.torch import version

                spec["torch"] = version()
        return spec

    def draw_base_seed(self, epoch: Epoch) -> None:
        """What the stock loader draws for every epoch, whether workers use it or not.

        A resumed epoch drew before its checkpoint, and the generators' states come from there.
        """
        if epoch.position == 0 and "torch" in sys.modules:
            from belady.torch import draw_seed

            draw_seed(self.generator)

    def drawn(self, epoch: Epoch) -> Epoch:
        """The epoch with RandomSampler's seed, drawn where RandomSampler draws it."""
        if self.kind != "torch-random" or epoch.seed is not None:
            return epoch
        return epoch._replace(seed=_draw_sampler_seed())

    def expected(self, epoch: Epoch) -> array.array[int]:
        """The ids that PyTorch's sampler gives this rank from a position on."""
        number = epoch.number if self.foreseen else 0
        return of_rank(self.spec(epoch.seed), number, self.world.rank, epoch.position)

    def whole(self, epoch: Epoch) -> Optional[dict[str, Any]]:
        """What a worker's share of an epoch is a part of, for the daemon's record; None if only the
        sampler knows."""
        if self.kind == "explicit":
            return None
        return {
            "order": self.spec(epoch.seed), "rank": self.world.rank,
            "epoch": epoch.number if self.foreseen else 0, "position": epoch.position,
        }

    def left(self, epoch: Epoch, batches: Optional[int] = None) -> list[Ids]:
        """The batches of this rank from a position on, or so many of them, of an order that needs
        no sampler."""
        ids, dealing = self.expected(epoch), self.dealing()
        size, count = dealing.batch, dealing.batches(epoch.position)
        end = size * (count if batches is None else min(batches, count))
        return [ids[at : at + size] for at in range(0, end, size)]


def _draw_sampler_seed() -> int:
    """RandomSampler's seed, from the generator it draws it from."""
    try:
        from belady.torch import draw_seed
    except ImportError:
        return random.getrandbits(63)
    return draw_seed()
