"""Warnings that point at the user's line, however deep in this package they arise; and waits."""

from __future__ import annotations

import sys
import time
import warnings

SAY_AFTER_S = 10.0


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("belady."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class Waiting:
    """A wait, which says so once after ten seconds."""

    def __init__(self, what: str) -> None:
        """`what` is waited for, with what can be done about it."""
        self._what = what
        self._began = time.monotonic()
        self._said = False

    def check(self) -> None:
        """To be called every now and then."""
        waited = time.monotonic() - self._began
        if waited > SAY_AFTER_S and not self._said:
            self._said = True
            warn(f"waiting for {waited:.0f} s for {self._what}")
