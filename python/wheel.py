#!/usr/bin/env python3
"""Write a wheel that carries the package and a static `belady` binary.

    python3 wheel.py BINARY [FOLDER]

Standard library only, so that it runs wherever the binary was built. The result is the same for the
same files: times are fixed and the order of files is sorted.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import re
import stat
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
_TIME = (2020, 1, 1, 0, 0, 0)


def tag(machine: str) -> str:
    """The binary is static, so the only demand is Linux on its processor.

    >>> tag("x86_64")
    'py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64'
    """
    return f"py3-none-manylinux2014_{machine}.manylinux_2_17_{machine}"


def version() -> str:
    found = re.search(r'^version = "(.+)"', (HERE / "pyproject.toml").read_text(), re.M)
    if found is None:
        raise SystemExit("wheel.py: pyproject.toml names no version")
    return found[1]


def contents(binary: Path, platform_tag: str) -> dict[str, bytes]:
    """Every file of the wheel but RECORD."""
    files = {
        str(path.relative_to(HERE)): path.read_bytes()
        for path in sorted((HERE / "belady").rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    }
    files["belady/bin/belady"] = binary.read_bytes()
    info = f"belady-{version()}.dist-info"
    tags = "".join(
        f"Tag: py3-none-{one}\n" for one in platform_tag.rpartition("-")[2].split(".")
    )
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\n{tags}"
    ).encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nbelady = belady.__main__:main\n"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: belady\nVersion: {version()}\n"
        "Summary: PyTorch client of Belady, a clairvoyant data cache for deep-learning training\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n"
    ).encode() + (HERE / "README.md").read_bytes()
    return files


def record(files: dict[str, bytes], name: str) -> bytes:
    rows: list[str] = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}")
    return "\n".join([*rows, f"{name},,", ""]).encode()


def write(binary: Path, folder: Path) -> Path:
    """Write the wheel into a folder and return its path."""
    platform_tag = tag(platform.machine())
    files = contents(binary, platform_tag)
    name = f"belady-{version()}.dist-info/RECORD"
    files[name] = record(files, name)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"belady-{version()}-{platform_tag}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            mode = 0o755 if path.startswith("belady/bin/") else 0o644
            # Installers give the right to execute to what is marked as a regular file only.
            entry.external_attr = (stat.S_IFREG | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return out


def main(arguments: list[str]) -> None:
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    print(write(Path(arguments[0]), Path(arguments[1] if arguments[1:] else "dist")))


if __name__ == "__main__":
    main(sys.argv[1:])
