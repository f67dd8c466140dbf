"""Real frameworks over real daemons. `make test` installs them (scripts/install-frameworks.sh)."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import transformers
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import belady
import belady.accelerate
from belady import daemon
from conftest import BELADY, ROOT, Node, temporary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses what setuptools would rather not have used
    import lightning.pytorch
    from lightning.pytorch.callbacks import ModelCheckpoint


def hashable(cls: type) -> type:
    made = PLAIN_DATACLASS(cls)
    made.__hash__ = made.__hash__ or object.__hash__  # type: ignore[method-assign]
    return made


# Debian's PyTorch is older than its Python, which refuses the defaults of a dataclass that
# Lightning comes to import, because they cannot be hashed.
PLAIN_DATACLASS = dataclasses.dataclass
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(dataclasses, "dataclass", hashable)
    import torch.distributed._shard.sharded_tensor  # noqa: E402

# Of the frameworks' own making, and about nothing that is tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

DOCUMENT = (ROOT / "docs" / "frameworks.md").read_text()
SAMPLES = 203
QUIET: dict[str, Any] = {
    "accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False,
    "enable_model_summary": False,
}
QUIET_TRAINER: dict[str, Any] = {
    "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no",
}


def number(sample: belady.Sample) -> int:
    return sample.id


def pair(sample: belady.Sample) -> tuple[torch.Tensor, int]:
    return torch.frombuffer(bytearray(sample.data[:16]), dtype=torch.uint8).float() / 255, sample.id


@pytest.fixture
def dataset(node: Node) -> belady.Dataset:
    node.add("small", f"synth://small?samples={SAMPLES}&size=400&classes=10")
    return belady.Dataset("small", number)


@pytest.fixture(autouse=True)
def accelerate_begins_anew() -> Iterator[None]:
    """Accelerate keeps what it found for the life of a process."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def ids(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


# -- torchdata


@pytest.mark.parametrize("seeded", [False, True], ids=["own seed", "generator"])
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata(dataset: belady.Dataset, workers: int, seeded: bool) -> None:
    def loader(data: Any) -> Any:
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(3) if seeded else None
        return StatefulDataLoader(data, 16, True, num_workers=workers, generator=generator)

    stock, ours = loader(range(SAMPLES)), loader(dataset)
    attachment = belady.attach(ours)
    assert attachment.known == "exact"
    for _ in range(3):
        assert ids(ours) == ids(stock)
    batches = iter(ours)
    for _ in range(3):
        next(batches)
    state, rest = ours.state_dict(), ids(batches)
    again = loader(dataset)
    resumed = belady.attach(again)
    again.load_state_dict(state)
    assert ids(again) == rest
    assert attachment.drifted == resumed.drifted == 0


# -- Accelerate


@pytest.mark.parametrize("seedable", [True, False], ids=["seedable", "global"])
@pytest.mark.parametrize("workers", [0, 2])
def test_accelerate_own_loaders(dataset: belady.Dataset, workers: int, seedable: bool) -> None:
    """One of two processes: BatchSamplerShard over what shuffles."""
    def loader(data: Any) -> Any:
        set_seed(5)
        stock: Any = DataLoader(data, 16, True, num_workers=workers)
        return prepare_data_loader(
            stock, num_processes=2, process_index=1, use_seedable_sampler=seedable
        )

    Accelerator(cpu=True)
    stock = loader(range(SAMPLES))
    want = [ids(stock) for _ in range(3)]
    ours = loader(dataset)
    attachment = belady.attach(ours)
    assert attachment.known == "exact"  # Accelerate gives samplers a generator of their own
    assert [ids(ours) for _ in range(3)] == want
    assert attachment.drifted == 0


def test_accelerate_sees_the_end(dataset: belady.Dataset) -> None:
    """Accumulation, remainder and epochs are what Accelerate's own loader gives."""
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
    network = accelerator.prepare(torch.nn.Linear(1, 1))
    stock: Any = accelerator.prepare(DataLoader(range(SAMPLES), 16))  # type: ignore[arg-type]

    def told(loader: Any) -> list[Any]:
        out: list[Any] = []
        for batch in loader:
            with accelerator.accumulate(network):
                state = accelerator.gradient_state
                out.append((batch.tolist(), accelerator.sync_gradients, state.end_of_dataloader,
                            state.remainder))
        assert not accelerator.gradient_state.in_dataloader
        return out

    with belady.DataLoader(dataset, 16) as loader:
        ours = belady.accelerate.prepare(accelerator, loader)
        assert [told(ours), told(ours)] == [told(stock), told(stock)]
        assert len(ours) == len(stock) and ours.total_batch_size == stock.total_batch_size
        for _ in ours:
            break
        assert not accelerator.gradient_state.in_dataloader


