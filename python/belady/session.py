"""A session: one rank's batches, in order, by lease.

A Session belongs to one thread of one process. `next` blocks until the batch that is due is here,
reconnects when the daemon goes away and goes on with the same batch, and never starts a thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional, Protocol

from belady import notice, wire
from belady.connection import SLICE_S, Connection, Lost, connect, greet
from belady.errors import (
    SHUTTING_DOWN,
    BeladyError,
    DaemonUnavailable,
    LoaderClosed,
    ProtocolError,
    SampleChanged,
    SampleError,
    WaitTimeout,
)
from belady.slab import Slab, Token

SAY_AFTER_S = 10.0
_BACKOFF_FIRST_S = 0.005
_BACKOFF_MAX_S = 0.5
_DRAIN_S = 0.5
_MIB = 1 << 20


class Arena(Protocol):
    """Who else reads leased memory; `belady.torch.arena` has GPUs do it."""

    def register(self, address: int, size: int, writable: bool) -> Callable[[], None]: ...

    def died(self, finish: Callable[..., Any], *args: Any) -> None: ...


def never() -> bool:
    return False


@dataclass(frozen=True)
class Config:
    """How to reach a daemon and how much of its memory to use."""

    socket: str
    # Bounds connecting and the exchange of versions. Attaching takes as long as the dataset does.
    connect_s: float = 10.0
    # How long `next` tries to reach a daemon that went away.
    reconnect_s: float = 30.0
    # Batches that may wait ahead of the loop.
    lookahead: int = 4
    # A batch later than this is an error; 0: it never is.
    timeout_s: float = 0.0
    # Hand out private copies only.
    copy: bool = False
    # Called when a daemon went away. What it returns is called again and again while nothing
    # listens: it may start a daemon, or say who should.
    revive: Callable[[], Callable[[], object]] = lambda: never
    # Told of the memory that is mapped, and of leases that nothing refers to any more.
    arena: Optional[Arena] = None
    # Asked while something is waited for: True ends the wait, as `cancel` does.
    unwanted: Callable[[], bool] = never


@dataclass
class Stats:
    """Counters over a loader's sessions."""

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    reconnects: int = 0
    private_copies: int = 0
    replaced: int = 0
    decode_s: float = 0.0
    # Batches that this process read by itself, without a daemon.
    direct_batches: int = 0
    stall_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(wire.CAUSES, 0.0))

    def add(self, other: dict[str, Any]) -> None:
        """Add another's counters, as `dataclasses.asdict` gives them."""
        for name, value in other.items():
            if isinstance(value, dict):
                for cause, seconds in value.items():
                    self.stall_s[cause] += seconds
            else:
                setattr(self, name, getattr(self, name) + value)

    def discount(self, batch: Batch) -> None:
        """Take back a batch that was counted and is not given to anyone."""
        self.batches -= 1
        self.samples -= len(batch.ids)
        self.bytes -= sum(batch.lengths)


class Batch(NamedTuple):
    """One lease, mapped. Each view keeps the lease; dropping all of them gives it back."""

    epoch: int
    number: int
    last: bool
    ids: Sequence[int]
    lengths: Sequence[int]
    # Empty if there is a block.
    views: list[memoryview]
    # For each sample its fields' names and lengths, if the dataset has several fields.
    cuts: Optional[list[tuple[tuple[str, int], ...]]]
    # A packed lease as a whole, to be written at will: sample i begins at i·stride.
    block: Optional[memoryview] = None
    stride: int = 0
    # All lengths are known to be equal.
    equal: bool = False


class Request(NamedTuple):
    """What is attached to; `order` and `dataset` are as docs/format/wire.md says."""

    job: str
    dataset: str
    order: dict[str, Any]
    epochs: int
    rank: int
    # Ask for packed leases; the daemon may still send scattered ones.
    packed: bool = False
    # Of the kept set; empty: the daemon's choice.
    policy: str = ""
    # What an explicit order is a part of, for the daemon's record.
    share: Optional[dict[str, Any]] = None
    # How often this process has begun to read this order as this rank; 0: it is not to be compared
    # with where other ranks begin.
    begins: int = 0


