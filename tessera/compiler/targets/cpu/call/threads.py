"""Worker threads of CPU kernels: persistent, woken in about a microsecond, without the interpreter lock.

Workers run native code that waits for the pool's epoch to change: first spinning, then asleep in the kernel (a futex on
Linux, short sleeps elsewhere). A launch divides its tiles into a part for each thread, and returns when all are done.
The caller is one of them. A thread takes chunks of its own part, which is the same of each launch, so that it finds in
its caches what it made before; then it helps with the parts of the others. A worker that wakes too late finds the
launch closed and is not waited for. Where other programs keep all processors busy, Linux wakes a thread on the
processor of the one that wakes it; there it would run only while the launch does not, so it steps aside. Which worker
runs a tile never matters to a result. A pool that another thread is using is not waited for either: that launch runs on
its caller alone.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
from typing import Any

from tessera import knobs
from tessera.compiler.targets.cpu.frame import WORKERS
from tessera.compiler.targets.cpu.interrupts import POLL
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.once import once

# The pool's fields, each on a cache line of its own (in bytes).
EPOCH, TASK, ACTIVE, OPEN, SLEEPERS, STOP, BUSY, SIZE = (*range(0, 7 * 64, 64), WORKERS)
CALLER = WORKERS + 64
"""the processor that the caller of the last launch which woke workers was on"""
PARTS = CALLER + 64
"""for each thread, the caller first, a line: the next program of its part, and the end of the part"""
_PROCESSORS = 1024
"""those that a thread can be told to run on; workers of larger machines stay where they are woken"""
_SPINS = 4000
"""rounds of waiting before a worker goes to sleep: some 20 microseconds, longer than the gap between two launches"""

ASIDE = "tessera_step_aside"
RUN = "tessera_run"
"""`void(pool, task, data, count, grain, watch)`: calls `task(data, begin, end, worker)` for chunks that cover
range(count). While it waits for other workers it polls the watch (see interrupts.py), where there is one."""


def _pause() -> tuple[str, str]:
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"
    return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"


def _sleep_and_wake() -> tuple[str, str, str]:
    """The declaration, the code to sleep while the epoch is still %last, and the code to wake all sleeping threads."""
    number = {"x86_64": 202, "aarch64": 98}.get(platform.machine().lower())
    if sys.platform.startswith("linux") and number:
        return (
            "declare i64 @syscall(i64, ...)",
            f"%r = call i64 (i64, ...) @syscall(i64 {number}, ptr %pool, i64 128, i32 %last, ptr null)",
            f"%r = call i64 (i64, ...) @syscall(i64 {number}, ptr %pool, i64 129, i32 2147483647)",
        )
    return "declare i32 @usleep(i32)", "%r = call i32 @usleep(i32 50)", "%r = add i64 0, 0"


def _ir() -> str:
    declare_pause, pause = _pause()
    declare_sleep, sleep, wake = _sleep_and_wake()
    aside = ""
    if sys.platform.startswith("linux"):
        aside = _step_aside()
        sleep += f"\n  call void @{ASIDE}(ptr %pool)"
        wake = f"""%cpu = call i32 @sched_getcpu()
{_field("caller", CALLER)}
  store atomic i32 %cpu, ptr %caller monotonic, align 4
  {wake}"""
    return f"""
{declare_pause}
{declare_sleep}
declare i32 @sched_yield()

{aside}

{_share()}

{_divide()}

{_worker(pause, sleep)}

{_run(pause, wake)}
attributes #0 = {{ nounwind }}
"""


def _field(name: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr %pool, i64 {offset}"


def _step_aside() -> str:
    """A thread on the processor of the launch's caller moves to another one of those it may run on, if there is one.
    It may run on the same ones as before after that: only the moment counts."""
    size = _PROCESSORS // 8
    return f"""\
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define void @{ASIDE}(ptr %pool) #0 {{
entry:
  %mask = alloca [{size} x i8], align 8
{_field("caller", CALLER)}
  %theirs = load atomic i32, ptr %caller monotonic, align 4
  %own = call i32 @sched_getcpu()
  %together = icmp eq i32 %own, %theirs
  %known = icmp ult i32 %own, {_PROCESSORS}
  %here = and i1 %together, %known
  br i1 %here, label %ask, label %out
