"""Shared memory, lent: maps of the daemon's slabs, and views that know when the last of them dies.

A memoryview's slices keep the object that exports the buffer alive, not the memoryview they were
cut from. So each lease gets an exporter of its own in each slab it lies in: a ctypes array at the
map's address, which refers to the lease's token and to the slab. When the last slice, ndarray or
tensor over it is gone the exporter dies, then the token, whose finalizer gives the lease back; the
slab is unmapped when no exporter refers to it and no session knows it. No sample is copied and
nothing is counted by hand.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any, Callable, Optional

from belady.errors import ProtocolError

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value


class Token:
    """A lease's life: `finish` is called once, from any thread, when nothing refers to it."""

    __slots__ = ("__weakref__",)

    def __init__(self, finish: Callable[..., Any], *args: Any) -> None:
        # At exit the process's end says it all; views may still be in use by then.
        weakref.finalize(self, finish, *args).atexit = False


class Slab:
    """A map of one descriptor, which it closes. Unmapped when nothing refers to it."""

    __slots__ = ("size", "writable", "_address", "_type", "__weakref__")

    def __init__(
        self, fd: int, size: int, writable: bool,
        register: Optional[Callable[[int, int, bool], Callable[[], None]]] = None,
    ) -> None:
        """`register` is told of the map; what it returns is called before the map goes."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            if os.fstat(fd).st_size < size:
                raise ProtocolError(f"the daemon announced {size} bytes and sent a smaller file")
            address = _libc.mmap(None, size, protection, mmap.MAP_SHARED, fd, 0)
            if address == _MAP_FAILED:
                e = ctypes.get_errno()
                raise OSError(e, f"cannot map the daemon's memory, {size} bytes: {os.strerror(e)}")
        finally:
            os.close(fd)
        self.size = size
        self.writable = writable
        self._address: int = address
        self._type = ctypes.c_ubyte * size
        undo = None if register is None else register(address, size, writable)
        weakref.finalize(self, _unmap, address, size, undo).atexit = False

    def lend(self, token: Token) -> memoryview:
        """A view of all of it, whose slices keep the token and the map alive."""
        exporter: Any = self._type.from_address(self._address)
        exporter.owner = (token, self)
        view = memoryview(exporter).cast("B")
        return view if self.writable else view.toreadonly()


def _unmap(address: int, size: int, undo: Optional[Callable[[], None]]) -> None:
    if undo is not None:
        undo()
    _libc.munmap(address, size)
