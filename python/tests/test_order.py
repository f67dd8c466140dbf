"""`belady order` against PyTorch: its golden files, and the version installed here."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    WeightedRandomSampler,
)

ROOT = Path(__file__).resolve().parents[2]
BELADY = os.environ.get("BELADY_BIN", str(ROOT / "bin" / "belady"))
TESTDATA = ROOT / "internal" / "core" / "order" / "testdata"
GOLDEN = sorted(TESTDATA.glob("golden-torch[0-9]*.json"))

# Live cases are drawn from this seed; a failure prints it, and setting it repeats the run.
SEED = int(os.environ.get("BELADY_TEST_SEED", random.SystemRandom().getrandbits(32)))


def belady(*args: object) -> list[int]:
    command = [BELADY, "order", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return [int(line) for line in done.stdout.split()]


def seeded(seed: int) -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    print(f"BELADY_TEST_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def golden_command(key: str) -> list[object] | None:
    """The command whose output a golden key holds; None for keys that are no list of samples."""
    if m := re.fullmatch(r"randperm n=(\d+) seed=(-?\d+)", key):
        return ["--kind", "torch-random", "--samples", m[1], "--seed", m[2]]
    if m := re.fullmatch(r"DataLoader\(generator seed=(\d+)\) n=(\d+) epoch=(\d+)", key):
        return ["--kind", "torch-random", "--loader-generator",
                "--seed", m[1], "--samples", m[2], "--epoch", m[3]]
    if m := re.fullmatch(r"DataLoader\(generator,drop_last\) n=(\d+) epoch=(\d+)", key):
        return ["--kind", "torch-random", "--loader-generator", "--seed", 99,
                "--samples", m[1], "--epoch", m[2], "--batch", 5, "--drop-last"]
    if m := re.fullmatch(r"Distributed n=(\d+) world=(\d+) rank=(\d+) epoch=(\d+) (.*)", key):
        options: dict[str, list[object]] = {
            "{}": [],
            "{'drop_last': True}": ["--drop-last"],
            "{'shuffle': False}": ["--no-shuffle"],
            "{'seed': 17}": ["--seed", 17],
        }
        return ["--samples", m[1], "--world", m[2], "--rank", m[3], "--epoch", m[4],
                *options[m[5]]]
    if m := re.fullmatch(r"RandomSampler\(replacement\) n=(\d+) k=(\d+) seed=(\d+)", key):
        return ["--kind", "torch-replacement",
                "--samples", m[1], "--draws", m[2], "--seed", m[3]]
    # Streams of the global generator and rules are no order by themselves: the Go tests have them.
    assert key.startswith(
        ("DataLoader(shuffle)", "DataLoader(persistent_workers)", "randint", "default Generator()")
    ), f"golden key {key!r} is unknown to this test"
    return None


def abridge(key: str, ids: list[int]) -> list[int]:
    """Cut a long list as the golden files do."""
    if key.startswith("randperm") and len(ids) > 19:
        return ids[:16] + ids[-3:]
    return ids[:12] if key.startswith("Distributed") else ids


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.name)
def test_golden(path: Path, tmp_path: Path) -> None:
    golden = json.loads(path.read_text())
    version = golden.pop("torch")
    compared = 0
    for key, want in golden.items():
        if m := re.fullmatch(r"multinomial\(double,repl\) n=(\d+) k=(\d+) seed=(\d+)", key):
            weights = tmp_path / "weights"
            weights.write_text("\n".join(str(i * 7919 % 101 + 1) for i in range(int(m[1]))))
            command = ["--kind", "torch-weighted", "--weights", weights,
                       "--draws", m[2], "--seed", m[3]]
        else:
            command = golden_command(key)
        if command is not None:
            got = belady("--torch", version, *command)
            assert abridge(key, got) == want, key
            compared += 1
    assert compared == 90


def test_there_are_golden_files() -> None:
    assert len(GOLDEN) == 3


def test_distributed(draw: random.Random) -> None:
    for _ in range(60):
        n, world = draw.randint(1, 3000), draw.randint(1, 17)
        rank, epoch = draw.randrange(world), draw.randint(0, 50)
        seed, drop, shuffle = draw.getrandbits(40), draw.random() < 0.5, draw.random() < 0.8
        sampler = DistributedSampler(
            range(n), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop
        )
        sampler.set_epoch(epoch)
        flags = ["--drop-last"] * drop + ["--no-shuffle"] * (not shuffle)
        got = belady("--torch", torch.__version__, "--samples", n, "--world", world,
                     "--rank", rank, "--epoch", epoch, "--seed", seed, *flags)
        assert got == list(sampler), (n, world, rank, epoch, seed, drop, shuffle)


def chained(sampler: RandomSampler | WeightedRandomSampler, epochs: int) -> list[int]:
    """The last of several epochs of one sampler, whose generator lives across them."""
    return [list(sampler) for _ in range(epochs)][-1]


def test_random(draw: random.Random) -> None:
    for _ in range(30):
        n, seed, epoch = draw.randint(1, 2000), draw.getrandbits(63), draw.randint(0, 4)
        k = draw.choice([n, draw.randint(1, 3 * n)])
        want = chained(RandomSampler(range(n), num_samples=k, generator=seeded(seed)), epoch + 1)
        got = belady("--kind", "torch-random", "--torch", torch.__version__, "--samples", n,
                     "--seed", seed, "--epoch", epoch, "--draws", k)
        assert got == want, (n, k, seed, epoch)


def test_loader_generator(draw: random.Random) -> None:
    for case in range(20):
        persistent = case < 2
        n, seed = draw.randint(1, 200), draw.getrandbits(40)
        epoch = draw.randint(2 * persistent, 3)
        batch, drop = draw.randint(1, 9), draw.random() < 0.5
        loader = DataLoader(
            list(range(n)), batch, shuffle=True, drop_last=drop, generator=seeded(seed),
            num_workers=int(persistent), persistent_workers=persistent,
        )
        want = [[i for b in loader for i in b.tolist()] for _ in range(epoch + 1)][-1]
        flags = ["--drop-last"] * drop + ["--persistent-workers"] * persistent
        got = belady("--kind", "torch-random", "--loader-generator", "--samples", n,
                     "--torch", torch.__version__, "--seed", seed, "--epoch", epoch,
                     "--batch", batch, *flags)
        assert got == want, (n, seed, epoch, batch, drop, persistent)


def test_live_state(draw: random.Random, tmp_path: Path) -> None:
    for _ in range(15):
        n, used = draw.randint(1, 1000), draw.choice([0, 1, 623, 624, 625, draw.randint(0, 3000)])
        generator = seeded(draw.getrandbits(32))
        torch.randint(7, (used,), generator=generator)
        state = tmp_path / "state"
        state.write_bytes(bytes(generator.get_state().tolist()))
        got = belady("--kind", "torch-random", "--samples", n, "--state", state,
                     "--torch", torch.__version__)
        assert got == torch.randperm(n, generator=generator).tolist(), (n, used)


def test_replacement(draw: random.Random) -> None:
    for _ in range(20):
        n, seed, epoch = draw.randint(1, 10**6), draw.getrandbits(32), draw.randint(0, 3)
        k = draw.randint(1, 500)
        sampler = RandomSampler(
            range(n), replacement=True, num_samples=k, generator=seeded(seed)
        )
        got = belady("--kind", "torch-replacement", "--torch", torch.__version__, "--samples", n,
                     "--draws", k, "--seed", seed, "--epoch", epoch)
        assert got == chained(sampler, epoch + 1), (n, k, seed, epoch)


def test_weighted(draw: random.Random, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    for _ in range(15):
        n, seed, epoch = draw.randint(1, 3000), draw.getrandbits(32), draw.randint(0, 3)
        k = draw.randint(2, 1000)
        weights = [draw.choice([0.0, draw.random(), draw.expovariate(1)]) for _ in range(n)]
        weights[-1] += 1.0
        file.write_text("\n".join(map(repr, weights)))
        sampler = WeightedRandomSampler(weights, k, generator=seeded(seed))
        got = belady("--kind", "torch-weighted", "--torch", torch.__version__,
                     "--weights", file, "--draws", k, "--seed", seed, "--epoch", epoch)
        assert got == chained(sampler, epoch + 1), (n, k, seed, epoch)


def test_resume_is_the_rest_of_the_epoch(draw: random.Random) -> None:
    for _ in range(10):
        n, world, seed = draw.randint(1, 500), draw.randint(1, 8), draw.getrandbits(32)
        rank, steps = draw.randrange(world), draw.randint(0, n // world)
        sampler = DistributedSampler(range(n), num_replicas=world, rank=rank, seed=seed)
        got = belady("--torch", torch.__version__, "--samples", n, "--world", world,
                     "--rank", rank, "--seed", seed, "--from", steps * world)
        assert got == list(sampler)[steps:], (n, world, rank, seed, steps)


@pytest.mark.parametrize(
    "args",
    [
        ["--samples", "0"],
        ["--samples", "-4"],
        ["--samples", "4294967296"],
        ["--samples", "9", "--world", "2", "--rank", "2"],
        ["--samples", "9", "--from", "10"],
        ["--samples", "9", "--kind", "explicit"],
        ["--samples", "9", "--kind", "nonsense"],
        ["--samples", "9", "--torch", "1.0"],
        ["--samples", "9", "--kind", "torch-random", "--state", "/dev/null"],
        ["--samples", "9", "--kind", "torch-weighted", "--weights", "/nonexistent"],
    ],
)
def test_refuses(args: list[str]) -> None:
    done = subprocess.run([BELADY, "order", *args], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
