"""Memory on GPUs while a profiler records: what CuPy and PyTorch allocate, by their own hooks.

CuPy calls a hook for each block of its pools, in the thread that set it. PyTorch keeps a history, with stacks, that is
read at the end. What Tessera's programs need beside that is published by the runtime. The totals of a device are those
of both libraries at the beginning, and what came and went since. Neither library is imported here: one that is not
loaded has allocated nothing.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tessera.compiler.machines import ANY_GPU
from tessera.runtime.arrays.holders import new_number
from tessera.runtime.callsite import call_stack, callsite, is_program
from tessera.runtime.events import MemoryEvent

MOST = 1 << 18
"""events of a library that are kept: of CuPy's the first, of PyTorch's the last"""
_TORCH_STACK = 8


class GpuMemory(Protocol):
    """One library's. `stop` gives events in order of time, whose totals are still to be computed, and what each device
    held before the first of them, in bytes."""

    def stop(self) -> tuple[list[MemoryEvent], Mapping[str, int]]: ...


def start() -> list[GpuMemory]:
    """Begins to listen to the libraries that are loaded and have a GPU. A library whose hooks are not those that are
    known here is left out."""
    found: list[GpuMemory] = []
    for name, make in (("cupy", _Cupy), ("torch", _Torch)):
        module = sys.modules.get(name)
        if module is not None:
            with contextlib.suppress(AttributeError, TypeError, RuntimeError):
                found.append(make(module))
    return found


def joined(own: Sequence[MemoryEvent], listening: Sequence[GpuMemory]) -> list[MemoryEvent]:
    """The runtime's events and those of the libraries, in order of time, with the totals of GPUs as sums over all."""
    events, before = list(own), dict[str, int]()
    for library in listening:
        with contextlib.suppress(AttributeError, TypeError, KeyError, RuntimeError):
            found, held = library.stop()
            events += found
            for device, size in held.items():
                before[device] = before.get(device, 0) + size
    events.sort(key=lambda event: event.time)
    for i, event in enumerate(events):
        if event.device.partition(":")[0] == ANY_GPU:
            before[event.device] = before.get(event.device, 0) + event.delta
            events[i] = replace(event, total=before[event.device])
    return events


@dataclass(slots=True)
class _Listed:
    """Blocks by their addresses."""

    events: list[MemoryEvent] = field(default_factory=list[MemoryEvent])
    numbers: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """address -> the block's number and bytes"""

    def taken(self, device: int, address: int, size: int, stack: tuple[tuple[str, int, str], ...], at: int) -> None:
        number = new_number()
        self.numbers[address] = number, size
        file, line, _ = stack[0] if stack else ("", 0, "")
        self._add(MemoryEvent(at, f"{ANY_GPU}:{device}", size, 0, "array", line, file, (), number, stack))

    def given_back(self, device: int, address: int, size: int, at: int) -> None:
        number, size = self.numbers.pop(address, (0, size))
        self._add(MemoryEvent(at, f"{ANY_GPU}:{device}", -size, 0, "release", block=number))

    def _add(self, event: MemoryEvent) -> None:
        if len(self.events) < MOST:
            self.events.append(event)


class _Cupy:
    """Blocks that CuPy's pools hand out. Other threads than the one that started it are not seen: CuPy has hooks for
    each thread."""

    def __init__(self, cupy: Any) -> None:
        listed = self._listed = _Listed()

        class Hook(cupy.cuda.MemoryHook):
            name = f"tessera-{new_number()}"  # profilers may nest, and CuPy tells hooks apart by name

            def malloc_postprocess(self, **block: Any) -> None:
                stack = call_stack() or ((*callsite(), ""),)
                at = time.perf_counter_ns()
                listed.taken(block["device_id"], block["mem_ptr"], block["mem_size"], stack, at)

            def free_postprocess(self, **block: Any) -> None:
                listed.given_back(block["device_id"], block["mem_ptr"], block["mem_size"], time.perf_counter_ns())

        self._before = {f"{ANY_GPU}:{n}": size for n, size in _pools(cupy) if size}
        self._hook = Hook()
        self._hook.__enter__()

    def stop(self) -> tuple[list[MemoryEvent], Mapping[str, int]]:
        self._hook.__exit__(None, None, None)
        return self._listed.events, self._before


def _pools(cupy: Any) -> Iterator[tuple[int, int]]:
    pool = cupy.get_default_memory_pool()
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(device):
            yield device, int(pool.used_bytes())


class _Torch:
    """The history of PyTorch's caching allocator. One that the program or another profiler keeps goes on."""

    _keeping = 0
    """profilers that keep the history"""

    def __init__(self, torch: Any) -> None:
        if not torch.cuda.is_initialized():
            raise RuntimeError("PyTorch has no GPU in use")
        self._memory, self._devices = torch.cuda.memory, range(torch.cuda.device_count())
        self._start = time.time_ns()
        self._kept = not _Torch._keeping and any(self._memory._snapshot()["device_traces"])
        if not self._kept and not _Torch._keeping:
            self._memory._record_memory_history(enabled="all", stacks="python", max_entries=MOST)
        _Torch._keeping += not self._kept

    def stop(self) -> tuple[list[MemoryEvent], Mapping[str, int]]:
        """Totals are counted backwards from what is held now, so that they hold where the beginning is lost."""
        traces = self._memory._snapshot()["device_traces"]
        _Torch._keeping -= not self._kept
        if not self._kept and not _Torch._keeping:
            self._memory._record_memory_history(enabled=None)
        to_clock = time.time_ns() - time.perf_counter_ns()
        listed, before = _Listed(), dict[str, int]()
        for device, trace in zip(self._devices, traces, strict=False):
            ours = [entry for entry in trace if 1000 * int(entry["time_us"]) >= self._start]
            first = len(listed.events)
            for entry in ours:
                at, address, size = 1000 * int(entry["time_us"]) - to_clock, int(entry["addr"]), int(entry["size"])
                if entry["action"] == "alloc":
                    listed.taken(device, address, size, _frames(entry.get("frames", ())), at)
                elif entry["action"] == "free_completed":
                    listed.given_back(device, address, size, at)
            gained = sum(event.delta for event in listed.events[first:])
            before[f"{ANY_GPU}:{device}"] = int(self._memory.memory_allocated(device)) - gained
        return listed.events, {device: size for device, size in before.items() if size}


def _frames(frames: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, int, str], ...]:
    """Those of the program, the innermost first, as PyTorch gives them."""
    found = ((str(f["filename"]), int(f["line"]), str(f["name"])) for f in frames)
    return tuple(frame for frame in found if frame[1] and is_program(frame[0]))[:_TORCH_STACK]
