"""A dataset's manifest, read in place from a mapped file (docs/format/manifest.md).

Opening checks what places the sections: magic, version, length, table. The daemon has compared the
checksums before it serves a dataset, so they are not compared again here.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple, Optional

from belady.errors import ManifestError

HEADER = struct.Struct("<8sII32sQQIIIIQ")
SECTION = struct.Struct("<QQQ")
MAGIC = b"BELADYMF"
FORMAT_VERSION = 1
_FIELDS, _CLASSES, _SIZES, _LABELS, _VERSIONS, _OFFSETS, _NAMES = range(7)
_SIZE_ABSENT = (1 << 32) - 1


class Field(NamedTuple):
    """One of the objects of a sample: the one named prefix + the sample's name + suffix."""

    name: str
    prefix: bytes
    suffix: bytes


class Part(NamedTuple):
    """Where a field of one sample is: an object, None if the sample lacks it."""

    object: Optional[bytes]
    size: int
    # Of the object when it was scanned; 0: not known.
    version: int


class Manifest:
    """Names, labels and classes of a dataset. Safe for many threads; reads nothing until asked.

    `data` is given for one that was scanned in this process and is no file (belady.scan), and
    `content` where another process has it open: a later scan may have replaced it.
    """

    def __init__(self, path: str, data: Optional[bytes] = None, content: str = "") -> None:
        self.path = path
        self._own = data
        view = memoryview(self._mapped() if data is None else data)
        if len(view) < HEADER.size:
            raise self._broken("it is cut short")
        self.samples: int
        self.bytes: int
        self.largest: int
        (magic, version, _, digest, self.samples, self.bytes, self.largest, _, fields, classes,
         length) = HEADER.unpack_from(view)
        if magic != MAGIC:
            raise self._broken("it is none")
        if version != FORMAT_VERSION:
            raise self._broken(f"its format is version {version} and {FORMAT_VERSION} is read here")
        if length != len(view):
            raise self._broken("it is cut short")
        count = 7 + 2 * (max(fields, 1) - 1)
        if HEADER.size + count * SECTION.size > len(view):
            raise self._broken("its sections are outside of it")
        self._sections: list[memoryview] = []
        for i in range(count):
            at, size, _ = SECTION.unpack_from(view, HEADER.size + i * SECTION.size)
            if at + size > len(view):
                raise self._broken("its sections are outside of it")
            self._sections.append(view[at : at + size])
        n = self.samples
        columns = [(_SIZES, 4), (_LABELS, 4), (_VERSIONS, 8)]
        columns += [(i, 4 if i % 2 else 8) for i in range(7, count)]
        if len(self._sections[_OFFSETS]) != 8 * (n + 1) or any(
            len(self._sections[i]) != width * n for i, width in columns
        ):
            raise self._broken("its columns do not fit its samples")
        self._field_count = max(fields, 1)
        self._fields: Optional[list[Field]] = None
        self.content: str = digest.hex()
        if content and content != self.content:
            raise ManifestError(
                f"manifest {path} was replaced by another scan since this run opened it: start the"
                " run again"
            )
        self._class_count = classes
        self._classes: Optional[list[str]] = None

    def _mapped(self) -> mmap.mmap:
        with open(self.path, "rb") as file:
            try:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as e:
                raise self._broken("it is empty") from e

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
            data, at = bytes(self._sections[_CLASSES]), 0
            out: list[str] = []
            for _ in range(self._class_count):
                name, at = self._cut(data, at)
                out.append(_text(name))
            self._classes = out
        return self._classes

    @property
    def fields(self) -> list[Field]:
        """What a sample is made of, in this order."""
        if self._fields is None:
            data, at = bytes(self._sections[_FIELDS]), 0
            out: list[Field] = []
            for _ in range(self._field_count):
                name, at = self._cut(data, at + 1)  # after its flags
                prefix, at = self._cut(data, at)
                suffix, at = self._cut(data, at)
                out.append(Field(_text(name), prefix, suffix))
            self._fields = out
        return self._fields

    def _cut(self, table: bytes, at: int) -> tuple[bytes, int]:
        """A text of a table, after its length, and where the next one begins."""
        begin = at + 2
        end = begin + int.from_bytes(table[at:begin], "little")
        if end > len(table):
            raise self._broken("a table of it is cut short")
        return table[begin:end], end

    def parts(self, index: int) -> list[Part]:
        """The objects whose bytes, one after another, are a sample."""
        i = self._checked(index)
        name = self._name(i)
        further: list[Part] = []
        for f, field in enumerate(self.fields[1:], 1):
            size = _number(self._sections[5 + 2 * f], i, 4)
            if size == _SIZE_ABSENT:
                further.append(Part(None, 0, 0))
            else:
                version = _number(self._sections[6 + 2 * f], i, 8)
                further.append(Part(field.prefix + name + field.suffix, size, version))
        first = self.fields[0]
        size = _number(self._sections[_SIZES], i, 4) - sum(part.size for part in further)
        version = _number(self._sections[_VERSIONS], i, 8)
        return [Part(first.prefix + name + first.suffix, size, version), *further]

    def label(self, index: int) -> int:
        return int(struct.unpack_from("<i", self._sections[_LABELS], 4 * self._checked(index))[0])

    def name(self, index: int) -> str:
        """A sample's name. Bytes that are no UTF-8 come as `os.fsdecode` gives them."""
        return _text(self._name(self._checked(index)))

    def _name(self, index: int) -> bytes:
        begin, end = struct.unpack_from("<QQ", self._sections[_OFFSETS], 8 * index)
        return bytes(self._sections[_NAMES][begin:end])

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        return index

    def __reduce__(self) -> tuple[object, ...]:
        return (Manifest, (self.path, self._own, self.content))


def _number(column: memoryview, index: int, width: int) -> int:
    return int.from_bytes(column[width * index : width * (index + 1)], "little")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