class Session:
    def __init__(
        self,
        config: Config,
        request: Request,
        start: wire.Start,
        stats: Stats,
        batches: Iterable[Sequence[int]] = (),
    ) -> None:
        """Connect and attach. `batches` is an explicit order's only epoch, from `start` on.

        A daemon that goes away meanwhile is waited for, as `next` does; one that never listened is
        an error at once.
        """
        self._config = config
        self._request = request
        self._due = start
        self._stats = stats
        self._explicit = list(batches)
        self._flags = wire.WINDOW_ENDS_EPOCH | wire.WINDOW_ENDS_JOB
        self._pid = os.getpid()
        self._connection: Optional[Connection] = None
        self._slabs: dict[int, Slab] = {}
        self._features = 0
        self._content: str = ""
        self._ended = False
        self._skipped = False
        self._interrupted = False
        self._cancelled = False
        self._said_copies = False
        self._hold_bytes = sys.maxsize
        try:
            self.attached = self._attach()
        except Lost as lost:
            self.attached = self._reconnect(lost)

    @property
    def due(self) -> wire.Start:
        """The batch that `next` returns."""
        return self._due

    @property
    def ours(self) -> bool:
        """False in a process that was forked after the session began."""
        return self._pid == os.getpid()

    @property
    def direct(self) -> bool:
        return False

    def count_in(self, stats: Stats) -> None:
        """Count in other counters from here on."""
        self._stats = stats

    def ask(self, ids: Sequence[int]) -> None:
        """Of an explicit order: the epoch that is due is one batch, of these ids."""
        if self._connection is None:
            raise LoaderClosed("the session has ended")
        self._explicit, self._flags = [ids], wire.WINDOW_ENDS_EPOCH
        for frame in wire.windows(self._explicit, self._due.epoch, self._flags):
            self._connection.queue(frame)

    def tell(self, batches: Sequence[Sequence[int]]) -> None:
        """Of an explicit order: these batches come next in the epoch that is due, and more follow.

        Such a session does not reconnect: `poll` says that its daemon is lost.
        """
        if self._connection is None:
            raise LoaderClosed("the session has ended")
        for frame in wire.windows(batches, self._due.epoch, 0):
            self._connection.send(frame)

    @property
    def hold_bytes(self) -> int:
        """What `limit_hold` said."""
        return self._hold_bytes

    def flush(self) -> None:
        """Give back now what would be given back with the next request, which may be far off."""
        if self._connection is not None:
            self._connection.flush()

    def report_drift(self, epoch: int, batch: int) -> None:
        """Tell the daemon that a batch was not what its order should give."""
        if self._connection is not None and self._features & wire.FEATURE_DRIFT:
            self._connection.send(wire.drift(epoch, batch))

    def limit_hold(self, size: int) -> None:
        """Hand out private copies beyond this many bytes held, so that staging always has room."""
        self._hold_bytes = size

    # -- connecting

    def _attach(self) -> wire.Attached:
        connection = connect(self._config.socket, self._config.connect_s)
        self._connection = connection
        try:
            self._features = greet(connection, self._config.connect_s).features
            r = self._request
            wanted: dict[str, Any] = {
                "job": r.job,
                "datasets": [{"name": r.dataset}],
                "order": r.order,
                "epochs": r.epochs,
                "start": self._due._asdict(),
                "rank": r.rank,
                "packed": r.packed,
                "policy": r.policy,
                "client": {"pid": self._pid, "name": os.path.basename(sys.argv[0] or "")},
            }
            if r.share is not None and self._features & wire.FEATURE_SHARE:
                wanted["share"] = r.share
            if not self._content and self._features & wire.FEATURE_BEGIN:  # else it goes on
                wanted["begins"] = r.begins
            connection.send(wire.attach(wanted))
            if self._explicit:
                for frame in wire.windows(self._explicit, self._due.epoch, self._flags):
                    connection.send(frame)
            connection.send(wire.credit(self._config.lookahead))
            waiting = _Waiting(f"the daemon to open dataset {r.dataset}", 0.0)
            kind, payload = self._frame(connection, waiting)
            if kind == wire.ERROR:
                raise wire.decode_error(payload).exception()
            if kind != wire.ATTACHED:
                raise ProtocolError(f"the daemon answered Attach with a frame of type {kind}")
            attached = wire.decode_attached(payload)
        except BaseException:
            connection.leave()
            self._connection = None
            raise
        self._slabs = {}
        if self._content and attached.content != self._content:
            self.close()
            raise SampleChanged(
                f"dataset {r.dataset} was scanned again while it was read: begin the epoch again"
            )
        self._content = attached.content
        self._due = attached.start
        return attached

    def _reconnect(self, lost: BaseException) -> wire.Attached:
        """Attach again at the batch that is due, or give up after the configured time."""
        self._drop()
        deadline = time.monotonic() + self._config.reconnect_s
        pause = _BACKOFF_FIRST_S
        revive = self._config.revive()
        while True:
            self._check_cancelled()
            try:
                attached = self._attach()
                self._stats.reconnects += 1
                return attached
            except (DaemonUnavailable, Lost) as e:
                if time.monotonic() >= deadline:
                    self._interrupted = True  # whoever asks again has it tried again
                    raise DaemonUnavailable(
                        f"the daemon on {self._config.socket} went away ({lost}) and did not come"
                        f" back in {self._config.reconnect_s:.0f} s: start it with `belady serve`"
                    ) from e
            time.sleep(pause)
            pause = min(2 * pause, _BACKOFF_MAX_S)
            if pause == _BACKOFF_MAX_S:
                with suppress(DaemonUnavailable):  # the next attempt says what is wrong
                    revive()

    # -- receiving

    def next(self) -> Optional[Batch]:
        """The batch that is due; None after the job's last."""
        if not self.ours:
            raise LoaderClosed(
                "this iterator belongs to the process that made it: begin a new one after fork"
            )
        if self._ended:
            return None
        if self._interrupted:
            self._interrupted = False
            self._reconnect(Lost("it was interrupted"))
        if self._connection is None:
            raise LoaderClosed()
        d = self._due
        waiting = _Waiting(
            f"batch {d.batch} of epoch {d.epoch} of {self._request.dataset}",
            self._config.timeout_s,
        )
        while True:
            try:
                batch = self._receive(waiting)
            except Lost as lost:
                self._reconnect(lost)
                continue
            except ProtocolError:
                self._drop()
                raise
            except BeladyError:
                raise
            except BaseException:
                # A signal's exception comes between any two steps. What was read may be torn, so
                # this connection ends here; whoever goes on gets the batch that was due.
                self._drop()
                self._due, self._interrupted = d, True
                raise
            return batch

    def poll(self) -> Optional[Batch]:
        """The batch that is due if it is here already, else None: never waits or reconnects."""
        if self._connection is None or not self.ours:
            raise Lost("the session has ended")
        return self._receive(None)

    def _receive(self, waiting: Optional[_Waiting]) -> Optional[Batch]:
        """The batch that is due; None after the last, or where none is here and nobody waits."""
        assert self._connection is not None
        connection = self._connection
        while True:
            frame = connection.frame() if waiting is None else self._frame(connection, waiting)
            if frame is None:
                return None
            kind, payload = frame
            if kind == wire.LEASE:
                lease = wire.decode_lease(payload)
                if waiting is not None and waiting.stalled:
                    cause = lease.cause if lease.cause < len(wire.CAUSES) else 0
                    self._stats.stall_s[wire.CAUSES[cause]] += waiting.seconds()
                return self._take(connection, lease)
            if kind == wire.SLAB:
                info = wire.decode_slab(payload)
                fd = connection.descriptor()
                arena = self._config.arena
                self._slabs[info.number] = Slab(
                    fd, info.size, info.kind == wire.PACKED_RING,
                    None if arena is None else arena.register,
                )
            elif kind == wire.SLAB_GONE:
                self._slabs.pop(wire.decode_slab_gone(payload), None)
            elif kind == wire.END:
                self._ended = True
                self._drop()
                return None
            elif kind == wire.ERROR:
                self._fail(connection, wire.decode_error(payload))
            else:
                raise ProtocolError(f"the daemon sent a frame of type {kind}, which none expects")

    def _frame(self, connection: Connection, waiting: _Waiting) -> tuple[int, bytearray]:
        while True:
            frame = connection.frame()
            if frame is not None:
                return frame
            self._check_cancelled()
            waiting.check()
            connection.wait(SLICE_S)

    def _fail(self, connection: Connection, error: wire.ErrorFrame) -> None:
        if error.fatal and error.code == SHUTTING_DOWN:
            raise Lost(error.text)
        exception = error.exception()
        if not error.fatal:
            connection.send(wire.credit(1))
        else:
            self._drop()
        if not error.fatal or isinstance(exception, SampleError):
            # It stands in place of its batch: who goes on gets the one behind it.
            self._due = wire.Start(error.epoch, self._due.position, error.batch + 1)
            self._skipped = True
            self._interrupted = error.fatal
        raise exception

    def _take(self, connection: Connection, lease: wire.Lease) -> Batch:
        """Map a lease's samples and hand it out; a private copy if too much is held already."""
        due = self._due
        # An error may have stood in place of an epoch's last batch: then the next epoch begins.
        wrapped = self._skipped and (lease.epoch, lease.batch) == (due.epoch + 1, 0)
        self._skipped = False
        if (lease.epoch, lease.batch) != (due.epoch, due.batch) and not wrapped:
            raise ProtocolError(
                f"the daemon sent batch {lease.batch} of epoch {lease.epoch},"
                f" but batch {due.batch} of epoch {due.epoch} is due"
            )
        last = bool(lease.flags & wire.LAST_OF_EPOCH)
        position = due.position if lease.epoch == due.epoch else 0
        self._due = (
            wire.Start(lease.epoch + 1, 0, 0)
            if last
            else wire.Start(lease.epoch, position, lease.batch + 1)
        )
        held = connection.lent
        connection.lend(lease.seq)
        arena = self._config.arena
        if arena is None:
            token = Token(connection.release, lease.seq)
        else:
            token = Token(arena.died, _release, connection, lease.seq, [*self._slabs.values()])
        block = _block(self._slabs, lease, token) if lease.packed else None
        views = _views(self._slabs, lease, token) if block is None else []
        del token
        stats = self._stats
        crowded = (
            held >= self._config.lookahead + 2 or (held + 1) * lease.size > self._hold_bytes
        )
        if crowded or self._config.copy:
            views = [memoryview(bytes(view)) for view in views]
            block = None if block is None else memoryview(bytearray(block))
            stats.private_copies += 1
            if not self._config.copy:
                self._say_copies(held, lease.size)
        stats.batches += 1
        stats.samples += len(lease.ids)
        stats.bytes += lease.size
        # The batch before this one is given back in a moment: one write tells of both.
        connection.queue(wire.credit(1))
        cuts = self._cuts(lease)
        return Batch(
            lease.epoch, lease.batch, last, lease.ids, lease.lengths, views, cuts, block,
            lease.stride, lease.equal,
        )

    def _cuts(self, lease: wire.Lease) -> Optional[list[tuple[tuple[str, int], ...]]]:
        k = lease.fields
        if k < 2:
            return None
        names = self.attached.fields
        if len(names) != k:
            raise ProtocolError(f"a lease has {k} fields and the dataset {len(names)}")
        lengths = lease.field_lengths
        cuts = [tuple(zip(names, lengths[i : i + k])) for i in range(0, len(lengths), k)]
        if any(sum(n for _, n in cut) != size for cut, size in zip(cuts, lease.lengths)):
            raise ProtocolError("the fields of a sample do not add up to its length")
        return cuts

    def _say_copies(self, held: int, size: int) -> None:
        if self._said_copies:
            return
        self._said_copies = True
        if held > 1:
            why = f"{held} batches are held: further ones"
            what = "drop batches when they are used, or copy less with a larger --staging"
        else:
            why = (
                f"a batch of {size / _MIB:.1f} MiB is large against this process's"
                f" {2 * self._hold_bytes / _MIB:.1f} MiB of the daemon's staging: some"
            )
            what = "make batches smaller, or copy less with a larger --staging or --ram"
        copies = "are private copies, so that the daemon keeps room to read ahead"
        notice.warn(f"{why} {copies}; {what}")

    # -- leaving

    def _drop(self) -> None:
        """Part from the connection; leases in hand keep it and their maps."""
        if self._connection is not None:
            self._connection.leave()
            self._connection = None
        self._slabs = {}

    def cancel(self) -> None:
        """End a wait in `next`, and any later one, with LoaderClosed; from any thread."""
        self._cancelled = True

    def _check_cancelled(self) -> None:
        if self._cancelled or self._config.unwanted():
            raise LoaderClosed()

    def close(self) -> None:
        """Want no more. Views in hand stay valid; what was sent ahead is given back at once."""
        self._interrupted = False
        connection = self._connection
        if connection is not None and self.ours and connection.lent:
            connection.send(wire.frame(wire.DETACH))
            _give_back(connection, time.monotonic() + _DRAIN_S)
        self._drop()

    def __del__(self) -> None:
        # Without leases in hand closing is a close(2); it never waits here.
        if getattr(self, "_connection", None) is not None and not sys.is_finalizing():
            self.close()


