"""Without a daemon: the same order and bytes, read by this process; and what cannot be."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import belady
from belady import daemon, reading
from belady.manifest import Manifest
from conftest import BELADY, Node, image_folder, temporary, write_files

SPECS: list[dict[str, Any]] = [
    {"seed": 3, "shuffle": True},
    {"shuffle": True},
    {},
    {"drop_last": True, "batch_size": 20},
    {"seed": 3, "shuffle": True, "rank": 1, "world_size": 3},
    {"seed": 3, "shuffle": True, "rank": 1, "world_size": 3, "sampler_drop_last": True},
    {"rank": 2, "world_size": 4},
    {"sampler": range(200, 0, -3)},
    {"batch_sampler": [[5, 6], [7], [8, 9, 5]]},
    {"shuffle": True, "num_workers": 2},
    {"shuffle": True, "num_workers": 2, "persistent_workers": True, "seed": 2},
    {"shuffle": True, "num_workers": 2, "worker_type": "thread"},
]


@pytest.fixture
def off(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No daemon is wanted. Afterwards none was started or contacted."""
    folder = temporary()
    monkeypatch.setenv("BELADY", "off")
    monkeypatch.setenv("BELADY_DIR", str(folder))
    monkeypatch.setenv("BELADY_SOCKET", str(folder / "s"))
    monkeypatch.setenv("BELADY_BIN", BELADY)
    yield folder
    assert not {"s", "serve.log", "daemon.lock"} & set(os.listdir(folder))


def forget() -> None:
    """As in a new process."""
    reading._given_up.clear()
    reading._said.clear()


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    yield
    forget()


def raw(sample: belady.Sample) -> tuple[int, str, int, bytes]:
    return sample.id, sample.name, sample.label, bytes(sample)


def epochs(source: object, options: dict[str, Any], count: int = 2) -> list[Any]:
    """All that some epochs give."""
    torch.manual_seed(11)
    options = {"collate_fn": list, **options}
    if "batch_sampler" not in options:
        options.setdefault("batch_size", 10)
    dataset = belady.Dataset(source, raw)  # type: ignore[arg-type]
    with belady.DataLoader(dataset, **options) as loader:
        out = [list(loader) for _ in range(count)]
        if os.environ.get("BELADY") == "off":
            assert loader.stats()["belady/direct_batches"] == sum(map(len, out))
        else:
            assert loader.stats()["belady/direct_batches"] == 0
    return out


