"""What is lent, and until when: until its last view is gone, whatever happens meanwhile."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import belady
import cycles
from belady import daemon
from conftest import BELADY, Node, eventually, fastest, image_folder

SYNTH = "synth://lifetime?samples=600&size=110KB"  # half of the daemon's memory


def test_an_epoch_is_held(node: Node) -> None:
    """list(loader) works, although the arena cannot hold half of it, and says so once."""
    with belady.DataLoader(SYNTH, 16, True, seed=1, collate_fn=list) as loader:
        want = {s.id: bytes(s) for batch in loader for s in batch}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            held = list(loader)
        (told,) = [str(w.message) for w in said if "private copies" in str(w.message)]
        assert re.match(r"\d+ batches are held: further ones are private copies", told)
        assert loader.stats()["belady/private_copies"] > 20
    assert len(want) == 600
    for batch in held:
        for sample in batch:
            assert bytes(sample) == want[sample.id]


def test_large_batches_are_copied(node: Node) -> None:
    """A loop that holds nothing but the batch it works on is not told to drop batches."""
    with belady.DataLoader(SYNTH, 16, True, seed=1, collate_fn=list) as loader:
        next(iter(loader))
        (serves,) = daemon.status(node.socket)["datasets"]
    staging = int(serves["staging_bytes"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        batch = staging * 3 // 8 // 110_000  # one fits into half of staging, and two do not
        with belady.DataLoader(SYNTH, batch, True, seed=1, collate_fn=list) as loader:
            assert sum(len(samples) for samples in loader) == 600
            assert loader.stats()["belady/private_copies"] > 0
    (told,) = [str(w.message) for w in said if "private copies" in str(w.message)]
    size, room = batch * 110_000 / (1 << 20), staging / (1 << 20)
    assert told.startswith(f"a batch of {size:.1f} MiB is large against this process's {room:.1f}")
    assert "held" not in told and "--staging or --ram" in told


def test_slices_and_arrays_keep_the_lease(own_node: Node) -> None:
    """A piece of a sample outlives its batch, its loader, and the epochs that are read after it
    into an arena that cannot keep the dataset."""
    with belady.DataLoader(SYNTH, 16, True, seed=1, collate_fn=list) as loader:
        reference = {s.id: bytes(s) for batch in loader for s in batch}
        iterator = iter(loader)
        first, second = next(iterator), next(iterator)
        slices = [(s.id, s.data[1:][1:-1]) for s in first]
        arrays = [(s.id, np.frombuffer(s.data, np.uint8)[::2]) for s in second]
        del first, second, iterator
    with belady.DataLoader(SYNTH, 16, True, seed=2, collate_fn=list) as other:
        for _ in range(2):
            assert sum(len(batch) for batch in other) == 600
    assert own_node.status()["sessions"] >= 1
    while slices:
        id, view = slices.pop()
        assert view == reference[id][2:-1]
    while arrays:
        id, array = arrays.pop()
        assert array.tobytes() == reference[id][::2]
        assert not array.flags.writeable
    del view, array
    eventually(lambda: own_node.ranks() == 0, "the last view gives the lease back", 1.0)


def test_views_are_read_only(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 8, collate_fn=list) as loader:
        sample = next(iter(loader))[0]
        assert sample.data.readonly and sample.data.format == "B"
        with pytest.raises(TypeError):
            sample.data[0] = 1  # type: ignore[index]


def test_crossing_a_process_copies(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 8, collate_fn=list) as loader:
        batch = next(iter(loader))
        copies = pickle.loads(pickle.dumps(batch))
        assert [(s.id, bytes(s), s.name, s.label) for s in copies] == [
            (s.id, bytes(s), s.name, s.label) for s in batch
        ]


def test_always_copies(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 30, collate_fn=list, copy=True) as loader:
        got = [bytes(s) for batch in loader for s in batch]
        assert got == [data for data, _, _ in image_folder(files)]
        assert loader.stats()["belady/private_copies"] == len(loader)


def test_stacked_tensors_are_the_users(node: Node) -> None:
    """A packed batch may be written to, is nobody else's, and outlives its loader."""
    url = "synth://equal?samples=1000&size=3KB&classes=7"
    with belady.DataLoader(url, 64, True, seed=1, collate_fn=list) as loader:
        want = [[(bytes(s), s.label) for s in batch] for batch in loader]
    loader = belady.DataLoader(url, 64, True, seed=1, collate_fn="stack")
    for _ in range(2):  # the second time over what the first one wrote
        loader.set_epoch(0)
        held = []
        for (rows, labels), batch in zip(loader, want):
            assert rows.dtype == torch.uint8 and rows.shape == (len(batch), 3000)
            assert rows.is_contiguous()
            got = zip((bytes(row.numpy()) for row in rows), labels.tolist())
            assert list(got) == batch
            held.append(rows[:, :10].add_(1))
            rows[:, 10:].zero_()
    loader.close()
    del loader, rows
    for rows, batch in zip(held, want):
        heads = torch.stack([torch.tensor(list(data[:10]), dtype=torch.uint8) for data, _ in batch])
        assert torch.equal(rows, heads + 1)
    del held, rows
    eventually(lambda: node.ranks() == 0, "the last tensor gives the lease back", 1.0)


def test_ragged_samples_are_not_stacked(node: Node, files: Path) -> None:
    with belady.DataLoader(files, 8, collate_fn="stack") as loader:
        with pytest.raises(belady.RaggedBatch, match="cannot be stacked"):
            next(iter(loader))
    for options in ({"num_workers": 1}, {"batch_size": None}):
        with pytest.raises(ValueError):
            belady.DataLoader(files, collate_fn="stack", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"seed": 1}, {}, {"generator": True}], ids=str)
def test_abandoned_iterators(node: Node, files: Path, options: dict[str, object]) -> None:
    if "generator" in options:
        options = {"generator": torch.Generator()}
    gc.collect()  # exceptions that other tests caught hold frames, and those their samples
    loader = belady.DataLoader(files, 8, True, collate_fn=list, **options)  # type: ignore[arg-type]

    def leave() -> float:
        for i, _ in enumerate(loader):
            if i == 2:
                break
        batch = next(iter(loader))
        assert len(batch) == 8
        began = time.monotonic()
        del batch, _
        eventually(lambda: node.ranks() == 0, "an abandoned iterator frees its leases")
        return time.monotonic() - began

    fastest(1.0, leave)
    loader.close()


def test_closing_while_held(node: Node, files: Path) -> None:
    loader = belady.DataLoader(files, 8, True, seed=1, collate_fn=list)
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    with pytest.raises(belady.LoaderClosed):
        next(iterator)
    assert all(bytes(s) == image_folder(files)[s.id][0] for s in batch)
    loader.close()


def test_what_accumulates_is_seen() -> None:
    assert cycles.rise([5, 7, 9]) == 4 and cycles.rise([4, 9, 4]) == 0
    held = cycles.Held(5, 2, 1)
    for limits in cycles.LIMITS.values():
        assert cycles.Report(held, held, 0).fault(limits) is None
        assert "became" in str(cycles.Report(held, held._replace(maps=3), 0).fault(limits))
        assert "rose" in str(cycles.Report(held, held, 300 << 10).fault(limits))


def test_nothing_accumulates() -> None:
    """The soak in short: `make soak` does 10,000."""
    script = Path(__file__).with_name("cycles.py")
    done = subprocess.run(
        [sys.executable, str(script), "300"], env={**os.environ, "BELADY_BIN": BELADY},
        capture_output=True, text=True, timeout=300, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "300 cycles" in done.stdout