ask:
  %failed = call i32 @sched_getaffinity(i32 0, i64 {size}, ptr %mask)
  %given = icmp eq i32 %failed, 0
  br i1 %given, label %move, label %out
move:
  %number = lshr i32 %own, 3
  %at = getelementptr i8, ptr %mask, i32 %number
  %all = load i8, ptr %at
  %low = and i32 %own, 7
  %bit = shl i32 1, %low
  %byte = trunc i32 %bit to i8
  %rest = xor i8 %byte, -1
  %others = and i8 %all, %rest
  store i8 %others, ptr %at
  %alone = call i32 @sched_setaffinity(i32 0, i64 {size}, ptr %mask)
  store i8 %all, ptr %at
  %moved = icmp eq i32 %alone, 0
  br i1 %moved, label %free, label %out
free:
  %r = call i32 @sched_setaffinity(i32 0, i64 {size}, ptr %mask)
  br label %out
out:
  ret void
}}"""


def _share() -> str:
    """What one thread does of a launch: it takes `grain` programs at a time of its part, then of those behind it. The
    thread that called, which alone is given the watch, polls it after each time: programs may take long."""
    return f"""\
define internal void @share(ptr %pool, i64 %worker, ptr %watch) #0 {{
entry:
  %pace = alloca [2 x i64], align 16
  store [2 x i64] zeroinitializer, ptr %pace
  %unwatched = icmp eq ptr %watch, null
{_field("task", TASK)}
{_field("lines", PARTS)}
  %fn = load ptr, ptr %task
  %dp = getelementptr i64, ptr %task, i64 1
  %data = load ptr, ptr %dp
  %pp = getelementptr i64, ptr %task, i64 2
  %parts = load i64, ptr %pp
  %gp = getelementptr i64, ptr %task, i64 3
  %grain = load i64, ptr %gp
  br label %part
part:
  %helped = phi i64 [ 0, %entry ], [ %helped1, %behind ]
  %from = add i64 %worker, %helped
  %round = icmp sge i64 %from, %parts
  %less = sub i64 %from, %parts
  %number = select i1 %round, i64 %less, i64 %from
  %line = getelementptr [64 x i8], ptr %lines, i64 %number
  %ep = getelementptr i64, ptr %line, i64 1
  %last = load i64, ptr %ep
  br label %next
next:
  %begin = atomicrmw add ptr %line, i64 %grain monotonic
  %more = icmp slt i64 %begin, %last
  br i1 %more, label %run, label %behind
run:
  %far = add i64 %begin, %grain
  %over = icmp sgt i64 %far, %last
  %end = select i1 %over, i64 %last, i64 %far
  call void %fn(ptr %data, i64 %begin, i64 %end, i64 %worker)
  br i1 %unwatched, label %next, label %look
look:
  %poll.p = getelementptr i8, ptr %watch, i64 {POLL}
  %poll = load ptr, ptr %poll.p
  %going = call i64 %poll(ptr %watch, i64 0, ptr %pace)
  br label %next
behind:
  %helped1 = add i64 %helped, 1
  %others = icmp slt i64 %helped1, %parts
  br i1 %others, label %part, label %out
out:
  ret void
}}"""


def _divide() -> str:
    """Writes the part of each thread: whole chunks, but for the end of the last one, and as many to each as can be."""
    return f"""\
define internal void @divide(ptr %pool, i64 %count, i64 %grain, i64 %parts) #0 {{
entry:
{_field("lines", PARTS)}
  %up = add i64 %count, %grain
  %full = sub i64 %up, 1
  %chunks = udiv i64 %full, %grain
  br label %part
part:
  %i = phi i64 [ 0, %entry ], [ %i1, %part ]
  %begin = phi i64 [ 0, %entry ], [ %end, %part ]
  %i1 = add i64 %i, 1
  %product = mul i64 %chunks, %i1
  %whole = udiv i64 %product, %parts
  %far = mul i64 %whole, %grain
  %over = icmp sgt i64 %far, %count
  %end = select i1 %over, i64 %count, i64 %far
  %line = getelementptr [64 x i8], ptr %lines, i64 %i
  store atomic i64 %begin, ptr %line monotonic, align 8
  %ep = getelementptr i64, ptr %line, i64 1
  store i64 %end, ptr %ep
  %more = icmp slt i64 %i1, %parts
  br i1 %more, label %part, label %out
