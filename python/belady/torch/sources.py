"""Which samples of which datasets an index of a stock loader's dataset means."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from torch.utils.data import ConcatDataset, IterableDataset, Subset

from belady.dataset import Dataset
from belady.errors import BadRequest

# From an index to a dataset of ours and the sample's id in it.
Locate = Callable[[int], tuple[Dataset, int]]


def locate(dataset: Any) -> Locate:
    """How a dataset's indices are to be read. Subset (and so random_split) and ConcatDataset are
    seen through; what else stands between a loader and a belady.Dataset is not."""
    if isinstance(dataset, IterableDataset):
        raise BadRequest(
            "an IterableDataset decides inside its workers what it reads next, so nothing is known"
            " ahead: give the loader a belady.Dataset, whose samples it asks for by index"
        )
    if isinstance(dataset, Dataset):
        return _Whole(dataset)
    if isinstance(dataset, Subset):
        return _Part(locate(dataset.dataset), dataset.indices)
    if isinstance(dataset, ConcatDataset):
        return _Joined([locate(d) for d in dataset.datasets], list(dataset.cumulative_sizes))
    raise BadRequest(
        f"the loader reads a {type(dataset).__name__}, of which is not known what it reads: attach"
        " knows belady.Dataset and belady.ImageFolder, also inside Subset and ConcatDataset; move"
        " what yours does to the transform"
    )


def by_dataset(where: Locate, batch: Iterable[Any]) -> dict[Dataset, list[int]]:
    """A batch's ids, for each dataset that it reads."""
    out: dict[Dataset, list[int]] = {}
    for index in batch:
        dataset, id = where(int(index))
        out.setdefault(dataset, []).append(id)
    return out


class _Whole:
    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __call__(self, index: int) -> tuple[Dataset, int]:
        n = len(self._dataset)
        if not -n <= index < n:
            raise IndexError(f"sample {index} of {n}")
        return self._dataset, index % n


class _Part:
    def __init__(self, inner: Locate, indices: Any) -> None:
        self._inner = inner
        self._indices = indices

    def __call__(self, index: int) -> tuple[Dataset, int]:
        return self._inner(int(self._indices[index]))


class _Joined:
    def __init__(self, inner: list[Locate], ends: list[int]) -> None:
        self._inner = inner
        self._ends = ends

    def __call__(self, index: int) -> tuple[Dataset, int]:
        if index < 0:
            index += self._ends[-1]
        if not 0 <= index < self._ends[-1]:
            raise IndexError(f"sample {index} of {self._ends[-1]}")
        at = bisect_right(self._ends, index)
        return self._inner[at](index - (self._ends[at - 1] if at else 0))
