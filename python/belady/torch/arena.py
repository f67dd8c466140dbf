"""pin_memory="arena": the daemon's memory, registered with CUDA.

Copies to a GPU then go straight from where the daemon put the samples. The price is care about
their end: a copy that was asked for with non_blocking=True may still run when its tensor is gone,
and the daemon would reuse the memory. So a lease that nothing refers to is given back only when the
stream that is current at the loop's next `next` has come to that point.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections import deque
from typing import Any, Callable, Deque, Optional, Protocol

import torch
import torch.cuda

_PORTABLE, _READ_ONLY = 1, 8
# What gives a lease back.
_Death = tuple[Callable[..., Any], tuple[Any, ...]]


class Mark(Protocol):
    """A point in a stream; `torch.cuda.Event` is one."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


class Arena:
    """Registers maps, and holds leases back until copies from them are done.

    `died` may be called from any thread and any finalizer, the rest by the loop.
    """

    def __init__(
        self,
        register: Callable[[int, int, bool], Callable[[], None]],
        mark: Callable[[], Optional[Mark]],
    ) -> None:
        """`register` raises OSError; `mark` gives None where the stream cannot be marked now."""
        self._register = register
        self._mark = mark
        self._said = False
        self._loops = 0
        self._dead: Deque[_Death] = deque()
        self._waiting: Deque[tuple[Mark, list[_Death]]] = deque()
        self._stepping = threading.Lock()

    def register(self, address: int, size: int, writable: bool) -> Callable[[], None]:
        """Register a map; what it returns undoes that. Where it is refused, nothing is pinned."""
        try:
            return self._register(address, size, writable)
        except OSError as e:
            if not self._said:
                self._said = True
                warnings.warn(
                    f"pin_memory='arena' pins by a copy instead, as True does: {e}", stacklevel=2
                )
            return lambda: None

    def begin(self) -> None:
        """A loop begins, which will call `step`."""
        self._loops += 1

    def end(self) -> None:
        """A loop ended. What the last one left is waited for."""
        self._loops -= 1
        if self._loops <= 0:
            self._settle()

    def died(self, finish: Callable[..., Any], *args: Any) -> None:
        """Nothing refers to a lease any more: `finish` it when copies from it are done."""
        self._dead.append((finish, args))
        if self._loops <= 0:
            self._settle()

    def step(self) -> None:
        """Finish what is done, and mark the stream for what has died since."""
        if not self._stepping.acquire(blocking=False):
            return
        try:
            while self._waiting and self._waiting[0][0].query():
                self._finish(self._waiting.popleft()[1])
            mark = self._mark() if self._dead else None
            if mark is not None:
                group = [self._dead.popleft() for _ in range(len(self._dead))]
                self._waiting.append((mark, group))
        finally:
            self._stepping.release()

    def _settle(self) -> None:
        self.step()
        while self._waiting:
            mark, group = self._waiting.popleft()
            mark.synchronize()
            self._finish(group)

    def _finish(self, group: list[_Death]) -> None:
        for finish, args in group:
            finish(*args)


def cuda_arena() -> Arena:
    """The arena of this process's GPU."""
    torch.cuda.init()
    return Arena(register, _mark)


def _mark() -> Optional[Mark]:
    if torch.cuda.is_current_stream_capturing():
        return None
    return torch.cuda.current_stream().record_event()


def register(address: int, size: int, writable: bool) -> Callable[[], None]:
    """Register memory with CUDA; what it returns undoes that. OSError where CUDA refuses."""
    runtime = _runtime()
    flags = _PORTABLE | (0 if writable else _READ_ONLY)
    code = runtime.cudaHostRegister(ctypes.c_void_p(address), ctypes.c_size_t(size), flags)
    if code:
        # The error would otherwise be taken for that of the next kernel.
        runtime.cudaGetLastError()
        runtime.cudaGetErrorString.restype = ctypes.c_char_p
        raise OSError(
            f"CUDA does not register {size} bytes of the daemon's memory:"
            f" {runtime.cudaGetErrorString(code).decode()}"
        )

    def undo() -> None:
        if runtime.cudaHostUnregister(ctypes.c_void_p(address)):
            runtime.cudaGetLastError()

    return undo


def _runtime() -> Any:
    """The CUDA runtime that PyTorch uses; another copy would have errors of its own."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if "libcudart" in path.rpartition("/")[2]:
                return ctypes.CDLL("/" + path)
    raise OSError("this PyTorch has its CUDA runtime built in, which cannot be asked")
