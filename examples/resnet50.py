"""ResNet-50 from JPEG files, decoded on the GPU, and what reading and decoding cost it.

    python examples/resnet50.py [PATH] [--batch 256] [--seconds 20] [--decoders 2]

Needs CUDA and torchvision. PATH is a folder of JPEGs, one folder a class; without one, some are
made. Three rates are measured: the same batch over and over; JPEGs that lie in this process'
memory, decoded on the GPU; and the same from files through Belady. The second is the training's
speed without I/O, the first its speed without decoding too, which takes some of the GPU. Threads
decode and crop on streams of their own while the model trains, and hand over the event after which
a batch is there.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
import torchvision

import belady

SIDE = 224


class Decode:
    """A collate function: a list of samples becomes one batch on the GPU."""

    def __call__(self, samples: list[belady.Sample]) -> tuple[Any, Any, Any]:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            images = belady.decode_jpeg(samples, device="cuda")
            batch = torch.empty(len(images), 3, SIDE, SIDE, device="cuda", dtype=torch.half,
                                memory_format=torch.channels_last)
            shapes: dict[torch.Size, list[int]] = {}
            for i, image in enumerate(images):
                shapes.setdefault(image.shape, []).append(i)
            for of_shape in shapes.values():  # one launch for all that are alike
                alike = torch.stack([images[i] for i in of_shape]).half()
                small = F.interpolate(alike, (SIDE, SIDE), mode="bilinear")
                batch[of_shape] = small.sub_(118).mul_(1 / 58)
            labels = torch.tensor([s.label for s in samples]).to("cuda", non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        return batch, labels, done


class Trainer:
    """ResNet-50 in bfloat16, one step at a time."""

    def __init__(self, classes: int) -> None:
        self.model = torchvision.models.resnet50(num_classes=classes).cuda()
        self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def make_images(root: pathlib.Path, count: int) -> None:
    """JPEGs of about 110 KB, of 500 × 375 pixels, as ImageNet has them."""

    def make(i: int) -> None:
        random = torch.Generator().manual_seed(i)
        coarse = torch.rand(1, 3, 47, 63, generator=random)
        noise = torch.rand(1, 3, 375, 500, generator=random)
        image = F.interpolate(coarse, (375, 500), mode="bicubic") + noise * 0.2
        data = torchvision.io.encode_jpeg((image[0].clamp(0, 1) * 255).byte(), quality=90)
        (root / f"class{i % 10}" / f"{i:05}.jpg").write_bytes(data.numpy().tobytes())

    for label in range(10):
        (root / f"class{label}").mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, range(count)))


def one_batch(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


def from_memory(batches: list[Any], decode: Decode, decoders: int) -> Iterator[Any]:
    """Batches decoded over and over, a few ahead."""
    with ThreadPoolExecutor(decoders) as pool:
        turn = cycle(batches)
        ahead = deque(pool.submit(decode, next(turn)) for _ in range(2 * decoders))
        while True:
            yield ahead.popleft().result()
            ahead.append(pool.submit(decode, next(turn)))


def epochs(loader: belady.DataLoader) -> Iterator[Any]:
    while True:
        yield from loader


def rate(trainer: Trainer, batches: Iterator[Any], warm_up: int, seconds: float) -> float:
    """Images a second, once some batches have gone by."""
    seen, begun = 0, 0.0
    for i, (images, labels, done) in enumerate(batches):
        now = torch.cuda.current_stream()
        now.wait_event(done)
        images.record_stream(now)
        labels.record_stream(now)
        trainer.step(images, labels)
        if i == warm_up:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        elif i > warm_up:
            seen += len(images)
            if time.perf_counter() > begun + seconds:
                break
    torch.cuda.synchronize()
    return seen / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--decoders", type=int, default=2, help="threads that decode")
    parser.add_argument("--images", type=int, default=4096, help="how many to make without a path")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    with tempfile.TemporaryDirectory() as made:
        if given.path is None:
            make_images(pathlib.Path(made), given.images)
        dataset = belady.Dataset(given.path or made)
        decode = Decode()
        with belady.DataLoader(dataset, given.batch, copy=True, collate_fn=list) as few:
            in_memory = list(islice(few, 8))
        loader = belady.DataLoader(
            dataset, given.batch, shuffle=True, seed=1, drop_last=True, collate_fn=decode,
            num_workers=given.decoders, worker_type="thread",
        )
        trainer = Trainer(classes=1000)
        # Decoding fills what training leaves of the GPU.
        with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
            alone = rate(trainer, one_batch(decode(in_memory[0])), 10, given.seconds)
            memory = rate(trainer, from_memory(in_memory, decode, given.decoders), 10,
                          given.seconds)
            reading = rate(trainer, epochs(loader), len(loader), given.seconds)
        stats = loader.stats()
        loader.close()
    print(json.dumps({
        "images_per_second": {"one batch": round(alone), "JPEGs in memory": round(memory),
                              "JPEG files": round(reading)},
        "of the speed without I/O": round(reading / memory, 3),
        "of the speed without I/O and decoding": round(reading / alone, 3),
        "stall_seconds": stats["belady/stall_seconds"],
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
    }, indent=1))


if __name__ == "__main__":
    main()
