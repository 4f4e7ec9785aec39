"""Ctrl-C while native code runs.

Python notes a signal and answers it when its main thread is back in the interpreter, which a long kernel keeps it from.
So each call has a *watch* on its stack, which its frame points to. Kernels look at it in their loops over programs and
tiles: after a number of rounds they call `poll`, which adjusts this number to the time that the rounds took, and lets
Python's main thread answer signals every POLL_NS. Where a handler raises, the watch keeps the exception and tells
functions of kernels to stop: they return at their next look, and the call raises the exception. Results that were
being written are then unfinished.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from tessera.compiler.targets.cpu.frame import WATCH
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import PTR, Index, Val, text

POLL_NS = 50_000_000
"""time between two checks for signals"""
QUICK_NS, SLOW_NS = 1_000_000, 10_000_000
"""looks that are closer together than the first become rarer, looks further apart than the second more frequent"""
FIRST_LOOK = 16
"""rounds of a function before its first one, but for what is known to take long; the second one measures a round"""

# A watch: whether to stop (i32), when to ask next, the thread's state while the interpreter's lock is given away, the
# exception (type, value, traceback), and the address of `poll`.
STOP, NEXT, STATE, KIND, VALUE, TRACE, POLL = range(0, 7 * 8, 8)
_BYTES = 64
_CLOCK = 6 if sys.platform == "darwin" else 1  # CLOCK_MONOTONIC

PYTHON = (
    "PyErr_CheckSignals", "PyErr_Fetch", "PyErr_Restore", "PyEval_SaveThread", "PyEval_RestoreThread",
    "PyThread_get_thread_ident",
)  # fmt: skip
MAIN = "tessera_main_thread"
"""a word that holds the identity of Python's main thread"""
main_thread = ctypes.c_uint64(threading.main_thread().ident or 0)


def _field(name: str, offset: int) -> str:
    return f"  %{name} = getelementptr i8, ptr %watch, i64 {offset}"


IR = f"""
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyThread_get_thread_ident()
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
@{MAIN} = external global i64

; rounds until the next look; 0 to stop. %pace: when the last one was, and how many rounds lay before it
define i64 @poll(ptr %watch, i64 %worker, ptr %pace) {{
entry:
  %time = alloca [2 x i64], align 16
  %got = call i32 @clock_gettime(i32 {_CLOCK}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %last = load i64, ptr %pace
  store i64 %now, ptr %pace
  %rounds.p = getelementptr i64, ptr %pace, i64 1
  %rounds = load i64, ptr %rounds.p
  %first = icmp eq i64 %last, 0
  %took = sub i64 %now, %last
  %quick = icmp slt i64 %took, {QUICK_NS}
  %quicker = icmp slt i64 %took, {QUICK_NS // 16}
  %slow = icmp sgt i64 %took, {SLOW_NS}
  %by = select i1 %quicker, i64 4, i64 1
  %multiple = shl i64 %rounds, %by
  %more = call i64 @llvm.smin.i64(i64 %multiple, i64 1048576)
  %quarter = lshr i64 %rounds, 2
  %fewer = call i64 @llvm.smax.i64(i64 %quarter, i64 1)
  %adapted = select i1 %slow, i64 %fewer, i64 %rounds
  %measured = select i1 %quick, i64 %more, i64 %adapted
  %next.rounds = select i1 %first, i64 1, i64 %measured
  store i64 %next.rounds, ptr %rounds.p
  %caller = icmp eq i64 %worker, 0
  br i1 %caller, label %due, label %out
due:
{_field("next.p", NEXT)}
  %next = load i64, ptr %next.p
  %known = icmp ne i64 %next, 0
  %late = icmp sge i64 %now, %next
  %wait = xor i1 %late, true
  br i1 %wait, label %out, label %set
set:
  %then = add i64 %now, {POLL_NS}
  store i64 %then, ptr %next.p
  br i1 %known, label %ask, label %out
ask:
  %me = call i64 @PyThread_get_thread_ident()
  %main = load i64, ptr @{MAIN}
  %mine = icmp eq i64 %me, %main
  br i1 %mine, label %python, label %out
python:
{_field("state.p", STATE)}
  %state = load ptr, ptr %state.p
  %held = icmp eq ptr %state, null
  br i1 %held, label %give, label %take
give:
  %own = call ptr @PyEval_SaveThread()
  call void @PyEval_RestoreThread(ptr %own)
  br label %signals
take:
  call void @PyEval_RestoreThread(ptr %state)
  br label %signals
signals:
  %raised = call i32 @PyErr_CheckSignals()
  %stopping = icmp ne i32 %raised, 0
  br i1 %stopping, label %fetch, label %back
fetch:
{_field("kind.p", KIND)}
{_field("value.p", VALUE)}
{_field("trace.p", TRACE)}
  call void @PyErr_Fetch(ptr %kind.p, ptr %value.p, ptr %trace.p)
  store atomic i32 1, ptr %watch release, align 4
  br label %back
back:
  br i1 %held, label %out, label %leave
leave:
  %left = call ptr @PyEval_SaveThread()
  store ptr %left, ptr %state.p
  br label %out
out:
  %stopped = load atomic i32, ptr %watch acquire, align 4
  %over = icmp ne i32 %stopped, 0
  %answer = select i1 %over, i64 0, i64 %next.rounds
  ret i64 %answer
}}

define internal void @watch_begin(ptr %watch, ptr %frame) {{
entry:
  store [8 x i64] zeroinitializer, ptr %watch
{_field("poll.p", POLL)}
  store ptr @poll, ptr %poll.p
  %slot = getelementptr i64, ptr %frame, i64 {WATCH}
  store ptr %watch, ptr %slot
  ret void
}}

; gives the interpreter's lock away, runs, and takes it back
define internal void @watch_free(ptr %watch, ptr %run, ptr %frame) {{
entry:
{_field("state.p", STATE)}
  %state = call ptr @PyEval_SaveThread()
  store ptr %state, ptr %state.p
  call void %run(ptr %frame)
  %now = load ptr, ptr %state.p
  call void @PyEval_RestoreThread(ptr %now)
  ret void
}}

; raises what was kept; whether there was anything
define internal i1 @watch_end(ptr %watch) {{
entry:
{_field("kind.p", KIND)}
  %kind = load ptr, ptr %kind.p
  %none = icmp eq ptr %kind, null
  br i1 %none, label %done, label %raise
raise:
{_field("value.p", VALUE)}
  %value = load ptr, ptr %value.p
{_field("trace.p", TRACE)}
  %trace = load ptr, ptr %trace.p
  call void @PyErr_Restore(ptr %kind, ptr %value, ptr %trace)
  br label %done
done:
  %any = xor i1 %none, true
  ret i1 %any
}}

define void @call(ptr %run, ptr %frame) {{
entry:
  %watch = alloca [{_BYTES} x i8], align 64
  call void @watch_begin(ptr %watch, ptr %frame)
  call void @watch_free(ptr %watch, ptr %run, ptr %frame)
  %raised = call i1 @watch_end(ptr %watch)
  ret void
}}
"""


