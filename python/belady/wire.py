"""The wire protocol, version 1: bytes to values and back (docs/format/wire.md).

Pure: no socket is touched here. Whatever a daemon sends, a decoder returns a value that was checked
or raises ProtocolError; a lease's places still have to be compared with the slabs that are mapped,
which `belady.session` does.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from belady.errors import BeladyError, ProtocolError, from_code

PREAMBLE = b"BLDY"
VERSION = 1

HELLO, ATTACH, CREDIT, RELEASE, WINDOW, DETACH, DRIFT = 1, 2, 3, 4, 5, 6, 7
WELCOME, ATTACHED, SLAB, SLAB_GONE, LEASE, END, ERROR = 64, 65, 66, 67, 68, 69, 70

# Optional parts of the protocol, as bits: the client may send Drift; Attach may have a share; it may
# say that it begins.
FEATURE_DRIFT, FEATURE_SHARE, FEATURE_BEGIN = 1, 2, 4

CREDIT_MAX = 1024
FRAME_MAX = 16 << 20
FRAME_SENT_MAX = (4 << 20) + 64
FDS_WAITING_MAX = 16
# Ids of one window: a quarter of what a frame holds, so that its batches' ends always fit too.
WINDOW_IDS_MAX = 1 << 18

ARENA, PACKED_RING = 0, 1
SCATTERED, PACKED = 0, 1
LAST_OF_EPOCH, PRIVATE = 1, 2
WINDOW_ENDS_EPOCH, WINDOW_ENDS_JOB = 1, 2

OFFSET_BITS = 48
OFFSET_MASK = (1 << OFFSET_BITS) - 1

CAUSES = ("none", "origin", "ssd", "peer", "arena", "order", "decode")

HEADER = struct.Struct("<IBBH")
_HELLO = struct.Struct("<HHI")
_WELCOME = struct.Struct("<HHII")
_SLAB = struct.Struct("<HB5xQ")
_LEASE = struct.Struct("<QIIBBHIIIQQQ")
_ERROR = struct.Struct("<HBBII")
_WINDOW = struct.Struct("<IIII")


class Welcome(NamedTuple):
    version: int
    features: int
    pid: int


class Start(NamedTuple):
    """Where delivery begins; `position` is c of the order's contract."""

    epoch: int
    position: int
    batch: int


class Attached(NamedTuple):
    session: str
    samples: int
    batches_per_epoch: int
    fields: tuple[str, ...]
    content: str
    start: Start


class SlabInfo(NamedTuple):
    number: int
    kind: int
    size: int


class Lease(NamedTuple):
    """One batch: where each of its samples lies. Arrays are views of the frame's payload."""

    seq: int
    epoch: int
    batch: int
    cause: int
    fields: int
    flags: int
    size: int
    stride: int
    base: int
    packed: bool
    equal: bool  # all lengths are
    ids: Sequence[int]
    lengths: Sequence[int]
    places: Sequence[int]
    field_lengths: Sequence[int]


class ErrorFrame(NamedTuple):
    code: int
    fatal: bool
    epoch: int
    batch: int
    text: str

    def exception(self) -> BeladyError:
        return from_code(self.code, self.text)


def frame(kind: int, payload: bytes = b"") -> bytes:
    """A frame of the client's.

    >>> frame(DETACH).hex()
    '0000000006000000'
    """
    if len(payload) > FRAME_SENT_MAX:
        raise ProtocolError(f"a frame of {len(payload)} bytes is over the limit, {FRAME_SENT_MAX}")
    return HEADER.pack(len(payload), kind, 0, 0) + payload


def hello() -> bytes:
    features = FEATURE_DRIFT | FEATURE_SHARE | FEATURE_BEGIN
    return PREAMBLE + frame(HELLO, _HELLO.pack(VERSION, VERSION, features))


def attach(request: dict[str, Any]) -> bytes:
    return frame(ATTACH, json.dumps(request).encode())


def credit(n: int) -> bytes:
    return frame(CREDIT, struct.pack("<I", n))


def drift(epoch: int, batch: int) -> bytes:
    return frame(DRIFT, struct.pack("<II", epoch, batch))


def release(seqs: Sequence[int]) -> bytes:
    return frame(RELEASE, struct.pack(f"<{len(seqs)}Q", *seqs))


def windows(batches: Iterable[Sequence[int]], epoch: int, flags: int) -> Iterable[bytes]:
    """Frames that send an explicit order's epoch; `flags` go with the last of them."""
    ids: list[int] = []
    ends: list[int] = []
    for batch in batches:
        if ids and len(ids) + len(batch) > WINDOW_IDS_MAX:
            yield _window(epoch, 0, ids, ends)
            ids, ends = [], []
        ids.extend(batch)
        ends.append(len(ids))
    yield _window(epoch, flags, ids, ends)


