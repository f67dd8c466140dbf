"""What a session reads, in a form that workers can be sent: it finds the daemon where it opens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from belady import daemon, wire
from belady.errors import DaemonUnavailable
from belady.session import Config, Request, Session, Stats


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
    packed: bool = False
    # Where the daemon is; None: where the environment says. A forkserver's may be an older one.
    place: Optional[daemon.Place] = None

    def open(
        self, start: wire.Start, stats: Stats, batches: Iterable[Sequence[int]] = ()
    ) -> Session:
        """Attach at a start; `batches` is an explicit order's epoch."""
        place = daemon.find_or_start(self.place)
        config = Config(
            place.socket, lookahead=self.lookahead, timeout_s=self.timeout_s, copy=self.copy,
            revive=lambda: daemon.restart_ours(place),
        )
        request = Request(
            _job(), self.dataset, self.order, self.epochs, self.rank, self.packed,
            self._policy(place),
        )
        session = Session(config, request, start, stats, batches)
        session.limit_hold(self._hold_bytes(place))
        return session

    def _policy(self, place: daemon.Place) -> str:
        """That of the dataset's present readers, which all of them share; else the daemon's."""
        now = self._status(place)
        return str(now["policy"]) if now.get("ranks") else ""

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


def _job() -> str:
    """A name that all ranks of a run share, for people who read `belady status`."""
    for variable in ("BELADY_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        if os.environ.get(variable):
            return os.environ[variable]
    return f"{os.path.basename(sys.argv[0] or 'python')}-{os.getpid()}"
