"""One sample as a training script sees it."""

from __future__ import annotations

import logging
import sys
from itertools import repeat
from typing import Any, Callable, Optional, Protocol

from belady.session import Batch


class Names(Protocol):
    """What knows samples by id; `belady.manifest.Manifest` does."""

    def name(self, index: int) -> str: ...

    def label(self, index: int) -> int: ...


class Sample:
    """A sample's bytes, where the daemon put them.

    `data` is a memoryview and no copy. It stays valid for as long as anything refers to it: after
    the next batch, after the loader is closed, after the daemon has gone. What is held is lent,
    though, and the daemon cannot use that memory: `bytes(sample)` takes a copy.
    """

    __slots__ = ("id", "data", "_names", "_cuts")

    def __init__(
        self,
        id: int,
        data: memoryview,
        names: Optional[Names] = None,
        cuts: Optional[tuple[tuple[str, int], ...]] = None,
    ) -> None:
        self.id = id
        self.data = data
        self._names = names
        self._cuts = cuts

    @property
    def name(self) -> str:
        """Its name in the dataset, a path below the dataset's root."""
        return self._known().name(self.id)

    @property
    def label(self) -> int:
        """Its class, as ImageFolder counts them; -1 if it has none."""
        return self._known().label(self.id)

    @property
    def fields(self) -> dict[str, memoryview]:
        """Its parts by name, for a dataset of several fields; otherwise one part named ''."""
        if self._cuts is None:
            return {"": self.data}
        out: dict[str, memoryview] = {}
        at = 0
        for name, length in self._cuts:
            out[name] = self.data[at : at + length]
            at += length
        return out

    def _known(self) -> Names:
        if self._names is None:
            raise LookupError(f"no manifest is at hand for sample {self.id}")
        return self._names

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"Sample(id={self.id}, {len(self.data)} bytes)"

    def __reduce__(self) -> tuple[object, ...]:
        # Crossing a process copies: shared memory is lent to this one only.
        return (_copied, (self.id, bytes(self.data), self._names, self._cuts))


def _copied(
    id: int,
    data: bytes,
    names: Optional[Names],
    cuts: Optional[tuple[tuple[str, int], ...]],
) -> Sample:
    return Sample(id, memoryview(data), names, cuts)


def samples(batch: Batch, names: Names) -> list[Sample]:
    """A batch's samples, which keep its lease."""
    if batch.cuts is None:
        return list(map(Sample, batch.ids, batch.views, repeat(names)))
    return list(map(Sample, batch.ids, batch.views, repeat(names), batch.cuts))


def transformed(
    items: list[Sample],
    transform: Optional[Callable[[Sample], Any]],
    instead: Optional[Callable[[Sample, Exception], Any]] = None,
) -> list[Any]:
    """What a transform makes of samples, and `instead` of those that it raises for. Exceptions name
    the sample."""
    if transform is None:
        return items
    out: list[Any] = []
    for sample in items:
        try:
            out.append(transform(sample))
        except Exception as e:
            note = f"in the transform of sample {sample.id}, {sample.name}"
            noted = _note(e, note)
            if instead is None:
                if not noted:
                    logging.getLogger("belady").error("%s %s", type(e).__name__, note)
                raise
            out.append(instead(sample, e))
    return out


def _note(e: Exception, note: str) -> bool:
    """Say something in an exception, and leave its type. Before Python 3.11 one without a text has
    no place for it."""
    if sys.version_info >= (3, 11):
        e.add_note(note)
        return True
    if e.args and isinstance(e.args[0], str):
        e.args = (f"{e.args[0]} ({note})", *e.args[1:])
        return True
    return False