@pytest.mark.parametrize("options", SPECS, ids=str)
def test_same_as_with_a_daemon(
    node: Node, files: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = image_folder(files)
    want = epochs(files, options)
    before = torch.random.get_rng_state()
    monkeypatch.setenv("BELADY", "off")
    got = epochs(files, options)
    assert got == want
    assert torch.equal(torch.random.get_rng_state(), before)
    for batch in got[0]:
        for id, name, label, data in batch:
            assert reference[id] == (data, label, name)


def test_no_daemon_is_started(off: Path, files: Path) -> None:
    sampler = torch.utils.data.distributed.DistributedSampler(
        range(211), num_replicas=1, rank=0, seed=3  # type: ignore[arg-type]
    )
    got = epochs(files, {"seed": 3, "shuffle": True}, 1)[0]
    assert [s[0] for batch in got for s in batch] == list(sampler)


def test_stacked(off: Path) -> None:
    folder = temporary()
    for i in range(20):
        (folder / f"{i:02}").write_bytes(bytes([i]) * 64)
    with belady.DataLoader(folder, 4, True, collate_fn="stack", seed=1) as loader:
        for rows, labels in loader:
            assert rows.shape == (4, 64) and labels.tolist() == [-1] * 4
            rows.mul_(2)  # its own memory


def test_states_go_both_ways(
    node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position saved with a daemon is resumed without one, and the other way round."""
    for options in ({"seed": 5, "shuffle": True}, {"shuffle": True}, {"sampler": range(99)}):
        whole = epochs(files, options, 1)[0]
        for first, then in (("on", "off"), ("off", "on")):
            torch.manual_seed(11)
            monkeypatch.setenv("BELADY", first)
            dataset = belady.Dataset(files, raw)
            with belady.DataLoader(dataset, 10, collate_fn=list, **options) as loader:
                given = [batch for _, batch in zip(range(4), loader)]
                state = json.loads(json.dumps(loader.state_dict()))
            monkeypatch.setenv("BELADY", then)
            dataset = belady.Dataset(files, raw)
            with belady.DataLoader(dataset, 10, collate_fn=list, **options) as loader:
                loader.load_state_dict(state)
                assert given + list(loader) == whole


def test_datasets(off: Path, files: Path, images: Path) -> None:
    reference = image_folder(files)
    dataset = belady.Dataset(files)
    assert [bytes(s) for s in dataset.__getitems__([3, 200, 3])] == [
        reference[i][0] for i in (3, 200, 3)
    ]
    stock = torch.utils.data.DataLoader(
        belady.ImageFolder(images, loader=bytes), 50, num_workers=2, collate_fn=list
    )
    reference = image_folder(images)
    assert [item for batch in stock for item in batch] == [(d, label) for d, label, _ in reference]


def test_fields(off: Path) -> None:
    folder = temporary()
    for i in range(6):
        (folder / f"{i}.jpg").write_bytes(b"picture %d" % i)
        if i % 2:
            (folder / f"{i}.json").write_bytes(b"{%d}" % i)
    done = subprocess.run(
        [BELADY, "dataset", "add", "pairs", str(folder), "--fields", "jpg,json?"], check=False
    )
    assert done.returncode == 0
    with belady.DataLoader("pairs", 3, collate_fn=list) as loader:
        fields = [s.fields for batch in loader for s in batch]
    assert [(bytes(f["jpg"]), bytes(f["json"])) for f in fields] == [
        (b"picture %d" % i, b"{%d}" % i if i % 2 else b"") for i in range(6)
    ]


def test_replacing(off: Path) -> None:
    """A file that cannot be used is replaced as it is with a daemon: by the next that can."""
    folder = write_files(temporary(), 30)
    dataset = belady.Dataset(folder, raw)
    assert len(dataset) == 30
    (folder / dataset.name_of(4)).unlink()
    with belady.DataLoader(dataset, 5, collate_fn=list, on_error="replace") as loader:
        with pytest.warns(UserWarning, match="sample 4"):
            ids = [sample[0] for batch in loader for sample in batch]
    assert ids == [0, 1, 2, 3, 5, *range(5, 30)]
    assert loader.stats()["belady/direct_batches"] > 0


def test_attached(off: Path, files: Path) -> None:
    """There is no daemon to read ahead; what a stock loader yields is what it yields."""
    stock = torch.utils.data.DataLoader(
        belady.Dataset(files, raw), 10, collate_fn=list, shuffle=True, num_workers=1,
        generator=torch.Generator().manual_seed(1),
    )
    attachment = belady.attach(stock)
    got = [sample[0] for batch in stock for sample in batch]
    attachment.detach()
    assert got == torch.randperm(211, generator=_drawn(1)).tolist()


def _drawn(seed: int) -> torch.Generator:
    """A generator from which a loader has drawn its base_seed."""
    generator = torch.Generator().manual_seed(seed)
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    return generator


def odd_files(root: Path) -> Path:
    """Names that sort unlike their bytes, links, hidden things, and files in the root."""
    write_files(root, 20)
    names = [
        b"a.bin", b"\xff.bin", b"\xee\x80\x80.bin", b"\xf0\x9f\x90\xba", b"\xe2\x82/x", b"c/a/1",
        b"c/a-b/1", b"c/a/b/1", b".hidden/1", b"c/.DS_Store", b"C/\xc3\xa9", b"C/e\xcc\x81", b"C/z",
    ]
    for name in names:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(name * 3)
    os.symlink("a/1", root / "c" / "link")
    os.symlink("c", root / "d")
    elsewhere = write_files(temporary(), 5)
    os.symlink(elsewhere, root / "linked class")
    os.symlink(min(p for p in elsewhere.rglob("*") if p.is_file()), root / "C" / "linked file")
    os.symlink("nowhere", root / "C" / ".#lock")
    os.utime(root / "C" / "z", ns=(0, -5))
    return root


def test_folder_listed_without_a_binary(off: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process lists is what `belady dataset add` writes."""
    folder = odd_files(temporary())
    added = subprocess.run([BELADY, "dataset", "add", "odd", str(folder)], check=False)
    assert added.returncode == 0
    written = Manifest(str(off / "datasets" / "odd" / "manifest"))
    monkeypatch.setenv("BELADY_BIN", "/nonexistent/belady")
    dataset = belady.Dataset(folder)
    listed = dataset.manifest
    assert listed.content == written.content
    assert listed.classes == written.classes
    for i in range(len(written)):
        assert listed.parts(i) == written.parts(i)
        assert (listed.name(i), listed.label(i)) == (written.name(i), written.label(i))
    with belady.DataLoader(dataset, 7, True, seed=1, collate_fn=list, num_workers=2) as loader:
        assert sorted(s.id for batch in loader for s in batch) == list(range(len(written)))
    assert sorted(os.listdir(off)) == ["datasets"]
    for target in ("..", folder, "bad", "nowhere"):
        os.symlink(target, folder / "c" / "bad")
        with pytest.raises(belady.DatasetAddFailed, match="c/bad is a link"):
            len(belady.Dataset(folder))
        added = subprocess.run([BELADY, "dataset", "add", "odd", str(folder)],
                               check=False, capture_output=True, text=True)
        assert added.returncode == 1 and '/bad" is a link' in added.stderr
        (folder / "c" / "bad").unlink()
    with pytest.raises(belady.DatasetAddFailed, match="no samples"):
        len(belady.Dataset(temporary()))
    with pytest.raises(belady.DatasetAddFailed, match="cannot list"):
        len(belady.Dataset("/nonexistent/folder"))


def test_files_that_changed(off: Path) -> None:
    folder = write_files(temporary(), 30)
    dataset = belady.Dataset(folder)
    paths = [folder / dataset.name_of(i) for i in range(3)]
    paths[0].write_bytes(b"other")
    paths[1].unlink()
    paths[2].unlink()
    os.mkfifo(paths[2])
    for i, error in enumerate((belady.SampleChanged, belady.SampleAbsent, belady.SampleAbsent)):
        with pytest.raises(error, match=paths[i].name):
            dataset[i]
    with belady.DataLoader(dataset, 10, collate_fn=list) as loader:
        with pytest.raises(belady.SampleChanged):
            next(iter(loader))


def test_what_only_a_daemon_reads(off: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with belady.DataLoader("synth://n?samples=9&size=1KB", 3, collate_fn=list) as loader:
        with pytest.raises(belady.NoDirectRead, match="synth://n.*belady serve"):
            iter(loader)
    with pytest.raises(belady.NoDirectRead):
        belady.Dataset("synth://n?samples=9&size=1KB")[0]
    with pytest.raises(belady.UnknownDataset):
        len(belady.Dataset("nothing"))
    monkeypatch.setenv("BELADY_BIN", "/nonexistent/belady")
    with pytest.raises(belady.DaemonUnavailable, match="/nonexistent/belady"):
        len(belady.Dataset("s3://bucket/prefix"))
    monkeypatch.setenv("BELADY", "maybe")
    with pytest.raises(belady.BadRequest, match="maybe"):
        len(belady.Dataset("s3://bucket/prefix"))


def without_torch(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    block = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch': raise ImportError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", block + script], env={**os.environ, **env},
        capture_output=True, text=True, check=False,
    )


def test_order_without_torch(off: Path, files: Path) -> None:
    script = (
        "import belady, json\n"
        f"loader = belady.DataLoader({str(files)!r}, 10, OPTIONS, collate_fn=list)\n"
        "print(json.dumps([[s.id for s in batch] for _ in range(2) for batch in loader]))\n"
    )
    for options in ({"shuffle": True, "seed": 9, "rank": 1, "world_size": 2}, {}):
        done = without_torch(script.replace("OPTIONS", f"**{options}"))
        assert done.returncode == 0, done.stderr
        want = epochs(files, options)
        ids = [[sample[0] for sample in batch] for epoch in want for batch in epoch]
        assert json.loads(done.stdout) == ids
    done = without_torch(script.replace("OPTIONS", "True, seed=1"), BELADY_BIN="/nonexistent/b")
    assert "BadRequest" in done.stderr and "PyTorch is not installed" in done.stderr


@pytest.mark.parametrize("call, text", [
    ("belady.DataLoader(F, 2, collate_fn=list, num_workers=2)", "worker_type='thread'"),
    ("belady.DataLoader(F, 2, collate_fn='stack')", "collate_fn=list"),
    ("belady.DataLoader(F, 2, collate_fn=list, pin_memory=True)", "leave it away"),
    ("belady.DataLoader(belady.Dataset(F, bytes), 2)", "collate_fn=list"),
    ("belady.attach([])", "belady.DataLoader"),
])
def test_what_needs_torch(off: Path, files: Path, call: str, text: str) -> None:
    done = without_torch(f"import belady\nF = {str(files)!r}\n{call}")
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("belady.errors.BadRequest: ") and text in said
    assert "needs PyTorch, which is not installed: install it, or" in said


def test_threads_need_no_torch(off: Path, files: Path) -> None:
    done = without_torch(
        f"import belady\nl = belady.DataLoader({str(files)!r}, 50, collate_fn=list,"
        " num_workers=2, worker_type='thread')\nprint(sum(map(len, l)))"
    )
    assert done.stdout.strip() == "211", done.stderr


def test_images_need_pillow(off: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(belady.DecoderUnavailable, match="Pillow, which is not installed.*loader="):
        belady.ImageFolder(images)[0]


# -- daemons that stay away


@pytest.mark.parametrize("options", [SPECS[0], SPECS[1], SPECS[7], SPECS[9]], ids=str)
def test_daemon_stays_away(
    own_node: Node, files: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on with the same batch, and says so once."""
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    want = epochs(files, options)
    torch.manual_seed(11)
    dataset = belady.Dataset(files, raw)
    with belady.DataLoader(dataset, 10, collate_fn=list, **options) as loader:
        iterator = iter(loader)
        got = [next(iterator), next(iterator)]
        own_node.kill()
        monkeypatch.setenv("BELADY_BIN", "/bin/false")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            got += list(iterator)
            assert got == want[0]
            assert list(loader) == want[1]
        assert loader.stats()["belady/direct_batches"] > 0
        assert loader.stats()["belady/batches"] == sum(map(len, want))
    if "num_workers" not in options:  # workers say it in their own process
        ours = [w for w in said if issubclass(w.category, belady.DirectReadWarning)]
        assert len(ours) == 1 and "WITHOUT A DAEMON" in str(ours[0].message)
        assert ours[0].filename == __file__


@pytest.mark.parametrize("seed", [None, 3])
def test_daemon_comes_back_later(
    own_node: Node, files: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    dataset = belady.Dataset(files, raw)
    assert len(dataset) == 211
    own_node.kill()
    monkeypatch.setenv("BELADY_BIN", "/bin/false")
    with belady.DataLoader(dataset, 50, shuffle=True, seed=seed, collate_fn=list) as loader:
        with pytest.warns(belady.DirectReadWarning, match="ended at once"):
            list(loader)
        direct = loader.stats()["belady/direct_batches"]
        assert direct == len(loader)
        own_node.start()
        list(loader)
        assert loader.stats()["belady/direct_batches"] == direct


def hanging(
    folder: Path, monkeypatch: pytest.MonkeyPatch, instead: str = "exec sleep 100"
) -> Path:
    """A binary whose daemon never listens, and which counts in a file how often it was started."""
    program = folder / "hangs"
    program.write_text(
        "#!/bin/sh\n"
        f"[ $1 = serve ] && echo started >> {folder}/started && {instead}\n"
        'exec $REAL "$@"\n'
    )
    program.chmod(0o700)
    monkeypatch.setenv("REAL", BELADY)
    return program


def test_daemons_that_do_not_start(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs, one that is no program, a folder that cannot be written: all are survived."""
    folder = temporary()
    monkeypatch.setenv("BELADY_SOCKET", str(folder / "s"))
    monkeypatch.setattr(daemon, "_START_S", 0.5)
    hangs, broken = hanging(folder, monkeypatch), folder / "broken"
    broken.write_text("no program\n")
    broken.chmod(0o700)
    (folder / "file").write_text("")
    for program, where, why in (
        (str(hangs), folder / "one", "did not listen"),
        (str(broken), folder / "two", "cannot be started"),
        (BELADY, folder / "file" / "data", "cannot be started"),
        ("/nonexistent/belady", folder / "three", "cannot be run"),
    ):
        forget()
        monkeypatch.setenv("BELADY_DIR", str(where))
        monkeypatch.setenv("BELADY_BIN", program)
        with belady.DataLoader(belady.Dataset(files, raw), 50, collate_fn=list) as loader:
            with pytest.warns(belady.DirectReadWarning, match=why):
                assert len(list(loader)) == 5


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Daemons that are started hang. The file that counts them."""
    folder = temporary()
    monkeypatch.setattr(daemon, "_START_S", 2.0)
    monkeypatch.setenv("BELADY_SOCKET", str(folder / "s"))
    monkeypatch.setenv("BELADY_DIR", str(folder / "data"))
    monkeypatch.setenv("BELADY_BIN", str(hanging(folder, monkeypatch)))
    return folder / "started"


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True},
], ids=str)
def test_a_daemon_that_hangs_is_waited_for_once(
    never: Path, files: Path, options: dict[str, Any]
) -> None:
    """Not in each epoch, nor by each new worker, nor to read ahead."""
    dataset = belady.Dataset(files, raw)
    with belady.DataLoader(dataset, 50, True, seed=1, collate_fn=list, **options) as loader:
        with pytest.warns(belady.DirectReadWarning, match="did not listen"):
            assert len(list(loader)) == 5
        tried = never.read_text().count("started")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it was said
            for _ in range(2):
                assert len(list(loader)) == 5
        assert never.read_text().count("started") == tried
        assert loader.stats()["belady/direct_batches"] == 15
    assert tried <= 2  # workers begin together, and one may still have a moment left


def test_new_workers_are_told(
    never: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those too that do not begin as a copy of their parent."""
    hanging(never.parent, monkeypatch, "exit 1")
    dataset = belady.Dataset(files, raw)
    with belady.DataLoader(
        dataset, 50, collate_fn=list, num_workers=1, multiprocessing_context="spawn"
    ) as loader:
        with pytest.warns(belady.DirectReadWarning, match="ended at once"):
            assert len(list(loader)) == 5
        tried = never.read_text()
        assert len(list(loader)) == 5
        assert never.read_text() == tried


@pytest.mark.parametrize("workers", [0, 2])
def test_attached_to_a_daemon_that_hangs(never: Path, files: Path, workers: int) -> None:
    stock = torch.utils.data.DataLoader(
        belady.Dataset(files, raw), 10, collate_fn=list, num_workers=workers
    )
    attachment = belady.attach(stock)
    for _ in range(2):
        ids = [sample[0] for batch in stock for sample in batch]
        assert ids == list(range(211))
    assert never.read_text().count("started") == 1
    attachment.detach()


def test_it_is_tried_again_later(
    never: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that could not be had is started again after a while, which grows."""
    hanging(never.parent, monkeypatch, "exit 1")
    monkeypatch.setattr(daemon, "_START_S", 30.0)
    monkeypatch.setattr(daemon, "_ATTEMPTS", 1)
    monkeypatch.setattr(reading, "_FIRST_S", 0.0)
    dataset = belady.Dataset(files, raw)
    tried = []
    with belady.DataLoader(dataset, 50, collate_fn=list) as loader:
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", belady.DirectReadWarning)
                list(loader)
            tried.append(never.read_text().count("started"))
        assert tried == [1, 2]
        now = reading._given_up[dataset.place.socket]
        reading._given_up[dataset.place.socket] = now._replace(pause_s=60.0)
        list(loader)
        assert reading._given_up[dataset.place.socket].pause_s == 120.0
        list(loader)
        assert never.read_text().count("started") == 3


def test_reads_on_demand_go_on(
    own_node: Node, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    reference = image_folder(files)
    dataset = belady.Dataset(files)
    assert bytes(dataset[7]) == reference[7][0]
    own_node.kill()
    with pytest.warns(belady.DirectReadWarning):
        assert bytes(dataset[8]) == reference[8][0]
    assert bytes(dataset[9]) == reference[9][0]


def test_nothing_to_fall_back_to(own_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    with belady.DataLoader("synth://n?samples=900&size=1KB", 3, collate_fn=list) as loader:
        iterator = iter(loader)
        next(iterator)
        own_node.kill()
        with pytest.raises(belady.NoDirectRead, match="did not come back.*synth://n"):
            for _ in iterator:
                pass


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "worker_type": "thread"}], ids=str)
def test_what_is_fatal_stays_so(
    own_node: Node, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks again after an error is not told that the epoch has ended."""
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    source = "synth://n?samples=900&size=1KB"
    with belady.DataLoader(source, 3, collate_fn=list, **options) as loader:
        iterator = iter(loader)
        next(iterator)
        own_node.kill()
        with pytest.raises(belady.NoDirectRead):
            for _ in iterator:
                pass
        state = loader.state_dict()
        for _ in range(2):
            with pytest.raises(belady.NoDirectRead):
                next(iterator)
        assert loader.state_dict() == state
        assert state["epoch"] == 0 and 0 < state["position"] < 900


def test_sockets_that_are_wrong(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set wrongly is told and not survived."""
    folder = temporary()
    monkeypatch.setenv("BELADY_DIR", str(folder))
    monkeypatch.setenv("BELADY_BIN", BELADY)
    monkeypatch.setenv("BELADY_SOCKET", str(folder / "s"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(folder / "s"))
        other.listen()
        me = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: me + 1)  # as if it were another user's
        with pytest.raises(belady.SocketUnusable, match="another user"):
            daemon.find()
        with pytest.raises(belady.SocketUnusable, match="another user"):
            len(belady.Dataset(files))
    os.unlink(folder / "s")
    (folder / "s").write_text("")
    with pytest.raises(belady.SocketUnusable, match="not a socket"):
        with belady.DataLoader(files, 10, collate_fn=list) as loader:
            next(iter(loader))
