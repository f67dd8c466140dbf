"""Belady's client: `belady.DataLoader` in place of PyTorch's.

    import belady
    dataset = belady.Dataset("/data/train", transform=decode)
    loader = belady.DataLoader(dataset, batch_size=256, shuffle=True, seed=7)

Samples arrive in exactly the order that PyTorch's sampler gives, as views of memory that the node's
daemon shares with all ranks. See README.md for what is lent and for how long.
"""

from belady.attach import attach
from belady.dataset import Dataset
from belady.decode import decode_jpeg
from belady.errors import (
    AccessDenied,
    ArenaTooSmall,
    BadRequest,
    BeladyError,
    DaemonError,
    DaemonUnavailable,
    DatasetAddFailed,
    DecodeError,
    DecoderUnavailable,
    DirectReadWarning,
    LoaderClosed,
    ManifestError,
    NoDirectRead,
    NoImages,
    NotYetSupported,
    OrderDrift,
    OrderDriftWarning,
    OriginUnavailable,
    ProtocolError,
    RaggedBatch,
    SampleAbsent,
    SampleChanged,
    SampleError,
    SocketUnusable,
    StateMismatch,
    TooLarge,
    UnknownDataset,
    VersionMismatch,
    WaitTimeout,
)
from belady.images import ImageFolder
from belady.loader import DataLoader
from belady.sample import Sample

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "ArenaTooSmall",
    "BadRequest",
    "BeladyError",
    "DaemonError",
    "DaemonUnavailable",
    "DataLoader",
    "Dataset",
    "DatasetAddFailed",
    "DecodeError",
    "DecoderUnavailable",
    "DirectReadWarning",
    "ImageFolder",
    "LoaderClosed",
    "ManifestError",
    "NoDirectRead",
    "NoImages",
    "NotYetSupported",
    "OrderDrift",
    "OrderDriftWarning",
    "OriginUnavailable",
    "ProtocolError",
    "RaggedBatch",
    "Sample",
    "SampleAbsent",
    "SampleChanged",
    "SampleError",
    "SocketUnusable",
    "StateMismatch",
    "TooLarge",
    "UnknownDataset",
    "VersionMismatch",
    "WaitTimeout",
    "attach",
    "decode_jpeg",
]
