"""The wheel, installed where nothing else is, starts its own daemon and reads."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import BELADY, temporary
from three_lines import scripts

ROOT = Path(__file__).resolve().parents[1]

SCRIPT = """
import sys, belady
from belady import daemon
assert belady.__file__.startswith(sys.prefix), belady.__file__
loader = belady.DataLoader(sys.argv[1], batch_size=50, shuffle=True, seed=7, collate_fn=list)
assert sorted(s.id for batch in loader for s in batch) == list(range(211))
assert daemon.binary().startswith(sys.prefix)
print(daemon.status(daemon.find().socket)["pid"])
"""


def environment(folder: Path, wheel: str, *options: str) -> str:
    """A new virtual environment with the wheel, installed by pip; its Python."""
    subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True)
    python = str(folder / "bin" / "python3")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check",
         wheel],
        check=True,
    )
    return python


def run(python: str, folder: Path, script: str, *arguments: str) -> str:
    """What a script prints that knows nothing of this source tree."""
    clean = {
        "HOME": str(folder), "PATH": "/usr/bin:/bin", "BELADY_RAM": "64MiB",
        "BELADY_SOCKET": str(folder / "s"),
    }
    done = subprocess.run(
        [python, "-W", "ignore", "-c", script, *arguments], env=clean, cwd=folder,
        capture_output=True, text=True, timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> str:
    made = subprocess.run(
        [sys.executable, str(ROOT / "wheel.py"), BELADY, str(temporary())],
        capture_output=True, text=True, check=True,
    )
    return made.stdout.strip()


def test_what_a_wheel_must_be(wheel: str) -> None:
    """Every file is listed with its digest, and the binary may be run."""
    with zipfile.ZipFile(wheel) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
        listed = {
            name: digest
            for name, digest, _ in csv.reader(archive.read(record).decode().splitlines())
        }
        assert set(listed) == set(archive.namelist())
        for entry in archive.infolist():
            data = archive.read(entry)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert listed[entry.filename] in (f"sha256={digest}", "")
            mode = entry.external_attr >> 16
            assert stat.S_ISREG(mode)
            assert bool(mode & 0o100) == entry.filename.endswith("/bin/belady")


def test_clean_environment(wheel: str, files: Path) -> None:
    folder = temporary()
    python = environment(folder / "env", wheel)
    os.kill(int(run(python, folder, SCRIPT, str(files))), signal.SIGTERM)


def test_the_command(wheel: str) -> None:
    """`belady` and `python3 -m belady` are the binary that the wheel carries; a trial runs in the
    Python they are of."""
    folder = temporary()
    python = environment(folder / "env", wheel)
    want = subprocess.check_output([BELADY, "version"], text=True)
    clean = {"HOME": str(folder), "PATH": f"{folder / 'env' / 'bin'}:/usr/bin:/bin"}
    for command in (["belady"], [python, "-m", "belady"]):
        for arguments, code, said in (
            (["version"], 0, want), (["dataset", "ls", "--json"], 0, "[]"),
            (["no-such-verb"], 2, "no-such-verb"), (["try", "--help"], 0, "--seconds"),
        ):
            done = subprocess.run(
                [*command, *arguments], env=clean, cwd=folder, capture_output=True, text=True,
                timeout=60, check=False,
            )
            assert done.returncode == code and said in done.stdout + done.stderr, done
    # Without the binary the command does not take itself for it.
    (own,) = (folder / "env").glob("lib/python*/site-packages/belady/bin/belady")
    own.unlink()
    done = subprocess.run(
        ["belady", "version"], env=clean, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and "no `belady` binary is found" in done.stderr


def test_three_lines(wheel: str) -> None:
    """The project's README, with PyTorch from the system and belady from the wheel alone."""
    folder = temporary()
    python = environment(folder / "env", wheel, "--system-site-packages")
    where = "\nfrom belady import daemon\nassert daemon.binary().startswith(sys.prefix)\n"
    pid = "print(daemon.status(daemon.find().socket)['pid'])"
    said = run(python, folder, "import sys\n" + scripts(folder).belady + where + pid)
    count, _, process = said.split()
    os.kill(int(process), signal.SIGTERM)
    assert count == "60"
