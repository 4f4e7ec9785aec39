"""The worker pool: every tile once, on whichever thread; safe under concurrency, resizing and fork."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tessera.compiler.targets.cpu.call import fastcall, threads
from tessera.compiler.targets.cpu.interrupts import POLL
from tessera.compiler.targets.cpu.llvm import isa, jit

ROOT = Path(__file__).parents[3]
# Adds 1 to every element of its range, and notes the worker.
TASK = """
define void @task(ptr %data, i64 %begin, i64 %end, i64 %worker) {
entry:
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i1, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %out
body:
  %p = getelementptr i64, ptr %data, i64 %i
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  %i1 = add i64 %i, 1
  br label %head
out:
  ret void
}
"""
# Notes the first program of each of three threads, and waits until all have come. The last thread then waits until all
# programs but its first one are done, or for as long as `data[4]` rounds of yielding. `data[3]` counts what is done.
FIRST = """
declare i32 @sched_yield()

define void @first(ptr %data, i64 %begin, i64 %end, i64 %worker) {
entry:
  %count = sub i64 %end, %begin
  %mine = getelementptr i64, ptr %data, i64 %worker
  %dp = getelementptr i64, ptr %data, i64 3
  %lp = getelementptr i64, ptr %data, i64 4
  %so.far = load atomic i64, ptr %mine seq_cst, align 8
  %new = icmp slt i64 %so.far, 0
  br i1 %new, label %note, label %add
note:
  store atomic i64 %begin, ptr %mine seq_cst, align 8
  br label %wait
wait:
  %y = call i32 @sched_yield()
  %all = call i1 @there(ptr %data)
  br i1 %all, label %go, label %wait
go:
  %last = icmp eq i64 %worker, 2
  br i1 %last, label %help, label %add
help:
  %z = call i32 @sched_yield()
  %done = load atomic i64, ptr %dp seq_cst, align 8
  %left = atomicrmw sub ptr %lp, i64 1 seq_cst
  %together = add i64 %done, %count
  %others = icmp eq i64 %together, 30
  %tired = icmp sle i64 %left, 0
  %enough = or i1 %others, %tired
  br i1 %enough, label %add, label %help
add:
  %was = atomicrmw add ptr %dp, i64 %count seq_cst
  ret void
}

define internal i1 @there(ptr %data) {
  %p1 = getelementptr i64, ptr %data, i64 1
  %p2 = getelementptr i64, ptr %data, i64 2
  %a = load atomic i64, ptr %data seq_cst, align 8
  %b = load atomic i64, ptr %p1 seq_cst, align 8
  %c = load atomic i64, ptr %p2 seq_cst, align 8
  %ab = or i64 %a, %b
  %abc = or i64 %ab, %c
  %all = icmp sge i64 %abc, 0
  ret i1 %all
}
"""


def runner(text: str = TASK, name: str = "task") -> Any:
    loaded = jit.Loaded(jit.compile_object(text, isa.host(), name))
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        threads.run_address()
    )
    return lambda data, grain, count=None: run(
        threads.pool().address, loaded.address(name), ctypes.addressof(data), count or len(data), grain, None
    )


@pytest.fixture(scope="module")
def task() -> Any:
    yield runner()
    threads.set_num_threads(2)


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_tile_runs_once(task: Any, count: int, workers: int) -> None:
    threads.set_num_threads(workers)
    for grain in (1, 3, 4096):
        data = (ctypes.c_int64 * count)()
        task(data, grain)
        assert list(data) == [1] * count


@pytest.mark.parametrize("grain", [1, 2, 5])
def test_each_thread_begins_with_its_own_part_and_then_helps(task: Any, grain: int) -> None:
    """What a thread has made is in its caches when the next launch reads it."""
    threads.set_num_threads(3)
    first = runner(FIRST, "first")
    for _ in range(3):
        data = (ctypes.c_int64 * 5)(-1, -1, -1, 0, 1 << 20)
        first(data, grain, 30)
        assert list(data)[:4] == [0, 10, 20, 30]
        assert data[4] > 0, "the last thread's part is done by the others while it waits"


def test_many_launches_with_pauses_between(task: Any) -> None:
    threads.set_num_threads(3)
    data = (ctypes.c_int64 * 64)()
    for i in range(300):
        task(data, 1)
        if i % 100 == 0:
            threading.Event().wait(0.01)  # long enough for the workers to fall asleep
    assert list(data) == [300] * 64


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be told where to run")
def test_a_worker_on_its_callers_processor_steps_aside() -> None:
    """A thread that was woken where its caller runs would work only while the caller does not."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")
    pool = threads.pool().address
    aside = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(threads.code_address(threads.ASIDE))
    libc = ctypes.CDLL(None)

    def moves(towards: int) -> bool:
        here = libc.sched_getcpu()
        ctypes.c_int32.from_address(pool + threads.CALLER).value = here + towards
        aside(pool)
        return libc.sched_getcpu() != here

    assert sum(moves(0) for _ in range(20)) > 15, "the system may move it back at once"
    assert os.sched_getaffinity(0) == allowed, "only for the moment"
    assert not all(moves(1) for _ in range(20)), "a worker elsewhere stays"
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert not moves(0)
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


