"""The `belady` command, which the wheel installs; `python3 -m belady ARGS` is the same.

A trial runs in this Python, whose PyTorch it is about; all else is the binary's.
"""

from __future__ import annotations

import os
import sys

from belady import daemon, trial
from belady.errors import DaemonUnavailable


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["try"]:
        return trial.main(arguments[1:])
    try:
        binary = daemon.binary()
        os.execv(binary, ["belady", *arguments])
    except (DaemonUnavailable, OSError) as e:
        print(f"belady: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
