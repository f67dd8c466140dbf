"""Tensors from JPEG bytes, without copying the bytes first.

The samples' memory is read-only, and PyTorch has no read-only tensors: `torch.frombuffer` warns,
once a process, and would use up a warning that is the user's. Decoders only read, and these tensors
never leave the call, so they are laid over the memory by its address.
"""

from __future__ import annotations

import ctypes
import io
from typing import Any

import torch

from belady.errors import DecoderUnavailable

try:
    import torchvision  # pyright: ignore[reportMissingTypeStubs]
    from torchvision.io import ImageReadMode  # pyright: ignore[reportMissingTypeStubs]
    from torchvision.io import decode_jpeg as _decode_one
except ImportError:
    torchvision = None

# torchvision decodes lists on the GPU from this version on.
_LISTS_SINCE = (0, 20)
# A buffer that begins anywhere; torch.frombuffer is told where it ends.
_ANYWHERE = ctypes.c_ubyte * (1 << 40)


class Undecodable(Exception):
    """The item at `index` is not what a decoder takes; the text is the decoder's first line."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def decode(views: list[memoryview], device: Any, mode: str) -> list[torch.Tensor]:
    """Images as uint8 tensors on a device, or Undecodable."""
    for i, view in enumerate(views):
        if not len(view):
            raise Undecodable(i, "it is empty")
    try:
        place = torch.device(device)
    except RuntimeError as e:  # PyTorch knows no device of that name
        raise DecoderUnavailable(
            f"cannot decode on {device!r}, which names no device: use 'cpu' or 'cuda'"
        ) from e
    if place.type != "cpu":
        return _on_gpu(views, place, mode)
    decode_one = _by_pillow if torchvision is None else _by_torchvision
    return [decode_one(view, i, mode) for i, view in enumerate(views)]


def _by_torchvision(view: memoryview, index: int, mode: str) -> torch.Tensor:
    try:
        return _decode_one(_over(view), ImageReadMode[mode.upper()])
    except RuntimeError as e:
        raise _undecodable(index, e) from e


def _by_pillow(view: memoryview, index: int, mode: str) -> torch.Tensor:
    try:
        from PIL import Image  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as e:
        raise DecoderUnavailable(
            "neither torchvision nor Pillow is here to decode with: install torchvision"
        ) from e
    try:
        image: Any = Image.open(io.BytesIO(view), formats=["JPEG"])
        if mode == "gray":
            image.draft("L", image.size)  # the file's own luma, as torchvision gives it
            image = image.convert("L")
        elif mode == "rgb":
            image = image.convert("RGB")
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    except OSError as e:
        raise _undecodable(index, e) from e
    width, height = image.size
    return pixels.view(height, width, -1).permute(2, 0, 1).contiguous()


def _on_gpu(views: list[memoryview], device: torch.device, mode: str) -> list[torch.Tensor]:
    if torchvision is None:
        raise DecoderUnavailable(f"cannot decode on {device} without torchvision: install it")
    if device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count():
        raise DecoderUnavailable(
            f"cannot decode on {device}, because there is no such CUDA device: use device='cpu'"
        )
    read_mode: Any = ImageReadMode[mode.upper()]
    inputs: Any = [_over(view) for view in views]
    version = tuple(int(part) for part in str(torchvision.__version__).split(".")[:2])
    try:
        if version < _LISTS_SINCE:
            return _one_by_one(inputs, read_mode, device)
        try:
            return _decode_one(inputs, read_mode, device)
        except RuntimeError:
            return _one_by_one(inputs, read_mode, device)  # which of them is it?
    finally:
        # The GPU may read the samples until here, and the caller may drop them after.
        torch.cuda.current_stream(device).synchronize()


def _one_by_one(inputs: list[Any], read_mode: Any, device: torch.device) -> list[torch.Tensor]:
    images: list[torch.Tensor] = []
    for i, data in enumerate(inputs):
        try:
            images.append(_decode_one(data, read_mode, device))
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as e:
            raise _undecodable(i, e) from e
    return images


def _undecodable(index: int, e: Exception) -> Undecodable:
    said = str(e).strip().splitlines()
    return Undecodable(index, said[0] if said else type(e).__name__)


class _Buffer(ctypes.Structure):
    """CPython's Py_buffer; only where it begins is used."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]


_get_buffer: Any = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_release_buffer: Any = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_Buffer)]
_release_buffer.restype = None


def _over(view: memoryview) -> torch.Tensor:
    """A tensor over a view's bytes, which it keeps alive. It must not be written to."""
    buffer = _Buffer()
    _get_buffer(view, ctypes.byref(buffer), 0)
    exporter: Any = _ANYWHERE.from_address(buffer.buf)
    _release_buffer(ctypes.byref(buffer))
    exporter.owner = view
    return torch.frombuffer(exporter, dtype=torch.uint8, count=len(view))
