"""belady.DataLoader: PyTorch's DataLoader, fed by the daemon.

A loader is a plain iterable, not a subclass of PyTorch's: frameworks rebuild subclasses from their
parts and would read around the daemon. Orders are known ahead wherever they can be, and then one
session serves epoch after epoch, so that the next epoch's first batches wait when this one ends.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, Literal, NoReturn, Optional, Union

from belady import state
from belady.dataset import Dataset
from belady.decode import Meter
from belady.epochs import Epoch, Ids, Order, Progress
from belady.errors import BadRequest, LoaderClosed
from belady.feed import Feed
from belady.iterators import LocalIterator, WorkerIterator
from belady.options import (
    ARENA,
    FIXED,
    PREFETCH_FACTOR,
    PROCESS,
    REPLACE,
    THREAD,
    checked_epoch,
    refuse,
    refuse_no_bools,
    whole,
    whole_if_given,
)
from belady.replacing import Replacing
from belady.shape import STACK, Shaper
from belady.threads import Options as ThreadOptions
from belady.threads import ThreadIterator, Threads
from belady.world import here

if TYPE_CHECKING:
    from belady.torch.pinning import Pinning
    from belady.torch.workers import Pool

_AnyIterator = Union[LocalIterator, ThreadIterator, WorkerIterator]


class EpochSampler:
    """`loader.sampler` where the user gave none: the samples of this rank, and what frameworks call
    `set_epoch` on."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        loader = self._loader()
        return 0 if loader is None else loader.order.samples()

    def __iter__(self) -> Iterator[int]:
        """All that this rank reads in the epoch that is being read or comes next. As in PyTorch a
        shuffled order without a seed is drawn anew."""
        loader = self._loader()
        return iter(()) if loader is None else loader.order.ids(loader._position().number)


