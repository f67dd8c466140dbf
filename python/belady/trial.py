"""`belady try PATH|URL`: your own data through the stock loader and through Belady, side by side.

A daemon of the trial's own runs in a temporary folder and goes with it. The origin is only read.
Loaders read the same seeded order, each from an epoch of its own, so that none finds in the page
cache what another has just read; where the whole dataset fits the page cache it is read into it
first, because that is where a training finds it after its first epoch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from belady import daemon, memory
from belady.dataset import Dataset
from belady.direct import folder_of
from belady.errors import BadRequest, BeladyError, DaemonUnavailable
from belady.verdict import Facts, Run, verdict

if TYPE_CHECKING:
    from belady.torch.trial import Bench

WORKERS = (0, 2, 4)
_START_S = 30.0
_PR_SET_PDEATHSIG = 1
_SECONDS_MIN = 2.0
# Shares of the time there is: reading into the page cache, each stock run, all of Belady's. What is
# left is for scanning and for starting processes.
_WARMING, _STOCK, _BELADY = 0.15, 0.14, 0.35
# Between the first epochs of two runs, so that none reads what another has just read.
_EPOCHS_APART = 1 << 16
_JPEG = b"\xff\xd8\xff"
_NETWORK = ("nfs", "cifs", "smb", "lustre", "ceph", "gluster", "beegfs", "gpfs", "9p", "afs",
            "fuse")


@contextmanager
def serving(folder: Path, ram: str, staging: str = "") -> Iterator[daemon.Place]:
    """A daemon on a folder of its own, which this process finds through the environment."""
    folder.mkdir()
    place = daemon.Place(str(folder / "s"), str(folder))
    before = {key: os.environ.get(key) for key in ("BELADY_DIR", "BELADY_SOCKET")}
    os.environ.update(BELADY_DIR=place.dir, BELADY_SOCKET=place.socket)
    command = [daemon.binary(), "serve", "--ram", ram]
    if staging:
        command += ["--staging", staging]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_end_with_parent)
    try:
        end = time.monotonic() + _START_S
        while daemon.find(place) is None:
            if process.poll() is not None or time.monotonic() > end:
                said = (folder / "log").read_text(errors="replace").strip()
                raise DaemonUnavailable(f"the daemon did not start: {said}")
            time.sleep(0.02)
        yield place
    finally:
        process.terminate()
        process.wait()
        for key, value in before.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value


def _end_with_parent() -> None:
    """Have the kernel end this process when the one that started it is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Interrupt:
    """Ctrl-C. While loaders run it waits for the next batch, because PyTorch's workers cannot be
    started or stopped in halves; a second one waits for nothing."""

    def __init__(self) -> None:
        self._came = False
        self._waits = False
        signal.signal(signal.SIGINT, self._come)

    def _come(self, *_: object) -> None:
        again, self._came = self._came, True
        if again or not self._waits:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def check(self) -> None:
        if self._came:
            raise KeyboardInterrupt


class Options(NamedTuple):
    source: str
    seconds: float = 120.0
    batch: int = 64
    compute_s: float = 0.0  # of an emulated training step
    ram: str = ""  # for the daemon; empty: what it would take by itself