out:
  ret void
}}"""


def _worker(pause: str, sleep: str) -> str:
    """The life of a worker thread: it waits for the next epoch, first awake, then asleep, and takes its part."""
    return f"""\
define void @tessera_worker(ptr %pool, i64 %worker, i64 %spins) #0 {{
entry:
{_field("active", ACTIVE)}
{_field("open", OPEN)}
{_field("sleepers", SLEEPERS)}
{_field("stop", STOP)}
  br label %idle
idle:
  %last = phi i32 [ 0, %entry ], [ %epoch, %left ]
  br label %look
look:
  %spun = phi i64 [ 0, %idle ], [ %spun1, %spin ], [ 0, %woken ]
  %epoch = load atomic i32, ptr %pool acquire, align 4
  %same = icmp eq i32 %epoch, %last
  br i1 %same, label %wait, label %go
wait:
  %spun1 = add i64 %spun, 1
  %tired = icmp sge i64 %spun1, %spins
  br i1 %tired, label %doze, label %spin
spin:
  {pause}
  br label %look
doze:
  %s1 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  {sleep}
  %s2 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %woken
woken:
  br label %look
go:
  %stopping = load atomic i32, ptr %stop acquire, align 4
  %ends = icmp ne i32 %stopping, 0
  br i1 %ends, label %exit, label %enter
enter:
  %a1 = atomicrmw add ptr %active, i32 1 seq_cst
  %o = load atomic i32, ptr %open seq_cst, align 4
  %late = icmp eq i32 %o, 0
  br i1 %late, label %left, label %work
work:
  call void @share(ptr %pool, i64 %worker, ptr null)
  br label %left
left:
  %a2 = atomicrmw sub ptr %active, i32 1 release
  br label %idle
exit:
  ret void
}}"""


def _run(pause: str, wake: str) -> str:
    """A launch: opens an epoch, takes part in it, and waits for the workers that are still inside."""
    return f"""\
define void @{RUN}(ptr %pool, ptr %fn, ptr %data, i64 %count, i64 %grain, ptr %watch) #0 {{
entry:
  %pace = alloca [2 x i64], align 16
  store [2 x i64] zeroinitializer, ptr %pace
{_field("task", TASK)}
{_field("active", ACTIVE)}
{_field("open", OPEN)}
{_field("sleepers", SLEEPERS)}
{_field("busy", BUSY)}
{_field("size", SIZE)}
  %workers = load i32, ptr %size
  %alone = icmp eq i32 %workers, 0
  %single = icmp sle i64 %count, %grain
  %inline = or i1 %alone, %single
  br i1 %inline, label %self, label %claim
claim:
  %old = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %old, 1
  br i1 %mine, label %start, label %self
self:
  call void %fn(ptr %data, i64 0, i64 %count, i64 0)
  ret void
start:
  store ptr %fn, ptr %task
  %dp = getelementptr i64, ptr %task, i64 1
  store ptr %data, ptr %dp
  %pp = getelementptr i64, ptr %task, i64 2
  %others = zext i32 %workers to i64
  %parts = add i64 %others, 1
  store i64 %parts, ptr %pp
  %gp = getelementptr i64, ptr %task, i64 3
  store i64 %grain, ptr %gp
  call void @divide(ptr %pool, i64 %count, i64 %grain, i64 %parts)
  store atomic i32 1, ptr %open seq_cst, align 4
  %e = atomicrmw add ptr %pool, i32 1 seq_cst
  %s = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %s, 0
  br i1 %any, label %wake, label %take
wake:
  {wake}
  br label %take
take:
  call void @share(ptr %pool, i64 0, ptr %watch)
  store atomic i32 0, ptr %open seq_cst, align 4
  br label %wait
wait:
  %n = phi i64 [ 0, %take ], [ %n1, %pause ], [ 0, %yield ], [ 0, %look ]
  %a = load atomic i32, ptr %active seq_cst, align 4
  %all = icmp eq i32 %a, 0
  br i1 %all, label %exit, label %more
more:
  %n1 = add i64 %n, 1
  %long = icmp sge i64 %n1, 2000
  br i1 %long, label %yield, label %pause
