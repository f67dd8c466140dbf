"""`belady try` on real data, and what its figures are taken to mean."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.io import encode_jpeg

from belady import daemon
from belady.daemon import Place
from belady.trial import on_network
from belady.verdict import Facts, Run, bound_by, verdict
from conftest import BELADY, eventually, temporary


def attempt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "belady", "try", *arguments], capture_output=True, text=True,
        timeout=120, check=False, env={**os.environ, "BELADY_BIN": BELADY, **environment},
    )


def tree(root: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")
    )


def test_photos() -> None:
    """All configurations run, decoding is seen, and nothing is left or written."""
    root, scratch = temporary(), temporary()
    for i in range(48):
        pixels = torch.full((3, 300, 200 + i), i, dtype=torch.uint8)
        (root / f"{i}.jpg").write_bytes(encode_jpeg(pixels).numpy().tobytes())
    (root / "9.txt").write_text("not a photo")
    before = tree(root)
    done = attempt(str(root), "--seconds", "2", "--batch", "8", "--json", TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["samples"], report["decoded"], report["same_order"]) == (49, True, True)
    assert report["stock_reads"] == "files"
    runs = report["runs"]
    assert [(r["loader"], r["workers"]) for r in runs[:3]] == [("stock", k) for k in (0, 2, 4)]
    assert all(r["loader"] == "Belady" for r in runs[3:]) and len(runs) in (4, 5)
    assert all(r["samples"] > 0 and 0 < r["decode_s"] for r in runs)
    assert report["bound_by"] in ("decode", "cpu")
    assert report["text"].startswith("Belady ")
    assert tree(root) == before and not list(scratch.iterdir())


def test_an_origin_without_a_reader_of_its_own() -> None:
    scratch = temporary()
    source = "throttle+synth://try?samples=400&size=20KB&throttle.latency=5ms&throttle.rate=20MB"
    done = attempt(source, "--seconds", "2", "--ram", "64MiB", TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert "through a daemon with room for batches only" in done.stdout
    assert "same order: yes" in done.stdout and "bound by: " in done.stdout
    for step in ("scanning", "stock loader, 4 workers", "Belady, 0 workers"):
        assert re.search(rf"^\[ *\d+ s\] {step}$", done.stderr, re.MULTILINE), done.stderr
    assert not list(scratch.iterdir())


def test_asked_wrongly(tmp_path: Path) -> None:
    empty = temporary()
    for arguments, says, code in (
        (["/no/such/folder"], "there is no folder /no/such/folder", 2),
        ([str(empty), "--seconds", "1"], "--seconds is 1, but 2 is the least", 2),
        ([str(empty)], "no samples", 1),
        (["nonsense://x"], "nonsense", 1),
    ):
        done = attempt(*arguments, TMPDIR=str(tmp_path))
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert says in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_interrupted_through_the_binary() -> None:
    """Ctrl-C ends the trial, its daemon and its folder, and is told by the exit code."""
    scratch = temporary()
    trial = subprocess.Popen(
        [BELADY, "try", "synth://try?samples=400&size=20KB", "--seconds", "20"],
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, "BELADY_PYTHON": sys.executable, "TMPDIR": str(scratch)},
    )
    assert trial.stderr is not None
    while "stock loader, 2 workers" not in trial.stderr.readline():
        assert trial.poll() is None
    (folder,) = scratch.glob("belady-try*")
    place = Place(str(folder / "b" / "s"), str(folder / "b"))
    pid = int(daemon.status(place.socket)["pid"])
    trial.send_signal(signal.SIGINT)
    _, errors = trial.communicate(timeout=60)
    assert trial.returncode == 130, errors
    assert "Traceback" not in errors
    assert not list(scratch.iterdir())
    assert not running(pid)


def test_killed() -> None:
    """Even then its daemon goes."""
    script = (
        "import os, signal, sys; from pathlib import Path; from belady import daemon, trial\n"
        "with trial.serving(Path(sys.argv[1]) / 'b', '64MiB') as place:\n"
        "    print(daemon.status(place.socket)['pid'], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(temporary())], capture_output=True, text=True,
        check=False, timeout=60, env={**os.environ, "BELADY_BIN": BELADY},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    eventually(lambda: not running(int(done.stdout)), "the daemon ends")


def running(pid: int) -> bool:
    """A process that nobody has waited for yet has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_without_pytorch() -> None:
    shadow = temporary()
    (shadow / "torch.py").write_text("raise ImportError('no torch here')\n")
    path = os.pathsep.join([str(shadow), os.environ["PYTHONPATH"]])
    done = attempt(str(shadow), PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("and that is missing: no torch here")


FACTS = Facts(samples=1000, bytes=1000, local=False, warm=False, memory=500, cores=4)
LOCAL = FACTS._replace(local=True, warm=True, memory=1000)


def made(loader: str, speed: float, workers: int = 0, **shares: Any) -> Run:
    """A run of ten seconds."""
    return Run.none(loader, workers)._replace(
        samples=int(speed * 10), seconds=10.0, later_epoch=True, **shares
    )


@pytest.mark.parametrize("run, facts, want", [
    (made("stock", 100, wait_s=9.9), FACTS, "origin"),
    (made("stock", 100, wait_s=9.9), LOCAL, "cpu"),
    (made("stock", 100, wait_s=9.9, decode_s=8.0), LOCAL, "decode"),
    (made("stock", 100, workers=4, wait_s=9.9, decode_s=8.0), FACTS, "origin"),
    (made("stock", 100, workers=4, wait_s=9.9, decode_s=35.0), FACTS, "decode"),
    (made("stock", 100, wait_s=3.0, compute_s=7.0), FACTS, "compute"),
    (made("Belady", 100, wait_s=9.9, origin_s=9.0), FACTS, "origin"),
    (made("Belady", 100, wait_s=9.9, origin_s=0.1), FACTS, "cpu"),
])
def test_what_binds(run: Run, facts: Facts, want: str) -> None:
    assert bound_by(run, facts) == want


def test_verdicts() -> None:
    helps = verdict(made("stock", 100, wait_s=9), made("Belady", 400, origin_s=9), FACTS)
    assert helps.helps and helps.gain == 4.0 and "4.0 times" in helps.text
    assert "50% of the dataset" in helps.text
    warm = verdict(made("stock", 100, wait_s=9), made("Belady", 400), LOCAL)
    assert warm.helps and "more than 100 samples a second" in warm.text
    step = {"compute_s": 9.0}
    for stock, ours, facts, because in (
        (made("stock", 100, decode_s=9.0), made("Belady", 105, decode_s=9.0), LOCAL, "decoding"),
        (made("stock", 100, **step), made("Belady", 101, **step), FACTS, "step binds"),
        (made("stock", 100, wait_s=9.0), made("Belady", 99), LOCAL, "fits the page cache"),
        (made("stock", 100, wait_s=9.0), made("Belady", 101, origin_s=9.0), FACTS, "and 50% of"),
        (made("stock", 100, wait_s=9.0), made("Belady", 80), FACTS, "cpu binds"),
    ):
        found = verdict(stock, ours, facts)
        assert not found.helps
        assert found.text.startswith("Belady will not help here because ") and because in found.text
    first = made("Belady", 101, origin_s=9.0)._replace(later_epoch=False)
    assert "from the second epoch on" in verdict(made("stock", 100), first, FACTS).text


def test_network_file_systems(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw\nnas:/a /mnt/my\\040nas nfs4 rw\n/dev/sdb /mnt/my\\040nas/d xfs rw\n"
    )
    assert on_network("/mnt/my nas/train", str(mounts))
    assert not on_network("/mnt/my nas/d/train", str(mounts))
    assert not on_network("/mnt/my nasty", str(mounts))
