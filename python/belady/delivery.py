"""One epoch's batches, one after the other, from where it is begun or resumed."""

from __future__ import annotations

import array
import sys
from collections.abc import Sequence
from typing import Optional

from belady.computed import Source
from belady.epochs import Ids
from belady.errors import BeladyError, SampleError
from belady.feed import Feed
from belady.replacing import LASTING
from belady.sampling import Drawn
from belady.session import Batch


class Delivery:
    """Opens a session for an epoch, or takes the parked one, and parks it after the last batch.

    It belongs to one thread at a time; only `cancel` may come from another.
    """

    def __init__(self, feed: Feed, drawn: Drawn) -> None:
        self._feed = feed
        self._dealing = feed.order.dealing()
        self._expected: Optional[array.array[int]] = None
        self._epoch, first, self._sampled = drawn
        self._window: Sequence[Ids] = ()
        self._cancelled = False
        # Counted from where the epoch was begun or resumed: the batch that is due, and of what is
        # known of a sampler's epoch, or of all others, the beginning and the end.
        self.number = 0
        self._begin, self._end = 0, 0
        self._session: Optional[Source] = None
        if self._sampled is not None:
            self._open(first)
        else:
            self._end = self._dealing.batches(self._epoch.position)
            if self._end:
                self._session = feed.open(self._epoch)

    def next(self) -> Optional[Batch]:
        """The batch that is due; None after the epoch's last.

        After a SampleError, which stands in place of its batch, the one behind it is due.
        """
        if self.number == self._end and not self._go_on():
            return None
        session = self._session
        if session is None:
            return None
        number, start = self.number, session.due
        try:
            batch = session.next()
        except SampleError as e:
            self.number += 1
            replacing = self._feed.replacing
            if replacing is None or not isinstance(e, LASTING):
                raise
            empty = Batch(start.epoch, start.batch, self.number == self._end, (), (), [], None)
            return replacing.batch(self.ids(number), empty)
        if batch is None:
            raise BeladyError(f"the daemon ended before batch {number} of {self._end}")
        self.number += 1
        if batch.last:
            self._session = None
            self._feed.park(session)
        return batch

    def _go_on(self) -> bool:
        """Ask for what a sampler gives next; False at the epoch's end."""
        return self._sampled is not None and self._open(self._sampled.window())

    def _open(self, window: Sequence[Ids]) -> bool:
        if not window:
            return False
        self.close()
        self._window = window
        self._begin, self._end = self._end, self._end + len(window)
        self._session = self._feed.open(self._epoch, window)
        if self._cancelled:
            self._session.cancel()
        return True

    def ids(self, number: int) -> list[int]:
        """What a batch of this epoch holds, as computed in this process."""
        if self._sampled is not None:
            return list(self._window[number - self._begin])
        if self._expected is None:
            self._expected = self._feed.order.expected(self._epoch)
        at = number * self._dealing.batch
        return self._expected[at : at + self._dealing.batch].tolist()

    def run_out(self) -> None:
        """Have a sampler that gave all its samples draw now what it draws at its end."""
        if self._sampled is not None:
            self._sampled.run_out()

    def cancel(self) -> None:
        """End a wait in `next`, from another thread."""
        self._cancelled = True
        session = self._session
        if session is not None:
            session.cancel()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not sys.is_finalizing():
            self.close()
