"""A `belady.DataLoader` in Hugging Face Accelerate's hands; it imports the `accelerate` package.

    accelerator = Accelerator(gradient_accumulation_steps=4)
    loader = belady.accelerate.prepare(accelerator, belady.DataLoader(dataset, 32, shuffle=True))

`Accelerator.prepare` wraps PyTorch's loaders only, and gives others back as they are. PyTorch's own
DataLoader over a `belady.Dataset` it wraps as ever: `belady.attach` what it returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from accelerate.data_loader import DataLoaderStateMixin
from accelerate.state import GradientState
from accelerate.utils import send_to_device

from belady.errors import BadRequest
from belady.loader import DataLoader
from belady.world import World

_END = object()


def prepare(accelerator: Any, loader: DataLoader) -> Prepared:
    """A loader whose batches are on the accelerator's device and whose end it sees coming.

    Make the loader after the Accelerator, which starts torch.distributed: rank and world size must
    be the Accelerator's, or BadRequest is raised.
    """
    world = World(accelerator.process_index, accelerator.num_processes)
    if loader.world != world:
        raise BadRequest(
            f"the loader is rank {loader.world.rank} of {loader.world.size}, but Accelerate's"
            f" process {world.rank} of {world.size}: make the loader after the Accelerator, or give"
            " it rank= and world_size="
        )
    return Prepared(loader, accelerator.device if accelerator.device_placement else None)


class Prepared(DataLoaderStateMixin):  # type: ignore[misc]
    """What `prepare` gives. Whatever is not here is the loader's, which is `loader`.

    Accelerate must know at a batch whether it is the epoch's last: to end an accumulation of
    gradients, and to cut padding off gathered metrics. So one batch more is read than the loop was
    given, and `state_dict` leaves that one out.
    """

    def __init__(self, loader: DataLoader, device: Any) -> None:
        self.loader = loader
        self.device = device
        self.gradient_state = GradientState()
        # The position after the batch that the loop has, while the loader's is one further.
        self._state: Optional[dict[str, Any]] = None

    def __iter__(self) -> Iterator[Any]:
        self._state = None
        self.reset()
        self.remainder = self._remainder()
        self.gradient_state._add_dataloader(self)
        try:
            batches = iter(self.loader)
            batch = next(batches, _END)
            while batch is not _END:
                self._state = self.loader.state_dict()
                following = next(batches, _END)
                self.end_of_dataloader = following is _END
                yield batch if self.device is None else send_to_device(batch, self.device)
                batch = following
            self._state = None
        finally:
            self.end()

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet, while an unpickler makes this object
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def total_batch_size(self) -> int:
        """Samples of a step, over all processes."""
        return (self.loader.batch_size or 1) * self.loader.world.size

    @property
    def total_dataset_length(self) -> int:
        return len(self.loader.dataset)

    def set_epoch(self, epoch: int) -> None:
        self._state = None
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The loader's, after the last batch that the loop was given."""
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = None
        self.loader.load_state_dict(state)

    def _remainder(self) -> int:
        """How many samples of an epoch's last step are no padding, where padding comes last.

        Accelerate gathers the ranks' batches one after another and keeps so many of the first. A
        padded entry is the last of its rank's: with several of them no cut at one place is right,
        and -1 leaves all of them in.
        """
        if self.loader.order.kind == "explicit" or self.loader.drop_last:
            return -1
        dealing = self.loader.order.dealing()
        n, world = dealing.samples, dealing.world
        left = n % world
        if dealing.sampler_drop_last:
            n -= left
        elif left not in (0, world - 1):
            return -1
        return n % self.total_batch_size
