"""Where a rank's batches come from: the daemon, held against the order; or, without one, files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from belady import wire
from belady.computed import Computed, Relay, Source
from belady.errors import DaemonUnavailable
from belady.ondemand import OnDemand
from belady.reading import Reading
from belady.receipts import Checked, checkable
from belady.session import Batch, Stats

_Batches = Sequence[Sequence[int]]


def begin(
    reading: Reading, start: wire.Start, stats: Stats, batches: Iterable[Sequence[int]] = ()
) -> Source:
    """Begin at a start; `batches` is an explicit order's epoch."""
    explicit = list(batches)
    if reading.place.off:
        reading.files.check()
        return _directly(reading, start, stats, explicit)
    try:
        session = reading.attach(start, stats, explicit)
    except DaemonUnavailable as e:
        reading.give_up(e)
        return _directly(reading, start, stats, explicit)
    if not checkable(reading.order):
        return _Lasting(reading, session, stats, explicit)
    checked = Checked(session, reading, stats, lambda: OnDemand(reading), explicit)
    return _Lasting(reading, checked, stats, explicit)


def _directly(reading: Reading, start: wire.Start, stats: Stats, batches: _Batches) -> Computed:
    r = reading
    return Computed(r.order, r.epochs, r.rank, start, stats, r.files, batches)


class _Lasting(Relay):
    """A source that goes on with direct reads, at the same batch, if its daemon stays away."""

    def __init__(self, reading: Reading, source: Source, stats: Stats, batches: _Batches) -> None:
        self._reading = reading
        super().__init__(source, stats)
        self._batches = batches

    def next(self) -> Optional[Batch]:
        try:
            return self._source.next()
        except DaemonUnavailable as e:
            self._reading.give_up(e, served=True)
        due = self._source.due
        self._source.close()
        self._source = _directly(self._reading, due, self._stats, self._batches)
        return self._source.next()
