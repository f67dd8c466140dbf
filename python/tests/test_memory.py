"""How much memory a started daemon is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from belady import memory

MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


MEMINFO = {"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable: 8388608 kB\n"}
SLURM = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
CASES: dict[str, tuple[dict[str, str], int]] = {
    "no control group": ({}, 2048),
    "unlimited": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 2048),
    "its own": (
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": f"{1000 * MIB}\n"}, 500),
    "of a group above": (
        {"proc/self/cgroup": f"0::{SLURM}\n",
         f"sys/fs/cgroup{SLURM}/memory.max": "max\n",
         "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max": f"{600 * MIB}\n"}, 300),
    "a container's": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{800 * MIB}\n"}, 400),
    "outside of the namespace": (
        {"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": f"{800 * MIB}\n"}, 400),
    "version 1": (
        {"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job/step\n0::/\n",
         "sys/fs/cgroup/memory/job/step/memory.limit_in_bytes": "9223372036854771712\n",
         "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{900 * MIB}\n"}, 450),
    "version 1 in a container": (
        {"proc/self/cgroup": "4:memory:/docker/abc\n",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{700 * MIB}\n"}, 350),
    "no less than it needs": (
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": f"{8 * MIB}\n"}, 64),
}


@pytest.mark.parametrize("case", CASES)
def test_a_quarter_and_half_of_the_limit(tmp_path: Path, case: str) -> None:
    files, mib = CASES[case]
    assert memory.for_samples(write(tmp_path, {**MEMINFO, **files})) == mib * MIB


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert memory.for_samples(str(tmp_path)) == 1024 * MIB


def test_this_system() -> None:
    text = Path("/proc/meminfo").read_text()
    total = next(int(line.split()[1]) for line in text.splitlines() if "MemTotal" in line)
    assert 64 * MIB <= memory.for_samples() <= max(64 * MIB, total * 1024 // 4)
