"""The codec against the Go codec's golden frames, and against damage."""

from __future__ import annotations

import doctest
import random
import re
import struct
from pathlib import Path
from types import ModuleType

import pytest

import belady.daemon
import belady.dataset
import belady.errors
import belady.wire
import belady.world
from belady import wire
from belady.errors import BeladyError, ProtocolError, UnknownDataset

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "internal" / "node" / "wire" / "testdata" / "version-1.golden"


def golden() -> dict[str, bytes]:
    """Every frame of the golden file by its title."""
    frames: dict[str, bytes] = {}
    for block in GOLDEN.read_text().strip().split("\n\n"):
        title, *dump = block.splitlines()
        rows = (re.sub(r"^[0-9a-f]{8}|\|.*\|$", "", row) for row in dump)
        frames[title] = bytes.fromhex("".join(rows))
    return frames


def payload(title: str, kind: int) -> bytes:
    frame = golden()[title]
    size, got = wire.header(frame)
    assert got == kind and size == len(frame) - wire.HEADER.size
    return frame[wire.HEADER.size :]


def leases() -> list[bytes]:
    return [f[8:] for title, f in golden().items() if wire.header(f)[1] == wire.LEASE]


def test_sent_frames() -> None:
    frames = golden()
    assert wire.credit(4) == frames["Credit"]
    assert wire.release([1, 1 << 40]) == frames["Release"]
    assert wire.frame(wire.DETACH) == frames["Detach"]
    flags = wire.WINDOW_ENDS_EPOCH | wire.WINDOW_ENDS_JOB
    assert list(wire.windows([[10, 1 << 31], [12]], 3, flags)) == [frames["Window"]]
    assert wire.hello()[:4] == b"BLDY" and wire.hello()[4:16] == frames["Hello"][:12]


def test_windows_are_cut() -> None:
    size = wire.WINDOW_IDS_MAX // 2
    batches = [range(size)] * 5
    frames = list(wire.windows(batches, 7, wire.WINDOW_ENDS_EPOCH))
    heads = [struct.unpack_from("<IIII", f, 8) for f in frames]
    assert heads == [(7, 0, 2 * size, 2), (7, 0, 2 * size, 2), (7, 1, size, 1)]


def test_received_frames() -> None:
    assert wire.decode_welcome(payload("Welcome", wire.WELCOME)).pid == 4242
    attached = wire.decode_attached(payload("Attached", wire.ATTACHED))
    assert attached.samples == 1281167 and attached.fields == ("jpg", "cls")
    assert attached.start == wire.Start(3, 4096, 2)
    assert wire.decode_slab(payload("Slab", wire.SLAB)) == (513, wire.PACKED_RING, 1 << 28)


def test_leases() -> None:
    assert leases()
    for data in leases():
        lease = wire.decode_lease(data)
        assert len(lease.ids) == len(lease.lengths) == len(lease.places)
        assert sum(lease.lengths) == lease.size


def test_damaged_leases_are_refused_or_consistent() -> None:
    draw = random.Random(1)
    for data in leases():
        for _ in range(2000):
            bad = bytearray(data)
            for _ in range(draw.randint(1, 3)):
                bad[draw.randrange(len(bad))] = draw.randrange(256)
            cut = bytes(bad[: draw.choice([len(bad), draw.randrange(len(bad))])])
            try:
                lease = wire.decode_lease(cut)
            except ProtocolError:
                continue
            assert len(lease.ids) == len(lease.lengths) == len(lease.places)
            assert sum(lease.lengths) == lease.size


@pytest.mark.parametrize("decode", [
    wire.decode_welcome, wire.decode_attached, wire.decode_slab, wire.decode_slab_gone,
    wire.decode_lease, wire.decode_error,
])
def test_garbage_is_refused(decode: object) -> None:
    for data in (b"", b"\0", b"[1]", b"null", b"\xff" * 7):
        with pytest.raises(ProtocolError):
            decode(data)  # type: ignore[operator]


def test_headers_are_checked() -> None:
    for bad in (wire.HEADER.pack(wire.FRAME_MAX + 1, 68, 0, 0), wire.HEADER.pack(0, 68, 0, 1)):
        with pytest.raises(ProtocolError):
            wire.header(bad)


def test_errors_have_classes() -> None:
    error = wire.decode_error(struct.pack("<HBBII", 4, 1, 0, 2, 3) + b"no dataset x")
    assert (error.fatal, error.epoch, error.batch) == (True, 2, 3)
    assert isinstance(error.exception(), UnknownDataset)
    assert "no dataset x" in str(error.exception())
    assert isinstance(wire.ErrorFrame(999, True, 0, 0, "new").exception(), BeladyError)


@pytest.mark.parametrize("module", [
    belady.daemon, belady.dataset, belady.direct, belady.errors, belady.order, belady.scan,
    belady.wire, belady.world,
], ids=lambda m: m.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
