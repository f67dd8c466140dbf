"""What is read, in a form that workers can be sent: it finds the daemon where it attaches."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from belady import daemon, notice, wire
from belady.direct import Files
from belady.errors import (
    DaemonUnavailable,
    DirectReadWarning,
    NoDirectRead,
    SocketUnusable,
)
from belady.session import Arena, Config, Request, Session, Stats, never

# What torchrun calls every run that is given no --rdzv-id.
_NO_RUN_ID = "none"
# How long a daemon may stay away before samples are read without it.
PATIENCE_S = 30.0
_PAUSE_S = 0.2
# How long a daemon that could not be had is not started again, at first and at most.
_FIRST_S, _MOST_S = 60.0, 3600.0


class GivenUp(NamedTuple):
    """A daemon that could not be had: for a while it is only looked for, and not started.

    Each attempt to start one may take as long as PATIENCE_S, so they become fewer.
    """

    until: float  # by time.monotonic(), which all processes of a machine share
    pause_s: float
    why: str


# By socket. Loaders' workers tell their parents, and are told.
_given_up: dict[str, GivenUp] = {}
# Sockets of which the user was told that there are direct reads.
_said: set[str] = set()


def given_up(socket: str) -> Optional[GivenUp]:
    """What is to be told to other processes of a daemon."""
    return _given_up.get(socket)


def learn(socket: str, told: Optional[GivenUp]) -> None:
    """Another process of this job has given a daemon up, and said so."""
    known = _given_up.get(socket)
    if told is not None and (known is None or known.until < told.until):
        _given_up[socket] = told
        _said.add(socket)


def _note(socket: str, why: DaemonUnavailable) -> None:
    """A daemon could not be started, or does not serve."""
    now, known = time.monotonic(), _given_up.get(socket)
    if known is None or now >= known.until:
        pause = _FIRST_S if known is None else min(max(2 * known.pause_s, _FIRST_S), _MOST_S)
        _given_up[socket] = GivenUp(now + pause, pause, str(why))


def _note_gone(socket: str, why: DaemonUnavailable) -> None:
    """A daemon went away. Whoever begins to read next may start another at once."""
    _given_up.setdefault(socket, GivenUp(time.monotonic(), 0.0, str(why)))


def job_name() -> str:
    """A name that all ranks of a run share, and their workers; `belady job` knows the run by it."""
    env, run = os.environ, os.environ.get("TORCHELASTIC_RUN_ID")
    name = env.get("BELADY_JOB") or (run != _NO_RUN_ID and run) or env.get("SLURM_JOB_ID")
    if name:
        return name
    # Where torchrun was given no id, its own process is what the ranks have in common.
    process = os.getppid() if run else os.getpid()
    return f"{os.path.basename(sys.argv[0] or 'python')}-{process}"


@dataclass(frozen=True)
class Reading:
    """An order over a dataset, read by one rank or one of its workers."""

    dataset: str
    order: dict[str, Any]
    # The epoch after the last.
    epochs: int
    rank: int
    # How many sessions of this job share the node's staging, at most.
    sharers: int
    lookahead: int
    timeout_s: float
    copy: bool
    # Where the daemon is, or that there is none; a forkserver's environment may be an older one.
    place: daemon.Place
    # The same samples without a daemon.
    files: Files
    packed: bool = False
    # Of the kept set, if nobody reads the dataset yet; empty: the daemon's choice for the order.
    policy: str = ""
    # Who else reads what is leased; not in another process.
    arena: Optional[Arena] = None
    # What an explicit order is a worker's part of (docs/format/wire.md).
    share: Optional[dict[str, Any]] = None
    # How often this process has begun to read this order; 0: it does not matter where.
    begins: int = 0
    # Asked while a batch is waited for: True ends the wait, because the loop was left.
    unwanted: Callable[[], bool] = never
    job: str = field(default_factory=job_name)

    def attach(
        self, start: wire.Start, stats: Stats, batches: Sequence[Sequence[int]] = ()
    ) -> Session:
        """A session with the daemon, which is started if need be."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            place = self._found()
            try:
                return self._session(place, start, stats, batches, PATIENCE_S)
            except SocketUnusable:
                raise
            except DaemonUnavailable:  # it is leaving: another may come
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)

    def start_once(self) -> None:
        """Have a daemon started if none runs, unless that was tried and failed before."""
        if given_up(self.place.socket) is None:
            self._found()

    def attach_ahead(self, stats: Stats, batches: Sequence[Sequence[int]] = ()) -> Session:
        """A session with a daemon that answers, for what may be read ahead: nobody waits for it,
        so none is started or waited for."""
        return self._session(self._answering(), wire.Start(0, 0, 0), stats, batches, 0.0)

    def _found(self) -> daemon.Place:
        known = given_up(self.place.socket)
        if known is not None and time.monotonic() < known.until:
            return self._answering()
        try:
            found = daemon.find_or_start(self.place)
        except SocketUnusable:
            raise
        except DaemonUnavailable as e:
            _note(self.place.socket, e)
            raise
        return self._had(found)

    def _answering(self) -> daemon.Place:
        found = daemon.find(self.place)
        if found is None:
            known = given_up(self.place.socket)
            none = f"no daemon listens on {self.place.socket}"
            raise DaemonUnavailable(none if known is None else known.why)
        return self._had(found)

    def _had(self, found: daemon.Place) -> daemon.Place:
        _given_up.pop(self.place.socket, None)
        _said.discard(self.place.socket)
        return found

    def give_up(self, why: DaemonUnavailable, served: bool = False) -> None:
        """Say, once, that there are direct reads from here on; raise where they cannot be.

        `served`: the daemon was there, and went away.
        """
        if isinstance(why, SocketUnusable):
            raise why
        (_note_gone if served else _note)(self.place.socket, why)
        try:
            folder = self.files.check()
        except NoDirectRead as no:
            raise NoDirectRead(f"{why}; and without a daemon {no}") from why
        if self.place.socket not in _said:
            _said.add(self.place.socket)
            notice.warn(
                f"belady goes on WITHOUT A DAEMON: {why}. This process now reads {folder} itself:"
                " the same samples in the same order, but nothing is kept or read ahead",
                DirectReadWarning,
            )

    def _session(
        self, place: daemon.Place, start: wire.Start, stats: Stats,
        batches: Sequence[Sequence[int]], patience_s: float,
    ) -> Session:
        config = Config(
            place.socket, reconnect_s=patience_s, lookahead=self.lookahead,
            timeout_s=self.timeout_s, copy=self.copy, revive=lambda: self._reviver(place),
            arena=self.arena, unwanted=self.unwanted,
        )
        request = Request(
            self.job, self.dataset, self.order, self.epochs, self.rank, self.packed,
            self._policy(place), self.share, self.begins,
        )
        session = Session(config, request, start, stats, batches)
        session.limit_hold(self._hold_bytes(place))
        return session

    def _reviver(self, place: daemon.Place) -> Callable[[], object]:
        """What is done again and again while a daemon that went away is waited for."""
        if not place.theirs:
            return self._found
        return notice.Waiting(
            f"the daemon on {place.socket} to come back: $BELADY_SOCKET names it, so none is"
            " started in its place; start it with `belady serve`"
        ).check

    def _policy(self, place: daemon.Place) -> str:
        """That of the dataset's present readers, which all of them share; else our own."""
        now = self._status(place)
        return str(now["policy"]) if now.get("ranks") else self.policy

    def _hold_bytes(self, place: daemon.Place) -> int:
        """Half of this session's share of staging, so that the next batch fits beside the held."""
        now = self._status(place)
        sharers = max(self.sharers, int(now.get("ranks", 0)))
        return int(now.get("staging_bytes", 0)) // sharers // 2

    def _status(self, place: daemon.Place) -> dict[str, Any]:
        """What the daemon says of the dataset; nothing if it is not open, or no daemon answers."""
        try:
            datasets: list[dict[str, Any]] = daemon.status(place.socket)["datasets"]
        except DaemonUnavailable:
            return {}
        for one in datasets:
            if one["dataset"] == self.dataset:
                return one
        return {}
