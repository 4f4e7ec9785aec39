"""Memory of large results is touched while they are compiled, and taken by the launch."""

from __future__ import annotations

import resource
from collections.abc import Iterable

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.runtime.arrays import host_memory
from tessera.runtime.call import memory_ahead

LARGE = memory_ahead.WORTH


@pytest.fixture(autouse=True)
def no_unused_blocks():
    with knobs.num_threads.override(2):
        host_memory.release_unused()
        yield
        host_memory.release_unused()


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def touched(sizes: list[int]) -> None:
    with memory_ahead.memory_ahead() as ahead:
        ahead.start(sizes)
        assert ahead._thread is not None
        ahead._thread.join()


def test_a_launch_takes_what_was_touched():
    sizes = [LARGE, host_memory.RECYCLED, 3 * LARGE // 2]
    touched(sizes)
    arrays: list[np.ndarray] = []
    for size in sizes:
        before = faults()
        arrays.append(host_memory.empty((size,), np.dtype(np.uint8), size))
        arrays[-1][:] = 1
        assert faults() - before < 20  # it has 64 pages at least
    assert host_memory.release_unused() == 0


def test_little_is_not_worth_a_thread_and_too_much_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    for sizes in ([LARGE // 2], [LARGE, host_memory.IDLE_LIMIT]):
        with memory_ahead.memory_ahead() as ahead:
            ahead.start(sizes)
            assert (ahead._thread is None) == (len(sizes) == 1)
        assert host_memory.release_unused() <= host_memory.block_size(LARGE)
    monkeypatch.setattr(host_memory, "available", lambda: 2 * LARGE)
    with memory_ahead.memory_ahead() as ahead:
        ahead.start([LARGE])
        assert ahead._thread is None


def test_what_is_there_already_is_not_touched_again():
    touched([LARGE])
    with memory_ahead.memory_ahead() as ahead:
        ahead.start([LARGE, LARGE])
    assert host_memory.release_unused() == 2 * host_memory.block_size(LARGE)


def test_after_a_failure_the_system_has_the_memory():
    with pytest.raises(ZeroDivisionError), memory_ahead.memory_ahead() as ahead:
        ahead.start([LARGE])
        assert 1 // 0
    assert host_memory.release_unused() == 0


def test_new_arrays_of_a_function_are_known(monkeypatch: pytest.MonkeyPatch):
    found: list[list[int]] = []

    def start(self: object, sizes: Iterable[int]) -> None:
        found.append([*sizes])

    monkeypatch.setattr(memory_ahead.MemoryAhead, "start", start)

    @ts.function
    def several(x: ts.Tensor["N", "M"]):
        y = x + 1
        return y, x, x[0, 0] + 1, y, ts.sum(x, 0), y.astype(ts.f64)

    several(np.ones((1000, 1000), np.float32))
    assert found == [[4_000_000, 8_000_000]]
    ts.compile(several, target="cpu", dims={"N": 2000, "M": 2000})  # nothing is launched
    assert len(found) == 1


def test_states_have_memory(monkeypatch: pytest.MonkeyPatch):
    found: list[list[int]] = []
    monkeypatch.setattr(memory_ahead.MemoryAhead, "start", lambda self, sizes: found.append([*sizes]))
    state = ts.optimizers.TrainingState([np.ones(LARGE // 8, np.float32)], ts.optimizers.SGD(0.1))

    @ts.function
    def stepped(state: ts.optimizers.TrainingState, g):
        state.step([g])
        return g * 2

    stepped(state, np.ones(LARGE // 8, np.float32))
    assert found[-1] == [LARGE // 2]
