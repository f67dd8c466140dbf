"""A real daemon on temporary folders, and the files it serves."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from belady import daemon

ROOT = Path(__file__).resolve().parents[2]
BELADY = os.environ.get("BELADY_BIN", str(ROOT / "bin" / "belady"))
DEADLINE_S = 20.0


class Node:
    """One daemon, found by the package through the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "s")
        self.process: subprocess.Popen[bytes] | None = None

    def environment(self) -> dict[str, str]:
        return {"BELADY_DIR": str(self.folder), "BELADY_SOCKET": self.socket, "BELADY_BIN": BELADY}

    def start(self, *flags: str) -> None:
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [BELADY, "serve", "--ram", "128MiB", *flags],
            env={**os.environ, **self.environment()}, stdout=log, stderr=log,
        )
        log.close()
        eventually(self.answers, "the daemon listens")

    def answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log()
        return self.run("status").returncode == 0

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BELADY, *args], env={**os.environ, **self.environment()},
            capture_output=True, text=True, check=False,
        )

    def status(self) -> dict[str, Any]:
        done = self.run("status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ranks(self) -> int:
        """Those that some dataset has anything in memory for, sent ahead or lent."""
        return sum(d["ranks"] for d in daemon.status(self.socket)["datasets"])

    def sessions(self) -> int:
        """Clients that read: a rank is counted for as long as something is fetched for it."""
        return len(daemon.status(self.socket)["ranks"])

    def add(self, name: str, url: str) -> str:
        done = self.run("dataset", "add", name, url)
        assert done.returncode == 0, done.stderr
        return name

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(DEADLINE_S)


def eventually(holds: Callable[[], bool], what: str, within: float = DEADLINE_S) -> None:
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.01)


def fastest(most_s: float, attempt: Callable[[], float], attempts: int = 5) -> None:
    """Some attempt takes so many seconds at most: what else a machine does only slows one down."""
    took: list[float] = []
    while not took or took[-1] > most_s:
        assert len(took) < attempts, f"{most_s:g} s at most, but it took {took}"
        took.append(attempt())


def temporary() -> Path:
    """A folder that goes when the tests are over; pytest's may be too long for a socket."""
    folder = tempfile.mkdtemp(prefix="belady")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def serving(monkeypatch: pytest.MonkeyPatch, *flags: str) -> Iterator[Node]:
    node = Node(temporary())
    for key, value in node.environment().items():
        monkeypatch.setenv(key, value)
    node.start(*flags)
    yield node
    node.stop()


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    with pytest.MonkeyPatch.context() as patch:
        yield from serving(patch)


@pytest.fixture
def node(shared_node: Node, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A daemon that a module's tests share; they leave no session behind."""
    for key, value in shared_node.environment().items():
        monkeypatch.setenv(key, value)
    return shared_node


@pytest.fixture
def own_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A daemon of the test's own, to be killed."""
    yield from serving(monkeypatch)


def write_files(root: Path, count: int, seed: int = 1, ending: str = "bin") -> Path:
    """Files in classes, of unequal sizes, one of them empty."""
    draw = random.Random(seed)
    for i in range(count):
        folder = root / f"class{i % 3}" / ("deep" if i % 7 == 0 else "")
        folder.mkdir(parents=True, exist_ok=True)
        data = draw.randbytes(0 if i == 5 else draw.randint(1, 4000))
        (folder / f"{i:04}.{ending}").write_bytes(data)
    return root


def image_folder(root: Path) -> list[tuple[bytes, int, str]]:
    """Bytes, label and name of every file, in the order torchvision's ImageFolder gives them."""
    out: list[tuple[bytes, int, str]] = []
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(root / name)):
            for file in sorted(files):
                path = Path(folder) / file
                out.append((path.read_bytes(), label, str(path.relative_to(root))))
    return out


@pytest.fixture(scope="session")
def files() -> Iterator[Path]:
    yield write_files(temporary(), 211)


@pytest.fixture(scope="session")
def images() -> Iterator[Path]:
    """Files that are images by their names only."""
    yield write_files(temporary(), 211, ending="jpg")
