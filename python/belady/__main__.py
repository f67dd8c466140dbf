"""`python3 -m belady try PATH|URL`: see belady.trial."""

from __future__ import annotations

import sys

from belady import trial

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] != "try":
        sys.exit("usage: python3 -m belady try PATH|URL [--seconds N] [--json]")
    sys.exit(trial.main(sys.argv[2:]))
