"""Samples by id, for stock loaders: a read waits for its samples where they are not in memory.

To the daemon it is an explicit order whose epochs are one request long. What comes is copied: a
stock loader's collate function copies anyway, and random reads would otherwise hold many leases.
Whoever knows what will be asked for holds it in staging meanwhile (`belady.ahead`): a read finds
samples in memory whoever had them fetched, and waits for a fetch that is under way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from belady import wire
from belady.errors import BeladyError, DaemonUnavailable
from belady.reading import Reading
from belady.session import Batch, Session, Stats

_EPOCHS = 1 << 24
# The daemon cannot see that loops read each sample once an epoch: a fixed kept set suits them best.
ONCE_AN_EPOCH = "spread"


class OnDemand:
    """Reads of one dataset by one process; after a fork the child opens its own session.

    Safe for many threads, which wait for one another. Where there is no daemon, or it stays away,
    the files are read by this process.
    """

    def __init__(self, reading: Reading) -> None:
        """Of what is read everything but its order."""
        order = {"kind": "explicit", "samples": reading.order["samples"]}
        self._reading = replace(
            reading, order=order, epochs=_EPOCHS, rank=0, lookahead=1, copy=True, packed=False,
            policy=ONCE_AN_EPOCH, arena=None, share=None,
        )
        self.direct = reading.place.off
        self._session: Optional[Session] = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def read(self, ids: Sequence[int]) -> Batch:
        """The samples of these ids, in this order, copied."""
        if self._pid != os.getpid():
            self._pid, self._session, self._lock = os.getpid(), None, threading.Lock()
        if not self.direct:
            with self._lock:
                try:
                    return self._leased(ids)
                except DaemonUnavailable as e:
                    self._reading.give_up(e)
                    self.direct = True
        return self._reading.files.read(ids)

    def _leased(self, ids: Sequence[int]) -> Batch:
        if self._session is None or self._session.due.epoch == _EPOCHS - 1:
            self.close()
            self._session = self._reading.attach(wire.Start(0, 0, 0), Stats())
        try:
            self._session.ask(ids)
            batch = self._session.next()
            self._session.flush()  # a worker may now wait for another that waits for this room
        except BaseException:
            self.close()  # what was asked for would come first otherwise
            raise
        if batch is None:
            raise BeladyError("the daemon ended a session that reads on demand")
        return batch

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
