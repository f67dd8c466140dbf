"""belady.decode_jpeg against real torchvision and Pillow, from leased memory."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg

import belady
from belady import decode
from belady.torch import jpeg
from conftest import Node, eventually, temporary

COUNT = 24


@pytest.fixture(scope="module")
def photos() -> Path:
    """JPEGs of several sizes, every third of them grey."""
    root = temporary()
    draw = torch.Generator().manual_seed(3)
    for i in range(COUNT):
        pixels = torch.randint(0, 255, (1 if i % 3 == 0 else 3, 40 + i, 60), generator=draw)
        (root / f"class{i % 2}").mkdir(exist_ok=True)
        data = encode_jpeg(pixels.to(torch.uint8), quality=80).numpy().tobytes()
        (root / f"class{i % 2}" / f"{i:02}.jpg").write_bytes(data)
    return root


def loader(photos: Path, **options: Any) -> belady.DataLoader:
    return belady.DataLoader(belady.Dataset(photos, options.pop("transform", None)), 5,
                             shuffle=True, seed=1, **options)


def theirs(data: bytes, mode: str) -> torch.Tensor:
    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8),
                       ImageReadMode[mode.upper()])


@pytest.mark.parametrize("mode", ["rgb", "gray", "unchanged"])
def test_leased_samples(node: Node, photos: Path, mode: str) -> None:
    """Pixels are torchvision's, nothing warns, and no lease is held when the call is over."""
    with loader(photos, collate_fn=list) as batches, warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = 0
        for batch in batches:
            images = belady.decode_jpeg(batch, mode=mode)
            assert all(
                torch.equal(image, theirs(bytes(sample), mode))
                for image, sample in zip(images, batch)
            )
            images[0].mul_(2)
            again = belady.decode_jpeg(batch[0], mode=mode)
            assert torch.equal(again, theirs(bytes(batch[0]), mode))
            seen += len(images)
        assert seen == COUNT
        spent = batches.stats()
        assert 0 < spent["belady/decode_seconds"]
        # Opened last, the other meter has seen none of it.
        with loader(photos, collate_fn=list) as fresh:
            assert len(fresh) > 0 and fresh.stats()["belady/decode_seconds"] == 0


def test_tensor_lies_in_the_lease(node: Node, photos: Path) -> None:
    """The tensor that a decoder reads is the lease's own memory and keeps it."""
    with loader(photos, collate_fn=list) as batches:
        batch = next(iter(batches))
        data = bytes(batch[0])
        tensor = jpeg._over(batch[0].data)
        assert tensor.numpy().ctypes.data == address(batch[0].data)
        del batch
    gc.collect()
    assert tensor.numpy().tobytes() == data


def address(view: memoryview) -> int:
    import numpy

    return int(numpy.frombuffer(view, numpy.uint8).ctypes.data)


def test_nothing_is_held(node: Node, photos: Path) -> None:
    with loader(photos, collate_fn=list) as batches:
        images = [belady.decode_jpeg(batch) for batch in batches]
        assert batches.stats()["belady/private_copies"] == 0
    eventually(lambda: node.ranks() == 0, "the session ends")
    assert sum(len(batch) for batch in images) == COUNT


@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_transform(node: Node, photos: Path, workers: int) -> None:
    """One sample gives one tensor, and time spent in workers is counted too."""
    with loader(photos, transform=first_pixel, num_workers=workers) as batches:
        pixels = torch.cat(list(batches))
        assert batches.stats()["belady/decode_seconds"] > 0
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1)).tolist()
    files = sorted(photos.rglob("*.jpg"))
    want = [theirs(files[i].read_bytes(), "rgb")[:, 0, 0] for i in order]
    assert torch.equal(pixels, torch.stack(want))


def first_pixel(sample: belady.Sample) -> torch.Tensor:
    image: torch.Tensor = belady.decode_jpeg(sample)
    return image[:, 0, 0]


def test_image_folder_counts_too(node: Node, photos: Path) -> None:
    dataset = belady.ImageFolder(photos, lambda image: image.size[0])
    with belady.DataLoader(dataset, 5) as batches:
        assert sum(len(labels) for _, labels in batches) == COUNT
        assert batches.stats()["belady/decode_seconds"] > 0


@pytest.mark.parametrize("mode", ["rgb", "gray", "unchanged"])
def test_pillow_in_its_place(photos: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg, "torchvision", None)
    for file in sorted(photos.rglob("*.jpg")):
        data = file.read_bytes()
        assert torch.equal(belady.decode_jpeg(data, mode=mode), theirs(data, mode)), file


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_like(photos: Path, kind: Callable[[bytes], Any]) -> None:
    data = next(photos.rglob("*.jpg")).read_bytes()
    one, two = belady.decode_jpeg([kind(data), kind(data)])
    assert torch.equal(one, two) and torch.equal(one, theirs(data, "rgb"))
    assert belady.decode_jpeg([]) == []


@pytest.mark.parametrize("decoder", ["torchvision", "Pillow"])
def test_errors_name_the_sample(
    node: Node, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if decoder == "Pillow":
        monkeypatch.setattr(jpeg, "torchvision", None)
    root = temporary()
    whole = BytesIO()
    Image.new("RGB", (64, 64)).save(whole, "JPEG")
    for name, data in {
        "a": whole.getvalue(), "cut": whole.getvalue()[:200], "empty": b"", "text": b"hello",
    }.items():
        (root / f"{name}.jpg").write_bytes(data)
    with belady.DataLoader(root, 4, collate_fn=list) as batches:
        (batch,) = batches
    for id, name in ((1, "cut"), (2, "empty"), (3, "text")):
        with pytest.raises(belady.DecodeError, match=f"sample {id}, {name}.jpg, is no JPEG: ."):
            belady.decode_jpeg([batch[0], batch[id]])
    with pytest.raises(belady.DecodeError, match="item 1 of the batch is no JPEG"):
        belady.decode_jpeg([whole.getvalue(), b"hello"])


def test_asked_wrongly(photos: Path) -> None:
    data = next(photos.rglob("*.jpg")).read_bytes()
    with pytest.raises(belady.BadRequest, match="rgb, gray, unchanged"):
        belady.decode_jpeg(data, mode="bgr")
    with pytest.raises(TypeError, match="item 1 of the batch is a str"):
        belady.decode_jpeg([data, "name.jpg"])  # type: ignore[list-item]
    for device in ("cuda:99", "meta"):
        with pytest.raises(belady.DecoderUnavailable, match=f"cannot decode on {device}"):
            belady.decode_jpeg(data, device=device)


def test_forked_while_counting() -> None:
    """A process that is forked while a thread counts can still decode."""
    with decode._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            decode.Meter()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
