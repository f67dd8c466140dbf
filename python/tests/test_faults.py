"""Daemons that die, leave, lie or are not there; forks, signals, and files that change."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import belady
import belady.notice
import belady.reading
import belady.session
from belady import daemon, wire
from belady.session import Config, Request, Session, Stats
from conftest import BELADY, Node, eventually, fastest, image_folder, temporary, write_files

ORDERS = [{"seed": 3}, {}, {"sampler": range(210, -1, -1)}]
SLOW = "throttle+synth://slow?samples=100&size=100KB&throttle.rate=1KB"


def loader_of(source: object, options: dict[str, object]) -> belady.DataLoader:
    shuffle = None if "sampler" in options else True
    return belady.DataLoader(
        source, 10, shuffle, collate_fn=list, **options  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("options", ORDERS, ids=["seeded", "drawn", "sampler"])
@pytest.mark.parametrize("leaving", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_daemon_goes_and_comes_back(
    own_node: Node, files: Path, options: dict[str, object], leaving: signal.Signals
) -> None:
    """The loop goes on with the same batch, and what it holds stays what it was."""
    import torch

    reference = image_folder(files)
    torch.manual_seed(1)
    with loader_of(files, options) as whole:
        want = [[s.id for s in batch] for batch in whole]
    torch.manual_seed(1)
    with loader_of(files, options) as loader:
        held, got = [], []
        for i, batch in enumerate(loader):
            got.append([s.id for s in batch])
            if i in (1, 12):  # more than the batches that wait in the socket apart
                held.append(batch)
                own_node.process.send_signal(leaving)  # type: ignore[union-attr]
                own_node.process.wait()  # type: ignore[union-attr]
                own_node.start()
            assert all(bytes(s) == reference[s.id][0] for s in batch)
        assert got == want
        assert all(bytes(s) == reference[s.id][0] for batch in held for s in batch)
        assert loader.stats()["belady/reconnects"] == 2


def test_views_outlive_the_daemon(own_node: Node, files: Path) -> None:
    reference = image_folder(files)
    loader = loader_of(files, {"seed": 1})
    batch = next(iter(loader))
    own_node.kill()
    loader.close()
    assert all(bytes(s) == reference[s.id][0] for s in batch)


def test_tensors_outlive_the_daemon(own_node: Node) -> None:
    url = "synth://outlive?samples=64&size=3KB&classes=5"
    with belady.DataLoader(url, 16, collate_fn=list) as loader:
        want = [(bytes(s), s.label) for batch in loader for s in batch]
    loader = belady.DataLoader(url, 16, collate_fn="stack")
    rows, labels = next(iter(loader))
    own_node.kill()
    loader.close()
    assert [(bytes(r.numpy()), n) for r, n in zip(rows, labels.tolist())] == want[:16]
    assert not rows.zero_().any()


def test_daemon_stays_away(own_node: Node) -> None:
    name = own_node.add("numbers", "synth://n?samples=100&size=1KB")
    config = Config(own_node.socket, reconnect_s=0.05)
    order = {"kind": "sequential", "samples": 100, "batch": 10}
    session = Session(config, Request("j", name, order, 1, 0), wire.Start(0, 0, 0), Stats())
    assert session.next() is not None
    own_node.kill()
    with pytest.raises(belady.DaemonUnavailable, match="did not come back"):
        for _ in range(10):
            session.next()


def test_dataset_changes_while_it_is_away(own_node: Node) -> None:
    folder = write_files(own_node.folder / "files", 120)
    own_node.add("files", str(folder))
    with loader_of("files", {"seed": 1}) as loader:
        iterator = iter(loader)
        next(iterator)
        own_node.kill()
        (folder / "class0" / "new.bin").write_bytes(b"new")
        own_node.add("files", str(folder))
        own_node.start()
        with pytest.raises(belady.BeladyError, match="scan"):
            for _ in iterator:
                pass


def test_changed_and_absent_samples(node: Node) -> None:
    folder = write_files(temporary(), 30)
    for damage, error in (
        (lambda path: path.write_bytes(b"other"), belady.SampleChanged),
        (os.unlink, belady.SampleAbsent),
    ):
        name = node.add(f"damaged{error.__name__}", str(folder))
        damage(next((folder / "class1").glob("*.bin")))
        with belady.DataLoader(name, 10, collate_fn=list) as loader:
            with pytest.raises(error, match="class1"):
                list(loader)


def test_fork(node: Node, files: Path) -> None:
    """A child may not use its parent's iterator, makes its own, and does not disturb it."""
    loader = loader_of(files, {"seed": 2})
    want = [[s.id for s in batch] for batch in loader]
    loader.set_epoch(0)
    iterator = iter(loader)
    batch = next(iterator)

    def child(answer: Callable[[object], None]) -> None:
        try:
            next(iterator)
        except belady.LoaderClosed:
            answer([[s.id for s in b] for b in loader])

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs.send,))
    process.start()
    theirs.close()
    assert ours.recv() == want
    process.join()
    assert process.exitcode == 0
    assert [[s.id for s in batch], *([s.id for s in b] for b in iterator)] == want
    loader.close()


