"""Finding the node's daemon, or starting it: one per user and folder.

Whoever finds none takes a lock beside the socket, looks again, and starts `belady serve` in a
session of its own, so that it outlives this process and its terminal. All others wait for the lock
and then find it.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple, Optional

from belady import memory, notice
from belady.errors import (
    BadRequest,
    BeladyError,
    DaemonUnavailable,
    DatasetAddFailed,
    SocketUnusable,
)

_START_S = 30.0
_STATUS_S = 10.0
_ATTEMPTS = 3
_PAUSE_S = 0.2
# How often a wait for others is looked at.
_LOOK_S = 0.05
_GONE = (ConnectionError, FileNotFoundError, http.client.IncompleteRead)
# A daemon that was started for a job leaves this long after its last client.
IDLE_EXIT_SECONDS = 60
# The daemons this process started, by socket. Kept, so that a dead one is waited for as its child.
_started: dict[str, subprocess.Popen[bytes]] = {}


class Place(NamedTuple):
    """Where a daemon listens and where its datasets are."""

    # '': none is wanted (BELADY=off), and nothing is started or contacted.
    socket: str
    dir: str
    # The daemon that was found leaves when it is idle: a client had started it.
    transient: bool = False

    @property
    def off(self) -> bool:
        return not self.socket

    @property
    def theirs(self) -> bool:
        """The user runs the daemon himself, on a socket he named: when it is gone it is waited for,
        since another in its place would keep his own from coming back."""
        return not self.transient and bool(os.environ.get("BELADY_SOCKET"))


def default_place(env: Mapping[str, str] = os.environ) -> Place:
    """The rules of the `belady` binary, so that both mean the same daemon.

    >>> default_place({"HOME": "/home/ada"}).socket
    '/home/ada/.local/share/belady/belady.sock'
    """
    folder = env.get("BELADY_DIR", "")
    if not folder and env.get("XDG_DATA_HOME"):
        folder = os.path.join(env["XDG_DATA_HOME"], "belady")
    if not folder and env.get("HOME"):
        folder = os.path.join(env["HOME"], ".local", "share", "belady")
    if not folder:
        raise BeladyError(
            "no folder for Belady's data is known because HOME is not set: name one with"
            " $BELADY_DIR"
        )
    mode = env.get("BELADY", "")
    if mode not in ("", "on", "off"):
        raise BadRequest(f"$BELADY is {mode!r}: it is on, the default, or off, for no daemon")
    if mode == "off":
        return Place("", folder)
    path = env.get("BELADY_SOCKET", "")
    if not path and env.get("XDG_RUNTIME_DIR"):
        path = os.path.join(env["XDG_RUNTIME_DIR"], "belady.sock")
    return Place(path or os.path.join(folder, "belady.sock"), folder)


def binary() -> str:
    """The `belady` binary: $BELADY_BIN, the package's own, or the one on PATH."""
    named = os.environ.get("BELADY_BIN", "")
    if named:
        if not os.access(named, os.X_OK):
            raise DaemonUnavailable(f"$BELADY_BIN names {named}, which cannot be run")
        return named
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "belady")
    if os.access(own, os.X_OK):
        return own
    for folder in os.get_exec_path():
        found = shutil.which("belady", path=folder)
        if found and not _is_script(found):
            return found
    raise DaemonUnavailable(
        "no `belady` binary is found, which daemons are started with: put it on PATH or name it"
        " with $BELADY_BIN"
    )


def _is_script(path: str) -> bool:
    """Whether it is this package's own command, which looks for the binary too."""
    with open(path, "rb") as file:
        first = file.readline(256)
    return first.startswith(b"#!") and b"python" in first


