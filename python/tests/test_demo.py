"""What `make demo` measures with: an origin that both loaders share and that counts for both."""

from __future__ import annotations

from pathlib import Path

import belady
from conftest import Node, image_folder
from demo.__main__ import gains, table
from demo.origin import SlowOrigin
from demo.regimes import KEPT, Row, Speed, least_bytes, names
from demo.stock import Remote


def test_both_read_the_same_origin(node: Node, files: Path) -> None:
    want = [data for data, _, _ in image_folder(files)]
    with SlowOrigin(files, rate=1e9, latency=0.001) as origin:
        dataset = belady.Dataset(origin.s3)
        theirs = Remote(origin.http, names(dataset), lambda data, i: (data, i))
        assert [theirs[i] for i in range(len(theirs))] == [(d, i) for i, d in enumerate(want)]
        size = sum(len(data) for data in want)
        assert origin.bytes() == size
        with belady.DataLoader(dataset, 50, collate_fn=list) as loader:
            assert [bytes(sample) for batch in loader for sample in batch] == want
        assert origin.bytes() == 2 * size


def test_roofline() -> None:
    """It follows from sizes alone: reading more than needed cannot raise it."""
    assert least_bytes(150_000_000, 75_000_000) == 150_000_000 - KEPT * 75_000_000
    assert least_bytes(150_000_000, 0) == 150_000_000 and least_bytes(100, 1000) == 0


def test_table() -> None:
    stock, ours = Speed(1234.5, 4, 150_000_000), Speed(4000.0, 0, 75_400_000)
    header, line = table([Row("slow", stock, ours, 5000.0, "")]).splitlines()
    assert header.split("  ")[0].strip() == "regime" and len(header) == len(line)
    assert line.split() == ["slow", "1,234", "(4", "workers)", "4,000", "(0", "workers)", "5,000",
                            "150", "→", "75"]


def test_doubtful_figures() -> None:
    """What is faster than nothing can be was measured badly, and is said to be."""
    stock = Speed(1000.0, 4, 0)
    for fastest, doubtful in ((1600.0, False), (2080.0, False), (3280.0, True)):
        text = gains([Row("photos", stock, Speed(fastest, 0, 0), 2000.0, "decode on a GPU")])
        assert ("doubtful" in text) == doubtful
        assert ("decode on a GPU" in text) != doubtful
