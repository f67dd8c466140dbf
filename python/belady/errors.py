"""Exceptions of the package, all below BeladyError.

An error that the daemon reports has a code (docs/format/wire.md); `from_code` gives each code its
class. Their text is the daemon's: what happened, to what, and what to do.

    BeladyError
    ├── DaemonUnavailable    (ConnectionError)  none listens, none starts, or it stayed away
    │   ├── SocketUnusable                      another user's, or no socket at all
    │   └── NoDirectRead                        the dataset cannot be read without a daemon
    ├── ProtocolError                           one of the two sides broke the protocol
    │   └── VersionMismatch                     no common version; says which side to upgrade
    ├── DaemonError                             the daemon reported a defect of its own
    ├── UnknownDataset       (LookupError)      no dataset of that name
    ├── BadRequest           (ValueError)       understood, but it cannot be done as asked
    ├── TooLarge             (ValueError)       a batch or frame is over a limit
    ├── ArenaTooSmall        (MemoryError)      two batches do not fit into the daemon's memory
    ├── SampleError                             about one sample of the origin
    │   ├── SampleAbsent     (FileNotFoundError)
    │   ├── SampleChanged                       not what it was when the dataset was scanned
    │   ├── AccessDenied     (PermissionError)
    │   ├── OriginUnavailable (TimeoutError)
    │   └── DecodeError      (ValueError)       its bytes are not the JPEG they should be
    ├── DecoderUnavailable   (ImportError)      nothing is installed to decode with, or not there
    ├── ManifestError        (ValueError)       a manifest's bytes are not what the format says
    ├── DatasetAddFailed                        `belady dataset add` refused
    │   └── NoImages         (FileNotFoundError)  an ImageFolder has a class without images
    ├── OrderDrift                              other samples came than were asked for by id
    ├── RaggedBatch          (ValueError)       "stack" was given samples of unequal length
    ├── StateMismatch        (ValueError)       a state of another dataset, seed or kind of order,
    │                                           or not the one that the other ranks loaded
    ├── WaitTimeout          (TimeoutError)     `timeout=` seconds passed without a batch
    ├── LoaderClosed         (RuntimeError)     used after close(), or in another process
    └── NotYetSupported      (NotImplementedError)  PyTorch has it, this version does not

Arguments that are wrong by themselves are TypeError and ValueError, as in PyTorch: of the wrong
type, out of range, or excluding each other.
"""

from __future__ import annotations


class BeladyError(Exception):
    """Whatever goes wrong in this package and is not a mistake in a call's types."""


class DaemonUnavailable(BeladyError, ConnectionError):
    """No daemon listens, none could be started, or it stayed away for too long."""


class SocketUnusable(DaemonUnavailable):
    """The daemon's socket is another user's or no socket. Nothing is read in its place: what was
    set is wrong, and it is the user's to mend."""


class NoDirectRead(DaemonUnavailable):
    """There is no daemon, and the dataset is not in a folder that this process could read."""


class ProtocolError(BeladyError):
    """One of the two sides broke the protocol; nothing of the connection is used any more."""


class VersionMismatch(ProtocolError):
    """Package and daemon speak no common version."""


class DaemonError(BeladyError):
    """The daemon reported a defect of its own."""


class UnknownDataset(BeladyError, LookupError):
    """No dataset of that name."""


class BadRequest(BeladyError, ValueError):
    """Well-formed, but it cannot be done as asked."""


class TooLarge(BeladyError, ValueError):
    """A batch, a window or a frame is over a limit."""


class ArenaTooSmall(BeladyError, MemoryError):
    """Two batches of this job do not fit into the daemon's memory."""


class SampleError(BeladyError):
    """Something is wrong with a sample in the origin."""


class SampleAbsent(SampleError, FileNotFoundError):
    """A sample is no longer in the origin."""


class SampleChanged(SampleError):
    """A sample is not what it was when the dataset was scanned."""


class AccessDenied(SampleError, PermissionError):
    """The origin or the daemon refuses this user."""


class OriginUnavailable(SampleError, TimeoutError):
    """The origin does not answer within its deadline."""


class DecodeError(SampleError, ValueError):
    """A sample's bytes are not the JPEG that `decode_jpeg` was to decode."""


class DecoderUnavailable(BeladyError, ImportError):
    """PyTorch, torchvision or the device that `decode_jpeg` needs is not there, or Pillow, which
    `ImageFolder` decodes with."""


class ShuttingDown(DaemonUnavailable):
    """The daemon is leaving. Sessions reconnect; users see it only if none comes back."""


class ManifestError(BeladyError, ValueError):
    """A manifest's bytes are not what docs/format/manifest.md says."""


class DatasetAddFailed(BeladyError):
    """`belady dataset add` refused; the text is its own."""


class NoImages(DatasetAddFailed, FileNotFoundError):
    """A folder of an ImageFolder's root holds no image, or there is no folder. torchvision's words.
    """


class OrderDrift(BeladyError):
    """A batch was asked for by its ids, and other samples came. (Where a daemon's order differs
    from PyTorch's a warning says so, `OrderDriftWarning`, and the right samples are read by id.)
    """


class OrderDriftWarning(RuntimeWarning):
    """The daemon's order is not PyTorch's from a batch on: the right samples are read by id."""


class DirectReadWarning(RuntimeWarning):
    """No daemon serves: this process reads the samples itself, in the same order."""


class RaggedBatch(BeladyError, ValueError):
    """collate_fn="stack" was given samples of unequal length."""


class StateMismatch(BeladyError, ValueError):
    """A state_dict of another dataset, another seed or another kind of order; or one that a sampler
    of the user's cannot go on from, since it gives other samples or deals to another world; or
    ranks of one run that begin at unequal positions, of which the text names two."""


class WaitTimeout(BeladyError, TimeoutError):
    """The loader's `timeout` passed without a batch."""


class LoaderClosed(BeladyError, RuntimeError):
    """A loader or iterator was used after close(), or in a process that does not own it."""

    def __init__(self, text: str = "the loader was closed: make a new one") -> None:
        super().__init__(text)


class NotYetSupported(BeladyError, NotImplementedError):
    """PyTorch's DataLoader has it and this version does not. Never ignored in silence."""


SHUTTING_DOWN = 12

_BY_CODE: dict[int, type[BeladyError]] = {
    1: DaemonError,
    2: ProtocolError,
    3: VersionMismatch,
    4: UnknownDataset,
    5: BadRequest,
    6: TooLarge,
    7: ArenaTooSmall,
    8: SampleAbsent,
    9: SampleChanged,
    10: AccessDenied,
    11: OriginUnavailable,
    SHUTTING_DOWN: ShuttingDown,
    13: StateMismatch,
}


def from_code(code: int, text: str) -> BeladyError:
    """The exception for an error frame. Codes are only ever appended to, so a new one is generic.

    >>> from_code(4, "no dataset imagenet")
    UnknownDataset('no dataset imagenet')
    """
    return _BY_CODE.get(code, DaemonError)(text)
