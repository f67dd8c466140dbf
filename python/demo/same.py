"""Is training with Belady the same training? The order of samples, and the weights' every bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import belady
from belady.torch.trial import Files
from demo import samples, stock
from demo.regimes import BATCH, SEED, names

WORKERS = 2


class Training(NamedTuple):
    order: list[int]
    weights: str  # their sha256


def trained(loader: Iterable[Any]) -> Training:
    """One epoch of a small network on augmented photos, from a fixed seed."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(), torch.nn.Linear(128, samples.CLASSES),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order: list[int] = []
    for images, ids in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images / 255), ids % samples.CLASSES)
        loss.backward()
        optimizer.step()
        order += ids.tolist()
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return Training(order, digest.hexdigest())


def both(files: Path) -> tuple[Training, Training]:
    """With the stock loader, and with Belady."""
    dataset = belady.Dataset(files, samples.OfSample(samples.photo))
    theirs = Files(str(files), names(dataset), samples.photo)
    first = trained(stock.loader(theirs, BATCH, SEED, WORKERS))
    with belady.DataLoader(dataset, BATCH, shuffle=True, seed=SEED,
                           num_workers=WORKERS) as loader:
        return first, trained(loader)
