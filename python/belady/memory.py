"""How much memory a daemon that is started for a job is given for samples."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress

_LEAST = 64 << 20
# Where the system does not say what is available.
_AVAILABLE_ASSUMED = 4 << 30
# Where control groups of either version lie, and what their limit is called.
_V1 = ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
_V2 = ("sys/fs/cgroup", "memory.max")


def for_samples(root: str = "/") -> int:
    """A quarter of the memory that is available, at most half of what control groups allow.

    `root` is the root directory.
    """
    quarter = (_available(root) or _AVAILABLE_ASSUMED) // 4
    return max(_LEAST, min([quarter, *(limit // 2 for limit in _limits(root))]))


def _available(root: str) -> int:
    for line in _text(root, "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return 1024 * _number(value)
    return 0


def _limits(root: str) -> Iterator[int]:
    """Of this process's control groups, up to the root: each limits those below it."""
    for line in _text(root, "proc/self/cgroup").splitlines():
        number, controllers, group = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            folder, limit = _V2
        elif "memory" in controllers.split(","):
            folder, limit = _V1
        else:
            continue
        # In a container it may be a name of the host's that is not found here: its parents are.
        group = posixpath.normpath("/" + group.lstrip("/"))
        while True:
            found = _number(_text(root, folder + posixpath.join(group, limit)))
            if found:
                yield found
            if group == "/":
                break
            group = posixpath.dirname(group)


def _text(root: str, path: str) -> str:
    with suppress(OSError), open(os.path.join(root, path), errors="surrogateescape") as file:
        return file.read()
    return ""


def _number(text: str) -> int:
    """0 if there is none: the word `max` means that there is no limit."""
    words = text.split()
    return int(words[0]) if words and words[0].isdigit() else 0