def test_accelerate_places_batches(dataset: belady.Dataset) -> None:
    with belady.DataLoader(dataset, 16) as loader:
        prepared = belady.accelerate.Prepared(loader, torch.device("meta"))
        assert {batch.device.type for batch in prepared} == {"meta"}


def test_accelerate_state_leaves_out_what_is_read_ahead(
    dataset: belady.Dataset, tmp_path: Path
) -> None:
    accelerator = Accelerator(cpu=True)
    loaders = [belady.DataLoader(dataset, 16, shuffle=True, seed=2) for _ in range(3)]
    plain, one, two = loaders[0], *(belady.accelerate.prepare(accelerator, x) for x in loaders[1:])
    want = [ids(plain), ids(plain)]
    for given, _ in enumerate(one, 1):
        assert one.state_dict()["position"] == min(16 * given, SAMPLES)
        if given == 5:
            break
    assert one.state_dict()["position"] == 80  # of a loop that was left, too
    accelerator.register_for_checkpointing(one)
    accelerator.save_state(str(tmp_path))
    accelerator._custom_objects.clear()
    accelerator.register_for_checkpointing(two)
    accelerator.load_state(str(tmp_path))
    assert ids(two) == want[0][5:]
    assert two.state_dict()["epoch"] == 1 and ids(two) == want[1]
    two.set_epoch(0)
    assert ids(two) == want[0]
    for loader in loaders:
        loader.close()


def test_accelerate_of_another_world(dataset: belady.Dataset) -> None:
    accelerator = Accelerator(cpu=True)
    with belady.DataLoader(dataset, 16, rank=1, world_size=3) as loader:
        with pytest.raises(belady.BadRequest, match="rank 1 of 3, but Accelerate's process 0 of 1"):
            belady.accelerate.prepare(accelerator, loader)


@pytest.mark.parametrize("samples, world, drop, remainder", [
    (203, 1, False, 203 % 16), (203, 2, False, 203 % 32), (204, 3, False, 204 % 48),
    (203, 3, False, 203 % 48), (202, 3, False, -1), (202, 3, True, 201 % 48),
])
def test_accelerate_remainder(
    node: Node, samples: int, world: int, drop: bool, remainder: int
) -> None:
    """Cutting the gathered batches there takes away the padding and nothing else, or there is no
    place to cut."""
    node.add(f"of{samples}", f"synth://of{samples}?samples={samples}&size=100")
    dataset = belady.Dataset(f"of{samples}", number)
    last: list[int] = []
    for rank in range(world):
        with belady.DataLoader(
            dataset, 16, rank=rank, world_size=world, sampler_drop_last=drop
        ) as loader:
            prepared = belady.accelerate.Prepared(loader, None)
            last += [batch for batch in prepared if prepared.end_of_dataloader][0].tolist()
    assert prepared._remainder() == remainder
    first = samples // (16 * world) * 16 * world
    if remainder >= 0:
        end = samples // world * world if drop else samples
        assert sorted(last[:remainder] if remainder else last) == list(range(first, end))


# -- Lightning


