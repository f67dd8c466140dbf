"""Whether a folder's files are those that were scanned, told without listing them.

A file cannot come or go without a change of its folder's modification time. A scan writes down
those it saw (docs/format/manifest.md), so that each of many ranks asks for a thousand folders and
not for a million files. A file that was written to in place is found when it is read.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional


class Record:
    """The modification times that a scan saw, as they are when this is made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = self._now()

    def _now(self) -> Optional[tuple[int, int]]:
        try:
            info = os.stat(self._path)
        except OSError:
            return None
        return info.st_ino, info.st_mtime_ns

    def replaced(self) -> bool:
        """True if another process scanned since."""
        return self._now() != self._stamp

    def holds(self, root: str) -> bool:
        """True if every folder is as it was scanned. A root that is not there has not changed: what
        is kept of it can be read, and reading the rest says what is wrong."""
        if not os.path.isdir(root):
            return True
        try:
            with open(self._path, "rb") as file:
                entries = file.read().split(b"\0")[:-1]
            for entry in entries:
                modified, _, name = entry.partition(b" ")
                if os.stat(os.path.join(os.fsencode(root), name)).st_mtime_ns != int(modified):
                    return False
        except (OSError, ValueError):
            return False
        return bool(entries)


def say(source: str, added: dict[str, Any]) -> None:
    """Say what a second scan found, if anything."""
    changes, info = added["changes"], added["dataset"]
    if any(changes[kind] for kind in ("added", "changed", "removed")):
        print(
            f"belady: {source} changed since it was scanned, and was scanned again as"
            f" {info['name']}: {changes['added']} added, {changes['changed']} changed,"
            f" {changes['removed']} removed, now {info['samples']} samples",
            file=sys.stderr,
        )
