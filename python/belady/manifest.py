"""A dataset's manifest, read in place from a mapped file (docs/format/manifest.md).

Opening checks what places the sections: magic, version, length, table. The daemon has compared the
checksums before it serves a dataset, so they are not compared again here.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Sequence
from typing import Optional

from belady.errors import ManifestError

_HEADER = struct.Struct("<8sII32sQQIIIIQ")
_SECTION = struct.Struct("<QQQ")
_MAGIC = b"BELADYMF"
_VERSION = 1
_CLASSES, _LABELS, _OFFSETS, _NAMES = 1, 3, 5, 6


class Manifest:
    """Names, labels and classes of a dataset. Safe for many threads; reads nothing until asked."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as e:
                raise ManifestError(f"manifest {path} is empty: scan the dataset again") from e
        view = memoryview(self._map)
        if len(view) < _HEADER.size:
            raise self._broken("it is cut short")
        self.samples: int
        self.bytes: int
        self.largest: int
        (magic, version, _, content, self.samples, self.bytes, self.largest, _, fields, classes,
         length) = _HEADER.unpack_from(view)
        if magic != _MAGIC:
            raise self._broken("it is none")
        if version != _VERSION:
            raise self._broken(f"its format is version {version} and this package reads {_VERSION}")
        if length != len(view):
            raise self._broken("it is cut short")
        count = 7 + 2 * (max(fields, 1) - 1)
        if _HEADER.size + count * _SECTION.size > len(view):
            raise self._broken("its sections are outside of it")
        self._sections: list[memoryview] = []
        for i in range(7):
            at, size, _ = _SECTION.unpack_from(view, _HEADER.size + i * _SECTION.size)
            if at + size > len(view):
                raise self._broken("its sections are outside of it")
            self._sections.append(view[at : at + size])
        n = self.samples
        if len(self._sections[_LABELS]) != 4 * n or len(self._sections[_OFFSETS]) != 8 * (n + 1):
            raise self._broken("its columns do not fit its samples")
        self.content: str = content.hex()
        self._class_count = classes
        self._classes: Optional[list[str]] = None

    def _broken(self, why: str) -> ManifestError:
        return ManifestError(f"manifest {self.path} cannot be read, {why}: scan the dataset again")

    def __len__(self) -> int:
        return self.samples

    @property
    def labels(self) -> Sequence[int]:
        """Every sample's class; -1 for samples without one. A view, no copy."""
        section = self._sections[_LABELS]
        if sys.byteorder == "little":
            return section.cast("i")
        return struct.unpack(f"<{self.samples}i", section)

    @property
    def classes(self) -> list[str]:
        """The classes' names, sorted; a label is an index into it."""
        if self._classes is None:
            out: list[str] = []
            data = bytes(self._sections[_CLASSES])
            at = 0
            for _ in range(self._class_count):
                size = int.from_bytes(data[at : at + 2], "little")
                out.append(_text(data[at + 2 : at + 2 + size]))
                at += 2 + size
            if at > len(data):
                raise self._broken("its classes are cut short")
            self._classes = out
        return self._classes

    def label(self, index: int) -> int:
        return int(struct.unpack_from("<i", self._sections[_LABELS], 4 * self._checked(index))[0])

    def name(self, index: int) -> str:
        """A sample's name. Bytes that are no UTF-8 come as `os.fsdecode` gives them."""
        at = 8 * self._checked(index)
        begin, end = struct.unpack_from("<QQ", self._sections[_OFFSETS], at)
        return _text(bytes(self._sections[_NAMES][begin:end]))

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        return index

    def __reduce__(self) -> tuple[object, ...]:
        return (Manifest, (self.path,))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
