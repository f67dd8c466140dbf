"""Open and close loaders thousands of times: nothing may be left, here or in the daemon.

    python3 cycles.py COUNT

A cycle makes a loader over a small dataset, reads a little of it in one of several ways, and ends
it in one of several ways: closed, dropped, abandoned inside a loop, closed while a batch is held.
Descriptors, maps and threads of both processes must be in the end what they were after the first
few cycles; the daemon may have a few more threads, because Go's runtime keeps those it ever needed.
Resident memory must not rise over the second half. What allocators and collectors hold for a while
goes up and down, so floors are compared: the least of the third quarter and of the fourth. Starts a
daemon of its own; prints what it saw and exits with 1 if something was left.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Optional

import torch

import belady
from belady import daemon

SAMPLES = 400
URL = f"synth://cycles?samples={SAMPLES}&size=2KB"
# What fills caches of allocators and of the interpreter is over by then.
WARM = 100
LOOKS = 400  # at the resident memory, in the second half


class Limits(NamedTuple):
    """What may be more in the end."""

    threads: int
    rise: int  # of the floors, in bytes


# Some pages of the allocator's: 26 bytes a cycle in 10,000. The daemon's collected heap breathes by
# megabytes with nothing lost, and its runtime keeps threads.
LIMITS = {"client": Limits(0, 64 << 10), "daemon": Limits(8, 4 << 20)}
SETTLE_S = 5.0
# A collector's floor may rise by chance in a few hundred cycles; what leaks rises every time.
ATTEMPTS = 3


class Held(NamedTuple):
    """What a process has."""

    descriptors: int
    maps: int
    threads: int

    @staticmethod
    def of(pid: int) -> Held:
        folder = Path(f"/proc/{pid}")
        return Held(
            len(os.listdir(folder / "fd")),
            (folder / "maps").read_text().count("memfd:"),
            len(os.listdir(folder / "task")),
        )


def resident(pid: int) -> int:
    """Bytes that are this process's own; what is shared is the arena's, which has its size."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"/proc/{pid}/status has no RssAnon")


def closed() -> None:
    with belady.DataLoader(URL, 40, shuffle=True, seed=1, collate_fn=list) as loader:
        next(iter(loader))


def dropped() -> None:
    loader = belady.DataLoader(URL, 40, shuffle=True, collate_fn=list)
    next(iter(loader))


def abandoned() -> None:
    loader = belady.DataLoader(URL, 40, shuffle=True, seed=2, collate_fn="stack")
    for i, _ in enumerate(loader):
        if i == 2:
            break


def held() -> None:
    loader = belady.DataLoader(URL, 40, sampler=range(0, SAMPLES, 2), collate_fn=list)
    batch = next(iter(loader))
    loader.close()
    assert len(bytes(batch[0])) == len(batch[0])


def unread() -> None:
    iter(belady.DataLoader(URL, 40, shuffle=True, generator=torch.Generator(), collate_fn=list))


CYCLES: tuple[Callable[[], None], ...] = (closed, dropped, abandoned, held, unread)


class Report(NamedTuple):
    """What one process had after the first cycles and in the end, and how much it grew."""

    before: Held
    after: Held
    rise: int  # bytes, from the third quarter's floor to the fourth's

    def fault(self, limits: Limits) -> Optional[str]:
        """What is wrong, in words."""
        more = self.after.threads - self.before.threads
        if self.before._replace(threads=0) != self.after._replace(threads=0) or (
            more > limits.threads
        ):
            return f"{self.before} became {self.after}"
        if self.rise > limits.rise:
            return f"resident memory rose by {self.rise} bytes"
        return None


def _settled(pids: list[int]) -> list[Held]:
    """What processes have once that has stayed the same for a moment: a daemon ends sessions when
    it sees that their clients have gone."""
    end, last, same = time.monotonic() + SETTLE_S, [Held.of(pid) for pid in pids], 0
    while time.monotonic() < end and same < 10:
        time.sleep(0.05)
        now = [Held.of(pid) for pid in pids]
        same = same + 1 if now == last else 0
        last = now
    return last


def run(count: int, serving: int) -> dict[str, Report]:
    """So many cycles against the daemon that the environment names, whose process is `serving`."""
    pids = [os.getpid(), serving]
    for i in range(WARM):
        CYCLES[i % len(CYCLES)]()
    gc.collect()
    before = _settled(pids)
    floors = [[sys.maxsize, sys.maxsize] for _ in pids]  # of the last two quarters
    every = max(1, count // 2 // LOOKS)
    for i in range(count):
        CYCLES[i % len(CYCLES)]()
        if i >= count // 2 and i % every == 0:
            quarter = 4 * i // count - 2
            for floor, pid in zip(floors, pids):
                floor[quarter] = min(floor[quarter], resident(pid))
    gc.collect()
    after = _settled(pids)
    client, serving_too = (
        Report(b, a, last - third) for b, a, (third, last) in zip(before, after, floors)
    )
    return {"client": client, "daemon": serving_too}


def faults(reports: dict[str, Report]) -> list[str]:
    found = ((who, report.fault(LIMITS[who])) for who, report in reports.items())
    return [f"{who}: {fault}" for who, fault in found if fault]


def main() -> None:
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="belady") as folder:
        os.environ.update(BELADY_DIR=folder, BELADY_SOCKET=f"{folder}/s")
        process = subprocess.Popen(
            [daemon.binary(), "serve", "--ram", "64MiB"], stderr=subprocess.DEVNULL
        )
        try:
            while daemon.find() is None:
                time.sleep(0.05)
            for _ in range(ATTEMPTS):
                begun = time.monotonic()
                reports = run(count, process.pid)
                print(f"{count} cycles in {time.monotonic() - begun:.0f} s")
                if not faults(reports):
                    break
        finally:
            process.terminate()
            process.wait()
    for who, report in reports.items():
        print(f"{who}: {report.before} became {report.after}, resident {report.rise:+} bytes")
    left = faults(reports)
    sys.exit("cycles: " + "; ".join(left) if left else 0)


if __name__ == "__main__":
    main()
