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

from conftest import BELADY, temporary

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


def install(wheel: str, packages: Path) -> None:
    """What pip does with a wheel of this kind, for machines without pip: check, unpack, chmod."""
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
            os.chmod(archive.extract(entry, packages), stat.S_IMODE(mode))


def test_clean_environment(files: Path) -> None:
    folder = temporary()
    made = subprocess.run(
        [sys.executable, str(ROOT / "wheel.py"), BELADY, str(folder)],
        capture_output=True, text=True, check=True,
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    install(made.stdout.strip(), packages)
    python = str(folder / "env" / "bin" / "python3")
    clean = {
        "HOME": str(folder), "PATH": "/usr/bin:/bin", "BELADY_RAM": "64MiB",
        "BELADY_SOCKET": str(folder / "s"),
    }
    done = subprocess.run(
        [python, "-c", SCRIPT, str(files)], env=clean, cwd=folder, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    os.kill(int(done.stdout), signal.SIGTERM)
