"""A repeated call without Python in between: a built-in function that takes arrays by the buffer protocol.

One native function serves all Programs. Its `self` is an integer, the address of a description: where the entry point
and the frame are, and for each argument its slot, its size in bytes and how it is converted. It returns 0 when the
Program has run, and k + 1 when argument k is not what the description says (or -1 when the frame is in use by another
thread, -2 when two arrays overlap); nothing has happened then, and the caller takes the long way. It raises what a
signal's handler raises meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tessera.compiler.targets.cpu import interrupts
from tessera.compiler.targets.cpu.call import threads
from tessera.compiler.targets.cpu.frame import POOL
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.language.dtypes import DType
from tessera.once import once

WORKERS = 256
"""workers that the frame's scratch memory is laid out for"""
UNLOCKED_BYTES = 1 << 16
"""calls on more memory than this let other Python threads run meanwhile"""

# slots of a description
RUN, FRAME, BUSY, UNLOCK, POOL_CELL, ARRAYS, SCALARS, PAIRS, FIRST = range(9)
PER_ARGUMENT = 4
"""arrays: frame slot, bytes, item size, buffer flags; scalars: frame slot, kind; then pairs of arrays that must not
overlap: two numbers of arrays, whether they may be one and the same"""
FLOAT32, FLOAT64, INTEGER = range(3)
CONTIGUOUS, WRITABLE = 0x38, 1
BUFFER_BYTES = 80
LIMIT = 256
"""arguments"""

_PYTHON = (
    "PyObject_GetBuffer", "PyBuffer_Release", "PyErr_Clear", "PyErr_Occurred", "PyFloat_AsDouble",
    "PyLong_AsLongLong", "PyLong_AsVoidPtr", "PyLong_FromLong", *interrupts.PYTHON,
)  # fmt: skip

