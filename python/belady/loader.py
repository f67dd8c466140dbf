"""belady.DataLoader: PyTorch's DataLoader, fed by the daemon.

A loader is a plain iterable, not a subclass of PyTorch's: frameworks rebuild subclasses from their
parts and would read around the daemon. Orders are known ahead wherever they can be, and then one
session serves epoch after epoch, so that the next epoch's first batches wait when this one ends.
"""

from __future__ import annotations

import os
import random
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Callable, Literal, NamedTuple, Optional, Union

from belady import wire
from belady.dataset import Dataset
from belady.decode import Meter
from belady.errors import (
    BadRequest,
    LoaderClosed,
    NotYetSupported,
    OrderDrift,
    StateMismatch,
)
from belady.reading import Reading
from belady.session import Batch, Session, Stats
from belady.shape import STACK, Shaper
from belady.world import Dealing, World, here

STATE_VERSION = 1
# The epoch after the last that an order can have. Training loops do not say how many they want.
_EPOCHS = 1 << 24
# Orders up to this length are computed here too, and every batch is compared: 0.1 s an epoch.
_CHECKED_MAX = 1 << 22
_Ids = Sequence[int]


class _Epoch(NamedTuple):
    """One epoch as an iterator reads it: where it begins, and its seed if that was drawn."""

    number: int
    position: int
    seed: Optional[int]


class _Progress:
    """How far an iterator has come. The loader keeps it and not the iterator, whose end, when a
    loop is left early, is what gives its leases back."""

    __slots__ = ("epoch", "given", "exhausted", "_dealing")

    def __init__(self, epoch: _Epoch, dealing: Optional[Dealing]) -> None:
        self.epoch = epoch
        self.given = 0
        self.exhausted = False
        self._dealing = dealing

    def position(self) -> _Epoch:
        """After the last batch that was returned. Orders that a sampler made count in batches."""
        e = self.epoch
        if self._dealing is None:
            return e._replace(position=e.position + self.given)
        return e._replace(position=self._dealing.position(e.position, self.given))


