"""Training with belady.DataLoader and with PyTorch's ends with the same weights, bit for bit."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from torch.utils.data import DistributedSampler
from torch.utils.data import DataLoader as StockLoader

import belady
from conftest import Node, image_folder, temporary

SIDE, CROP = 10, 8
EPOCHS = 3


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """Pictures of 10×10 pixels, in classes of unequal size."""
    root, draw = temporary(), random.Random(4)
    for i in range(123):
        folder = root / f"class{draw.randrange(4)}"
        folder.mkdir(exist_ok=True)
        (folder / f"{i:03}.rgb").write_bytes(draw.randbytes(3 * SIDE * SIDE))
    yield root


def decode(data: bytes) -> torch.Tensor:
    pixels = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return pixels.view(3, SIDE, SIDE).float() / 255


def augment(data: bytes) -> torch.Tensor:
    """A crop from PyTorch's generator, a flip from Python's, and noise: drawn for every sample."""
    image = decode(data)
    top, left = torch.randint(SIDE - CROP + 1, (2,)).tolist()
    image = image[:, top : top + CROP, left : left + CROP]
    if random.random() < 0.5:
        image = image.flip(-1)
    return image + 0.01 * torch.randn(image.shape)


def centre(data: bytes) -> torch.Tensor:
    return decode(data)[:, 1 : 1 + CROP, 1 : 1 + CROP]


def augmented(sample: belady.Sample) -> tuple[torch.Tensor, int]:
    return augment(bytes(sample)), sample.label


def centred(sample: belady.Sample) -> tuple[torch.Tensor, int]:
    return centre(bytes(sample)), sample.label


class ImageFolder(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """torchvision's, for pictures that need no decoder."""

    def __init__(self, root: Path, transform: Callable[[bytes], torch.Tensor]) -> None:
        self.files = image_folder(root)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        data, label, _ = self.files[i]
        return self.transform(data), label


def train(
    loader: Any, evaluation: Any, set_epoch: Optional[Callable[[int], None]]
) -> tuple[str, list[float]]:
    """The weights' sha256 after three epochs, and all losses. Dropout draws between the batches."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(0.3),
        torch.nn.Linear(4 * (CROP - 2) ** 2, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses: list[float] = []
    for epoch in range(EPOCHS):
        if set_epoch is not None:
            set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            for x, y in evaluation:
                losses.append(torch.nn.functional.cross_entropy(model(x), y).item())
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest(), losses


def seeded(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)


def stock(root: Path, workers: int, options: dict[str, Any]) -> tuple[str, list[float]]:
    seeded(1)
    dataset = ImageFolder(root, augment)
    sampler = None
    if "seed" in options:
        world, rank = options.get("world_size", 1), options.get("rank", 0)
        sampler = DistributedSampler(dataset, world, rank, seed=options["seed"])
    loader: Any = StockLoader(
        dataset, 16, sampler=sampler, num_workers=workers, shuffle=sampler is None
    )
    evaluation: Any = StockLoader(ImageFolder(root, centre), 50, num_workers=workers)
    return train(loader, evaluation, None if sampler is None else sampler.set_epoch)


def ours(root: Path, workers: int, options: dict[str, Any]) -> tuple[str, list[float]]:
    seeded(1)
    dataset = belady.Dataset(root, augmented)
    with belady.DataLoader(
        dataset, 16, shuffle=True, num_workers=workers, **options
    ) as loader, belady.DataLoader(
        belady.Dataset(root, centred), 50, num_workers=workers, rank=0, world_size=1
    ) as evaluation:
        return train(loader, evaluation, loader.set_epoch if "seed" in options else None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [
    {"seed": 7}, {"seed": 7, "rank": 1, "world_size": 3}, {},
], ids=["DistributedSampler", "rank 1 of 3", "RandomSampler"])
def test_weights(node: Node, images: Path, workers: int, options: dict[str, Any]) -> None:
    theirs = stock(images, workers, options)
    assert ours(images, workers, options) == theirs


def test_weights_tell_orders_apart(node: Node, images: Path) -> None:
    """What is compared above does depend on the order, and on every draw."""
    one, other = ours(images, 0, {"seed": 7}), ours(images, 0, {"seed": 8})
    assert one[0] != other[0]
    assert stock(images, 2, {"seed": 7})[0] != one[0]  # workers draw from generators of their own