_IR = f"""
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLong(i64)

{interrupts.IR}

define ptr @fast(ptr %self, ptr %args, i64 %given) {{
entry:
  %buffers = alloca [{LIMIT * BUFFER_BYTES} x i8], align 16
  %watch = alloca [64 x i8], align 64
  %d = call ptr @PyLong_AsVoidPtr(ptr %self)
  %run.p = getelementptr i64, ptr %d, i64 {RUN}
  %run = load ptr, ptr %run.p
  %frame.p = getelementptr i64, ptr %d, i64 {FRAME}
  %frame = load ptr, ptr %frame.p
  %busy = getelementptr i64, ptr %d, i64 {BUSY}
  %unlock.p = getelementptr i64, ptr %d, i64 {UNLOCK}
  %unlock = load i64, ptr %unlock.p
  %cell.p = getelementptr i64, ptr %d, i64 {POOL_CELL}
  %cell = load ptr, ptr %cell.p
  %arrays.p = getelementptr i64, ptr %d, i64 {ARRAYS}
  %arrays = load i64, ptr %arrays.p
  %scalars.p = getelementptr i64, ptr %d, i64 {SCALARS}
  %scalars = load i64, ptr %scalars.p
  %pairs.p = getelementptr i64, ptr %d, i64 {PAIRS}
  %pairs = load i64, ptr %pairs.p
  %table = getelementptr i64, ptr %d, i64 {FIRST}
  %wanted = add i64 %arrays, %scalars
  %enough = icmp eq i64 %given, %wanted
  br i1 %enough, label %claim, label %refuse
claim:
  %was = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %was, 1
  br i1 %mine, label %pool, label %refuse
refuse:
  %no = call ptr @PyLong_FromLong(i64 -1)
  ret ptr %no
pool:
  %pool.now = load ptr, ptr %cell
  %pool.size.p = getelementptr i8, ptr %pool.now, i64 {threads.SIZE}
  %pool.size = load i32, ptr %pool.size.p
  %few = icmp slt i32 %pool.size, {WORKERS}
  %pool.slot = getelementptr i64, ptr %frame, i64 {POOL}
  store ptr %pool.now, ptr %pool.slot
  br i1 %few, label %array, label %crowd
crowd:
  br label %undo
array:
  %i = phi i64 [ 0, %pool ], [ %i.next, %array.kept ]
  %more = icmp slt i64 %i, %arrays
  br i1 %more, label %array.take, label %pair
array.take:
  %arg.p = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg.p
  %at = mul i64 %i, {PER_ARGUMENT}
  %row = getelementptr i64, ptr %table, i64 %at
  %flags.p = getelementptr i64, ptr %row, i64 3
  %flags64 = load i64, ptr %flags.p
  %flags = trunc i64 %flags64 to i32
  %off = mul i64 %i, {BUFFER_BYTES}
  %buffer = getelementptr i8, ptr %buffers, i64 %off
  %got = call i32 @PyObject_GetBuffer(ptr %arg, ptr %buffer, i32 %flags)
  %failed = icmp ne i32 %got, 0
  br i1 %failed, label %array.none, label %array.check
array.none:
  call void @PyErr_Clear()
  br label %undo
array.check:
  %len.p = getelementptr i64, ptr %buffer, i64 2
  %len = load i64, ptr %len.p
  %item.p = getelementptr i64, ptr %buffer, i64 3
  %item = load i64, ptr %item.p
  %len.want.p = getelementptr i64, ptr %row, i64 1
  %len.want = load i64, ptr %len.want.p
  %item.want.p = getelementptr i64, ptr %row, i64 2
  %item.want = load i64, ptr %item.want.p
  %len.ok = icmp eq i64 %len, %len.want
  %item.ok = icmp eq i64 %item, %item.want
  %ok = and i1 %len.ok, %item.ok
  %i.next = add i64 %i, 1
  br i1 %ok, label %array.kept, label %array.other
array.other:
  call void @PyBuffer_Release(ptr %buffer)
  br label %undo
array.kept:
  %data = load ptr, ptr %buffer
  %slot = load i64, ptr %row
  %slot.p = getelementptr i64, ptr %frame, i64 %slot
  store ptr %data, ptr %slot.p
  br label %array
pair:
  %q = phi i64 [ 0, %array ], [ %q.next, %pair.take ]
  %q.more = icmp slt i64 %q, %pairs
  br i1 %q.more, label %pair.take, label %scalar
pair.take:
  %q.row = add i64 %wanted, %q
  %q.at = mul i64 %q.row, {PER_ARGUMENT}
  %one.p = getelementptr i64, ptr %table, i64 %q.at
  %one = load i64, ptr %one.p
  %other.p = getelementptr i64, ptr %one.p, i64 1
  %other = load i64, ptr %other.p
  %may.p = getelementptr i64, ptr %one.p, i64 2
  %may = load i64, ptr %may.p
  %one.off = mul i64 %one, {BUFFER_BYTES}
  %one.buffer = getelementptr i8, ptr %buffers, i64 %one.off
  %one.start = load i64, ptr %one.buffer
  %one.len.p = getelementptr i64, ptr %one.buffer, i64 2
  %one.len = load i64, ptr %one.len.p
  %one.end = add i64 %one.start, %one.len
  %other.off = mul i64 %other, {BUFFER_BYTES}
  %other.buffer = getelementptr i8, ptr %buffers, i64 %other.off
  %other.start = load i64, ptr %other.buffer
  %other.len.p = getelementptr i64, ptr %other.buffer, i64 2
  %other.len = load i64, ptr %other.len.p
  %other.end = add i64 %other.start, %other.len
  %before = icmp ult i64 %one.start, %other.end
  %behind = icmp ult i64 %other.start, %one.end
  %overlap = and i1 %before, %behind
  %apart = icmp ne i64 %one.start, %other.start
  %never = icmp eq i64 %may, 0
  %forbidden = or i1 %apart, %never
  %clash = and i1 %overlap, %forbidden
  %q.next = add i64 %q, 1
  br i1 %clash, label %undo, label %pair
scalar:
  %j = phi i64 [ 0, %pair ], [ %j.next, %scalar.kept ]
  %left = icmp slt i64 %j, %scalars
  br i1 %left, label %scalar.take, label %call
scalar.take:
  %k = add i64 %arrays, %j
  %s.p = getelementptr ptr, ptr %args, i64 %k
  %s = load ptr, ptr %s.p
  %s.at = mul i64 %k, {PER_ARGUMENT}
  %s.row = getelementptr i64, ptr %table, i64 %s.at
  %s.slot = load i64, ptr %s.row
  %s.place = getelementptr i64, ptr %frame, i64 %s.slot
  %kind.p = getelementptr i64, ptr %s.row, i64 1
  %kind = load i64, ptr %kind.p
  %whole = icmp eq i64 %kind, {INTEGER}
  br i1 %whole, label %scalar.int, label %scalar.float
scalar.int:
  %n = call i64 @PyLong_AsLongLong(ptr %s)
  store i64 %n, ptr %s.place
  %n.odd = icmp eq i64 %n, -1
  br i1 %n.odd, label %scalar.asked, label %scalar.kept
scalar.float:
  %x = call double @PyFloat_AsDouble(ptr %s)
  %narrow = icmp eq i64 %kind, {FLOAT32}
  br i1 %narrow, label %scalar.f32, label %scalar.f64
scalar.f32:
  %x32 = fptrunc double %x to float
  store float %x32, ptr %s.place
  br label %scalar.was
scalar.f64:
  store double %x, ptr %s.place
  br label %scalar.was
scalar.was:
  %x.odd = fcmp oeq double %x, -1.0
  br i1 %x.odd, label %scalar.asked, label %scalar.kept
scalar.asked:
  %error = call ptr @PyErr_Occurred()
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %scalar.none, label %scalar.kept
scalar.none:
  call void @PyErr_Clear()
  br label %undo
scalar.kept:
  %j.next = add i64 %j, 1
  br label %scalar
call:
  call void @watch_begin(ptr %watch, ptr %frame)
  %free = icmp ne i64 %unlock, 0
  br i1 %free, label %call.free, label %call.held
call.free:
  call void @watch_free(ptr %watch, ptr %run, ptr %frame)
  br label %ran
call.held:
  call void %run(ptr %frame)
  br label %ran
ran:
  br label %release
undo:
  %held = phi i64 [ 0, %crowd ], [ %i, %array.none ], [ %i, %array.other ], [ %arrays, %pair.take ],
    [ %arrays, %scalar.none ]
  %which = phi i64 [ -2, %crowd ], [ -3, %pair.take ], [ %i, %array.none ], [ %i, %array.other ], [ %k, %scalar.none ]
  %refused = add i64 %which, 1
  br label %release
release:
  %taken = phi i64 [ %arrays, %ran ], [ %held, %undo ], [ %taken, %release.one ]
  %code = phi i64 [ 0, %ran ], [ %refused, %undo ], [ %code, %release.one ]
  %r = phi i64 [ 0, %ran ], [ 0, %undo ], [ %r.next, %release.one ]
  %again = icmp slt i64 %r, %taken
  br i1 %again, label %release.one, label %done
release.one:
  %r.off = mul i64 %r, {BUFFER_BYTES}
  %r.buffer = getelementptr i8, ptr %buffers, i64 %r.off
  call void @PyBuffer_Release(ptr %r.buffer)
  %r.next = add i64 %r, 1
  br label %release
done:
  store atomic i64 0, ptr %busy release, align 8
  %good = icmp eq i64 %code, 0
  br i1 %good, label %finish, label %answer
finish:
  %raised = call i1 @watch_end(ptr %watch)
  br i1 %raised, label %raise, label %answer
raise:
  ret ptr null
answer:
  %object = call ptr @PyLong_FromLong(i64 %code)
  ret ptr %object
}}
"""


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@once
def _method() -> tuple[jit.Loaded, _Method]:
    functions = ((name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p)) for name in _PYTHON)
    python = {name: function.value for name, function in functions if function.value is not None}
    python[interrupts.MAIN] = ctypes.addressof(interrupts.main_thread)
    code = jit.Loaded(jit.compile_object(_IR, isa.host(), "fastcall"), imports=python)
    return code, _Method(b"fast", code.address("fast"), 0x80, b"Runs the Program; 0 if it did.")


