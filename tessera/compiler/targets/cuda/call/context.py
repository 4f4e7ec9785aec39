"""The driver with its errors as DeviceError, and what they mean for a process: a fault of a kernel ends its context for
good. A later call reports the fault and does not know which kernel caused it. So the last launches are kept.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import Any, NoReturn

from tessera.errors import NOWHERE, DeviceError, Diagnostic, Note, Span
from tessera.immutable import mutable

STICKY = {
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the memory's own check failed",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": "a link between GPUs failed",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel read or wrote where no memory is",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than this system lets it",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "the context is gone",
    "CUDA_ERROR_ASSERT": "an assert failed",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "a stack was overrun or spoilt",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel met an instruction that this GPU does not have",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel moved several bytes at once between their boundaries",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "an instruction met an address of another kind of memory",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped to where no code is",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel failed, or stopped itself where a wait did not end",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": "a kernel kept tensor memory",
    "CUDA_ERROR_CONTAINED": "the memory's own check failed",
}
"""Errors after which a context takes no more work (CUDA Driver API, CUresult), and what they say."""
KEPT = 16
"""Latest launches that are named."""


class Launched:
    """A program as messages name it: its kernels, each with its place. One object serves all runs of the program."""

    __slots__ = ("kernels",)

    def __init__(self, kernels: Sequence[tuple[str, Span]]) -> None:
        self.kernels = tuple(kernels)

    def notes(self) -> list[Note]:
        return [Note(_named(name, span), span) for name, span in self.kernels]


def _named(kernel: str, span: Span) -> str:
    return f"{kernel}, {PurePath(span.file).name}:{span.line}" if span.line > 0 else kernel


recent: deque[Launched] = deque(maxlen=KEPT)
"""The latest runs of programs in this process, the last one at the end."""
lost: dict[int, Diagnostic] = {}
"""The diagnostics of contexts that have ended."""


@mutable
class DriverProcess:
    """The state of this process with the driver."""

    used: bool = False
    """whether the driver has been initialised"""
    forked_from_user: bool = False
    """whether the process was forked off one that used the driver, whose handles mean nothing here"""

    def after_fork(self) -> None:
        """In the child: nothing of CUDA outlives a fork."""
        self.forked_from_user = self.forked_from_user or self.used
        recent.clear()
        lost.clear()


process = DriverProcess()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.after_fork)


class Driver:
    """The driver's functions with errors raised as DeviceError."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings

    def __call__(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self.bindings, name)(*arguments)
        if int(status):
            self.fail(status, name)
        return values[0] if values else None

    def current(self) -> int:
        """The calling thread's context; 0: it has none."""
        return int(self.bindings.cuCtxGetCurrent()[1] or 0)

    def fail(self, status: Any, what: str, culprit: tuple[str, Span] | None = None) -> NoReturn:
        """Raises DeviceError: TS612 where the context is lost, with the kernels that may have caused it. `culprit`: the
        kernel, where it is known for sure."""
        name = str(getattr(status, "name", status))
        if name not in STICKY:
            raise DeviceError(f"{what} failed: {name}")
        context = self.current()
        if (first := lost.get(context)) is not None:
            raise DeviceError(replace(first, message=f"{what} is too late. {first.message}"))
        first = lost[context] = _lost(f"{STICKY[name]} ({name})", culprit)
        raise DeviceError(first)

    def ensure_context(self, stream: int = 0, pointers: Sequence[int] = (), device: int = 0) -> int:
        """The current context. Where the calling thread has none it gets that of the stream, else the primary one of
        the device that the memory is on, else of `device`.

        Raises DeviceError in a process that was forked off one that has used the driver.
        """
        if process.forked_from_user:
            raise DeviceError(FORKED)
        context = self.current()
        if context:
            return context
        if stream > 2:  # 1 and 2 are the default streams of any context
            self("cuCtxSetCurrent", self("cuStreamGetCtx", stream))
        else:
            number = next((n for p in pointers if p and (n := self._device_of(p)) is not None), device)
            self("cuCtxSetCurrent", self("cuDevicePrimaryCtxRetain", self("cuDeviceGet", number)))
        return int(self("cuCtxGetCurrent"))

    def _device_of(self, pointer: int) -> int | None:
        attribute = self.bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        status, number = self.bindings.cuPointerGetAttribute(attribute, pointer)
        return None if int(status) else int(number)

    def refuse_capture(self, stream: int, what: str) -> None:
        """Raises DeviceError TS611 where `stream` is being captured into a graph, which does not take `what`."""
        status, capturing = self.bindings.cuStreamIsCapturing(stream)
        if int(status) or int(capturing):
            raise DeviceError(Diagnostic("TS611", f"A CUDA graph cannot hold {what}"))

    @contextmanager
    def relaxed(self) -> Generator[None]:
        """Inside it this thread may do what would spoil a graph that it or another thread is capturing."""
        exchange = self.bindings.cuThreadExchangeStreamCaptureMode
        before = exchange(self.bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)[1]
        try:
            yield
        finally:
            exchange(before)

    def capability(self) -> tuple[int, int]:
        attribute = self.bindings.CUdevice_attribute
        device = self("cuCtxGetDevice")
        major = self("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = self("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
        return int(major), int(minor)


FORKED = (
    "This process was forked off one that has used the GPU; CUDA does not outlive a fork.\n"
    'Start processes afresh: multiprocessing.get_context("spawn"), or use the GPU in the children alone.'
)


def _lost(why: str, culprit: tuple[str, Span] | None) -> Diagnostic:
    """The known facts about the fault, and what to do."""
    again = "Nothing more runs on this GPU in this process: start it again"
    if culprit is not None:
        message = f"{culprit[0]} ended the GPU's context: {why}.\n{again}."
        return Diagnostic("TS612", message, culprit[1], function=culprit[0])
    runs = list(dict.fromkeys(reversed(recent)))
    notes = tuple(note for run in runs for note in run.notes())
    if not notes:
        return Diagnostic("TS612", f"The GPU's context is lost: {why}.\n{again}. No kernel was launched from here.")
    message = (
        f"The GPU's context is lost: {why}.\nIt was one of the latest launches, which are listed from the last one on, "
        f"or another library's.\n{again}. TESSERA_DEBUG=1 waits for each kernel, checks its indices and names it."
    )
    first = runs[0].kernels[0] if runs and runs[0].kernels else ("", NOWHERE)
    return Diagnostic("TS612", message, first[1], notes=notes[:KEPT], function=first[0])