pause:
  {pause}
  br label %wait
yield:
  %y = call i32 @sched_yield()
  %alone.here = icmp eq ptr %watch, null
  br i1 %alone.here, label %wait, label %look
look:
  %poll.p = getelementptr i8, ptr %watch, i64 {POLL}
  %poll = load ptr, ptr %poll.p
  %going = call i64 %poll(ptr %watch, i64 0, ptr %pace)
  br label %wait
exit:
  store atomic i32 0, ptr %busy release, align 4
  ret void
}}"""


@once
def _code() -> jit.Loaded:
    return jit.Loaded(jit.compile_object(_ir(), isa.host(), "threads"))


def code_address(name: str) -> int:
    """The address of one of the pool's functions."""
    return _code().address(name)


@once
def run_address() -> int:
    """The address of `RUN`, for generated code that launches tiles."""
    return code_address(RUN)


class Pool:
    """`size` workers besides the caller. The memory that they watch is never moved or freed while they live."""

    def __init__(self, size: int) -> None:
        self._memory = (ctypes.c_char * (PARTS + 64 * (size + 2)))()
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        code = _code()  # kept by the cache: the workers run in it
        native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address("tessera_worker"))
        self._threads = [
            threading.Thread(target=native, args=(self.address, i + 1, _SPINS), name=f"tessera-{i + 1}", daemon=True)
            for i in range(size)
        ]
        for i, t in enumerate(self._threads):
            try:
                t.start()
            except RuntimeError:  # the system gives no more threads: those that there are do the work
                self._threads = self._threads[:i]
                break
        self._field(SIZE).value = self.size = len(self._threads)

    def _field(self, offset: int) -> Any:
        return ctypes.c_int32.from_address(self.address + offset)

    def disown(self) -> None:
        """Forgets workers that do not exist in this process: launches still holding the pool run on their caller."""
        self._field(SIZE).value = 0
        self._field(BUSY).value = 0

    def stop(self) -> None:
        """Ends the workers. A launch that is running finishes first."""
        while self._field(BUSY).value:
            threading.Event().wait(0.001)
        self._field(STOP).value = 1
        self._field(SIZE).value = 0
        self._field(EPOCH).value += 1
        _wake(self.address)
        for t in self._threads:
            t.join(timeout=5)


def _wake(address: int) -> None:
    number = {"x86_64": 202, "aarch64": 98}.get(platform.machine().lower())
    if sys.platform.startswith("linux") and number:
        syscall: Any = ctypes.CDLL(None).syscall
        syscall(ctypes.c_long(number), ctypes.c_void_p(address), ctypes.c_long(129), ctypes.c_int(2**31 - 1))


class _Workers:
    """The pool of this process, and the requested number of threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: Pool | None = None
        self.wanted: int | None = None
        self.cell = ctypes.c_void_p()
        self.retired: list[Pool] = []
        """stopped pools: code that still holds their address runs on its caller alone"""

    def take(self) -> Pool | None:
        """The pool, which is then no longer that of the process."""
        old, self.pool = self.pool, None
        return old

    def forget(self) -> None:
        """In the child of a fork the workers are gone; the next launch starts new ones."""
        self.lock = threading.Lock()
        if (old := self.take()) is not None:
            self.retired.append(old)
            old.disown()

    def stop(self) -> None:
        if (old := self.take()) is not None:
            old.stop()


_workers = _Workers()


def pool() -> Pool:
    """The process's pool, started at first use."""
    found = _workers.pool
    if found is None:
        with _workers.lock:
            found = _workers.pool
            if found is None:
                found = _workers.pool = Pool(get_num_threads() - 1)
                _workers.cell.value = found.address
    return found


def pool_cell() -> ctypes.c_void_p:
    """A word that always holds the address of the current pool."""
    pool()
    return _workers.cell


def get_num_threads() -> int:
    """Threads that a launch uses, its caller included."""
    return _workers.wanted or knobs.num_threads()


def set_num_threads(count: int) -> None:
    """Takes effect at the next launch. Results do not depend on it."""
    with _workers.lock:
        _workers.wanted = count
        old = _workers.take()
    if old is not None:
        old.stop()
        _workers.retired.append(old)
        pool()


atexit.register(_workers.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_workers.forget)
