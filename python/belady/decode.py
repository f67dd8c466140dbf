"""JPEGs decoded from where the daemon put them, and how long that took.

Decoding is work of the consumer, not of the daemon: a loop that waits for it is not helped by any
cache. So its time is counted apart from the time spent waiting for samples, by dataset, and
`loader.stats()` has it as `belady/decode_seconds`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Union

from belady.errors import BadRequest, DecodeError, DecoderUnavailable
from belady.sample import Sample

MODES = ("rgb", "gray", "unchanged")
Encoded = Union[Sample, bytes, bytearray, memoryview]

_lock = threading.Lock()
# Seconds spent decoding in this process, by the content id of the samples' manifest.
_spent: dict[str, float] = {}


def _unlock() -> None:
    """In a fork, where a thread that held it is not."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


def decode_jpeg(
    batch: Union[Encoded, Iterable[Encoded]], device: Any = "cpu", mode: str = "rgb"
) -> Any:
    """Decode samples, or anything bytes-like, into uint8 tensors of (channels, height, width).

    A list of tensors for a batch, one tensor for a single sample, so that it fits a loop over
    `collate_fn=list` and a transform alike. `mode` is "rgb", "gray" or "unchanged". `device` is
    where the tensors are made: with "cuda" the decoding is nvJPEG's. For samples of several fields
    give the field, as in `sample.fields["jpg"]`.

    torchvision decodes leased memory in place; nothing is copied before it is decoded. Without
    torchvision Pillow does, on the CPU, with one copy. When the call returns nothing of it refers
    to the samples any more.

    Raises `DecodeError`, which names the sample, and `DecoderUnavailable`.
    """
    if mode not in MODES:
        raise BadRequest(f"mode is {mode!r}, but must be one of {', '.join(MODES)}")
    if isinstance(batch, Sample) or _is_bytes_like(batch):
        return _decoded([batch], device, mode)[0]
    if not isinstance(batch, Iterable):
        raise TypeError(
            f"batch is a {type(batch).__name__}, but must be a belady.Sample, bytes-like, or an"
            " iterable of those"
        )
    return _decoded(list(batch), device, mode)


class Meter:
    """Decoding since it was made."""

    def __init__(self) -> None:
        with _lock:
            self._before = dict(_spent)

    def seconds(self, content: str) -> float:
        """Spent on samples of the manifest with this content id, in this process."""
        return _spent.get(content, 0.0) - self._before.get(content, 0.0)


@contextmanager
def timed(sample: Any) -> Iterator[None]:
    """Count what happens inside as decoding of the dataset that a sample is from."""
    began = time.perf_counter()
    try:
        yield
    finally:
        if isinstance(sample, Sample):
            content = str(getattr(sample._names, "content", ""))
            with _lock:
                _spent[content] = _spent.get(content, 0.0) + time.perf_counter() - began


def _decoded(batch: list[Any], device: Any, mode: str) -> list[Any]:
    if not batch:
        return []
    views = [_view(item, i) for i, item in enumerate(batch)]
    try:
        from belady.torch import jpeg
    except ImportError as e:
        raise DecoderUnavailable(f"decode_jpeg gives tensors, and PyTorch is missing: {e}") from e
    with timed(batch[0]):
        try:
            return jpeg.decode(views, device, mode)
        except jpeg.Undecodable as e:
            raise DecodeError(f"{_who(batch[e.index], e.index)} is no JPEG: {e}") from e.__cause__


def _view(item: Any, index: int) -> memoryview:
    data = item.data if isinstance(item, Sample) else item
    if not _is_bytes_like(data):
        raise TypeError(
            f"item {index} of the batch is a {type(item).__name__}, but must be a belady.Sample or"
            " bytes-like"
        )
    return memoryview(data).cast("B")


def _is_bytes_like(data: Any) -> bool:
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def _who(item: Any, index: int) -> str:
    if not isinstance(item, Sample):
        return f"item {index} of the batch"
    return f"sample {item.id}, {item.name},"
