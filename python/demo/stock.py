"""The stock side: plain PyTorch datasets over the same samples, in the same order of ids."""

from __future__ import annotations

import http.client
import os
from collections.abc import Sequence
from typing import Any, Callable, Optional
from urllib.parse import quote

from torch.utils.data import DataLoader, Dataset, DistributedSampler

Transform = Callable[[Any, int], Any]


class Files(Dataset[Any]):
    """Files below a folder. `transform` is given a sample's bytes and its index."""

    def __init__(self, root: str, names: Sequence[str], transform: Transform) -> None:
        self.root = root
        self.names = names
        self.transform = transform

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Any:
        return self.transform(self.read(i), i)

    def read(self, i: int) -> bytes:
        with open(os.path.join(self.root, self.names[i]), "rb") as file:
            return file.read()


class Remote(Files):
    """The same from an HTTP server at `root`; each process keeps one connection."""

    def __init__(self, root: str, names: Sequence[str], transform: Transform) -> None:
        super().__init__(root, names, transform)
        self._connection: Optional[http.client.HTTPConnection] = None
        self._pid = 0

    def read(self, i: int) -> bytes:
        host, _, bucket = self.root.removeprefix("http://").partition("/")
        if self._connection is None or self._pid != os.getpid():
            self._connection, self._pid = http.client.HTTPConnection(host), os.getpid()
        self._connection.request("GET", f"/{bucket}/{quote(self.names[i])}")
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(f"{self.names[i]}: the origin answered {answer.status}")
        return body


def loader(dataset: Files, batch: int, seed: int, workers: int) -> DataLoader[Any]:
    """As a careful user writes it: workers stay from epoch to epoch."""
    sampler: DistributedSampler[Any] = DistributedSampler(dataset, 1, 0, seed=seed)
    return DataLoader(dataset, batch, sampler=sampler, num_workers=workers,
                      persistent_workers=workers > 0)
