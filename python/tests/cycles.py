"""Open and close loaders thousands of times: nothing may be left, here or in the daemon.

    python3 cycles.py COUNT

A cycle makes a loader over a small dataset, reads a little of it in one of several ways, and ends
it in one of several ways: closed, dropped, abandoned inside a loop, closed while a batch is held;
with and without threads, and through PyTorch's own loader, attached and not. One in some has worker
processes, which take longer to make.

Descriptors, maps and threads of both processes must be in the end what they were after the first
few cycles, and no worker may be left; the daemon may have a few more threads, because Go's runtime
keeps those it ever needed. Resident memory must not rise over the second half. What allocators and
collectors hold for a while goes up and down, so a line is laid through floors: the least of each
tenth of that half. Starts a daemon of its own; prints what it saw and exits with 1 if something was
left.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch
from torch.utils.data import DataLoader

import belady
from belady import daemon

SAMPLES = 400
URL = f"synth://cycles?samples={SAMPLES}&size=2KB"
# What fills caches of allocators and of the interpreter is over by then.
WARM = 100
LOOKS = 400  # at the resident memory, in the second half
FLOORS = 10
COSTLY_EVERY = 40


class Limits(NamedTuple):
    """What may be more in the end."""

    threads: int
    rise: int  # of the line through the floors over the second half, in bytes


# Some pages of the allocators': 13 bytes a cycle in 10,000.
LIMITS = {"client": Limits(0, 64 << 10), "daemon": Limits(8, 64 << 10)}
# A daemon whose collector has no room gives back at once what it does not need: otherwise its heap
# would breathe by megabytes with nothing lost.
DAEMON_ENVIRONMENT = {"GOMEMLIMIT": "8MiB"}
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


def threads_abandoned() -> None:
    loader = belady.DataLoader(
        URL, 40, shuffle=True, seed=3, collate_fn=list, num_workers=2, worker_type="thread"
    )
    next(iter(loader))


def threads_closed() -> None:
    with belady.DataLoader(
        URL, 40, collate_fn=list, num_workers=2, worker_type="thread", persistent_workers=True
    ) as loader:
        next(iter(loader))


def number(sample: belady.Sample) -> int:
    return sample.id


def stock() -> None:
    next(iter(DataLoader(belady.Dataset(URL, number), 40, shuffle=True)))


def quietly_attached(loader: DataLoader[Any]) -> None:
    with redirect_stderr(StringIO()):  # it says what it knows
        belady.attach(loader)


def attached() -> None:
    loader = DataLoader(belady.Dataset(URL, number), 40, shuffle=True)
    quietly_attached(loader)
    for i, _ in enumerate(loader):
        if i == 2:
            break


def workers_abandoned() -> None:
    next(iter(belady.DataLoader(URL, 40, shuffle=True, seed=1, collate_fn=list, num_workers=2)))


def workers_closed() -> None:
    with belady.DataLoader(
        belady.Dataset(URL, number), 40, num_workers=1, persistent_workers=True
    ) as loader:
        for _ in range(2):
            next(iter(loader))


def stock_workers() -> None:
    loader = DataLoader(belady.Dataset(URL, number), 40, shuffle=True, num_workers=1)
    quietly_attached(loader)
    next(iter(loader))


CYCLES: tuple[Callable[[], None], ...] = (
    closed, dropped, abandoned, held, unread, threads_abandoned, threads_closed, stock, attached,
)
COSTLY: tuple[Callable[[], None], ...] = (workers_abandoned, workers_closed, stock_workers)


def cycle(i: int) -> None:
    if i % COSTLY_EVERY == 0:
        COSTLY[i // COSTLY_EVERY % len(COSTLY)]()
    else:
        CYCLES[i % len(CYCLES)]()


class Report(NamedTuple):
    """What one process had after the first cycles and in the end, and how much it grew."""

    before: Held
    after: Held
    rise: int  # bytes, over the second half

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
    it sees that their clients have gone.

    What a daemon keeps open depends on what was last read, so both times that is the same.
    """
    for one in CYCLES:
        one()
    gc.collect()
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
        cycle(i)
    before = _settled(pids)
    half = count // 2
    floors = [[sys.maxsize] * FLOORS for _ in pids]
    every = max(1, half // LOOKS)
    for i in range(count):
        cycle(i)
        if i >= half and i % every == 0:
            tenth = FLOORS * (i - half) // (count - half)
            for floor, pid in zip(floors, pids):
                floor[tenth] = min(floor[tenth], resident(pid))
    after = _settled(pids)
    client, serving_too = (Report(b, a, rise(f)) for b, a, f in zip(before, after, floors))
    return {"client": client, "daemon": serving_too}


def rise(values: list[int]) -> int:
    """How far the least-squares line through values at equal distances rises from end to end."""
    n = len(values)
    middle = (n - 1) / 2
    slope = sum((i - middle) * v for i, v in enumerate(values))
    slope /= sum((i - middle) ** 2 for i in range(n))
    return round(slope * (n - 1))


def faults(reports: dict[str, Report]) -> list[str]:
    found = [(who, report.fault(LIMITS[who])) for who, report in reports.items()]
    workers = multiprocessing.active_children()
    found.append(("workers", f"{workers} are left" if workers else None))
    return [f"{who}: {fault}" for who, fault in found if fault]


def main() -> None:
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="belady") as folder:
        os.environ.update(BELADY_DIR=folder, BELADY_SOCKET=f"{folder}/s")
        process = subprocess.Popen(
            [daemon.binary(), "serve", "--ram", "64MiB"], stderr=subprocess.DEVNULL,
            env={**os.environ, **DAEMON_ENVIRONMENT},
        )
        try:
            while daemon.find() is None:
                time.sleep(0.05)
            for _ in range(ATTEMPTS):
                begun = time.monotonic()
                reports = run(count, process.pid)
                left = faults(reports)
                print(f"{count} cycles in {time.monotonic() - begun:.0f} s", *left, sep="; ")
                if not left:
                    break
        finally:
            process.terminate()
            process.wait()
    for who, report in reports.items():
        print(f"{who}: {report.before} became {report.after}, resident {report.rise:+} bytes")
    sys.exit("cycles: " + "; ".join(left) if left else 0)


if __name__ == "__main__":
    main()
