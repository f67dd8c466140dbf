"""What a loader cannot be asked for: PyTorch's own refusals, and what is not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from belady import wire
from belady.errors import BadRequest, NotYetSupported
from belady.shape import STACK

if TYPE_CHECKING:
    from belady.loader import DataLoader


def refuse(
    loader: DataLoader, shuffle: Optional[bool], device: str, in_order: bool, on_error: str
) -> None:
    """Raise for the first pair of arguments that exclude each other, or value out of range."""
    order = loader.order
    sampled = order.sampler is not None or loader.batch_sampler is not None
    if order.sampler is not None and shuffle:
        raise ValueError("sampler and shuffle exclude each other")
    if loader.batch_sampler is not None and (
        loader.batch_size != 1 or shuffle or order.sampler is not None or loader.drop_last
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