class _Control(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("belady", timeout=_STATUS_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def status(path: str) -> dict[str, Any]:
    """The daemon's account of itself (`GET /v1/status`)."""
    control = _Control(path)
    try:
        control.request("GET", "/v1/status", headers={"Connection": "close"})
        answer = control.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise DaemonUnavailable(f"the daemon on {path} does not say its status: {text[:99]!r}")
        said: dict[str, Any] = json.loads(text)
        return said
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise DaemonUnavailable(
            f"no daemon answers on {path}: start one with `belady serve` ({e})"
        ) from e
    finally:
        control.close()


def find(place: Optional[Place] = None) -> Optional[Place]:
    """The daemon that listens, if one does; its folder is its own, whatever is set here."""
    place = place or default_place()
    if place.off:
        return None
    try:
        mode = os.stat(place.socket)
    except OSError:
        return None
    if not stat.S_ISSOCK(mode.st_mode):
        raise SocketUnusable(f"{place.socket} is not a socket: name another with $BELADY_SOCKET")
    if mode.st_uid != os.getuid():
        raise SocketUnusable(
            f"the daemon on {place.socket} belongs to another user: name your own socket with"
            " $BELADY_SOCKET"
        )
    try:
        now = status(place.socket)
        return Place(place.socket, now["dir"], bool(now.get("idle_exit_seconds")))
    except DaemonUnavailable as e:
        if isinstance(e.__cause__, _GONE):
            return None  # its socket was left by a daemon that was killed, perhaps just now
        raise


def find_or_start(wanted: Optional[Place] = None) -> Place:
    """The daemon that listens, or a new one. One process starts it, the others wait."""
    wanted = wanted or default_place()
    if wanted.off:
        raise DaemonUnavailable("BELADY=off: no daemon is started or contacted")
    found = find(wanted)
    if found:
        return found
    command = binary()
    deadline = time.monotonic() + _START_S  # for all who wait for the lock, from their beginning on
    try:
        os.makedirs(wanted.dir, mode=0o700, exist_ok=True)
        with open(os.path.join(wanted.dir, ".start.lock"), "w") as lock:
            _take(lock, "another process to start a daemon; $BELADY_DIR/serve.log is its log")
            for _ in range(_ATTEMPTS - 1):
                # One that is being killed may hold its folder a moment longer.
                with suppress(DaemonUnavailable):
                    return find(wanted) or _start(command, wanted, deadline)
                time.sleep(_PAUSE_S)
            return find(wanted) or _start(command, wanted, deadline)
    except OSError as e:
        if isinstance(e, BeladyError):
            raise
        raise DaemonUnavailable(f"`{command} serve` cannot be started: {e}") from e


def _start(command: str, place: Place, deadline: float) -> Place:
    late = f"`belady serve` did not listen within {_START_S:.0f} s"
    if time.monotonic() >= deadline:
        raise DaemonUnavailable(late)
    arguments = [command, "serve", "--dir", place.dir, "--socket", place.socket]
    arguments += ["--idle-exit-seconds", str(IDLE_EXIT_SECONDS)]
    started = ""
    if not (os.environ.get("BELADY_RAM") or os.environ.get("BELADY_CONFIG")):
        ram = memory.for_samples()
        arguments += ["--ram", str(ram)]
        started = (
            f"belady: started a daemon with {ram >> 20} MiB for samples ($BELADY_RAM sets it)"
        )
    log = os.path.join(place.dir, "serve.log")
    with open(log, "ab") as out:
        began = out.tell()
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    while time.monotonic() < deadline:
        found = find(place)
        if found:
            _started[place.socket] = process
            if started:
                print(started, file=sys.stderr)
            return found
        if process.poll() is not None:
            with open(log, "rb") as text:
                text.seek(began)
                said = text.read(4096).decode("utf-8", "replace").strip()
            raise DaemonUnavailable(f"`belady serve` ended at once: {said or 'it said nothing'}")
        time.sleep(0.01)
    process.kill()
    process.wait()
    raise DaemonUnavailable(f"{late}: see {log}")


def dataset_dir(place: Place, name: str) -> str:
    """Where a dataset's manifest and description are, once it was scanned."""
    return os.path.join(place.dir, "datasets", name)


def add_dataset(
    place: Place, name: str, url: str, images: bool, done: Callable[[], bool]
) -> Optional[dict[str, Any]]:
    """Scan a path or URL under a name with `belady dataset add`, which needs no daemon; what that
    found, as its --json says it.

    The ranks of a run begin together: one of them scans, the others wait and find it `done`; None.
    DaemonUnavailable where the binary, or the folder for manifests, cannot be used.
    """
    command = binary()
    try:
        os.makedirs(place.dir, mode=0o700, exist_ok=True)
        with _alone(os.path.join(place.dir, f".{name}.scan.lock"),
                    f"another process to scan {url}, which is done once"):
            if done():
                return None
            arguments = [command, "dataset", "add", "--json", "--dir", place.dir, name, url]
            with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as result:
                failed = _run(
                    arguments + ["--images"] * images, result, said,
                    f"the scan of {url}, which is done once: every sample is listed",
                )
                said.seek(0)
                text = said.read().decode("utf-8", "replace").strip()
                result.seek(0)
                found: dict[str, Any] = {} if failed else json.load(result)
    except OSError as e:
        raise DaemonUnavailable(f"`{command} dataset add` cannot be run: {e}") from e
    if failed:
        raise DatasetAddFailed(text.rpartition("belady: ")[2] or f"cannot scan {url}")
    return found


@contextmanager
def _alone(path: str, what: str) -> Iterator[None]:
    """Hold a lock file, which is removed after; another process may hold it for long, doing `what`.

    Who waited for a file that was removed meanwhile holds nothing and begins anew.
    """
    while True:
        with open(path, "w") as lock:
            _take(lock, what)
            if not _is_at(lock, path):
                continue
            try:
                yield
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(path)
            return


def _is_at(file: IO[str], path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _take(lock: IO[str], what: str) -> None:
    """Lock a file that another process may have locked for long, doing `what`."""
    waiting = notice.Waiting(what)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waiting.check()
        time.sleep(_LOOK_S)


def _run(command: list[str], out: IO[bytes], said: IO[bytes], what: str) -> bool:
    """Run a command to its end; whether it failed. What it prints, and says on stderr, is kept."""
    waiting = notice.Waiting(what)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=said
    ) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_S) != 0
                waiting.check()
        except BaseException:
            process.kill()
            raise