class Looks:
    """Writes the places where a function looks at its call's watch: at its start, then in its loops."""

    def __init__(self, fn: LLVMFunction, watch: Val, worker: Index, first: int = FIRST_LOOK) -> None:
        self.fn, self.watch, self.worker = fn, watch, worker
        self.left, self.pace = fn.alloca("i64", 1, 8), fn.alloca("i64", 2, 16)
        fn.entry += [
            f"  store i64 {first}, ptr {self.left.ref}",
            f"  store [2 x i64] [i64 0, i64 {first}], ptr {self.pace.ref}",
        ]
        self.at_start()

    def at_start(self) -> None:
        """Leaves the function where the call is to stop."""
        stop, over, leave, on = (self.fn.fresh(p) for p in ("%stop", "%over", "leave", "on"))
        self.fn.do(f"{stop} = load atomic i32, ptr {self.watch.ref} monotonic, align 4")
        self.fn.do(f"{over} = icmp ne i32 {stop}, 0")
        self._unless(over, leave, on)

    def in_loop(self) -> None:
        """The same in a round of a loop, where it is time to look."""
        fn = self.fn
        n, m, due, address, poll, rounds, over = (fn.fresh() for _ in range(7))
        look, leave, on = fn.fresh("look"), fn.fresh("leave"), fn.fresh("on")
        fn.do(f"{n} = load i64, ptr {self.left.ref}")
        fn.do(f"{m} = add nsw i64 {n}, -1")
        fn.do(f"store i64 {m}, ptr {self.left.ref}")
        fn.do(f"{due} = icmp sle i64 {m}, 0")
        fn.do(f"br i1 {due}, label %{look}, label %{on}, !prof !{fn.module.seldom()}")
        fn.place(look)
        fn.do(f"{address} = getelementptr i8, ptr {self.watch.ref}, i64 {POLL}")
        fn.do(f"{poll} = load ptr, ptr {address}")
        arguments = f"ptr {self.watch.ref}, i64 {text(self.worker)}, ptr {self.pace.ref}"
        fn.do(f"{rounds} = call i64 {poll}({arguments})")
        fn.do(f"store i64 {rounds}, ptr {self.left.ref}")
        fn.do(f"{over} = icmp eq i64 {rounds}, 0")
        self._unless(over, leave, on)

    def _unless(self, over: str, leave: str, on: str) -> None:
        fn = self.fn
        fn.do(f"br i1 {over}, label %{leave}, label %{on}, !prof !{fn.module.seldom()}")
        fn.place(leave)
        fn.do("ret void")
        fn.place(on)


def watch_of(fn: LLVMFunction) -> Val:
    """The watch of the call whose frame is the function's first parameter."""
    return fn.load_pure(fn.gep(fn.param(0), WATCH, "i64"), PTR, 8)


def never_stop(fn: LLVMFunction, watch: Val) -> None:
    """Has the call answer no signals: Python does when it is over."""
    place = fn.fresh()
    fn.do(f"{place} = getelementptr i8, ptr {watch.ref}, i64 {NEXT}")
    fn.do(f"store i64 {2**63 - 1}, ptr {place}")


def _after_fork() -> None:
    main_thread.value = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
