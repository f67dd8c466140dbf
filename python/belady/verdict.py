"""What a trial's figures mean: which resource binds, and whether Belady helps. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

# Below this a difference is not worth another loader.
GAIN_LEAST = 1.15
# A resource binds if a loop spends this share of its time on it.
_BINDS = 0.5


class Facts(NamedTuple):
    """What is known of the dataset and the machine before anything is measured."""

    samples: int
    bytes: int
    # Files of this machine's own, not a network's.
    local: bool
    # Every file was in the page cache when measuring began.
    warm: bool
    # For the daemon to keep samples in, bytes.
    memory: int
    cores: int

    @property
    def kept(self) -> float:
        """The share of the dataset that the daemon can keep."""
        return min(1.0, self.memory / max(1, self.bytes))


class Run(NamedTuple):
    """One loader with one number of workers."""

    loader: str
    workers: int
    samples: int
    bytes: int
    seconds: float
    # Of those seconds: in `next`, and in the emulated step.
    wait_s: float
    compute_s: float
    # In all processes together.
    decode_s: float
    # In `next` for the origin, by the daemon's account; the stock loader has none.
    origin_s: float
    # False if only a part of the first epoch was seen, in which no cache can help.
    later_epoch: bool

    @classmethod
    def none(cls, loader: str, workers: int) -> Run:
        return cls(loader, workers, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, False)

    @property
    def speed(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    def share(self, seconds: float) -> float:
        return seconds / self.seconds if self.seconds else 0.0


class Verdict(NamedTuple):
    bound_by: str  # origin, decode, compute or cpu: what holds the faster loader back
    gain: float  # Belady's speed over the stock loader's
    helps: bool
    text: str


def bound_by(run: Run, facts: Facts) -> str:
    """What a loop waits for.

    >>> facts = Facts(100, 100, True, True, 100, 2)
    >>> bound_by(Run("stock", 0, 10, 10, 1.0, 0.9, 0.0, 0.8, 0.0, True), facts)
    'decode'
    """
    if run.share(run.compute_s) >= _BINDS:
        return "compute"
    if run.share(run.decode_s) >= _BINDS * max(1, min(run.workers, facts.cores)):
        return "decode"
    if run.loader == "stock":
        return "cpu" if facts.warm or run.share(run.wait_s) < _BINDS else "origin"
    return "origin" if run.share(run.origin_s) >= _BINDS else "cpu"


def verdict(stock: Run, belady: Run, facts: Facts) -> Verdict:
    """From the best run of each loader."""
    gain = belady.speed / stock.speed if stock.speed else 1.0
    held = bound_by(belady if gain >= 1 else stock, facts)
    if held not in ("compute", "decode"):
        held = bound_by(belady, facts)  # the daemon knows what it waits for, the stock loader not
    if gain >= GAIN_LEAST:
        return Verdict(held, gain, True, _helps(stock, belady, facts, gain))
    if held == "origin" and not belady.later_epoch and 1 / (1 - min(facts.kept, 0.99)) > GAIN_LEAST:
        return Verdict(held, gain, True, (
            "Belady will help from the second epoch on, which this trial did not reach:"
            f" {facts.kept:.0%} of the dataset fit into its memory, and the origin, which binds,"
            " is asked for the rest only"
        ))
    return Verdict(held, gain, False, "Belady will not help here because " + _why_not(held, facts))


def _helps(stock: Run, belady: Run, facts: Facts, gain: float) -> str:
    text = f"Belady helps here: {gain:.1f} times the samples a second"
    if facts.warm:
        text += (
            "; but the page cache holds this dataset, so only a training that takes in more than"
            f" {stock.speed:,.0f} samples a second will notice"
        )
    elif belady.later_epoch and not facts.local:
        text += f"; {facts.kept:.0%} of the dataset fit into its memory"
    return text


def _why_not(held: str, facts: Facts) -> str:
    if held == "compute":
        return "the training step binds: its samples are there in time with either loader"
    if held == "decode":
        return (
            "decoding binds, whoever reads: decode on the GPU (belady.decode_jpeg(batch,"
            ' device="cuda")), store smaller images, or use more cores'
        )
    if held == "origin":
        return (
            f"the origin binds and {facts.kept:.0%} of the dataset fit into memory: what is not"
            " kept must be read in every epoch by any loader"
        )
    if facts.warm:
        return (
            "the dataset is on this machine and fits the page cache: after the first epoch every"
            " read comes from memory already"
        )
    return f"the origin keeps up: {held} binds, whichever loader reads"
