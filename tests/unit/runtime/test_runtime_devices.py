"""Devices, threads, and memory for results."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.machines import best_target
from tessera.compiler.targets import base
from tessera.errors import LaunchError, TargetError
from tessera.runtime.arrays import devices, host_memory

ROOT = Path(__file__).parents[3]
F32 = np.dtype(np.float32)


def take(count: int):
    return host_memory.empty((count,), F32, 4 * count)


def address(array) -> int:
    return array.__array_interface__["data"][0]


def test_the_cpu_is_always_there():
    cpu, *others = ts.devices()
    assert (cpu.name, cpu.target) == ("cpu", "cpu")
    assert 1 <= cpu.units <= (os.cpu_count() or 1)
    assert cpu.memory > 0
    assert "cpu" in str(cpu)
    for device in others:
        assert device.target.startswith("sm_")


def test_targets_by_device():
    assert devices.resolve("auto") == "cpu"
    assert devices.resolve("reference", "cpu") == "reference"
    assert devices.resolve("cuda").startswith("sm_")
    with pytest.raises(LaunchError, match="TS605"):
        devices.resolve("auto", "cuda:63")


@pytest.mark.parametrize(
    ("capability", "target"),
    [((7, 0), "sm_70"), ((7, 2), "sm_70"), ((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"),
     ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((10, 3), "sm_100"),
     ((11, 0), "sm_100"), ((12, 0), "sm_120f"), ((12, 1), "sm_120f"), ((13, 0), "sm_120")],
)  # fmt: skip
def test_the_target_of_a_capability(capability: tuple[int, int], target: str):
    assert best_target(capability) == target


@pytest.mark.parametrize("capability", [(5, 2), (6, 1)])
def test_a_capability_that_no_target_serves(capability: tuple[int, int]):
    with pytest.raises(TargetError, match="TS601"):
        base.get(best_target(capability))


def test_threads():
    before = ts.get_num_threads()
    try:
        ts.set_num_threads(1)
        assert ts.get_num_threads() == 1
    finally:
        ts.set_num_threads(before)
    for count in (0, -1, 1.5, True, "2"):
        with pytest.raises(LaunchError, match=r"TS105(.|\n)*a whole number from 1 to 1024"):
            ts.set_num_threads(count)


def test_large_results_are_aligned_and_recycled():
    first = take(1 << 18)
    where = address(first)
    assert where % host_memory.ALIGNMENT == 0
    del first
    assert address(take(1 << 18)) == where


def test_large_results_begin_at_different_places_of_a_page():
    host_memory.release_unused()
    places = {address(a) % 4096 for a in [take(1 << 19) for _ in range(4)]}
    assert len(places) == 4
    assert all((place - other) % 4096 >= 960 for place in places - {0} for other in (16, 64))  # NumPy, PyTorch


@pytest.mark.usefixtures("young")
def test_memory_in_use_is_never_given_out_again():
    first = take(1 << 18)
    where, view = address(first), first[5:].reshape(-1)
    del first
    other = take(1 << 18)
    assert address(other) != where
    view[:] = 3
    del view, other
    gc.collect()
    assert where in {address(a) for a in [take(1 << 18), take(1 << 18)]}


def test_unused_memory_can_be_given_back():
    del (kept := [take(1 << 18)])[:]
    assert host_memory.release_unused() >= 1 << 20
    assert host_memory.release_unused() == 0
    assert kept == []


def test_unused_memory_is_bounded(monkeypatch):
    host_memory.release_unused()
    monkeypatch.setattr(host_memory, "IDLE_LIMIT", 3 << 20)
    blocks = [take(1 << 18) for _ in range(6)]
    del blocks
    assert host_memory.release_unused() <= 3 << 20


def test_sizes_that_cannot_be_had_are_refused():
    with pytest.raises(LaunchError, match="TS505") as caught:
        host_memory.empty((1 << 50,), F32, 4 << 50)
    assert "PiB" in str(caught.value)


def test_threads_take_and_give():
    def work() -> None:
        for i in range(200):
            a = take((1 << 16) + 4096 * (i % 3))
            a[:] = i
            assert a[0] == a[-1] == i

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_available_memory_is_plausible():
    free = host_memory.available()
    assert free is None or 1 << 20 < free < 1 << 50


def test_import_is_quick_and_light():
    """The figure is a benchmark's; here only what must not be loaded."""
    code = (
        "import sys, json, tessera; tessera.devices(); "
        "print(json.dumps([m for m in ('numpy', 'llvmlite', 'torch', 'sqlite3') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_forked_child_can_call_and_compile(target, tmp_path):
    """In a process of its own: forking one with JAX's threads in it warns, and rightly."""
    code = """
import os, sys
import numpy as np
import tessera as ts

@ts.function
def f(x: ts.Tensor["n", ts.f32], k: int = 2):
    return x * k + 1

x = np.ones(100_000, np.float32)
want = f(x)
child = os.fork()
if child == 0:
    status = 1
    try:
        status = 0 if (f(x) == want).all() and (f(x, 3) == 4).all() and (f(x[:7]) == 3).all() else 2
    finally:
        os._exit(status)
_, status = os.waitpid(child, 0)
assert (f(x) == want).all()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    path = tmp_path / "program.py"
    path.write_text(code, encoding="utf-8")
    env = {**os.environ, "TESSERA_TARGET": target, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
