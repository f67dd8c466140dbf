"""From a lease's views to what the loop is given: samples, transformed and collated.

The same in the loader's process and in its workers.
"""

from __future__ import annotations

from typing import Any, Optional

from belady.dataset import Dataset
from belady.replacing import Replacing
from belady.sample import Sample, samples, transformed
from belady.session import Batch


# A collate_fn that is a name: raw samples of equal length as one tensor, and their labels.
STACK = "stack"


class Shaper:
    """What a loader does with each batch. Picklable if the user's functions are."""

    def __init__(
        self, dataset: Dataset, collate_fn: Any, batched: bool, replacing: Optional[Replacing]
    ) -> None:
        self.dataset = dataset
        self.replacing = replacing
        self._collate_fn = collate_fn
        self._batched = batched
        self._labels: Any = None  # all of them as a tensor, once they are stacked

    def __call__(self, batch: Batch) -> Any:
        names = self.dataset.manifest
        if self._collate_fn == STACK:
            from belady.torch import numbers, stacked

            if self._labels is None:
                self._labels = numbers(names.labels)
            return stacked(batch, self._labels)
        dataset = self.dataset
        items = transformed(
            samples(batch, names), None if dataset.raw else dataset.item,
            None if self.replacing is None else self.replacing.item,
        )
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
