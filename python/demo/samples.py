"""The demo's samples: files of random bytes, and JPEGs; and what a loop makes of each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Callable

import torch
from torch.nn.functional import interpolate
from torchvision.io import encode_jpeg

import belady

CLASSES = 10
PIXELS = (375, 500)
CROP = 160


def write_blobs(root: Path, count: int, size: int) -> None:
    draw = random.Random(1)
    for i in range(count):
        _file(root, i, "bin").write_bytes(draw.randbytes(size))


def write_photos(root: Path, count: int) -> None:
    """Smooth noise compresses about as a photograph does: some 75 KB each."""
    draw = torch.Generator().manual_seed(1)
    for i in range(count):
        coarse = torch.rand(1, 3, PIXELS[0] // 6, PIXELS[1] // 6, generator=draw)
        image = interpolate(coarse, PIXELS, mode="bicubic", align_corners=False)[0]
        data = encode_jpeg(image.clamp(0, 1).mul(255).byte(), quality=92)
        _file(root, i, "jpg").write_bytes(data.numpy().tobytes())


def _file(root: Path, i: int, ending: str) -> Path:
    folder = root / f"class{i % CLASSES}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{i:05}.{ending}"


def blob(data: Any, i: int) -> tuple[torch.Tensor, int]:
    """All bytes of a sample as a tensor of its own, and which sample it is."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8), i


def photo(data: Any, i: int) -> tuple[torch.Tensor, int]:
    """A decoded photo, cut out at a place that is drawn as augmentations draw."""
    image: torch.Tensor = belady.decode_jpeg(data)
    top, left = (int(torch.randint(0, side - CROP, ())) for side in PIXELS)
    return image[:, top : top + CROP, left : left + CROP].contiguous(), i


class OfSample:
    """A function of bytes and index as a transform of `belady.Sample`."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self._function = function

    def __call__(self, sample: belady.Sample) -> Any:
        return self._function(sample.data, sample.id)