class EpochSampler:
    """`loader.sampler`: what frameworks call `set_epoch` on."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)


class DataLoader:
    """PyTorch's DataLoader over a `belady.Dataset`, its name, or a path or URL.

    Arguments have PyTorch's names, order, defaults and meaning. Those after the star are Belady's.

    `seed=s` shuffles as `DistributedSampler(seed=s)` does, in a world of one too. Without a seed a
    world of one shuffles as the stock loader does, drawing from PyTorch's global generator where
    the stock loader draws; a larger world shuffles as `DistributedSampler(seed=0)`. The epoch
    advances with each iterator until `set_epoch` is first called. `sampler`, `batch_sampler` and
    `generator` work as in PyTorch; a sampler is read to its end when its epoch begins.

    `rank` and `world_size` come from these arguments, torch.distributed, torchrun or srun.
    `drop_last` is about a rank's last batch, `sampler_drop_last` is DistributedSampler's own.
    `lookahead` batches wait ahead of the loop; beyond `lookahead + 2` held batches further ones are
    private copies. `copy=True` makes every batch one.

    `num_workers=k` transforms and collates in k processes, PyTorch's own, seeded as PyTorch seeds
    them. With 0, the default, both happen in the loop's process; reading never does.

    `collate_fn=None` is PyTorch's `default_collate` over what the dataset's `transform` returned;
    `collate_fn=list` gives lists of it, of `belady.Sample` without a transform;
    `collate_fn="stack"` gives samples of equal length, untransformed, as one tensor of bytes and
    one of labels, without a copy in this process.
    """

    def __init__(
        self,
        dataset: Union[Dataset, str, os.PathLike[str]],
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[_Ids]] = None,
        num_workers: int = 0,
        collate_fn: Union[Callable[[list[Any]], Any], Literal["stack"], None] = None,
        pin_memory: bool = False,
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
        on_error: str = "raise",
    ) -> None:
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
        self.batch_sampler = batch_sampler
        self.shuffle = bool(shuffle)
        self.seed = seed
        self.lookahead = lookahead
        self._copy = copy
        self._sampler = sampler
        self._sampler_drop_last = sampler_drop_last
        self.world = here(rank, world_size)
        _refuse(self, shuffle, pin_memory_device, in_order, on_error)
        self.sampler: Any = sampler if sampler is not None else EpochSampler(self)
        self._kind = _kind(self, self.world)
        self._next = _Epoch(0, 0, None)
        self._follows = False  # set_epoch was called: epochs no longer advance by themselves
        self._progress: Optional[_Progress] = None
        self._iterators: weakref.WeakSet[Union[_Iterator, _WorkerIterator]] = weakref.WeakSet()
        self._parked: Optional[Session] = None
        self._stats = Stats()
        self._decoding = Meter()
        self._closed = False

    # -- iterating

    def __iter__(self) -> Iterator[Any]:
        if self._closed:
            raise LoaderClosed("the loader was closed: make a new one")
        epoch = self._next
        if not self._follows:
            self._next = _Epoch(epoch.number + 1, 0, None)
        else:
            self._next = _Epoch(epoch.number, 0, None)
        iterator = (_WorkerIterator if self.num_workers else _Iterator)(self, epoch)
        self._progress = iterator.progress
        self._iterators.add(iterator)
        return iterator

    def __len__(self) -> int:
        """Batches of a whole epoch, on this rank."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self._sampler is not None:
            n = len(self._sampler)  # type: ignore[arg-type]
            size = self.batch_size or 1
            return n // size if self.drop_last else -(-n // size)
        return self._dealing().batches(0)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iterators read, as DistributedSampler's; a position that was
        loaded for this epoch stays."""
        self._follows = True
        if epoch != self._next.number:
            self._next = _Epoch(epoch, 0, None)
        now = self._progress
        if now is not None and (now.exhausted or now.epoch.number != epoch):
            self._progress = None
        set_epoch = getattr(self._sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    # -- position

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was returned: small, the same on every rank, and
        good for any world size and batch size."""
        now, epoch = self._progress, self._next
        if now is not None and not now.exhausted:
            epoch = now.position()
        elif now is not None and self._follows:
            epoch = _Epoch(now.epoch.number + 1, 0, None)
        return {
            "version": STATE_VERSION,
            "epoch": epoch.number,
            "position": epoch.position,
            "samples": len(self.dataset),
            "content": self.dataset.manifest.content,
            "order": self._kind,
            "seed": epoch.seed if self._kind == "torch-random" else self.seed,
            "shuffle": self.shuffle,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position. Iterators that are alive stay where they are."""
        if state.get("version") != STATE_VERSION:
            raise StateMismatch(
                f"the state's version is {state.get('version')!r}, and {STATE_VERSION} is read"
            )
        mine = self.state_dict()
        for key, what in (
            ("content", "dataset"), ("samples", "dataset"), ("order", "kind of order"),
            ("shuffle", "kind of order"), ("seed", "seed"),
        ):
            if key == "seed" and self._kind == "torch-random":
                continue  # drawn, and so a part of the position
            if state.get(key) != mine[key]:
                raise StateMismatch(
                    f"the state is of another {what}: its {key} is {state.get(key)!r} and this"
                    f" loader's {mine[key]!r}"
                )
        seed = state["seed"] if self._kind == "torch-random" else None
        self._next = _Epoch(int(state["epoch"]), int(state["position"]), seed)
        self._progress = None

    # -- the rest

    def stats(self) -> dict[str, float]:
        """Counters since the loader was made, flat, for a logger."""
        s = self._stats
        out: dict[str, float] = {
            "belady/batches": s.batches,
            "belady/samples": s.samples,
            "belady/bytes": s.bytes,
            "belady/reconnects": s.reconnects,
            "belady/private_copies": s.private_copies,
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
        if self._parked is not None:
            self._parked.close()
            self._parked = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dealing(self) -> Dealing:
        return Dealing(len(self.dataset), self.world.size, self.batch_size or 1, self.drop_last,
                       self._sampler_drop_last)

    def _order(self, seed: Optional[int]) -> dict[str, Any]:
        """The order's spec (docs/format/order.md)."""
        spec: dict[str, Any] = {"kind": self._kind, "samples": len(self.dataset)}
        if self.world.size > 1:
            spec["world"] = self.world.size
        if self._kind == "explicit":
            return spec
        spec["batch"] = self.batch_size or 1
        if self.drop_last:
            spec["drop_last"] = True
        if self._sampler_drop_last:
            spec["sampler_drop_last"] = True
        if self._kind != "sequential":
            spec["seed"] = seed if seed is not None else self.seed or 0
            if "torch" in sys.modules:
                from belady.torch import version

                spec["torch"] = version()
        return spec

    def _open(self, epoch: _Epoch, batches: Optional[list[_Ids]], skip: int) -> Session:
        """A session that is due at an epoch's beginning or position; the parked one if it is."""
        single = self._kind in ("explicit", "torch-random")
        start = wire.Start(0 if single else epoch.number, 0 if batches else epoch.position, skip)
        parked, self._parked = self._parked, None
        if parked is not None:
            if not single and parked.ours and parked.due == start:
                return parked
            parked.close()
        return self._reading(epoch, 1 if single else _EPOCHS).open(
            start, self._stats, batches or ()
        )

    def _reading(self, epoch: _Epoch, epochs: int) -> Reading:
        return Reading(
            self.dataset.name, self._order(epoch.seed), epochs, self.world.rank, self.world.size,
            self.lookahead, float(self.timeout), self._copy, packed=self.collate_fn == STACK,
            place=self.dataset.place,
        )

    def _park(self, session: Session) -> None:
        if self._closed or self._parked is not None or self._kind in ("explicit", "torch-random"):
            session.close()
        else:
            self._parked = session

    def _shaper(self) -> Shaper:
        return Shaper(self.dataset, self.collate_fn,
                      self.batch_size is not None or self.batch_sampler is not None)

    def _finished(self, out: Any) -> Any:
        """A batch as the user gets it."""
        if self.pin_memory and self.num_workers == 0:
            from belady.torch import pin

            move = pin()
            if move is None:
                self.pin_memory = False
            else:
                return move(out)
        return out


class _Iterator:
    """One epoch. Dropping it ends its session; views in hand stay."""

    def __init__(self, loader: DataLoader, epoch: _Epoch) -> None:
        self._loader = loader
        self._dealing = loader._dealing()
        self.progress = _Progress(epoch, None if loader._kind == "explicit" else self._dealing)
        self._session: Optional[Session] = None
        self._rest: Optional[Iterator[Any]] = None
        self._shape = loader._shaper()
        self._taken = 0
        self._opened = False
        self._closed = False
        self._over = False
        self._expected: Any = None
        if loader.batch_sampler is not None:
            self._rest = iter(loader.batch_sampler)
        # A resumed epoch drew before its checkpoint, and the generators' states come from there.
        if epoch.position == 0 and "torch" in sys.modules:
            from belady.torch import draw_seed

            draw_seed(loader.generator)  # base_seed, which the stock loader draws for every epoch
        if loader._kind in ("torch-distributed", "sequential"):
            self._begin()

    def _begin(self) -> None:
        """Open the session; what the stock loader draws at the first `next` is drawn here."""
        self._opened = True
        loader, epoch = self._loader, self.progress.epoch
        if loader._kind == "explicit":
            self._rest, batches = _sampled(loader, self._rest)
            if epoch.position < len(batches):
                self._session = loader._open(epoch, batches, epoch.position)
            else:
                self._over = True
            return
        if loader._kind == "torch-random" and epoch.seed is None:
            epoch = self.progress.epoch = epoch._replace(seed=_draw_sampler_seed())
        if self._dealing.batches(epoch.position) == 0:
            self._over = True
            return
        self._session = loader._open(epoch, None, 0)
        if "torch" in sys.modules and len(loader.dataset) <= _CHECKED_MAX:
            self._expected = _expected(loader, epoch)

    def _check(self, batch: Batch) -> None:
        """Compare a batch with the order computed here, not with what the daemon was told."""
        if self._expected is None:
            return
        at = self._taken * self._dealing.batch
        expected: list[int] = self._expected[at : at + len(batch.ids)].tolist()
        if expected != list(batch.ids):
            self._end()
            raise OrderDrift(
                f"batch {batch.number} of epoch {batch.epoch} holds other samples than PyTorch's"
                " sampler gives: report it, with `belady version` and torch.__version__"
            )

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        if self._closed:
            raise LoaderClosed("the loader was closed: make a new one")
        if not self._opened:
            self._begin()
        batch = None
        if not self._over and self._session is not None:
            batch = self._session.next()
        if batch is None:
            self._finish()
            raise StopIteration
        self._check(batch)
        self._taken += 1
        if batch.last:
            self._over = True
            session, self._session = self._session, None
            if session is not None:
                self._loader._park(session)
        out = self._loader._finished(self._shape(batch))
        self.progress.given = self._taken
        return out

    def _finish(self) -> None:
        if not self.progress.exhausted:
            self.progress.exhausted = True
            if self._rest is not None:
                # RandomSampler draws once more from its generator before it ends.
                next(self._rest, None)
        self._end()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def close(self) -> None:
        self._closed = True
        self._end()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None and not sys.is_finalizing():
            self._end()


class _WorkerIterator:
    """One epoch through worker processes, which end with it."""

    def __init__(self, loader: DataLoader, epoch: _Epoch) -> None:
        from belady.torch import workers

        self._loader = loader
        self._dealing = loader._dealing()
        self.progress = _Progress(epoch, None if loader._kind == "explicit" else self._dealing)
        options = workers.Options(
            loader.num_workers, loader.pin_memory, loader.timeout, loader.worker_init_fn,
            loader.multiprocessing_context, loader.generator, loader.prefetch_factor,
        )
        order = {"kind": "explicit", "samples": len(loader.dataset)}
        reading = Reading(
            loader.dataset.name, order, 1, 0, loader.world.size * loader.num_workers,
            loader.lookahead, float(loader.timeout), loader._copy, place=loader.dataset.place,
        )
        self._results: Optional[Iterator[tuple[Any, dict[str, Any]]]] = workers.start(
            self._batches, lambda todo: workers.Batches(reading, loader._shaper(), todo), options,
            resumed=epoch.position > 0,
        )

    def _batches(self) -> Sequence[_Ids]:
        """All that is left of this rank's epoch. What is drawn for it is drawn here."""
        from belady.torch import draw_seed

        loader, epoch = self._loader, self.progress.epoch
        kind = loader._kind
        if kind == "explicit":
            source = None if loader.batch_sampler is None else iter(loader.batch_sampler)
            rest, batches = _sampled(loader, source)
            next(rest, None)
            return batches[epoch.position :]
        if kind == "torch-random" and epoch.seed is None:
            epoch = self.progress.epoch = epoch._replace(seed=draw_seed())
        ids: list[int] = _expected(loader, epoch).tolist()
        size = self._dealing.batch
        end = size * self._dealing.batches(epoch.position)
        return [ids[at : at + size] for at in range(0, end, size)]

    def __iter__(self) -> _WorkerIterator:
        return self

    def __next__(self) -> Any:
        if self._results is None:
            raise LoaderClosed("the loader was closed: make a new one")
        try:
            out, stats = next(self._results)
        except StopIteration:
            self.progress.exhausted = True
            raise
        self._loader._stats.add(stats)
        self.progress.given += 1
        return out

    def close(self) -> None:
        results, self._results = self._results, None
        if results is not None:
            from belady.torch import workers

            workers.stop(results)


def _expected(loader: DataLoader, epoch: _Epoch) -> Any:
    """The ids that PyTorch's sampler gives this rank from a position on, as a tensor."""
    from belady.torch import dealt, entries

    seed = epoch.seed if loader._kind == "torch-random" else (loader.seed or 0) + epoch.number
    p = entries(loader._kind, len(loader.dataset), seed or 0)
    return dealt(p, epoch.position, loader.world.rank, loader._dealing())


def _sampled(
    loader: DataLoader, batches: Optional[Iterator[_Ids]]
) -> tuple[Iterator[Any], list[_Ids]]:
    """A sampler's epoch as batches, and the iterator that is to be run to its end afterwards."""
    if batches is not None:
        return batches, [[int(i) for i in batch] for batch in batches]
    if loader._sampler is not None:
        source: Iterable[int] = loader._sampler
    else:
        from belady.torch import permutation

        source = permutation(len(loader.dataset), loader.generator)
    rest = iter(source)
    length = len(source) if hasattr(source, "__len__") else None  # type: ignore[arg-type]
    ids = [int(i) for i in islice(rest, length)]
    size = loader.batch_size or 1
    end = len(ids) - len(ids) % size if loader.drop_last else len(ids)
    return rest, [ids[at : at + size] for at in range(0, end, size)]


def _refuse(
    loader: DataLoader, shuffle: Optional[bool], device: str, in_order: bool, on_error: str
) -> None:
    """What PyTorch refuses, in its words' sense, and what is not there yet."""
    sampled = loader._sampler is not None or loader.batch_sampler is not None
    if loader._sampler is not None and shuffle:
        raise ValueError("sampler and shuffle exclude each other")
    if loader.batch_sampler is not None and (
        loader.batch_size != 1 or shuffle or loader._sampler is not None or loader.drop_last
    ):
        raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if loader.batch_size is None and loader.drop_last:
        raise ValueError("batch_size=None excludes drop_last")
    if loader.batch_size is not None and loader.batch_size < 1:
        raise ValueError(f"batch_size is {loader.batch_size}, but must be at least 1")
    if loader.timeout < 0:
        raise ValueError("timeout must not be negative")
    if not 1 <= loader.lookahead <= wire.CREDIT_MAX:
        raise ValueError(f"lookahead is {loader.lookahead}, but must be 1 to {wire.CREDIT_MAX}")
    if loader.seed is not None and (sampled or loader.generator is not None):
        raise ValueError("seed excludes sampler, batch_sampler and generator")
    if loader.generator is not None and loader.world.size > 1 and not sampled:
        raise BadRequest("generator shuffles one rank only: give seed= in a world of several")
    if loader.num_workers == 0 and (loader.prefetch_factor or loader.persistent_workers):
        raise ValueError("prefetch_factor and persistent_workers need num_workers > 0")
    if loader.num_workers < 0:
        raise ValueError("num_workers must not be negative")
    if loader.persistent_workers:
        raise NotYetSupported("persistent_workers is not there yet: leave it False")
    if device or not in_order:
        raise NotYetSupported("pin_memory_device and in_order=False are not there yet")
    if on_error != "raise":
        raise NotYetSupported(f"on_error={on_error!r} is not there yet: only 'raise' is")
    if loader.collate_fn == STACK and (
        not loader.dataset.raw or loader.num_workers or loader.batch_size is None
    ):
        raise ValueError('collate_fn="stack" excludes transform, num_workers and batch_size=None')
    if loader.collate_fn is None and loader.dataset.raw:
        raise BadRequest(
            "default_collate cannot put undecoded samples together: give the dataset a transform,"
            " or the loader collate_fn=list"
        )


def _kind(loader: DataLoader, world: World) -> str:
    if loader._sampler is not None or loader.batch_sampler is not None:
        return "explicit"
    if not loader.shuffle:
        return "sequential"
    if loader.generator is not None:
        return "explicit"
    if loader.seed is None and world.size == 1:
        return "torch-random"
    return "torch-distributed"


def _draw_sampler_seed() -> int:
    """RandomSampler's seed, from the generator it draws it from."""
    try:
        from belady.torch import draw_seed
    except ImportError:
        return random.getrandbits(63)
    return draw_seed()