class Model(lightning.pytorch.LightningModule):
    """Remembers which samples it was trained on; may be made to fail."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.network = torch.nn.Linear(16, 10)
        self.seen: list[list[int]] = []
        self.fails_at = fails_at

    def training_step(self, batch: Any, _: int) -> Any:
        pixels, labels = batch
        if len(self.seen) == self.fails_at:
            raise RuntimeError("the machine was taken away")
        self.seen.append(labels.tolist())
        return torch.nn.functional.cross_entropy(self.network(pixels), labels % 10)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_resumes_inside_an_epoch(
    dataset: belady.Dataset, tmp_path: Path, workers: int
) -> None:
    """Killed at step 9 of 13, with checkpoints every three: it goes on with the tenth batch."""
    dataset.transform = pair

    def trained(model: Model, folder: Path, resume: str | None = None) -> Model:
        checkpoint = ModelCheckpoint(folder, "{step}", every_n_train_steps=3, save_top_k=-1)
        trainer = lightning.pytorch.Trainer(max_epochs=2, callbacks=[checkpoint], **QUIET)
        with belady.DataLoader(
            dataset, 16, shuffle=True, seed=7, num_workers=workers
        ) as loader:
            trainer.fit(model, loader, ckpt_path=resume)
        return model

    torch.manual_seed(0)
    whole = trained(Model(), tmp_path / "whole")
    assert len(whole.seen) == 26
    torch.manual_seed(0)
    killed = Model(fails_at=10)
    with pytest.raises(RuntimeError, match="taken away"):
        trained(killed, tmp_path / "killed")
    resumed = trained(Model(), tmp_path / "again", str(tmp_path / "killed" / "step=9.ckpt"))
    assert killed.seen[:9] + resumed.seen == whole.seen
    assert torch.equal(resumed.network.weight, whole.network.weight)


# -- HF Trainer


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Linear(16, 10)
        self.seen: list[list[int]] = []

    def forward(self, pixels: Any, labels: Any) -> dict[str, Any]:
        self.seen.append(labels.tolist())
        logits = self.network(pixels)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels % 10), "logits": logits}


def together(items: list[Any]) -> dict[str, Any]:
    return {"pixels": torch.stack([x for x, _ in items]),
            "labels": torch.tensor([y for _, y in items])}


def test_trainer_trains_the_same(dataset: belady.Dataset, tmp_path: Path) -> None:
    attachments: list[Any] = []

    class Attached(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            loader = super().get_train_dataloader()
            if isinstance(self.train_dataset, belady.Dataset):
                attachments.append(belady.attach(loader))
            return loader

    def trained(data: Any, folder: str, resume: bool = False, **options: Any) -> Any:
        torch.manual_seed(0)
        model = Classifier()
        arguments = transformers.TrainingArguments(
            str(tmp_path / folder), num_train_epochs=3, per_device_train_batch_size=16,
            **{**QUIET_TRAINER, **options},
        )
        trainer = Attached(model, arguments, train_dataset=data, data_collator=together)
        trainer.train(resume_from_checkpoint=resume or None)
        return model

    dataset.transform = pair
    want = trained([dataset[i] for i in range(SAMPLES)], "stock")
    got = trained(dataset, "ours", dataloader_num_workers=2)
    assert got.seen == want.seen and len(got.seen) == 39
    assert torch.equal(got.network.weight, want.network.weight)
    short = trained(dataset, "short", max_steps=18, save_strategy="steps", save_steps=18)
    rest = trained(dataset, "short", resume=True)
    assert short.seen + rest.seen == want.seen
    assert [(a.known, a.drifted) for a in attachments] == [("exact", 0)] * 3


# -- torchrun


def counted(path: Path) -> tuple[int, int]:
    """Requests and bytes that an origin was asked for."""
    requests, size = struct.unpack_from("=QQ", path.read_bytes())
    return requests, size


def torchrun(script: Path, *arguments: str, ranks: int = 2) -> None:
    done = subprocess.run(
        # Its defaults for redirects and tee, 0, are not understood by PyTorch 1.13 on Python 3.11.
        [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", "--standalone",
         "--redirects=1", "--tee=1", "--monitor_interval=0.1", str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1",
             "PYTHONWARNINGS": "ignore", "BELADY_BIN": BELADY},
        capture_output=True, text=True, timeout=240, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


STOCK = '''
import sys, torch, torch.distributed, belady
from torch.utils.data import DataLoader, DistributedSampler

torch.distributed.init_process_group("gloo")
dataset = belady.Dataset(sys.argv[1], lambda sample: sample.id)
loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset, seed=3), num_workers=1)
attachment = belady.attach(loader)
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    assert sum(map(len, loader)) == 100
assert attachment.drifted == 0 and attachment.known == "exact"
torch.distributed.barrier()
'''


@pytest.mark.parametrize("kind", ["belady", "attached"])
def test_ranks_share_one_daemon_and_one_read(own_node: Node, tmp_path: Path, kind: str) -> None:
    """Two ranks read every sample in each of two epochs; the origin is asked for each once."""
    counts = own_node.folder / "counts"
    own_node.add("counted", "throttle+synth://counted?samples=200&size=10KB&classes=10"
                 f"&throttle.counts={counts}")
    script = tmp_path / "train.py"
    script.write_text(documented()["train.py"] if kind == "belady" else STOCK)
    before = counted(counts)[1]
    torchrun(script, "counted")
    assert counted(counts)[1] - before == 200 * 10_000
    (status,) = own_node.status()["datasets"]
    assert status["pump"]["misses"] == 200


EIGHT = '''
import os, sys, torch.distributed, belady
from belady import daemon

torch.distributed.init_process_group("gloo")
loader = belady.DataLoader(sys.argv[1], 5, shuffle=True, seed=3, collate_fn=list)
seen = [sample.id for _ in range(2) for batch in loader for sample in batch]
torch.distributed.barrier()
pid = daemon.status(os.environ["BELADY_SOCKET"])["pid"]
with open(os.path.join(sys.argv[2], os.environ["RANK"]), "w") as file:
    print(pid, *seen, file=file)
loader.close()
'''


def test_eight_ranks_start_one_daemon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody started one and nobody scanned the dataset: one rank does each, and what all of them
    read in two epochs is asked of the origin once."""
    node = Node(temporary())
    for key, value in {**node.environment(), "BELADY_RAM": "64MiB"}.items():
        monkeypatch.setenv(key, value)
    counts = node.folder / "counts"
    script, seen = tmp_path / "train.py", tmp_path / "seen"
    script.write_text(EIGHT)
    seen.mkdir()
    url = f"throttle+synth://eight?samples=400&size=10KB&throttle.counts={counts}"
    try:
        torchrun(script, url, str(seen), ranks=8)
        (read,) = node.status()["datasets"]
        started = (node.folder / "serve.log").read_text()
    finally:
        running = daemon.find()
        if running is not None:
            os.kill(daemon.status(running.socket)["pid"], signal.SIGTERM)
    told = [[int(word) for word in path.read_text().split()] for path in seen.iterdir()]
    assert len(told) == 8 and len({pid for pid, *_ in told}) == 1
    assert sorted(i for _, *ids in told for i in ids) == sorted([*range(400)] * 2)
    assert counted(counts) == (400, 400 * 10_000) and read["pump"]["misses"] == 400
    assert started.count("daemon-started") == 1, started


