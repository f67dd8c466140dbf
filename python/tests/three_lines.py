"""The diff at the top of the project's README, as two scripts that print what they were given."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import NamedTuple

from PIL import Image

README = Path(__file__).resolve().parents[2] / "README.md"

# One rank of a world of one, as torchrun would start it.
_BEFORE = """
import torch
torch.distributed.init_process_group(
    "gloo", init_method="file://{meeting}", rank=0, world_size=1
)
torch.manual_seed(5)
"""
# Every byte of two epochs.
_AFTER = """
import hashlib
digest, count = hashlib.sha256(), 0
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for images, labels in loader:
        digest.update(images.numpy().tobytes() + labels.numpy().tobytes())
        count += len(labels)
print(count, digest.hexdigest())
"""


class Scripts(NamedTuple):
    stock: str
    belady: str
    added: list[str]  # the lines that the diff adds


def scripts(folder: Path) -> Scripts:
    """Both sides of the diff over pictures that are written into a folder."""
    (diff,) = re.findall(r"```diff\n(.*?)```", README.read_text(), re.S)
    lines = diff.splitlines()
    pictures(folder / "train")

    def script(sign: str) -> str:
        text = "\n".join(line[1:] for line in lines if line[:1] in ("", " ", sign))
        for old, new in (("/data/train", str(folder / "train")), (" 256,", " 8,")):
            assert old in text
            text = text.replace(old, new)
        return _BEFORE.format(meeting=folder / f"meeting{sign}") + text + _AFTER

    return Scripts(script("-"), script("+"), [line[1:] for line in lines if line[:1] == "+"])


def pictures(root: Path) -> None:
    """Thirty of them, in three classes and of many sizes."""
    draw = random.Random(6)
    for i in range(30):
        folder = root / f"class{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        size = (draw.randint(20, 60), draw.randint(20, 60))
        data = draw.randbytes(3 * size[0] * size[1])
        Image.frombytes("RGB", size, data).save(folder / f"{i:02}.png")