class DataLoader:
    """PyTorch's DataLoader over a `belady.Dataset`, its name, or a path or URL.

    Arguments have PyTorch's names, order, defaults and meaning. Those after the star are Belady's.

    `seed=s` shuffles as `DistributedSampler(seed=s)` does, in a world of one too. Without a seed a
    world of one shuffles as the stock loader does, drawing from PyTorch's global generator where
    the stock loader draws; a larger world shuffles as `DistributedSampler(seed=0)`. The epoch
    advances with each iterator until `set_epoch` is first called. `sampler`, `batch_sampler` and
    `generator` work as in PyTorch; a sampler is read to its end when its epoch begins, or, without
    a `len()`, in windows: it need not end.

    `rank` and `world_size` come from these arguments, torch.distributed, torchrun or srun.
    `drop_last` is about a rank's last batch, `sampler_drop_last` is DistributedSampler's own.
    `lookahead` batches wait ahead of the loop; beyond `lookahead + 2` held batches further ones are
    private copies. `copy=True` makes every batch one.

    `num_workers=k` transforms and collates in k processes, PyTorch's own, seeded as PyTorch seeds
    them, or with `worker_type="thread"` in k threads, which share this process's generators. With
    0, the default, both happen in the loop's process; reading never does.

    `on_error="replace"` puts the next sample that can be used in place of one that cannot be read
    or whose transform raises. `pin_memory="arena"` registers the daemon's memory with CUDA. `mesh`
    is a DeviceMesh whose data-parallel dimensions say which rank this is.

    `collate_fn=None` is PyTorch's `default_collate` over what the dataset's `transform` returned;
    `collate_fn=list` gives lists of it, of `belady.Sample` without a transform;
    `collate_fn="stack"` gives samples of equal length, untransformed, as one tensor of bytes and
    one of labels, without a copy in this process.
    """

    _made = False

    def __init__(
        self,
        dataset: Union[Dataset, str, os.PathLike[str]],
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[Ids]] = None,
        num_workers: int = 0,
        collate_fn: Union[Callable[[list[Any]], Any], Literal["stack"], None] = None,
        pin_memory: Union[bool, Literal["arena"]] = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        sampler_drop_last: bool = False,
        copy: bool = False,
        lookahead: int = 4,
        on_error: Literal["raise", "replace"] = "raise",
        worker_type: Literal["process", "thread"] = "process",
        mesh: Any = None,
    ) -> None:
        batch_size = whole_if_given("batch_size", batch_size)
        prefetch_factor = whole_if_given("prefetch_factor", prefetch_factor)
        seed = whole_if_given("seed", seed)
        rank = whole_if_given("rank", rank)
        world_size = whole_if_given("world_size", world_size)
        num_workers = whole("num_workers", num_workers)
        lookahead = whole("lookahead", lookahead)
        refuse_no_bools(
            shuffle=shuffle is not None and shuffle, drop_last=drop_last, in_order=in_order,
            persistent_workers=persistent_workers, sampler_drop_last=sampler_drop_last, copy=copy,
        )
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.timeout = timeout
        self.generator = generator
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self.worker_type = worker_type
        self.on_error = on_error
        self.batch_sampler = batch_sampler
        self.shuffle = bool(shuffle)
        self.seed = seed
        self.lookahead = lookahead
        self.world = here(rank, world_size, mesh)
        self._world_found = rank is None and world_size is None and mesh is None
        self.order = Order(
            self.dataset, self.world, batch_size, self.shuffle, seed, drop_last, sampler_drop_last,
            sampler, batch_sampler, generator,
        )
        refuse(self, shuffle)
        self.sampler: Any = sampler if sampler is not None else EpochSampler(self)
        self._replacing = Replacing(self.dataset) if on_error == REPLACE else None
        # Beside what waits ahead of the loop threads hold what they work on.
        held = lookahead if worker_type == PROCESS else lookahead + self._in_flight
        self._feed = Feed(
            self.order, held, 0.0 if num_workers else float(timeout), copy, collate_fn == STACK,
            self._replacing,
        )
        self._pool: Union[Pool, Threads, None] = None
        self._pinning: Optional[Pinning] = None
        self._next = Epoch(0)
        self._follows = False  # set_epoch was called: epochs no longer advance by themselves
        self._progress: Optional[Progress] = None
        self._iterators: weakref.WeakSet[_AnyIterator] = weakref.WeakSet()
        self._decoding = Meter()
        self._closed = False
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        """As PyTorch's: what the order and the sessions were made from stays as it is."""
        if self._made and name in FIXED:
            raise ValueError(
                f"{name} cannot be set after the loader was made: make a new one, and give it this"
                " one's state_dict() if it was read before"
            )
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a belady.DataLoader cannot be copied or pickled, since its sessions with the daemon"
            " are this process's: make another with the same arguments, and give it this one's"
            " state_dict(); a belady.Dataset can be pickled"
        )

    # -- iterating

    def __iter__(self) -> Iterator[Any]:
        if self._closed:
            raise LoaderClosed()
        self._refuse_another_world()
        epoch = self._next
        unread = self._unread()
        if unread is not None and (not self._follows or unread.number == epoch.number):
            epoch = unread
        iterator = self._iterator(epoch)
        # Not before: if that is interrupted, or no daemon serves, this epoch is still to be read.
        self._next = Epoch(epoch.number if self._follows else epoch.number + 1)
        self._progress = iterator.progress
        self._iterators.add(iterator)
        return iterator

    def _unread(self) -> Optional[Epoch]:
        """The last iterator's epoch, if that was dropped before it returned anything: frameworks
        make one to see whether they can, and no epoch is read by that."""
        now = self._progress
        if now is None or not now.untouched or any(i.progress is now for i in self._iterators):
            return None
        return now.asked

    def _refuse_another_world(self) -> None:
        """A loader deals for the world it was made in: in another one ranks would read the same
        samples, or leave some out."""
        now = here(None, None) if self._world_found else self.world
        if now != self.world:
            raise BadRequest(
                f"the loader was made by rank {self.world.rank} of {self.world.size} and is read by"
                f" rank {now.rank} of {now.size}: make a new one, and give it this one's"
                " state_dict() if it was read before"
            )

    def __len__(self) -> int:
        """Batches of a whole epoch, on this rank."""
        return self.order.batches()

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iterators read, as DistributedSampler's; a position that was
        loaded for this epoch stays."""
        epoch = checked_epoch(epoch)
        followed, self._follows = self._follows, True
        if epoch != self._next.number:
            self._next = Epoch(epoch)
        now = self._progress
        if now is not None and now.untouched and now.epoch.number != epoch and not followed:
            # Nobody chose that one's epoch: Lightning says which only after it has the iterator.
            for iterator in self._iterators:
                if iterator.progress is now:
                    iterator.move(epoch)
        if now is not None and (now.exhausted or now.epoch.number != epoch):
            self._progress = None
        set_epoch = getattr(self.order.sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    # -- position

    def _position(self) -> Epoch:
        """Where the loop is: in an epoch, or before the next one."""
        now = self._progress
        if now is not None and not now.exhausted:
            return now.position()
        if now is not None and self._follows:
            return Epoch(now.epoch.number + 1)
        return self._next

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was returned. With a seed, or unshuffled, it is
        small, the same on every rank, and good for any world size and batch size; without a seed
        for a world of one.

        With `generator` it holds that one's state, with which a resumed epoch is shuffled again.
        With `sampler` it is good for any batch size, with `batch_sampler` for the same batches, and
        inside an epoch for the same world; what they give must be the same again.
        """
        # Persistent workers are seeded once, and so no base_seed is drawn before their next epoch.
        begun = self._pool is not None or (
            self._progress is not None and not self._progress.exhausted
        )
        return state.of(self.order, self._position(), begun)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a position, or raise StateMismatch. Iterators that are alive stay where they
        are."""
        self._next = state.read(self.order, state_dict)
        self._progress = None

    # -- the rest

    def stats(self) -> dict[str, float]:
        """Counters since the loader was made, flat, for a logger."""
        s = self._feed.stats
        out: dict[str, float] = {
            "belady/batches": s.batches,
            "belady/samples": s.samples,
            "belady/bytes": s.bytes,
            "belady/reconnects": s.reconnects,
            "belady/private_copies": s.private_copies,
            "belady/replaced": s.replaced,
            "belady/direct_batches": s.direct_batches,
            "belady/stall_seconds": sum(s.stall_s.values()),
            "belady/decode_seconds": s.decode_s + self._decoding.seconds(self.dataset.content),
        }
        for cause, seconds in s.stall_s.items():
            out[f"belady/stall_{cause}_seconds"] = seconds
        return out

    def close(self) -> None:
        """End all iterators. Batches in hand stay valid."""
        self._closed = True
        for iterator in list(self._iterators):
            iterator.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._feed.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _in_flight(self) -> int:
        """Batches that workers may have begun before the loop takes the first of them."""
        return self.num_workers * (self.prefetch_factor or PREFETCH_FACTOR)

    def _iterator(self, epoch: Epoch) -> _AnyIterator:
        if self.pin_memory and self._pinning is None:
            from belady.torch.pinning import pinning

            self._pinning = pinning(self.pin_memory == ARENA, self.pin_memory_device)
            if self._pinning is None:
                self.pin_memory = False
            else:
                self._feed.arena = self._pinning.arena
        finish = _same if self._pinning is None else self._pinning.move
        batched = self.batch_size is not None or self.batch_sampler is not None
        shape = Shaper(self.dataset, self.collate_fn, batched, self._replacing)
        if not self.num_workers:
            return LocalIterator(self._feed, epoch, shape, finish)
        persist = self.persistent_workers
        pool = self._pool or self._workers(shape)
        self._pool = pool if persist else None
        if isinstance(pool, Threads):
            return ThreadIterator(self._feed, epoch, shape, finish, pool, persist)
        return WorkerIterator(self._feed, epoch, pool)

    def _workers(self, shape: Shaper) -> Union[Pool, Threads]:
        if self.worker_type == THREAD:
            return Threads(ThreadOptions(
                self.num_workers, self._in_flight, self.in_order, float(self.timeout),
                self.worker_init_fn,
            ))
        from belady.torch.workers import Options, Pool

        options = Options(
            self.num_workers, bool(self.pin_memory), self.pin_memory_device, float(self.timeout),
            self.worker_init_fn, self.multiprocessing_context, self.generator,
            self.prefetch_factor, self.persistent_workers, self.in_order,
        )
        return Pool(self._feed.reading_of_workers(self.num_workers), shape, options)


def _same(out: Any) -> Any:
    return out