METRICS = '''
import sys, torch, belady, belady.accelerate
from accelerate import Accelerator
from torch.utils.data import DataLoader

# Accelerate asks for these, which PyTorch has since 2.1.
torch.cpu.device_count, torch.cpu.set_device = lambda: 1, lambda device: None
accelerator = Accelerator(cpu=True)
dataset = belady.Dataset(sys.argv[1], lambda sample: sample.id)
loader = belady.accelerate.prepare(accelerator, belady.DataLoader(dataset, 16))
assert loader.world == (accelerator.process_index, 2)
stock = accelerator.prepare(DataLoader(dataset, 16, shuffle=True, num_workers=1))
attachment = belady.attach(stock)
for one in (loader, stock, stock):
    seen = [i for batch in one for i in accelerator.gather_for_metrics(batch).tolist()]
    assert sorted(seen) == list(range(len(dataset))), seen
assert (attachment.known, attachment.drifted) == ("exact", 0)
# Else a rank may end while gloo's threads of it still speak with the other, which aborts it.
accelerator.wait_for_everyone()
torch.distributed.destroy_process_group()
'''


def test_accelerate_gathers_each_sample_once(dataset: belady.Dataset, tmp_path: Path) -> None:
    """203 samples on two ranks: one is read twice, and cut off. With Accelerate's own loader the
    ranks agree on a generator's state when an epoch begins, and attach foresees that."""
    script = tmp_path / "metrics.py"
    script.write_text(METRICS)
    torchrun(script, dataset.name)


# -- the document


def documented() -> dict[str, str]:
    """The document's blocks: those with a file's name by it, others by their number."""
    found = re.findall(r"```python(?: file=(\S+))?\n(.*?)```", DOCUMENT, re.S)
    return {name or str(i): text for i, (name, text) in enumerate(found)}


def test_document(node: Node, tmp_path: Path) -> None:
    node.add("shown", "synth://shown?samples=100&size=400&classes=10")
    scope: dict[str, Any] = {
        "PATH": "shown", "FOLDER": str(tmp_path), "QUIET": QUIET, "QUIET_TRAINER": QUIET_TRAINER,
        "model": Model(), "classifier": Classifier(), "network": torch.nn.Linear(16, 10),
    }
    scope["optimizer"] = torch.optim.SGD(scope["network"].parameters(), lr=0.1)
    for name, block in documented().items():
        if name != "train.py":
            exec(block, scope)
    assert len(scope["model"].seen) == 26 and len(scope["classifier"].seen) == 26
    assert scope["attachment"].known == "exact" and scope["state"]
    assert (tmp_path / "epoch=0-step=3.ckpt").exists()
    scope.clear()