def _window(epoch: int, flags: int, ids: list[int], ends: list[int]) -> bytes:
    arrays = struct.pack(f"<{len(ids) + len(ends)}I", *ids, *ends)
    return frame(WINDOW, _WINDOW.pack(epoch, flags, len(ids), len(ends)) + arrays)


def header(data: bytes | bytearray) -> tuple[int, int]:
    """Payload length and type of the frame that begins with these eight bytes."""
    size, kind, _, reserved = HEADER.unpack_from(data)
    if size > FRAME_MAX or reserved != 0:
        raise ProtocolError(f"the daemon sent a malformed frame: type {kind}, {size} bytes")
    return size, kind


def decode_welcome(payload: bytes | bytearray) -> Welcome:
    if len(payload) < _WELCOME.size:
        raise _malformed("Welcome", payload)
    version, _, features, pid = _WELCOME.unpack_from(payload)
    if version != VERSION:
        raise ProtocolError(f"the daemon chose version {version}, which was not offered")
    return Welcome(version, features, pid)


def decode_attached(payload: bytes | bytearray) -> Attached:
    try:
        a: dict[str, Any] = json.loads(payload)
        start: dict[str, Any] = a.get("start") or {}
        return Attached(
            session=str(a.get("session", "")),
            samples=int(a.get("samples", 0)),
            batches_per_epoch=int(a.get("batches_per_epoch", 0)),
            fields=tuple(map(str, a.get("fields") or ())),
            content=str(a.get("content", "")),
            start=Start(*(int(start.get(k, 0)) for k in Start._fields)),
        )
    except (ValueError, TypeError, AttributeError) as e:
        raise _malformed("Attached", payload) from e


def decode_slab(payload: bytes | bytearray) -> SlabInfo:
    if len(payload) != _SLAB.size or any(payload[3:8]):
        raise _malformed("Slab", payload)
    info = SlabInfo(*_SLAB.unpack(payload))
    if info.kind > PACKED_RING or not 0 < info.size <= OFFSET_MASK:
        raise _malformed("Slab", payload)
    return info


def decode_slab_gone(payload: bytes | bytearray) -> int:
    if len(payload) != 2:
        raise _malformed("SlabGone", payload)
    return int.from_bytes(payload, "little")


def decode_lease(payload: bytes | bytearray) -> Lease:
    """A lease whose arrays fit, add up, and lie inside its own stride."""
    if len(payload) < _LEASE.size:
        raise _malformed("Lease", payload)
    (seq, epoch, batch, cause, form, fields, flags, n, stride, size, _, base) = _LEASE.unpack_from(
        payload
    )
    packed = form == PACKED
    fields = max(fields, 1)
    extra = n * fields if fields > 1 else 0
    want = _LEASE.size + 8 * n + (0 if packed else 8 * n) + 4 * extra
    if form not in (SCATTERED, PACKED) or len(payload) != want:
        raise _malformed("Lease", payload)
    at = _LEASE.size
    ids = _column(payload, at, n, "I")
    at += 4 * n
    lengths = _column(payload, at, n, "I")
    # Equal lengths are seen by comparing bytes, hundreds of times faster than number by number.
    equal = n > 0 and payload[at : at + 4 * n] == payload[at : at + 4] * n
    longest = lengths[0] if equal else max(lengths, default=0)
    total = n * longest if equal else sum(lengths)
    at += 4 * n
    places: Sequence[int]
    if packed:
        places = range(base, base + n * stride, stride) if stride else [base] * n
        if longest > stride:
            raise ProtocolError("a packed lease has a sample that is longer than its stride")
    else:
        places = _column(payload, at, n, "Q")
        at += 8 * n
    if total != size:
        raise ProtocolError("a lease's lengths do not add up to its size")
    field_lengths = _column(payload, at, extra, "I")
    return Lease(seq, epoch, batch, cause, fields, flags, size, stride, base, packed, equal, ids,
                 lengths, places, field_lengths)


def decode_error(payload: bytes | bytearray) -> ErrorFrame:
    if len(payload) < _ERROR.size:
        raise _malformed("Error", payload)
    code, fatal, _, epoch, batch = _ERROR.unpack_from(payload)
    text = payload[_ERROR.size :].decode("utf-8", "replace")
    return ErrorFrame(code, bool(fatal), epoch, batch, text)


def _column(
    payload: bytes | bytearray, at: int, n: int, code: Literal["I", "Q"]
) -> Sequence[int]:
    width = 4 if code == "I" else 8
    if sys.byteorder == "little":
        return memoryview(payload)[at : at + width * n].cast(code)
    return struct.unpack_from(f"<{n}{code}", payload, at)


def _malformed(what: str, payload: bytes | bytearray) -> ProtocolError:
    return ProtocolError(f"the daemon sent a malformed {what} of {len(payload)} bytes")
