"""A folder listed by this process, for want of a binary that would: the manifest is the same.

Same samples, ids, labels and content id as `belady dataset add` gives (docs/format/manifest.md), so
that a position saved with one is good with the other. It is kept in memory and never written.
"""

from __future__ import annotations

import array
import errno
import hashlib
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from belady.direct import version_of
from belady.errors import DatasetAddFailed
from belady.manifest import FORMAT_VERSION, HEADER, MAGIC, SECTION, Manifest

_CONTENT_DOMAIN = b"belady dataset content 1"
_KIND_FOLDER = 1
# One field that is the whole file: its flags, its name, no prefix and no suffix.
_WHOLE_FILE = b"\0" + b"\4\0data" + b"\0\0" + b"\0\0"
_SIZE_MAX = (1 << 32) - 2
_NAME_MAX = 4096
# torchvision's IMG_EXTENSIONS.
IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
)
_ENDINGS = tuple(extension.encode() for extension in IMAGE_EXTENSIONS)


class _File(NamedTuple):
    name: bytes
    size: int
    version: int


def folder(path: str, images: bool = False) -> Manifest:
    """The manifest of a folder of files, one sample each; of its images in classes' folders only,
    where those are asked for."""
    root = os.fsencode(os.path.realpath(path))
    try:
        listed = _listed(root, b"", (), images)
        if images:
            listed = filter(_is_image, listed)
        files = sorted(listed, key=lambda file: _sort_key(file.name))
    except OSError as e:
        what = os.fsdecode(e.filename or path)
        raise DatasetAddFailed(f"cannot list {what}: {e.strerror or e}") from e
    if not files:
        raise DatasetAddFailed(f"no samples are in {path}: name a folder with files")
    return Manifest(path, _encoded(files))


def _is_image(file: _File) -> bool:
    """As torchvision decides, but for hidden ones, which have no place in a manifest."""
    if b"/" not in file.name or not file.name.lower().endswith(_ENDINGS):
        return False
    if file.name.startswith(b".") or b"/." in file.name:
        raise DatasetAddFailed(
            f"the name of {os.fsdecode(file.name)}, or a folder's, begins with a dot: torchvision's"
            " ImageFolder takes such files and Belady none, so rename or remove it"
        )
    return True


def _listed(
    path: bytes, below: bytes, above: tuple[tuple[int, int], ...], hidden: bool
) -> Iterator[_File]:
    """Files of a folder and those below it; what begins with a dot only if asked for.

    Links are followed wherever they lead; `above` are the folders on the way, by device and inode.
    """
    here = os.stat(path)
    if (here.st_dev, here.st_ino) in above:
        raise DatasetAddFailed(
            f"{os.fsdecode(path)} is a link to a folder above it: remove the link"
        )
    above = (*above, (here.st_dev, here.st_ino))
    for entry in os.scandir(path):
        if entry.name.startswith(b".") and not hidden:
            continue
        name = below + entry.name
        info = _stat(entry)
        if info is None:
            continue
        if stat.S_ISDIR(info.st_mode):
            yield from _listed(entry.path, name + b"/", above, hidden)
        elif stat.S_ISREG(info.st_mode):
            if len(name) > _NAME_MAX or info.st_size > _SIZE_MAX:
                raise DatasetAddFailed(
                    f"{os.fsdecode(entry.path)} is too long a name or file for a sample"
                )
            yield _File(name, info.st_size, version_of(info.st_size, info.st_mtime_ns))


def _stat(entry: os.DirEntry[bytes]) -> Optional[os.stat_result]:
    """Of a link, what it leads to; None of what was removed since the folder was read."""
    try:
        return entry.stat()
    except OSError as e:
        if not os.path.lexists(entry.path):
            return None
        if entry.is_symlink() and e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise DatasetAddFailed(
                f"{os.fsdecode(entry.path)} is a link that leads to no file: mend or remove the"
                " link"
            ) from e
        raise


def _sort_key(name: bytes) -> tuple[bool, str, str, str]:
    """torchvision's order; files in the root, which it does not see, come last.

    >>> sorted([b"x", b"c/b/1", b"c/b-1/1", b"c/2", b"b/3"], key=_sort_key)
    [b'b/3', b'c/2', b'c/b/1', b'c/b-1/1', b'x']
    """
    text = name.decode("utf-8", "surrogateescape")
    below, slash, file = text.rpartition("/")
    return (not slash, below.partition("/")[0], below, file)


def _encoded(files: list[_File]) -> bytes:
    """A manifest's bytes, but for the checksums, which only a file needs."""
    classes: list[bytes] = []
    labels = array.array("i")
    for file in files:
        folder, slash, _ = file.name.partition(b"/")
        if slash and (not classes or classes[-1] != folder):
            classes.append(folder)
        labels.append(len(classes) - 1 if slash else -1)
    sizes = array.array("I", (file.size for file in files))
    ends = array.array("Q", [0])
    for file in files:
        ends.append(ends[-1] + len(file.name))
    sections = [
        _WHOLE_FILE,
        b"".join(struct.pack("<H", len(name)) + name for name in classes),
        _little(sizes),
        _little(labels),
        _little(array.array("Q", (file.version for file in files))),
        _little(ends),
        b"".join(file.name for file in files),
    ]
    content = _content(len(files), sections)
    table, body, at = b"", b"", HEADER.size + len(sections) * SECTION.size
    for section in sections:
        table += SECTION.pack(at + len(body), len(section), 0)
        body += section + bytes(-len(section) % 8)
    head = HEADER.pack(
        MAGIC, FORMAT_VERSION, 0, content, len(files), sum(sizes), max(sizes), _KIND_FOLDER, 1,
        len(classes), at + len(body),
    )
    return head + table + body


def _content(samples: int, sections: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256(_CONTENT_DOMAIN + struct.pack("<QQ", samples, 1))
    for section in sections:
        digest.update(struct.pack("<Q", len(section)))
        digest.update(section)
    return digest.digest()


def _little(column: array.array[int]) -> bytes:
    if sys.byteorder != "little":
        column.byteswap()
    return column.tobytes()