@once
def caller() -> Any:
    """`call(entry, frame)`: a run of a Program without the interpreter's lock. Raises what a signal handler raises."""
    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_method()[0].address("call"))


class _Handle(int):
    """The description's address; it keeps alive all that the description points to."""

    kept: tuple[Any, ...]


def scalar_kind(dtype: DType) -> int | None:
    """How a Python number becomes this scalar; None where only the long way can convert it."""
    if dtype.name == "f32":
        return FLOAT32
    if dtype.name == "f64":
        return FLOAT64
    return INTEGER if dtype.is_integer or dtype.kind == "bool" else None


def fast_function(
    entry: int,
    frame: Any,
    arrays: Sequence[tuple[int, int, int, bool]],
    scalars: Sequence[tuple[int, int]],
    pairs: Sequence[tuple[int, int, bool]],
    kept: tuple[Any, ...],
) -> Any:
    """The function for one Program. `arrays`: (frame slot, bytes, item size, written to); `scalars`: (slot, kind);
    `pairs`: two arrays that must not overlap, whether they may be one and the same."""
    unlock = int(sum(size for _, size, _, _ in arrays) > UNLOCKED_BYTES)
    cell = threads.pool_cell()
    rows = [
        v for slot, size, item, written in arrays for v in (slot, size, item, CONTIGUOUS | (WRITABLE if written else 0))
    ]
    rows += [v for slot, kind in scalars for v in (slot, kind, 0, 0)]
    rows += [v for one, other, same in pairs for v in (one, other, int(same), 0)]
    head = [entry, ctypes.addressof(frame), 0, unlock, ctypes.addressof(cell), len(arrays), len(scalars),
            len(pairs)]  # fmt: skip
    description = (ctypes.c_int64 * (len(head) + len(rows)))(*head, *rows)
    handle = _Handle(ctypes.addressof(description))
    handle.kept = (description, frame, cell, *kept)
    _, method = _method()
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), handle, None)
