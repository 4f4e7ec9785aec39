"""Memory on a GPU: by CuPy's hooks and PyTorch's history, of which stand-ins with their interfaces are enough."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.profiler.measure import gpu_memory
from tests.unit.cuda.host_cuda import HostGpu, gpu  # noqa: F401 - a fixture


class Pool:
    """A CuPy pool that calls the hooks of the thread, as `cupy.cuda.memory` does."""

    def __init__(self, used: int = 0) -> None:
        self.used, self.next, self.hooks = used, 4096, threading.local()
        outer = self

        class MemoryHook:
            name = "MemoryHook"

            def __enter__(self) -> Any:
                hooks = outer.here()
                if self.name in hooks:
                    raise KeyError(f"memory hook {self.name} already exists")
                hooks[self.name] = self

            def __exit__(self, *_: object) -> None:
                del outer.here()[self.name]

        self.MemoryHook = MemoryHook

    def here(self) -> dict[str, Any]:
        return self.hooks.__dict__.setdefault("known", {})

    def take(self, size: int) -> int:
        place, self.next = self.next, self.next + size
        self.used += size
        for hook in self.here().values():
            hook.malloc_postprocess(device_id=0, size=size - 1, mem_size=size, mem_ptr=place, pmem_id=7)
        return place

    def give(self, place: int, size: int) -> None:
        self.used -= size
        for hook in self.here().values():
            hook.free_postprocess(device_id=0, mem_size=size, mem_ptr=place, pmem_id=7)

    def used_bytes(self) -> int:
        return self.used


@pytest.fixture
def pool(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> Pool:  # noqa: F811
    """The pool of the stand-in for CuPy: `cupy.empty` takes from it."""
    made, cupy = Pool(used=1024), sys.modules["cupy"]
    cupy.cuda.MemoryHook, cupy.cuda.runtime = made.MemoryHook, SimpleNamespace(getDeviceCount=lambda: 1)
    cupy.get_default_memory_pool = lambda: made  # type: ignore[attr-defined]
    empty = gpu.empty

    def taken(shape: Any, dtype: Any) -> Any:
        made.take(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return empty(shape, dtype)

    monkeypatch.setattr(cupy, "empty", taken)
    return made


@ts.function
def normed(x: ts.Tensor["M", "N", ts.f32]):
    y = ts.softmax(x, axis=0)
    return ts.softmax(y @ y.mT, axis=-1)


def line_of(mark: str) -> int:
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(text, 1) if line.endswith(f"# {mark}"))


def test_blocks_of_cupy_have_lines_and_totals(gpu: HostGpu, pool: Pool) -> None:  # noqa: F811
    """Also results and temporaries of Tessera's own, on one curve; what was held before counts."""
    x = gpu.put(np.ones((8, 8), np.float32))
    normed(x)
    pool.used = 1024
    with ts.profiler(tiles=False) as prof:
        place = pool.take(4096)  # taken
        normed(x)  # result
        pool.give(place, 4096)
        with ts.profiler(tiles=False) as inner:
            pool.take(512)
    memory = prof.memory()
    found = [(e.what.partition(" ")[0], e.delta, e.total) for e in memory.events if e.device == "cuda:0"]
    temporaries = next(delta for what, delta, _ in found if what == "temporaries")
    assert temporaries > 0 and found == [
        ("array", 4096, 5120), ("array", 256, 5376), ("temporaries", temporaries, 5376 + temporaries),
        ("release", -temporaries, 5376), ("release", -4096, 1280), ("array", 512, 1792),
    ]  # fmt: skip
    assert memory.peak["cuda:0"] == 5376 + temporaries and memory.current["cuda:0"] == 1792
    callers = [{line for _, line, _ in e.stack} for e in memory.events if e.delta > 0]
    assert line_of("taken") in callers[0] and line_of("result") in callers[1]
    assert [(e.delta, e.total) for e in inner.recording.memory] == [(512, 1792)]
    assert not pool.here(), "no hook stays"
    assert 4096 in [e.delta for h in memory.holders("peak") for e in memory.events if e.block == h.number]


class History:
    """PyTorch's caching allocator with a history, as `torch.cuda.memory` gives it."""

    def __init__(self) -> None:
        self.on, self.entries, self.held, self.switched = False, list[dict[str, Any]](), 0, list[Any]()

    def _record_memory_history(self, enabled: str | None = "all", **_: Any) -> None:
        self.on = enabled is not None
        self.switched.append(enabled)

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": [], "device_traces": [list(self.entries)]}

    def memory_allocated(self, device: int) -> int:
        return self.held

    def event(self, action: str, address: int, size: int, line: int = 0) -> None:
        self.held += {"alloc": size, "free_completed": -size}.get(action, 0)
        frames = [
            {"filename": "??", "line": 0, "name": "at::empty"},
            {"filename": threading.__file__, "line": 3, "name": "run"},
            {"filename": __file__, "line": line, "name": "train"},
        ]  # fmt: skip
        if self.on:
            entry = {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": time.time_ns() // 1000 + 1,
            }
            self.entries.append({**entry, "frames": frames})


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> History:
    made = History()
    cuda = SimpleNamespace(is_initialized=lambda: True, device_count=lambda: 1, memory=made)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    return made


def test_pytorchs_history_is_read_with_its_stacks(history: History) -> None:
    history.held = 1000
    with ts.profiler(host=False) as prof:
        history.event("segment_alloc", 64, 1 << 20)
        history.event("alloc", 64, 300, line=11)
        history.event("alloc", 512, 50, line=12)
        history.event("free_requested", 64, 300)
        history.event("free_completed", 64, 300)
    memory = prof.memory()
    assert [(e.delta, e.total, e.line) for e in memory.events] == [(300, 1300, 11), (50, 1350, 12), (-300, 1050, 0)]
    assert memory.peak == {"cuda:0": 1350}
    begin, end = prof.recording.start, prof.recording.end
    assert all(begin - 10**7 < e.time < end + 10**7 for e in memory.events), "on the profiler's clock"
    (held,) = memory.holders("end")
    assert (held.nbytes, held.line) == (50, 12)
    assert memory.stack(held)[-1] == (__file__, 12, "train"), "without libraries"
    assert history.switched == ["all", None]


def test_a_history_that_the_program_keeps_goes_on(history: History) -> None:
    history._record_memory_history()
    history.event("alloc", 64, 300, line=11)
    time.sleep(0.001)
    with ts.profiler(host=False) as prof:
        history.event("alloc", 512, 50, line=12)
    assert [(e.delta, e.total) for e in prof.recording.memory] == [(50, 350)]
    assert history.on and history.switched == ["all"]


def test_profilers_in_one_another_share_the_history(history: History) -> None:
    with ts.profiler(host=False) as outer:
        with ts.profiler(host=False) as inner:
            history.event("alloc", 64, 300, line=11)
        assert history.on
        history.event("alloc", 512, 50, line=12)
    assert [e.total for e in outer.recording.memory] == [300, 350] and [e.total for e in inner.recording.memory] == [
        300
    ]
    assert not history.on


def test_a_library_of_another_make_is_left_out(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its private names may change: the profile is without its memory, and nothing fails."""
    monkeypatch.delattr(History, "_snapshot")
    assert gpu_memory.start() == []
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # type: ignore[arg-type]
    with ts.profiler(host=False) as prof:
        pass
    assert prof.recording.memory == []