class Interrupted(Exception):
    pass


def test_signals_interrupt_a_wait(node: Node) -> None:
    """Within 100 ms of when they are sent, again and again."""
    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with loader_of(SLOW, {"seed": 1}) as loader:
            iterator = iter(loader)

            def interrupt() -> float:
                due = time.monotonic() + 0.1
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with pytest.raises(Interrupted):
                    next(iterator)
                return time.monotonic() - due

            for _ in range(3):
                fastest(0.1, interrupt)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_going_on_after_a_signal(node: Node) -> None:
    """Nothing is missing or twice when a loop goes on, as in a notebook."""
    def handler(*_: object) -> None:
        raise Interrupted

    source = "throttle+synth://later?samples=40&size=10KB&throttle.rate=500KB"
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with loader_of(source, {"seed": 1}) as loader:
            iterator = iter(loader)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                next(iterator)
            assert sorted(s.id for batch in iterator for s in batch) == list(range(40))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_timeout(node: Node) -> None:
    with belady.DataLoader(SLOW, 10, timeout=0.05, collate_fn=list) as loader:
        with pytest.raises(belady.WaitTimeout, match="batch 0 of epoch 0"):
            next(iter(loader))


def test_a_long_wait_is_said_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(belady.session, "SAY_AFTER_S", 0.01)
    with belady.DataLoader(SLOW, 10, timeout=0.5, collate_fn=list) as loader:
        with pytest.warns(UserWarning, match="waiting for batch 0") as said:
            with pytest.raises(belady.WaitTimeout):
                next(iter(loader))
    assert len(said) == 1


