"""What pin_memory and decode_jpeg do where there is a GPU: `python3 gpu_check.py`, by hand.

It starts a daemon of its own ($BELADY_BIN, else bin/belady), prints what it checked and exits with
1 if anything did not hold. pytest does not collect it: its machines have no GPU.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torchvision

import belady
from belady.torch.arena import register
from conftest import Node, temporary
from demo.samples import write_photos

SIZE = 100_000
URL = "synth://gpu?samples=2000&size=100KB"
BATCH = 64
RGB = torchvision.io.ImageReadMode.RGB
FAILED: list[str] = []


def check(holds: bool, what: str) -> None:
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        FAILED.append(what)


@contextmanager
def said() -> Iterator[list[str]]:
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts.extend(str(w.message) for w in caught)


def as_tensor(sample: belady.Sample) -> tuple[torch.Tensor, int]:
    return torch.frombuffer(bytearray(sample.data), dtype=torch.uint8), sample.id


def reference() -> torch.Tensor:
    """Every sample, by id."""
    out = torch.empty(2000, SIZE, dtype=torch.uint8)
    with belady.DataLoader(URL, BATCH, collate_fn=list, copy=True) as loader:
        for batch in loader:
            for sample in batch:
                out[sample.id] = torch.frombuffer(bytearray(sample.data), dtype=torch.uint8)
    return out


def busy(stream: Any) -> None:
    """Work that keeps a stream busy for a while, so that copies behind it are still to come."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)


def pinned(want: torch.Tensor, options: dict[str, Any]) -> None:
    """pin_memory=True in every mode: pinned, equal, reused, never overwritten while alive."""
    name = f"pin_memory=True {options}"
    stream = torch.cuda.Stream()
    blocks: set[int] = set()
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    on_gpu: list[tuple[torch.Tensor, torch.Tensor]] = []
    all_pinned = True
    dataset = belady.Dataset(URL, as_tensor)
    with belady.DataLoader(dataset, BATCH, True, seed=1, pin_memory=True, **options) as loader:
        for _ in range(2):
            for i, (rows, ids) in enumerate(loader):
                all_pinned &= rows.is_pinned() and ids.is_pinned()
                blocks.add(rows.data_ptr())
                if i % 8 == 0:
                    held.append((rows, ids.clone()))
                elif i % 8 == 1:
                    busy(stream)
                    with torch.cuda.stream(stream):
                        on_gpu.append((rows.to("cuda", non_blocking=True), ids.clone()))
                del rows, ids  # while the copy may be in flight
        steps = 2 * len(loader)
    torch.cuda.synchronize()
    check(all_pinned, f"{name}: every tensor is pinned")
    check(len(blocks) < steps // 2 + len(held), f"{name}: blocks are reused ({len(blocks)} for"
          f" {steps} batches, {len(held)} held)")
    check(all(torch.equal(rows, want[ids]) for rows, ids in held),
          f"{name}: held batches are never overwritten")
    check(all(torch.equal(rows.cpu(), want[ids]) for rows, ids in on_gpu),
          f"{name}: non_blocking copies of dropped batches are whole")


def arena(want: torch.Tensor) -> None:
    """pin_memory="arena": registered, or said why not; copies in flight keep their lease."""
    with said() as texts:
        loader = belady.DataLoader(URL, BATCH, True, seed=1, collate_fn=list, pin_memory="arena")
        first = next(iter(loader))
        view = torch.frombuffer(first[0].data, dtype=torch.uint8)
    registered = view.is_pinned()
    why = [text for text in texts if "pins by a copy" in text]
    print(f"     the read-only map is {'registered' if registered else 'not registered'}"
          f" {why or ''}")
    check(registered != bool(why), 'pin_memory="arena": registered, or one warning says why')
    check(torch.ones(1, device="cuda").sum().item() == 1, "no error is left behind")
    del first, view
    on_gpu: list[tuple[torch.Tensor, int]] = []
    for batch in loader:
        busy(torch.cuda.current_stream())
        for sample in batch[:4]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the view is read-only
                view = torch.frombuffer(sample.data, dtype=torch.uint8)
            on_gpu.append((view.to("cuda", non_blocking=True), sample.id))
        del batch, sample, view
    torch.cuda.synchronize()
    check(all(torch.equal(row.cpu(), want[id]) for row, id in on_gpu),
          f"{len(on_gpu)} copies straight from the arena are whole, their leases long dropped")
    loader.close()
    gc.collect()


def refused() -> None:
    """A registration that CUDA refuses is an OSError, and the next kernel does not see it."""
    try:
        register(1 << 12, 1 << 20, False)
        check(False, "memory that is not there is refused")
    except OSError as e:
        print(f"     {e}")
        check(torch.ones(4, device="cuda").sum().item() == 4, "a refusal leaves no error behind")


def stacked(want: torch.Tensor) -> None:
    """Packed batches are registered writable: tensors that are pinned where they lie."""
    with belady.DataLoader(URL, BATCH, True, seed=1, collate_fn=list) as loader:
        ids = [[sample.id for sample in batch] for batch in loader]
    on_gpu: list[torch.Tensor] = []
    all_pinned = True
    with said() as texts, belady.DataLoader(
        URL, BATCH, True, seed=1, collate_fn="stack", pin_memory="arena"
    ) as loader:
        for rows, _ in loader:
            all_pinned &= rows.is_pinned()
            busy(torch.cuda.current_stream())
            on_gpu.append(rows.to("cuda", non_blocking=True))
            del rows
        torch.cuda.synchronize()
    print(f"     {[t for t in texts if 'pins by a copy' in t] or 'registered'}")
    check(all_pinned, 'collate_fn="stack", pin_memory="arena": every batch is pinned')
    check(all(torch.equal(rows.cpu(), want[i]) for rows, i in zip(on_gpu, ids)),
          "copies of dropped stacked batches are whole")


def decoded() -> None:
    """nvJPEG reads leased samples where they lie, and gives what it gives for copies of them."""
    root = temporary()
    write_photos(root, 256)
    with said() as texts, belady.DataLoader(root, BATCH, True, seed=1, collate_fn=list) as loader:
        pairs = [
            (belady.decode_jpeg(batch, device="cuda"),
             torchvision.io.decode_jpeg([as_tensor(s)[0] for s in batch], RGB, "cuda"))
            for batch in loader
        ]
        stats = loader.stats()
    images = [(ours, want) for batch in pairs for ours, want in zip(*batch)]
    check(len(images) == 256 and all(ours.is_cuda for ours, _ in images), "decoded on the GPU")
    check(all(torch.equal(ours, want) for ours, want in images), "pixels are nvJPEG's")
    check(stats["belady/decode_seconds"] > 0 and stats["belady/private_copies"] == 0 and not texts,
          "timed, from leases, without a warning")
    data = next(root.rglob("*.jpg")).read_bytes()
    try:
        belady.decode_jpeg([data, b"hello"], device="cuda")
        check(False, "what is no JPEG is refused")
    except belady.DecodeError as e:
        check("item 1 of the batch" in str(e), "what is no JPEG is refused, and named")


def main() -> int:
    if not torch.cuda.is_available():
        print("FAIL no GPU is here")
        return 1
    print(f"     PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    node = Node(temporary())
    os.environ.update(node.environment())
    node.start("--ram", "512MiB")
    try:
        want = reference()
        for options in (
            {}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True},
            {"num_workers": 2, "worker_type": "thread"},
        ):
            pinned(want, options)
        arena(want)
        refused()
        stacked(want)
        decoded()
    finally:
        node.stop()
    print(f"{len(FAILED)} failed" if FAILED else "all of it holds")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