def test_several_python_threads_launch_at_once(task: Any) -> None:
    threads.set_num_threads(3)
    arrays = [(ctypes.c_int64 * 50)() for _ in range(6)]

    def work(data: Any) -> None:
        for _ in range(200):
            task(data, 1)

    running = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for t in running:
        t.start()
    for t in running:
        t.join()
    assert all(list(a) == [200] * 50 for a in arrays)


def test_a_forked_child_starts_its_own_workers() -> None:
    """In a process of its own: forking one that has threads of other libraries' in it may hang."""
    code = """
import ctypes, os, sys
from tests.unit.cpu.test_cpu_threads import runner, threads

task, data = runner(), (ctypes.c_int64 * 100)()
threads.set_num_threads(3)
task(data, 1)
child = os.fork()
if child == 0:
    task(data, 1)
    os._exit(0 if list(data) == [2] * 100 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_has_temporaries_of_its_own() -> None:
    """Idle memory of the parent's calls is the child's too, but what one writes the other does not see."""
    code = """
import ctypes, os, sys
from tessera.compiler.targets.cpu.call.executable import Workspace

memory = Workspace(100)
data = (ctypes.c_char * 100).from_address(memory.address)
data[0] = b"a"
child = os.fork()
if child == 0:
    data[0] = b"b"
    os._exit(0)
os.waitpid(child, 0)
sys.exit(data[0] != b"a")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_a_child_that_is_forked_while_a_thread_compiles_compiles_too() -> None:
    """The thread's locks, ours and llvmlite's, would stay held in the child."""
    code = """
import os, signal, sys, threading, time
import numpy as np
import tessera as ts
from llvmlite.binding import ffi
from tessera.compiler.targets.cpu.llvm import jit

def busy(lock, begun):
    with lock:
        begun.set()
        time.sleep(0.5)

x = np.ones(3, np.float32)
ts.negative(x)
for lock in (jit._lock, ffi.lib._lock):
    begun = threading.Event()
    threading.Thread(target=busy, args=(lock, begun)).start()
    begun.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        os._exit(list(ts.square(x)) != [1] * 3)
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"the child ended with {status}")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr


def test_the_thread_that_called_looks_at_signals_after_each_chunk() -> None:
    """Programs may take long, and so few of them run at a time that the function of a kernel does not look itself."""
    looks: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    def poll(watch: int, worker: int, pace: int) -> int:
        looks.append(worker)
        return 1

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    def chunk(data: int, begin: int, end: int, worker: int) -> None:
        chunks.append(worker)

    chunks: list[int] = []
    watch = (ctypes.c_void_p * 8)()
    watch[POLL // 8] = ctypes.cast(poll, ctypes.c_void_p).value
    pool = threads.Pool(1)
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    run = ctypes.CFUNCTYPE(None, *kinds)(threads.run_address())
    while not chunks.count(0):  # a worker may have taken all of them
        run(pool.address, ctypes.cast(chunk, ctypes.c_void_p), None, 8, 2, watch)
    pool.stop()
    assert looks.count(0) == len(looks) >= chunks.count(0)


def test_how_many_rounds_lie_between_two_looks() -> None:
    """The second look measures one round; what is quick is looked at more seldom, what is slow more often."""
    code = fastcall._method()[0]
    poll = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(code.address("poll"))
    watch, pace = (ctypes.c_int64 * 8)(), (ctypes.c_int64 * 2)(0, 16)
    assert poll(watch, 1, pace) == 1
    for ago, rounds in ((10**12, 1), (-(10**12), 16), (-(10**12), 256), (10**12, 64), (10**12, 16)):
        pace[0] = time.monotonic_ns() - ago
        assert poll(watch, 1, pace) == rounds