class Trial:
    """One comparison."""

    def __init__(self, options: Options, interrupt: Interrupt) -> None:
        if options.seconds < _SECONDS_MIN:
            raise BadRequest(f"--seconds is {options.seconds:g}, but {_SECONDS_MIN:g} is the least")
        if options.batch < 1 or options.compute_s < 0:
            raise BadRequest("--batch must be at least 1 and --compute not negative")
        source = options.source
        self.source = source if "://" in source else os.path.abspath(os.path.expanduser(source))
        self.folder = folder_of(self.source)
        if self.folder is not None and not os.path.isdir(self.folder):
            raise BadRequest(f"there is no folder {self.folder}: name a folder or a URL")
        self._options = options
        self._interrupt = interrupt
        self._began = time.monotonic()

    def run(self) -> dict[str, Any]:
        """All of it; what is returned is what --json prints."""
        from belady.torch.trial import Bench, Files, Work

        os.environ.pop("BELADY", None)  # which may say that there is to be no daemon
        # Workers take over this process's folder for their sockets, which goes when it ends. Each
        # would make its own otherwise, and leave it behind when PyTorch stops it.
        get_temp_dir()
        ram = self._options.ram or str(memory.for_samples())
        with tempfile.TemporaryDirectory(prefix="belady-try") as name:
            with serving(Path(name) / "b", ram) as place:
                self._say("scanning")
                dataset = Dataset(self.source)
                manifest = dataset.manifest
                work = Work(decode=bytes(dataset[0].data[:3]) == _JPEG)
                dataset.transform = work
                batch = min(self._options.batch, manifest.samples)
                bench = Bench(work, batch, self._options.compute_s, manifest.samples,
                              self._interrupt.check)
                facts = self._facts(dataset, int(daemon.status(place.socket)["ram_bytes"]))
                if self.folder is not None:
                    names = [manifest.name(i) for i in range(manifest.samples)]
                    runs = self._stock(bench, Files(self.folder, names, work.of))
                else:
                    # PyTorch has no reader for it. This daemon has room for batches only.
                    room = max(64 << 20, 2 * (max(WORKERS) + 1) * batch * manifest.largest)
                    with serving(Path(name) / "a", str(room), str(room)):
                        runs = self._stock(bench, Dataset(self.source, work))
                runs, same = self._belady(bench, dataset, runs)
        return self._report(facts, runs, same, work.decode)

    def _facts(self, dataset: Dataset, ram: int) -> Facts:
        size = dataset.manifest.bytes
        local = self.folder is not None and not on_network(self.folder)
        # The daemon's share is a quarter of what is free, and the page cache can use the rest.
        warm = local and size < 2 * memory.for_samples() and self._warmed(dataset)
        return Facts(len(dataset), size, local, warm, ram, os.cpu_count() or 1)

    def _warmed(self, dataset: Dataset) -> bool:
        """Read every file into the page cache; False if there is no time for all of them."""
        self._say(f"reading {dataset.manifest.bytes / 1e6:,.0f} MB into the page cache")
        end = time.monotonic() + self._options.seconds * _WARMING
        names = [dataset.name_of(i) for i in range(len(dataset))]

        def touch(name: str) -> bool:
            if time.monotonic() > end:
                return False
            with open(os.path.join(str(self.folder), name), "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
            return True

        with ThreadPoolExecutor(8) as pool:
            return all(pool.map(touch, names))

    def _stock(self, bench: Bench, dataset: Any) -> list[Run]:
        runs: list[Run] = []
        for i, workers in enumerate(WORKERS):
            self._say(f"stock loader, {workers} workers")
            epoch = _EPOCHS_APART * i
            with self._interrupt.waiting():
                runs.append(bench.stock(dataset, workers, epoch, self._options.seconds * _STOCK))
        return runs

    def _belady(
        self, bench: Bench, dataset: Dataset, stock: list[Run]
    ) -> tuple[list[Run], bool]:
        """Without workers, and with as many as serve the stock loader best."""
        choices = sorted({0, max(stock, key=lambda run: run.speed).workers})
        runs, same = list(stock), True
        for i, workers in enumerate(choices, len(WORKERS)):
            self._say(f"Belady, {workers} workers")
            seconds = self._options.seconds * _BELADY / len(choices)
            with self._interrupt.waiting():
                run, ordered = bench.belady(dataset, workers, _EPOCHS_APART * i, seconds)
            runs.append(run)
            same = same and ordered
        return runs, same

    def _report(self, facts: Facts, runs: list[Run], same: bool, decode: bool) -> dict[str, Any]:
        best = {run.loader: run for run in sorted(runs, key=lambda run: run.speed)}
        found = verdict(best["stock"], best["Belady"], facts)
        return {
            "source": self.source,
            **facts._asdict(),
            "kept": facts.kept,
            "decoded": decode,
            "stock_reads": "files" if self.folder is not None else "on demand through the daemon",
            "runs": [{**run._asdict(), "samples_per_second": run.speed} for run in runs],
            "same_order": same,
            **found._asdict(),
        }

    def _say(self, text: str) -> None:
        self._interrupt.check()
        print(f"[{time.monotonic() - self._began:4.0f} s] {text}", file=sys.stderr, flush=True)


def on_network(folder: str, mounts: str = "/proc/self/mounts") -> bool:
    """Whether a folder lies on a file system whose files come over a network."""
    kind, longest = "", ""
    path = os.path.realpath(folder)
    with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            _, mounted, its_kind, *_ = line.split(" ")
            mounted = mounted.replace("\\040", " ")
            inside = path == mounted or path.startswith(mounted.rstrip("/") + "/")
            if inside and len(mounted) >= len(longest):
                kind, longest = its_kind, mounted
    return kind.startswith(_NETWORK)


def text(report: dict[str, Any]) -> str:
    """A report for people."""
    work = "decoded from JPEG" if report["decoded"] else "as bytes"
    where = "in the page cache" if report["warm"] else "local" if report["local"] else "remote"
    lines = [
        f"{report['source']}: {report['samples']:,} samples, {report['bytes'] / 1e6:,.0f} MB,"
        f" {where}; {work}",
        f"Belady's memory: {report['memory'] / 1e6:,.0f} MB, {report['kept']:.0%} of the dataset",
        "",
        f"{'':22}{'samples/s':>10}{'MB/s':>8}{'waiting':>9}{'decoding':>10}",
    ]
    for run in report["runs"]:
        seconds = run["seconds"] or 1.0
        name = f"{run['loader']}, {run['workers']} workers"
        lines.append(
            f"{name:22}{run['samples_per_second']:>10,.0f}{run['bytes'] / 1e6 / seconds:>8,.0f}"
            f"{run['wait_s'] / seconds:>9.0%}{run['decode_s'] / seconds:>10.0%}"
            + ("" if run["later_epoch"] else "   first epoch only")
        )
    if report["stock_reads"] != "files":
        lines += ["", "PyTorch has no reader for this origin: the stock loader reads through a"
                  " daemon with room for batches only, when it asks for them."]
    lines += [
        "", f"same order: {'yes' if report['same_order'] else 'NO'}",
        f"bound by: {report['bound_by']}", report["text"] + ".",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="belady try", description=__doc__)
    parser.add_argument("source", metavar="PATH|URL")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long, in all (120)")
    parser.add_argument("--batch", type=int, default=64, help="samples a batch (64)")
    parser.add_argument("--compute", type=float, default=0.0, metavar="MS",
                        help="what a training step takes, in milliseconds (0)")
    parser.add_argument("--ram", default="", help="the daemon's memory, such as 4GiB")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    for expected in ("This DataLoader will create", ".* are private copies"):
        warnings.filterwarnings("ignore", expected)  # many workers, small memory: on purpose
    options = Options(given.source, given.seconds, given.batch, given.compute / 1000, given.ram)
    try:
        report = Trial(options, Interrupt()).run()
    except BeladyError as e:
        print(f"belady: {e}", file=sys.stderr)
        return 2 if isinstance(e, BadRequest) else 1
    except KeyboardInterrupt:
        return 130
    except ImportError as e:
        print(f"belady: a trial compares with PyTorch's loader, and that is missing: {e}",
              file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if given.json else "\n" + text(report))
    return 0