def test_starting_a_daemon(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    """Several processes that find none start one; if it dies whoever started it starts another."""
    node = Node(temporary())
    for key, value in {**node.environment(), "BELADY_RAM": "64MiB"}.items():
        monkeypatch.setenv(key, value)
    script = "from belady import daemon; print(daemon.status(daemon.find_or_start().socket)['pid'])"
    each = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    pids = {int(process.communicate()[0]) for process in each}
    assert len(pids) == 1
    first = pids.pop()
    assert os.getpgid(first) == first
    os.kill(first, signal.SIGKILL)
    eventually(lambda: daemon.find() is None, "the killed daemon is not found")
    try:
        with loader_of(files, {"seed": 1}) as loader:
            iterator = iter(loader)
            next(iterator)
            second = daemon.status(node.socket)["pid"]
            os.kill(second, signal.SIGKILL)
            assert sum(1 for _ in iterator) == len(loader) - 1
        assert daemon.status(node.socket)["pid"] not in (first, second)
    finally:
        daemon._started[node.socket].terminate()
        daemon._started.pop(node.socket).wait()


def test_the_daemon_of_another_process_dies(
    monkeypatch: pytest.MonkeyPatch, files: Path
) -> None:
    """Whoever reads starts the next one: also a process that did not start the former."""
    node = Node(temporary())
    for key, value in {**node.environment(), "BELADY_RAM": "64MiB"}.items():
        monkeypatch.setenv(key, value)
    script = "from belady import daemon; print(daemon.status(daemon.find_or_start().socket)['pid'])"
    first = int(subprocess.check_output([sys.executable, "-c", script]))
    try:
        for options in ({}, {"num_workers": 2}):
            before = daemon.status(node.socket)["pid"]
            dataset = belady.Dataset(files, label)
            with belady.DataLoader(dataset, 5, collate_fn=list, **options) as loader:
                iterator = iter(loader)
                next(iterator)
                os.kill(before, signal.SIGKILL)
                assert sum(1 for _ in iterator) == len(loader) - 1
                assert loader.stats()["belady/direct_batches"] == 0
            now = daemon.status(node.socket)["pid"]
            assert now not in (first, before)
            assert daemon.find() == daemon.Place(node.socket, str(node.folder), transient=True)
            first = before
    finally:
        os.kill(daemon.status(node.socket)["pid"], signal.SIGTERM)
        process = daemon._started.pop(node.socket, None)
        if process is not None:
            process.wait()


def label(sample: belady.Sample) -> int:
    return sample.label


def test_the_users_own_daemon_is_waited_for(
    own_node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is started in its place while a loop waits, and it is said what is waited for. Then
    samples are read directly, and the next loop may start one."""
    monkeypatch.setattr(belady.reading, "PATIENCE_S", 1.5)
    monkeypatch.setattr(belady.notice, "SAY_AFTER_S", 0.1)
    place = daemon.find()
    assert place is not None and place.theirs
    with loader_of(files, {}) as loader:
        iterator = iter(loader)
        next(iterator)
        own_node.kill()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert sum(1 for _ in iterator) == len(loader) - 1
        assert daemon.find() is None
        texts = [str(w.message) for w in said]
        assert len(texts) == 2 and "WITHOUT A DAEMON" in texts[1]
        assert "to come back: $BELADY_SOCKET names it" in texts[0]
        try:
            direct = loader.stats()["belady/direct_batches"]
            assert sum(1 for _ in loader) == len(loader)
            assert loader.stats()["belady/direct_batches"] == direct
        finally:
            process = daemon._started.pop(own_node.socket)
            process.terminate()
            process.wait()


def test_a_daemon_that_does_not_start_is_not_said_to_run(
    files: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    node = Node(temporary())
    for key, value in {**node.environment(), "BELADY_BIN": "/bin/false"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("BELADY_RAM", raising=False)
    with pytest.raises(belady.DaemonUnavailable, match="ended at once"):
        daemon.find_or_start()
    assert "started" not in capfd.readouterr().err
    monkeypatch.setenv("BELADY_BIN", BELADY)
    daemon.find_or_start()
    process = daemon._started.pop(node.socket)
    process.terminate()
    process.wait()
    assert capfd.readouterr().err.count("started a daemon with") == 1


def test_ranks_begin_together(node: Node) -> None:
    """On data that nobody scanned yet: one rank scans, all find it."""
    script = "import belady, sys; print(len(belady.Dataset(sys.argv[1])))"
    command = [sys.executable, "-c", script, str(write_files(temporary(), 40))]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[0] for process in ranks] == [b"40\n"] * 4


def test_daemon_goes_while_it_is_attached_to() -> None:
    """What hangs up during the first exchange is waited for too, as long as configured."""
    path = str(temporary() / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def run() -> None:
            for greeting in (b"", WELCOME, WELCOME + ATTACHED):
                peer, _ = server.accept()
                with peer:
                    peer.sendall(greeting)
                    while greeting.endswith(ATTACHED) and peer.recv(4096):
                        pass

        thread = threading.Thread(target=run)
        thread.start()
        stats = Stats()
        session = Session(Config(path), Request("j", "d", {}, 1, 0), wire.Start(0, 0, 0), stats)
        assert session.attached.samples == 10 and stats.reconnects == 1
        session.close()
        thread.join()


def test_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = temporary()
    monkeypatch.setenv("BELADY_DIR", str(folder))
    monkeypatch.setenv("BELADY_SOCKET", str(folder / "s"))
    monkeypatch.setenv("BELADY_BIN", "/nonexistent/belady")
    with pytest.raises(belady.DaemonUnavailable, match="/nonexistent/belady"):
        daemon.find_or_start()
    monkeypatch.setenv("BELADY_BIN", "/bin/false")
    with pytest.raises(belady.DaemonUnavailable, match="ended at once"):
        daemon.find_or_start()
    (folder / "s").write_text("")
    with pytest.raises(belady.DaemonUnavailable, match="not a socket"):
        daemon.find_or_start()
    with pytest.raises(belady.BadRequest, match="bytes"):
        request = Request("j", "d", {}, 1, 0)
        Session(Config("/" + "long/" * 30), request, wire.Start(0, 0, 0), Stats())


# -- daemons that lie


def frame(kind: int, payload: bytes = b"") -> bytes:
    return wire.HEADER.pack(len(payload), kind, 0, 0) + payload


def lease(batch: int = 0, place: int = 0, length: int = 4, seq: int = 0) -> bytes:
    head = struct.pack("<QIIBBHIIIQQQ", seq, 0, batch, 0, 0, 0, 0, 1, 0, length, 0, 0)
    return frame(wire.LEASE, head + struct.pack("<IIQ", 7, length, place))


ATTACHED = frame(wire.ATTACHED, b'{"session":"s","samples":10,"content":"c","start":{}}')
WELCOME = frame(wire.WELCOME, struct.pack("<HHII", 1, 0, 0, 1))


def send_slab(to: socket.socket, announced: int = 4096) -> None:
    fd = os.memfd_create("slab")
    os.write(fd, bytes(range(256)) * 16)
    announcement = frame(wire.SLAB, struct.pack("<HB5xQ", 0, wire.ARENA, announced))
    socket.send_fds(to, [announcement], [fd])
    os.close(fd)


def scripted(act: Callable[[socket.socket], None]) -> tuple[Session, threading.Thread]:
    """A session with a daemon that greets, attaches, and then does as told until it is left."""
    path = str(temporary() / "s")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def run() -> None:
        peer, _ = server.accept()
        with server, peer:
            peer.sendall(WELCOME + ATTACHED)
            act(peer)
            while peer.recv(4096):
                pass

    thread = threading.Thread(target=run)
    thread.start()
    config = Config(path, reconnect_s=0.0)
    return Session(config, Request("j", "d", {}, 1, 0), wire.Start(0, 0, 0), Stats()), thread


def test_a_daemon_that_keeps_the_protocol() -> None:
    def act(peer: socket.socket) -> None:
        send_slab(peer)
        peer.sendall(lease(0, 5))
        peer.sendall(frame(wire.ERROR, struct.pack("<HBBII", 8, 0, 0, 0, 1) + b"gone"))
        whole = lease(2, 4092, 4, 1) + frame(wire.SLAB_GONE, b"\0\0") + frame(wire.END)
        for i in range(len(whole)):  # byte by byte
            peer.sendall(whole[i : i + 1])

    session, thread = scripted(act)
    first = session.next()
    assert first is not None and bytes(first.views[0]) == bytes([5, 6, 7, 8])
    with pytest.raises(belady.SampleAbsent, match="gone"):
        session.next()
    last = session.next()
    assert last is not None and bytes(last.views[0]) == bytes([252, 253, 254, 255])
    assert session.next() is None and session.next() is None
    assert bytes(first.views[0]) == bytes([5, 6, 7, 8])
    del first, last
    thread.join()


@pytest.mark.parametrize("act", [
    lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    lambda peer: peer.sendall(frame(99)),
    lambda peer: peer.sendall(lease()),
    lambda peer: peer.sendall(frame(wire.SLAB, struct.pack("<HB5xQ", 0, 0, 4096))),
    lambda peer: send_slab(peer, 8192),
    lambda peer: (send_slab(peer), peer.sendall(lease(0, 4093))),
    lambda peer: (send_slab(peer), peer.sendall(lease(0, 1 << 47))),
    lambda peer: (send_slab(peer), peer.sendall(lease(1))),
    lambda peer: (send_slab(peer), peer.sendall(frame(wire.LEASE, b"short"))),
])
def test_broken_daemons(act: Callable[[socket.socket], object]) -> None:
    session, thread = scripted(lambda peer: act(peer) and None)
    with pytest.raises(belady.ProtocolError):
        session.next()
    thread.join()  # the client hung up
    with pytest.raises(belady.LoaderClosed):
        session.next()


def test_descriptors_are_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        test_broken_daemons(lambda peer: send_slab(peer, 8192))
        session, thread = scripted(send_slab)
        connection = session._connection
        assert connection is not None
        while not connection._fds:
            connection._receive()
        session.close()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) == before


def test_release_while_next_waits() -> None:
    """What another thread drops is told at once: the batch waited for may need that room."""
    released = threading.Event()

    def act(peer: socket.socket) -> None:
        send_slab(peer)
        peer.sendall(lease(0, 0, 4, 77))
        heard = b""
        while struct.pack("<Q", 77) not in heard:
            heard += peer.recv(4096)
        released.set()
        peer.sendall(lease(1, 0, 4, 78))

    session, thread = scripted(act)
    held = [session.next()]
    dropper = threading.Timer(0.05, held.clear)
    dropper.start()
    assert session.next() is not None
    assert released.is_set()
    session.close()
    dropper.join()
    del session
    thread.join()
