"""Samples by id, for stock loaders: nothing is known ahead, so each read waits for its samples.

To the daemon it is an explicit order whose epochs are one request long. What comes is copied: a
stock loader's collate function copies anyway, and random reads would otherwise hold many leases.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Optional

from belady import wire
from belady.daemon import Place
from belady.errors import BeladyError
from belady.reading import Reading
from belady.session import Batch, Session, Stats

_EPOCHS = 1 << 24


class OnDemand:
    """Reads of one dataset by one process; after a fork the child opens its own session.

    Safe for many threads, which wait for one another.
    """

    def __init__(self, dataset: str, samples: int, place: Place) -> None:
        order = {"kind": "explicit", "samples": samples}
        self._reading = Reading(
            dataset, order, _EPOCHS, 0, sharers=1, lookahead=1, timeout_s=0.0, copy=True,
            place=place,
        )
        self._session: Optional[Session] = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def read(self, ids: Sequence[int]) -> Batch:
        """The samples of these ids, in this order, copied."""
        if self._pid != os.getpid():
            self._pid, self._session, self._lock = os.getpid(), None, threading.Lock()
        with self._lock:
            if self._session is None or self._session.due.epoch == _EPOCHS - 1:
                self.close()
                self._session = self._reading.open(wire.Start(0, 0, 0), Stats())
            try:
                self._session.ask(ids)
                batch = self._session.next()
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
