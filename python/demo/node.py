"""What the demo starts and stops: a daemon of its own, and the slow origin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from belady import daemon

from demo.origin import BUCKET

_START_S = 30.0


@contextmanager
def serving(folder: Path, ram: int, staging: int) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon on a folder of its own, which the package finds by the environment."""
    folder.mkdir()
    os.environ.update(BELADY_DIR=str(folder), BELADY_SOCKET=str(folder / "s"))
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [daemon.binary(), "serve", "--ram", str(ram), "--staging", str(staging)],
            stdout=log, stderr=log,
        )
    try:
        end = time.monotonic() + _START_S
        while daemon.find() is None:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the daemon did not start: {(folder / 'log').read_text()}")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        process.wait()


class SlowOrigin:
    """`demo.origin` in a process of its own."""

    def __init__(self, files: Path, rate: float, latency: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "demo.origin", str(files), str(rate), str(latency)],
            stdout=subprocess.PIPE, text=True,
        )
        assert self._process.stdout is not None
        self._host = f"127.0.0.1:{self._process.stdout.readline().strip()}"
        self.http = f"http://{self._host}/{BUCKET}"
        self.s3 = f"s3://{BUCKET}?endpoint=http://{self._host}&anonymous=true"

    def bytes(self) -> int:
        """What it has delivered, by its own count."""
        with urllib.request.urlopen(f"http://{self._host}/counts") as answer:
            return int(json.load(answer)["bytes"])

    def __enter__(self) -> SlowOrigin:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()


def from_disk(process: int) -> int:
    """Bytes that a process and its ended children had the kernel read from a disk."""
    for line in Path(f"/proc/{process}/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise OSError(f"/proc/{process}/io has no read_bytes")
