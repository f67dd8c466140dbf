"""The stock side: a plain PyTorch dataset over the slow origin, and the loader over any."""

from __future__ import annotations

import http.client
import os
from typing import Any, Optional
from urllib.parse import quote

from torch.utils.data import DataLoader, DistributedSampler

from belady.torch.trial import Files


class Remote(Files):
    """Files from an HTTP server at `root`; each process keeps one connection."""

    _connection: Optional[http.client.HTTPConnection] = None
    _pid = 0

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
