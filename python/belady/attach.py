"""`belady.attach`: keep PyTorch's DataLoader and have its samples read ahead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from belady.options import need_torch

if TYPE_CHECKING:
    from belady.torch.follow import Attachment


def attach(loader: Any, *, replayable: bool = False) -> Attachment:
    """Read ahead for a stock loader over a `belady.Dataset`, also one inside Subset (and so
    random_split) or ConcatDataset.

    The loader stays the user's: what it yields, when, and the state of every generator are the same
    as without. Its sampler is looked at when an epoch begins, and the daemon is told what comes, so
    that the workers' reads find it in memory. How much is known depends on the sampler, is printed
    once and stands in the result's `known`:

    - `"exact"`: this epoch and the next. Sequential and distributed samplers, Accelerate's seeded
      ones, and those with a generator of their own.
    - `"this epoch"`: from its beginning on. Samplers that draw from PyTorch's global generator.
    - `"read-ahead only"`: the batches that workers were handed. Samplers of unknown classes, unless
      `replayable=True` promises that iterating a copy of one has no effect outside of it.

    An IterableDataset raises BadRequest: nothing is known of what it reads.
    """
    need_torch("attach, which follows PyTorch's loader,", "read with belady.DataLoader")
    from belady.torch.follow import Attachment

    attachment = Attachment(loader, replayable)
    print(f"belady: attached to a {type(loader).__name__}, {attachment.known}: {attachment.why}",
          file=sys.stderr)
    return attachment
