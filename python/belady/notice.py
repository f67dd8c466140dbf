"""Warnings that point at the user's line, however deep in this package they arise."""

from __future__ import annotations

import sys
import warnings


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("belady."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
