"""Which samples a loader reads in an epoch, in which order, and how far it has come.

An order is known ahead wherever it can be: seeded and sequential ones for all epochs, one whose
seed is drawn once it is drawn, a sampler's when it has been read to its end.
"""

from __future__ import annotations

import array
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from belady.dataset import Dataset
from belady.order import of_rank
from belady.world import Dealing, World

Ids = Sequence[int]
# The epoch after the last that an order can have. Training loops do not say how many they want.
EPOCHS = 1 << 24


class Epoch(NamedTuple):
    """One epoch as an iterator reads it: where it begins, and what its order was drawn from."""

    number: int
    position: int = 0
    # RandomSampler's, once it was drawn.
    seed: Optional[int] = None
    # The user's generator, as it was before it drew the order; if the epoch was not begun, before
    # it drew base_seed.
    generator: Optional[str] = None
    begun: bool = False
    # Of what the sampler gave this rank first.
    digest: Optional[str] = None


class Progress:
    """How far an iterator has come. The loader keeps it and not the iterator, whose end, when a
    loop is left early, is what gives its leases back."""

    __slots__ = ("asked", "epoch", "given", "exhausted", "_order", "_ahead", "_raised")

    def __init__(self, epoch: Epoch, order: Order) -> None:
        # As the loader asked for it, and as it is read.
        self.asked = self.epoch = epoch
        # Batches from the epoch's beginning on that were all returned.
        self.given = 0
        self.exhausted = False
        self._order = order
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

    def renumber(self, number: int) -> None:
        """Count it as another epoch: its order does not depend on its number."""
        self.asked = self.asked._replace(number=number)
        self.epoch = self.epoch._replace(number=number)

    def position(self) -> Epoch:
        """Before the first batch that was not returned."""
        e = self.epoch
        return e._replace(position=self._order.after(e.position, self.given))


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
    def source(self) -> str:
        """What says in which order samples come: the kind, or what was given in its place."""
        if self.batch_sampler is not None:
            return "batch_sampler"
        if self.sampler is not None:
            return "sampler"
        return "generator" if self.kind == "explicit" else self.kind

    @property
    def foreseen(self) -> bool:
        """True if all epochs are known from the beginning."""
        return self.kind in ("sequential", "torch-distributed")

    def dealing(self) -> Dealing:
        return Dealing(len(self.dataset), self.world.size, self.batch_size or 1, self.drop_last,
                       self.sampler_drop_last)

    def samples(self) -> int:
        """Samples of a whole epoch, on this rank."""
        return self.dealing().of_rank(0)

    def largest(self) -> int:
        """Samples of a batch, at most: no more than this rank reads in an epoch, if that is
        known."""
        size, most = self.batch_size or 1, self.samples()
        if self.sampler is not None:
            try:
                most = len(self.sampler)  # type: ignore[arg-type]
            except TypeError:
                return size
        return max(1, min(size, most))

    def ids(self, epoch: int) -> Iterator[int]:
        """This rank's samples of a whole epoch, drawn as RandomSampler does where they are."""
        if self.source == "generator":
            return iter(self.permutation())
        if self.source == "batch_sampler":  # beside which PyTorch's sampler is a sequential one
            return iter(range(len(self.dataset)))
        return iter(self.expected(self.drawn(Epoch(epoch))))

    def permutation(self) -> Iterable[int]:
        """RandomSampler with the user's generator."""
        from belady.torch import permutation

        return permutation(len(self.dataset), self.generator)

    def batches(self) -> int:
        """Batches of a whole epoch, on this rank."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self.sampler is not None:
            n = len(self.sampler)  # type: ignore[arg-type]
            size = self.batch_size or 1
            return n // size if self.drop_last else -(-n // size)
        return self.dealing().batches(0)

    def after(self, position: int, batches: int) -> int:
        """A position so many batches further. It counts samples; a batch sampler's counts batches,
        whose size is not known."""
        if self.batch_sampler is not None:
            return position + batches
        if self.sampler is not None:
            return position + batches * (self.batch_size or 1)
        return self.dealing().position(position, batches)

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

    def index_iterator(self) -> Optional[Iterator[Any]]:
        """What the stock loader makes before it draws base_seed and, where it has workers, again
        after: a sampler may draw in its `__iter__`. Where batches are made of a sampler's samples,
        that is first asked when the first batch is."""
        if self.batch_sampler is not None:
            return iter(self.batch_sampler)
        if self.sampler is not None and self.batch_size is None:
            return iter(self.sampler)
        return None

    def restored(self, epoch: Epoch) -> Epoch:
        """Set the user's generator to what a state says it was before this epoch was begun."""
        if epoch.generator is None or epoch.begun:
            return epoch
        from belady.torch import set_generator_state

        set_generator_state(self.generator, epoch.generator)
        return epoch._replace(generator=None)

    def draw_base_seed(self, epoch: Epoch) -> None:
        """What the stock loader draws for every epoch, whether workers use it or not.

        A resumed epoch drew before its checkpoint, and the generators' states come from there.
        """
        if epoch.position == 0 and "torch" in sys.modules:
            from belady.torch import draw_seed

            draw_seed(self.generator)

    def drawn(self, epoch: Epoch) -> Epoch:
        """The epoch with RandomSampler's seed, drawn where RandomSampler draws it, or with the
        state of the user's generator, which is set if this epoch was drawn from it before."""
        if self.kind == "torch-random" and epoch.seed is None:
            return epoch._replace(seed=_draw_sampler_seed())
        if self.source != "generator":
            return epoch
        from belady.torch import generator_state, set_generator_state

        if epoch.generator is None:
            return epoch._replace(generator=generator_state(self.generator), begun=True)
        set_generator_state(self.generator, epoch.generator)
        return epoch

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
