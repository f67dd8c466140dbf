"""What a sampler gives, as batches: an epoch at once where it says how long that is, and otherwise
window after window, since a sampler need not end."""

from __future__ import annotations

import array
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import index
from typing import Any, NamedTuple, Optional

from belady.epochs import Epoch, Ids, Order
from belady.errors import BadRequest, StateMismatch

# Samples that are asked of a sampler ahead of the loop if it does not say how many there are.
WINDOW_SAMPLES = 1 << 16


class Plan(NamedTuple):
    """What workers are to read in an epoch."""

    batches: Sequence[Ids]
    # What those are a part of, if that can be told.
    whole: Optional[dict[str, Any]]
    # Batches that follow, if only a sampler knows; none at its end.
    more: Callable[[], Sequence[Ids]]


class Drawn(NamedTuple):
    """An epoch after all that PyTorch draws where its order begins was drawn; and, of an explicit
    order, its first batches and what gives the others."""

    epoch: Epoch
    first: Sequence[Ids] = ()
    sampled: Optional[Sampled] = None


def draw(order: Order, epoch: Epoch, iterator: Optional[Iterator[Any]]) -> Drawn:
    """Draw an epoch's order as PyTorch does; `iterator` is what the order's index_iterator gave."""
    epoch = order.drawn(epoch)
    if order.kind != "explicit":
        return Drawn(epoch)
    sampled = Sampled(order, epoch, iterator)
    first = sampled.window()
    return Drawn(epoch._replace(digest=sampled.digest), first, sampled)


class Sampled:
    """One epoch of an explicit order, from a position on."""

    def __init__(self, order: Order, epoch: Epoch, iterator: Optional[Iterator[Any]]) -> None:
        self._samples = len(order.dataset)
        self._size = order.batch_size or 1
        self._drop_last = order.drop_last
        self._source = order.source
        self._skip = epoch.position
        self._wanted = epoch.digest
        # Of what was given first: all of it, or as much as is read ahead. Empty: nothing was yet.
        self.digest = ""
        self._ended = False
        # Batches that a batch sampler gave.
        self._taken = 0
        self._batches: Optional[Iterator[Ids]] = None
        given: Optional[Iterable[object]] = order.batch_sampler
        if given is not None:
            self._batches = iterator
        else:
            samples = order.permutation() if order.sampler is None else order.sampler
            self._ids: Iterator[int] = iter(samples) if iterator is None else iterator
            given = samples
        # What is read at once whatever it takes; of samples or, of a batch sampler, batches.
        self._length = _length(given)

    def window(self) -> list[Ids]:
        """The batches that come next; none at the epoch's end."""
        if self._batches is None and not self.digest:
            self._skip_samples()
        while not self._ended:
            batches = self._whole_batches() if self._batches is not None else self._cut()
            passed = min(self._skip, len(batches))
            self._skip -= passed
            if len(batches) > passed:
                return batches[passed:]
        return []

    def _skip_samples(self) -> None:
        """Leave out those before the position, which need not be where a batch of today ends."""
        most = WINDOW_SAMPLES if self._length is None else self._length
        head = self._checked(islice(self._ids, most))
        self._prove([head])
        skip, self._skip = self._skip, 0
        if self._length is not None:
            self._length = max(0, self._length - skip)
        deque(islice(self._ids, max(0, skip - len(head))), maxlen=0)
        self._ids = chain(head[skip:], self._ids)

    def _prove(self, given: Iterable[Ids]) -> None:
        """Whoever goes on in an epoch must be given what it was begun with."""
        digest = hashlib.blake2b(digest_size=8)
        for ids in given:
            digest.update(len(ids).to_bytes(4, "little"))
            digest.update(array.array("I", ids))
        self.digest = digest.hexdigest()
        if self._wanted not in (None, self.digest):
            raise StateMismatch(
                f"the {self._source.replace('_', ' ')} gives other samples than it gave before the"
                " state was saved, so nothing tells what is left of them: make it the same, its"
                " seed, its epoch or its generator's state from before that epoch included"
            )

    def run_out(self) -> None:
        """Have a sampler whose samples were all given come to its own end: RandomSampler draws
        once more from its generator there."""
        if self._batches is None and self._length == 0 and not self._ended:
            self._ended = True
            if next(self._ids, None) is not None:
                raise BadRequest(
                    "the sampler goes on after as many samples as its len() says: let len() be"
                    " right, or raise TypeError if there is no end"
                )

    def _whole_batches(self) -> list[Ids]:
        assert self._batches is not None
        out: list[Ids] = []
        samples = 0
        least = self._length
        while samples < WINDOW_SAMPLES or (least is not None and len(out) <= least):
            batch = next(self._batches, None)
            if batch is None:
                self._ended = True
                break
            if not hasattr(batch, "__iter__"):
                raise TypeError(
                    f"batch_sampler gave {batch!r}, but must give batches, such as lists of"
                    " indices: sampler= takes single ones"
                )
            ids = self._checked(batch)
            if not ids:
                raise BadRequest(
                    f"batch {self._taken + len(out)} of the batch sampler is empty, and an empty"
                    " batch cannot be read: let the batch sampler leave it out"
                )
            out.append(ids)
            samples += len(ids)
        self._taken += len(out)
        self._length = None
        if not self.digest:
            self._prove(out)
        return out

    def _cut(self) -> list[Ids]:
        if self._length == 0:
            self.run_out()
            return []
        most = self._length or -(-WINDOW_SAMPLES // self._size) * self._size
        ids = self._checked(islice(self._ids, most))
        if self._length is None:
            self._ended = len(ids) < most
        else:
            self._length = 0
        end = len(ids) - len(ids) % self._size if self._drop_last else len(ids)
        return [ids[at : at + self._size] for at in range(0, end, self._size)]

    def _checked(self, given: Iterable[int]) -> list[int]:
        """What a sampler gave, with negative indices counted from the end, as sequences do."""
        ids, n = [index(i) for i in given], self._samples
        if ids and (min(ids) < 0 or max(ids) >= n):
            for i in ids:
                if not -n <= i < n:
                    raise BadRequest(f"the sampler gave sample {i}, but the dataset has {n}")
            return [i % n for i in ids]
        return ids


def _length(sampler: object) -> Optional[int]:
    """What a sampler says of its length; None if it says nothing, as endless ones do."""
    try:
        return len(sampler)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None
