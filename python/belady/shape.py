"""From a lease's views to what the loop is given: samples, transformed and collated.

The same in the loader's process and in its workers.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional

from belady.dataset import Dataset
from belady.sample import Sample
from belady.session import Batch


# A collate_fn that is a name: raw samples of equal length as one tensor, and their labels.
STACK = "stack"


class Shaper:
    """What a loader does with each batch. Picklable if the user's functions are."""

    def __init__(self, dataset: Dataset, collate_fn: Any, batched: bool) -> None:
        self.dataset = dataset
        self._collate_fn = collate_fn
        self._batched = batched

    def __call__(self, batch: Batch) -> Any:
        names = self.dataset.manifest
        if self._collate_fn == STACK:
            from belady.torch import stacked

            return stacked(batch, names.labels)
        if batch.cuts is None:
            samples = [Sample(i, view, names) for i, view in zip(batch.ids, batch.views)]
        else:
            samples = [
                Sample(i, view, names, cut)
                for i, view, cut in zip(batch.ids, batch.views, batch.cuts)
            ]
        items = _transformed(samples, self.dataset.transform)
        if not self._batched:
            return (self._collate_fn or _convert)(items[0])
        if self._collate_fn is list:
            return items
        if self._collate_fn is not None:
            return self._collate_fn(items)
        from belady.torch import default_collate

        return default_collate(items)


def _convert(item: Any) -> Any:
    if isinstance(item, Sample):
        return item
    from belady.torch import default_convert

    return default_convert(item)


def _transformed(samples: list[Sample], transform: Optional[Callable[[Sample], Any]]) -> list[Any]:
    if transform is None:
        return samples
    out: list[Any] = []
    for sample in samples:
        try:
            out.append(transform(sample))
        except Exception as e:
            _name_sample(e, sample)
            raise
    return out


def _name_sample(e: Exception, sample: Sample) -> None:
    """Say in an exception which sample it is about, and leave its type."""
    note = f"in the transform of sample {sample.id}, {sample.name}"
    if sys.version_info >= (3, 11):
        e.add_note(note)
    elif e.args and isinstance(e.args[0], str):
        e.args = (f"{e.args[0]} ({note})", *e.args[1:])
