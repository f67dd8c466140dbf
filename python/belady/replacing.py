"""on_error="replace": another sample in place of one that cannot be read or transformed.

The replacement is the next sample of the dataset that can be used, in the order of its ids; after
the last comes the first. So it depends on the dataset alone, not on rank, timing or run, and where
folders are classes it is mostly one of the same class. Batches keep their length, and epochs their
number of batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Deque, NamedTuple

from belady.dataset import Dataset
from belady.errors import AccessDenied, BeladyError, SampleAbsent, SampleChanged, SampleError
from belady.ondemand import OnDemand
from belady.sample import Sample, samples
from belady.session import Batch

# An origin that does not answer is no property of a sample: that is raised.
LASTING = (SampleAbsent, SampleChanged, AccessDenied)
# Candidates that are tried for one sample. More in a row mean that the dataset is broken.
_TRIES_MAX = 64


class Swap(NamedTuple):
    """A sample that was replaced."""

    id: int
    by: int
    name: str
    why: str

    def __str__(self) -> str:
        return f"sample {self.id}, {self.name}, was replaced by sample {self.by}: {self.why}"


class Replacing:
    """Finds replacements in one dataset. Picklable; safe for many threads."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._swaps: Deque[Swap] = deque()

    def told(self) -> list[Swap]:
        """What was replaced since this was last asked."""
        return [self._swaps.popleft() for _ in range(len(self._swaps))]

    def batch(self, ids: Sequence[int], like: Batch) -> Batch:
        """A batch of these ids; what cannot be read is replaced."""
        reader = OnDemand(self._dataset.reading())
        try:
            parts = list(self._parts(reader, ids))
        finally:
            reader.close()
        views = [view for part in parts for view in part.views]
        cuts = [cut for part in parts for cut in part.cuts or ()]
        return like._replace(
            ids=[i for part in parts for i in part.ids], lengths=[len(v) for v in views],
            views=views, cuts=cuts or None,
        )

    def _parts(self, reader: OnDemand, ids: Sequence[int]) -> Iterator[Batch]:
        try:
            yield reader.read(ids)
            return
        except LASTING as e:
            error = e
        if len(ids) == 1:
            yield self._first(
                ids[0], error, lambda candidate: reader.read([candidate]), LASTING
            )
            return
        half = len(ids) // 2
        yield from self._parts(reader, ids[:half])
        yield from self._parts(reader, ids[half:])

    def item(self, sample: Sample, error: Exception) -> Any:
        """What the transform makes of a replacement for a sample that it raised for."""
        if isinstance(error, BeladyError) and not isinstance(error, SampleError):
            raise error
        reader = OnDemand(self._dataset.reading())

        def usable(candidate: int) -> Any:
            (other,) = samples(reader.read([candidate]), self._dataset.manifest)
            return self._dataset.item(other)

        try:
            return self._first(sample.id, error, usable, Exception)
        finally:
            reader.close()

    def _first(
        self, id: int, error: Exception, use: Callable[[int], Any], passed_over: Any
    ) -> Any:
        """What `use` makes of the first candidate for which it does not raise."""
        n = len(self._dataset)
        for step in range(1, min(n, _TRIES_MAX + 1)):
            candidate = (id + step) % n
            try:
                out = use(candidate)
            except passed_over:
                continue
            why = str(error).partition("\n")[0] or type(error).__name__
            self._swaps.append(Swap(id, candidate, self._dataset.name_of(id), why))
            return out
        raise error