class _Waiting:
    """How long one wait has lasted; says so once after ten seconds."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._began = time.monotonic()
        self._said = False
        self.stalled = False

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def check(self) -> None:
        self.stalled = True
        waited = self.seconds()
        if self._timeout_s and waited > self._timeout_s:
            raise WaitTimeout(f"{self._what} did not come within {self._timeout_s:g} s")
        if waited > SAY_AFTER_S and not self._said:
            self._said = True
            notice.warn(
                f"waiting for {self._what} for {waited:.0f} s; `belady status` shows what the"
                " daemon does"
            )


def _release(connection: Connection, seq: int, slabs: list[Slab]) -> None:
    """Give a lease back. Until then its slabs stay mapped."""
    connection.release(seq)
    slabs.clear()


def _views(slabs: dict[int, Slab], lease: wire.Lease, token: Token) -> list[memoryview]:
    """A view of each sample, after checking that it lies in a slab that is mapped."""
    bits, mask = wire.OFFSET_BITS, wire.OFFSET_MASK
    lent: dict[int, memoryview] = {}
    for index in {place >> bits for place in lease.places}:
        slab = slabs.get(index)
        if slab is None:
            raise ProtocolError(f"a lease names slab {index}, which was not announced")
        lent[index] = slab.lend(token)
    views = [
        lent[place >> bits][place & mask : (place & mask) + length]
        for place, length in zip(lease.places, lease.lengths)
    ]
    # A slice stops at the buffer's end, and together the samples have the lease's size.
    if sum(map(len, views)) != lease.size:
        raise ProtocolError("a sample crosses the end of its slab")
    return views


def _block(slabs: dict[int, Slab], lease: wire.Lease, token: Token) -> Optional[memoryview]:
    """All of a packed lease, if it lies in memory that is this session's own."""
    size = len(lease.ids) * lease.stride
    slab = slabs.get(lease.base >> wire.OFFSET_BITS)
    if slab is None or not slab.writable or not size:
        return None
    offset = lease.base & wire.OFFSET_MASK
    block = slab.lend(token)[offset : offset + size]
    if len(block) != size:
        raise ProtocolError("a packed lease crosses the end of its slab")
    return block


def _give_back(connection: Connection, deadline: float) -> None:
    """Release the leases that were sent but never handed out, until the daemon's side ends."""
    try:
        while time.monotonic() < deadline:
            frame = connection.frame()
            if frame is None:
                connection.wait(SLICE_S)
            elif frame[0] == wire.LEASE:
                connection.release(wire.decode_lease(frame[1]).seq)
            elif frame[0] == wire.SLAB:
                os.close(connection.descriptor())
    except (BeladyError, Lost):
        pass  # the stream's end is what was waited for; a broken one ends the leases itself
