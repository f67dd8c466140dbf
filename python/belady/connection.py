"""One socket to the daemon: frames and descriptors in, frames out, and what is lent over it.

A Connection belongs to one thread, except `release`, which any thread may call at any moment, the
garbage collector included: it queues, and writes only if nobody else is writing. No call but `wait`
blocks, and `wait` is interrupted by signals. A connection outlives its session for as long as a
view of one of its leases does; only then is the socket closed, because closing ends the leases.
After a fork the child drops its copy of the socket: leases stay the parent's.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from typing import Deque, Optional

from belady import wire
from belady.errors import BadRequest, DaemonUnavailable, ProtocolError, SocketUnusable

SOCKET_PATH_MAX = 107
# How long one wait lasts: signals come through and clocks are looked at between two.
SLICE_S = 0.1
_FDS_ROOM = socket.CMSG_SPACE(wire.FDS_WAITING_MAX * 4)
_RECEIVE = 1 << 16
_RELEASES_MAX = 1 << 16
# As numbers: or-ing two of socket's enumerations takes longer than decoding a lease.
_SEND_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVE_FLAGS = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
# So many leases are given back by one write where batches follow each other within the time below:
# waking the daemon costs more than all the rest of a small batch. What waits is told at the latest
# before the next wait.
_RELEASES_TOGETHER = 2
_QUICK_S = 0.002


class Lost(ConnectionError):
    """The stream ended: the daemon went away or was told to."""


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._in = bytearray()
        # Reused: a fresh buffer for each read would cost more than what is read.
        self._room = memoryview(bytearray(_RECEIVE))
        self._fds: Deque[int] = deque()
        self._out = bytearray()
        self._released: Deque[int] = deque()
        self._lent: set[int] = set()
        self._writing = threading.Lock()
        # Why the stream ended. Text and no exception: a traceback would hold its frames' leases.
        self._broken = ""
        self._leaving = False
        self._waiting = False
        self._lent_at = 0.0
        self._quick = False
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        _open.add(self)

    @property
    def lent(self) -> int:
        """How many leases of this connection are in somebody's hands."""
        return len(self._lent)

    def queue(self, frames: bytes) -> None:
        """Write these with whatever is written next, at the latest before the next wait."""
        with self._writing:
            self._out += frames

    def send(self, frames: bytes) -> None:
        """Queue frames behind those that wait, and write what the socket takes."""
        self.queue(frames)
        self.flush()

    def lend(self, seq: int) -> None:
        self._lent.add(seq)
        now = time.monotonic()
        self._quick = now - self._lent_at < _QUICK_S
        self._lent_at = now

    def release(self, seq: int) -> None:
        """Give a lease back. From any thread, and from finalizers, which may interrupt `flush`."""
        self._released.append(seq)
        self._lent.discard(seq)
        if (
            not self._quick or self._waiting or self._leaving
            or len(self._released) >= _RELEASES_TOGETHER
        ):
            self.flush()

    def flush(self) -> None:
        # A writer that is interrupted by a finalizer finds that one's release when it looks again.
        while (self._released or self._out or self._ending()) and self._writing.acquire(False):
            try:
                if not self._write():
                    return
            finally:
                self._writing.release()

    def _ending(self) -> bool:
        return self._leaving and not self._lent and self._sock.fileno() >= 0

    def _write(self) -> bool:
        """Write once; False when there is nothing more to do now."""
        if self._ending():
            self._close()
        if self._broken or self._sock.fileno() < 0:
            self._out.clear()
            self._released.clear()
            return False
        seqs: list[int] = []
        while self._released and len(seqs) < _RELEASES_MAX:
            seqs.append(self._released.popleft())
        if seqs:
            self._out += wire.release(seqs)
        if not self._out:
            return True
        try:
            sent = self._sock.send(self._out, _SEND_FLAGS)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            # The reading side says why: the daemon may have sent a last word.
            self._out.clear()
            return False
        del self._out[:sent]
        return True

    def frame(self) -> Optional[tuple[int, bytearray]]:
        """The next frame, if it is already here. Lost at the stream's end."""
        while True:
            if len(self._in) >= wire.HEADER.size:
                size, kind = wire.header(self._in)
                end = wire.HEADER.size + size
                if len(self._in) >= end:
                    payload = self._in[wire.HEADER.size : end]
                    del self._in[:end]
                    return kind, payload
            if not self._receive():
                return None

    def _receive(self) -> bool:
        if self._broken:
            raise Lost(self._broken)
        if self._sock.fileno() < 0:
            raise Lost("the connection is closed")
        try:
            size, control, _, _ = self._sock.recvmsg_into(
                [self._room], _FDS_ROOM, _RECEIVE_FLAGS
            )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as e:
            self._broken = str(e)
            raise Lost(self._broken) from e
        for level, kind, value in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(value[: len(value) // fds.itemsize * fds.itemsize])
                self._fds.extend(fds)
        if len(self._fds) > wire.FDS_WAITING_MAX:
            raise ProtocolError("the daemon sent descriptors without the slabs they belong to")
        if not size:
            self._broken = "the daemon closed the connection"
            raise Lost(self._broken)
        self._in += self._room[:size]
        return True

    def descriptor(self) -> int:
        """The descriptor of the Slab frame just read; the caller owns it."""
        if not self._fds:
            raise ProtocolError("the daemon announced a slab without its descriptor")
        return self._fds.popleft()

    def wait(self, seconds: float) -> None:
        """Wait until something can be read, or for some seconds, writing what waits meanwhile."""
        self._waiting = True  # from here on releases of other threads are told at once
        try:
            self.flush()
            if self._broken or self._sock.fileno() < 0:
                return
            events = select.POLLIN | (select.POLLOUT if self._out else 0)
            self._poll.modify(self._sock.fileno(), events)
            self._poll.poll(max(0, int(seconds * 1000)))
        finally:
            self._waiting = False

    def leave(self) -> None:
        """No more is wanted. The socket is closed when the last lease has been given back."""
        self._leaving = True
        self.flush()

    def _close(self) -> None:
        self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())
        self._in.clear()
        _open.discard(self)

    def _forked(self) -> None:
        self._writing = threading.Lock()
        self._broken = "the connection belongs to the parent process"
        self._out.clear()
        self._released.clear()
        self._close()


def connect(path: str, timeout_s: float) -> Connection:
    """A connection to the daemon that listens there."""
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise BadRequest(
            f"socket path {path} has over {SOCKET_PATH_MAX} bytes: name a shorter one with"
            " $BELADY_SOCKET"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(path)
    except OSError as e:
        sock.close()
        if e.errno == errno.EACCES:
            raise SocketUnusable(
                f"the daemon on {path} belongs to another user: start your own with `belady serve`"
            ) from e
        raise DaemonUnavailable(
            f"no daemon listens on {path}: start one with `belady serve` ({e})"
        ) from e
    except BaseException:
        sock.close()
        raise
    return Connection(sock)


def greet(connection: Connection, timeout_s: float) -> wire.Welcome:
    """Exchange versions."""
    deadline = time.monotonic() + timeout_s
    connection.send(wire.hello())
    while True:
        frame = connection.frame()
        if frame is None:
            if time.monotonic() > deadline:
                raise DaemonUnavailable(f"the daemon did not answer within {timeout_s:g} s")
            connection.wait(SLICE_S)
            continue
        kind, payload = frame
        if kind == wire.ERROR:
            raise wire.decode_error(payload).exception()
        if kind != wire.WELCOME:
            raise ProtocolError(f"the daemon answered Hello with a frame of type {kind}")
        return wire.decode_welcome(payload)


_open: weakref.WeakSet[Connection] = weakref.WeakSet()


def _after_fork() -> None:
    for connection in list(_open):
        connection._forked()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
