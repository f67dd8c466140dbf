"""Samples read from their folder by this process, without a daemon.

What the daemon promises holds here too: a file that is not what it was when the dataset was scanned
is an error, never other bytes. Nothing is kept and nothing is read ahead.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Sequence
from typing import Optional
from urllib.parse import unquote, urlsplit

from belady.errors import (
    AccessDenied,
    BeladyError,
    NoDirectRead,
    OriginUnavailable,
    SampleAbsent,
    SampleChanged,
)
from belady.manifest import Manifest
from belady.session import Batch

_UNAVAILABLE = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE, errno.EAGAIN)


class Files:
    """Reads samples by id. Picklable, and safe for many threads and after a fork."""

    def __init__(self, manifest: Manifest, url: str, name: str) -> None:
        self._manifest = manifest
        self._name = name
        self.url = url
        self.direct = True

    def check(self) -> str:
        """The folder, or NoDirectRead: only folders can be read without a daemon."""
        folder = folder_of(self.url)
        if folder is None:
            raise NoDirectRead(
                f"{self.url} can be read by a daemon only: a process reads folders by itself, and"
                " S3 or generated data need `belady serve` (unset BELADY=off, or copy the dataset"
                " to a folder)"
            )
        return folder

    def read(self, ids: Sequence[int]) -> Batch:
        """The samples of these ids, in this order, in memory of their own."""
        folder = os.fsencode(self.check())
        manifest = self._manifest
        views: list[memoryview] = []
        cuts: list[tuple[tuple[str, int], ...]] = []
        for id in ids:
            parts = manifest.parts(id)
            try:
                pieces = [
                    b"" if part.object is None
                    else read_file(os.path.join(folder, part.object), part.size, part.version)
                    for part in parts
                ]
            except (SampleAbsent, SampleChanged) as e:
                raise type(e)(
                    f"{e}; to scan the dataset again run: belady dataset add {self._name}"
                ) from e
            views.append(memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces)))
            cuts.append(tuple((f.name, p.size) for f, p in zip(manifest.fields, parts)))
        several = len(manifest.fields) > 1
        return Batch(0, 0, False, list(ids), [len(v) for v in views], views,
                     cuts if several else None)

    def close(self) -> None:
        """Nothing is open between reads."""


def folder_of(url: str) -> Optional[str]:
    """The folder that a path or file:// URL names; None if it is another kind of origin.

    >>> folder_of("file:///data/a%20b"), folder_of("/data/a%20b"), folder_of("s3://bucket/a")
    ('/data/a b', '/data/a%20b', None)
    """
    if "://" not in url:
        return url
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and not parts.query:
        return unquote(parts.path, errors="surrogateescape")
    return None


def read_file(path: bytes, size: int, version: int) -> bytes:
    """A whole file that is as it was scanned."""
    shown = os.fsdecode(path)
    try:
        # O_NONBLOCK: a FIFO in place of a sample must not make a reader wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            before = _version(fd, shown)
            if version and before != version:
                raise _changed(shown, "its size or modification time differs")
            data = _whole(fd, size)
            if len(data) < size:
                raise _changed(shown, f"it ends at byte {len(data)} and the manifest has {size}")
            if _version(fd, shown) != before:
                raise _changed(shown, "it was written while it was read")
            return data
        finally:
            os.close(fd)
    except OSError as e:
        if isinstance(e, BeladyError):
            raise
        raise _classified(e, shown) from e


def _whole(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    while len(data) < size:  # large files come in pieces
        more = os.read(fd, size - len(data))
        if not more:
            break
        data += more
    return data


def _version(fd: int, shown: str) -> int:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise SampleAbsent(f"{shown} is not a regular file any more")
    return version_of(info.st_size, info.st_mtime_ns)


def version_of(size: int, mtime_ns: int) -> int:
    """What a manifest has of a file: XXH3 (64 bits, seed 0) of both as u64, never 0.

    >>> hex(version_of(3, 1_000_000_000))
    '0x785dc85cfa46cbd3'
    """
    mask = (1 << 64) - 1
    low = size ^ 0x6782737BEA4239B9
    high = (mtime_ns & mask) ^ 0xAF56BC3B0996523A
    product = low * high
    folded = (product & mask) ^ (product >> 64)
    swapped = struct.unpack(">Q", struct.pack("<Q", low))[0]
    h = (16 + swapped + high + folded) & mask
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & mask
    return max(h ^ h >> 32, 1)


def _changed(path: str, how: str) -> SampleChanged:
    return SampleChanged(f"{path}: {how}")


def _classified(e: OSError, path: str) -> BeladyError:
    """As the daemon classifies what a file system says."""
    why = e.strerror or str(e)
    if e.errno in (errno.ENOENT, errno.ENOTDIR):
        return SampleAbsent(f"{path}: {why}")
    if e.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(f"{path}: {why}; make it readable for this user")
    if e.errno in _UNAVAILABLE:
        return OriginUnavailable(f"{path}: {why}; check the file system's health")
    return BeladyError(f"cannot read {path}: {why}; check the file system's health")
