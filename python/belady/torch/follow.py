"""Following a stock loader: what its iterators ask for and return, and what is told of it ahead.

Nothing stands between the loader and its user. The loader's `_get_iterator`, and of each iterator
`_next_index`, `_next_data` and `_reset`, which PyTorch's and torchdata's loaders call on
themselves, are shadowed on those objects alone; each calls what it shadows and returns what that
returned.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Deque, NamedTuple, Optional

from torch.utils.data import DataLoader

from belady import notice
from belady.ahead import ReadAhead
from belady.errors import BadRequest, NotYetSupported
from belady.torch.replay import EXACT, READ_AHEAD_ONLY, Replay, distributed_sampler, forecast
from belady.torch.sources import Locate, by_dataset, locate
from belady.world import here, on_a_node

_SHADOWED = ("_next_index", "_next_data", "_reset")
_RETRY_S = 1.0
_RETRY_TIMES = 20
# Batches among which a resumed epoch's first is looked for: samplers need not end.
_SKIP_MAX = 1 << 20


class _Spare(NamedTuple):
    """What was told of the epoch after one that was read to its end."""

    ahead: ReadAhead
    batches: Deque[list[int]]
    base: int  # the number of its first batch


class Attachment:
    """What `belady.attach` gives: how much of the loader's order is known, and the way back.

    `known` is `"exact"`, `"this epoch"` or `"read-ahead only"`, and `why` says why. `drifted`
    counts epochs in which the sampler gave something else than was foreseen: those were read ahead
    only.
    """

    def __init__(self, loader: Any, replayable: bool) -> None:
        stock = getattr(loader, "base_dataloader", loader)  # Accelerate's wrap another one
        if not isinstance(stock, DataLoader):
            raise BadRequest(
                f"attach follows a torch.utils.data.DataLoader and not a"
                f" {type(loader).__module__}.{type(loader).__name__}"
            )
        if not hasattr(stock, "_get_iterator") or not hasattr(stock, "_index_sampler"):
            raise NotYetSupported(f"a {type(stock).__name__} of this kind cannot be followed")
        self._where: Optional[Locate] = locate(stock.dataset)
        self.known, self.why = forecast(stock._index_sampler, replayable)
        self._bind(stock, replayable)
        stock._get_iterator = self._get_iterator  # type: ignore[method-assign]

    def _bind(self, stock: Any, replayable: bool) -> None:
        self._loader = weakref.ref(stock)
        self._replayable = replayable
        self.drifted = 0
        self._spare: Optional[_Spare] = None
        self._epoch_read: Optional[int] = None

    def detach(self) -> None:
        """Leave the loader alone from its next iterator on."""
        loader = self._loader()
        if loader is not None:
            vars(loader).pop("_get_iterator", None)
        self._forget()

    def __repr__(self) -> str:
        return f"belady.attach: {self.known} ({self.why})"

    def _get_iterator(self) -> Any:
        loader: Any = self._loader()
        follower = Follower(self, loader)
        iterator = type(loader)._get_iterator(loader)
        follower.follow(iterator)
        return iterator

    # -- for followers

    def replay(self, loader: Any) -> Optional[Replay]:
        return None if self.known == READ_AHEAD_ONLY else Replay(loader, self._replayable)

    def wanted(self, batch: list[int]) -> Any:
        if self._where is None:
            loader: Any = self._loader()
            self._where = locate(loader.dataset)
        return by_dataset(self._where, batch)

    def begun(self, loader: Any) -> None:
        """An epoch begins: the same one as before, where set_epoch was forgotten."""
        sampler = distributed_sampler(loader._index_sampler)
        if sampler is not None and sampler.epoch == self._epoch_read:
            notice.warn(
                f"DistributedSampler.set_epoch was not called since epoch {sampler.epoch} was read:"
                " the same order is read again"
            )

    def over(self, loader: Any, spare: Optional[_Spare]) -> None:
        """An epoch was read to its end."""
        sampler = distributed_sampler(loader._index_sampler)
        self._epoch_read = None if sampler is None else sampler.epoch
        self._forget()
        self._spare = spare
        if "_get_iterator" not in vars(loader):  # detached meanwhile
            self._forget()

    def take_spare(self) -> Optional[_Spare]:
        spare, self._spare = self._spare, None
        return spare

    def _forget(self) -> None:
        spare = self.take_spare()
        if spare is not None:
            spare.ahead.close()

    def __reduce__(self) -> Any:
        # With its loader, to another process: sessions are opened there.
        return _sent, (self._loader(), self._replayable, self.known, self.why)

    def __del__(self) -> None:
        if getattr(self, "_spare", None) is not None:
            self._forget()


def _sent(stock: Any, replayable: bool, known: str, why: str) -> Attachment:
    """An attachment that came with its loader, of which nothing may be asked yet."""
    attachment = Attachment.__new__(Attachment)
    attachment._where, attachment.known, attachment.why = None, known, why
    attachment._bind(stock, replayable)
    return attachment


class Follower:
    """One iterator of a loader, epoch after epoch if its workers persist.

    A batch is asked for, and later returned. Numbers count batches asked for since the follower's
    ReadAhead began.
    """

    def __init__(self, attachment: Attachment, loader: Any) -> None:
        self._attachment = attachment
        self._loader = weakref.ref(loader)
        self._iterator: Any = None
        workers = loader.num_workers
        self._primes = workers > 0  # it asks for batches before it can be shadowed
        self._lag = workers * (loader.prefetch_factor or 2) if _unordered(loader) else 0
        self._replay: Optional[Replay] = None
        self._ahead: Optional[ReadAhead] = None
        self._retry_at = 0.0
        self._reset_counts()
        if self._primes and not _stateful(loader._index_sampler):
            self._quietly(self._begin, loader, True)

    def _reset_counts(self) -> None:
        self._begun = False
        self._base = 0
        self._asked = 0
        self._returned = 0
        self._coming: Deque[list[int]] = deque()  # foreseen and not asked for yet
        self._told = 0  # of those, how many the daemon knows
        self._plan: Iterator[list[int]] = iter(())
        self._foreseen = False
        self._blind = False
        self._next_plan: Optional[Iterator[list[int]]] = None
        self._next: Deque[list[int]] = deque()  # of the next epoch, all of them told

    # -- shadows

    def follow(self, iterator: Any) -> None:
        """Shadow an iterator that was just made. It is not kept alive: its end ends its workers."""
        self._iterator = weakref.ref(iterator)
        for name in _SHADOWED:
            setattr(iterator, name, getattr(self, name))
        self._quietly(self._caught_up, iterator)

    def _next_index(self) -> Any:
        iterator = self._iterator()
        if not self._begun:
            self._quietly(self._begin, self._loader(), False)
        index = type(iterator)._next_index(iterator)
        self._quietly(self._ask, index)
        return index

    def _next_data(self) -> Any:
        iterator = self._iterator()
        try:
            data = type(iterator)._next_data(iterator)
        except StopIteration:
            self._quietly(self._over)
            raise
        except Exception:
            self._quietly(self._return)  # an error stands in place of its batch
            raise
        self._quietly(self._return)
        return data

    def _reset(self, loader: Any, *args: Any, **kwargs: Any) -> None:
        """Workers that persist begin another epoch."""
        iterator = self._iterator()
        self._quietly(self._over)
        self._reset_counts()
        if not _stateful(loader._index_sampler):
            self._quietly(self._begin, loader, False)
        # The first batches are asked for in here: they are counted when all of them are.
        for name in _SHADOWED:
            delattr(iterator, name)
        try:
            type(iterator)._reset(iterator, loader, *args, **kwargs)
        finally:
            self.follow(iterator)

    def _quietly(self, step: Callable[..., None], *args: Any) -> None:
        """Do a step of following; what goes wrong in it is not the training loop's business."""
        try:
            step(*args)
        except Exception as e:
            self._drift(f"{type(e).__name__}: {e}")

    # -- what happens

    def _begin(self, loader: Any, draws_base_seed: bool, live: Any = None) -> None:
        """Foresee the epoch that begins, or what a live iterator has left of it, and tell of it."""
        self._begun = True
        self._attachment.begun(loader)
        self._replay = replay = self._attachment.replay(loader)
        if replay is not None:
            self._plan = replay.epoch(draws_base_seed) if live is None else replay.rest(live)
            self._foreseen = True
        spare = self._attachment.take_spare()
        if spare is not None:
            self._adopt(spare)
        self._tell()

    def _adopt(self, spare: _Spare) -> None:
        """Go on with what was told at the end of the epoch before, if it is what comes now."""
        told = list(spare.batches)[self._asked :]
        first = list(islice(self._plan, len(told)))
        if first == told and not spare.ahead.broken:
            self._ahead, self._base = spare.ahead, spare.base
            self._coming, self._told = deque(first), len(first)
        else:
            spare.ahead.close()
            self._plan = chain(first, self._plan)

    def _caught_up(self, iterator: Any) -> None:
        """Take note of the batches that were asked for before the iterator was shadowed."""
        live = iterator._sampler_iter
        if not self._begun and hasattr(live, "load_state_dict"):
            self._asked = getattr(iterator, "_send_idx", 0)
            self._begin(self._loader(), False, live)
        elif self._primes:
            for _ in range(getattr(iterator, "_send_idx", 0)):
                self._pass()
            self._tell()

    def _ask(self, index: Any) -> None:
        """The loader asks for a batch."""
        if self._blind:
            return
        loader: Any = self._loader()
        batch = [int(i) for i in index] if loader.batch_sampler is not None else [int(index)]
        if not self._foreseen:
            self._pass()
            self._tell_now(batch)
            return
        if self._pass() != batch and not self._skip_to(batch):
            self._drift("another batch was asked for")
        self._tell()

    def _pass(self) -> Optional[list[int]]:
        """One batch is no longer to come."""
        self._asked += 1
        if self._told:
            self._told -= 1
            return self._coming.popleft()
        return self._coming.popleft() if self._coming else next(self._plan, None)

    def _skip_to(self, batch: list[int]) -> bool:
        """An epoch that is resumed begins later than at its beginning."""
        if self._asked > 1:
            return False
        self._close()
        rest = chain(self._coming, self._plan)
        self._coming, self._told = deque(), 0
        found = any(one == batch for one in islice(rest, _SKIP_MAX))
        self._plan = rest
        return found

    def _return(self) -> None:
        """The loader has returned a batch."""
        self._returned += 1
        if self._ahead is not None:
            self._ahead.given(self._base + self._returned - 1 - self._lag)
        self._tell()

    def _tell(self) -> None:
        """Tell the daemon what comes, as far as there is room."""
        while self._foreseen:
            ahead = self._open()
            if ahead is None or ahead.full:
                return
            if self._told == len(self._coming):
                batch = next(self._plan, None)
                if batch is None:
                    break
                self._coming.append(batch)
            ahead.tell(self._number(self._told), self._attachment.wanted(self._coming[self._told]))
            self._told += 1
        self._tell_next()

    def _tell_next(self) -> None:
        """All of this epoch is told: go on with the next, where that is known."""
        if self._attachment.known != EXACT or self._replay is None or not self._foreseen:
            return
        if self._next_plan is None:
            self._next_plan = self._replay.following()
        ahead = self._open()
        while ahead is not None and not ahead.full:
            batch = next(self._next_plan, None)
            if batch is None:
                return
            number = self._number(len(self._coming) + len(self._next))
            ahead.tell(number, self._attachment.wanted(batch))
            self._next.append(batch)

    def _tell_now(self, batch: list[int]) -> None:
        """Tell of a batch that a worker was just handed; without workers it is read already."""
        ahead = self._open() if self._primes else None
        if ahead is not None and not ahead.full:
            ahead.tell(self._number(-1), self._attachment.wanted(batch))

    def _number(self, at: int) -> int:
        return self._base + self._asked + at

    def _open(self) -> Optional[ReadAhead]:
        """What holds batches ahead; after a loss another one, at most each second."""
        ahead = self._ahead
        if ahead is not None and ahead.broken:
            # A daemon that is long in not answering must not be asked all the time.
            self._retry_at = max(self._retry_at, time.monotonic() + _RETRY_TIMES * ahead.broke_s)
            ahead = self._ahead = None
            self._told = 0
            self._next, self._next_plan = deque(), iter(())
        if ahead is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _RETRY_S
            ahead = self._ahead = ReadAhead(on_a_node(here(None, None).size))
        return ahead

    def _drift(self, why: str) -> None:
        """The order is not what was foreseen; if it cannot be understood either, look away."""
        self._close()
        self._blind = not self._foreseen
        self._foreseen, self._plan, self._coming, self._told = False, iter(()), deque(), 0
        self._attachment.drifted += 1
        notice.warn(
            f"the loader's order is not what its sampler's state foretold ({why}): the rest of"
            " this epoch is read ahead only as far as workers are handed it"
        )

    def _over(self) -> None:
        """The epoch ended, or workers that persist leave it."""
        loader = self._loader()
        if not self._begun or loader is None:
            self._close()
            return
        self._begun = False
        complete = self._foreseen and not self._coming and next(self._plan, None) is None
        ahead, self._ahead = self._ahead, None
        if complete and self._returned == self._asked:
            spare = None
            if ahead is not None and self._next and not ahead.broken:
                spare = _Spare(ahead, self._next, self._number(0))
            elif ahead is not None:
                ahead.close()
            self._attachment.over(loader, spare)
        elif ahead is not None:
            ahead.close()

    def _close(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        self._retry_at = 0.0

    def __del__(self) -> None:
        if getattr(self, "_ahead", None) is not None:
            self._over()


def _stateful(index_sampler: Any) -> bool:
    """Whether its iterators tell where they are, as torchdata's do."""
    module: str = type(index_sampler).__module__
    return module.startswith("torchdata.")


def _unordered(loader: Any) -> bool:
    return not getattr(loader, "in_order", True)
