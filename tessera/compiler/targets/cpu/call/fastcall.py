"""A repeated call without Python in between: a built-in function that takes arrays by the buffer protocol.

One native function serves all Programs. Its `self` is an integer, the address of a description: where the entry point
and the frame are, and for each argument its slot, its size in bytes and how it is converted. It returns 0 when the
Program has run, and k + 1 when argument k is not what the description says (or -1 when the frame is in use by another
thread, -2 when two arrays overlap); nothing has happened then, and the caller takes the long way. It raises what a
signal's handler raises meanwhile.

NumPy's own arrays are read where they lie, by the layout that its C interface fixes, if their dtype and shape are those
of the description; all else is asked for its buffer. With an odd address as its `self` it asks nobody: whoever calls it
then need not have looked at dtypes and shapes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from tessera.compiler.targets.cpu import interrupts
from tessera.compiler.targets.cpu.call import threads
from tessera.compiler.targets.cpu.frame import POOL
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.once import once

WORKERS = 256
"""workers that the frame's scratch memory is laid out for"""
UNLOCKED_BYTES = 1 << 16
"""calls on more memory than this let other Python threads run meanwhile"""

# slots of a description
RUN, FRAME, BUSY, UNLOCK, POOL_CELL, ARRAYS, SCALARS, PAIRS, NDARRAY, EXTENTS, ORDER, FIRST = range(12)
PER_ARGUMENT = 8
"""arrays: frame slot, bytes, item size, buffer flags, NumPy's flags, its dtype, the number of axes and where their
lengths are; scalars: frame slot, kind; then pairs of arrays that must not overlap: two numbers of arrays, whether they
may be one and the same"""
PER_EXTENT = 3
"""arrays in the order of their addresses: number, whether it is stored to, address; in a table of their own"""
HEAD = object.__basicsize__
"""bytes of an object's head, the last of which are its type"""
KIND, DATA, AXES, LENGTHS, DTYPE, FLAGS = HEAD - 8, HEAD, HEAD + 8, HEAD + 16, HEAD + 40, HEAD + 48
"""where an array of NumPy's has its type, address, number of axes, their lengths, dtype and flags
(PyArrayObject_fields)"""
PLAIN, WRITEABLE = 0x1, 0x400
"""flags of NumPy's: in one piece in the order of its axes; may be stored to"""
FLOAT32, FLOAT64, INTEGER = range(3)
CONTIGUOUS, WRITABLE = 0x38, 1
BUFFER_BYTES = 80
LIMIT = 1 << 13
"""arguments: a step of a model with a thousand parameters has seven for each; 640 KiB of the stack"""

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
declare void @qsort(ptr, i64, i64, ptr)

{interrupts.IR}

define i32 @by_address(ptr %one, ptr %other) {{
  %one.p = getelementptr i64, ptr %one, i64 2
  %one.at = load i64, ptr %one.p
  %other.p = getelementptr i64, ptr %other, i64 2
  %other.at = load i64, ptr %other.p
  %more = icmp ugt i64 %one.at, %other.at
  %less = icmp ult i64 %one.at, %other.at
  %up = zext i1 %more to i32
  %down = zext i1 %less to i32
  %order = sub i32 %up, %down
  ret i32 %order
}}

define ptr @fast(ptr %self, ptr %args, i64 %given) {{
entry:
  %watch = alloca [64 x i8], align 64
  %self.value = call ptr @PyLong_AsVoidPtr(ptr %self)
  %self.bits = ptrtoint ptr %self.value to i64
  %exact = trunc i64 %self.bits to i1
  %d.bits = and i64 %self.bits, -2
  %d = inttoptr i64 %d.bits to ptr
  %ndarray.p = getelementptr i64, ptr %d, i64 {NDARRAY}
  %ndarray = load ptr, ptr %ndarray.p
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
  %extents.p = getelementptr i64, ptr %d, i64 {EXTENTS}
  %extents = load i64, ptr %extents.p
  %order.p = getelementptr i64, ptr %d, i64 {ORDER}
  %order = load ptr, ptr %order.p
  %table = getelementptr i64, ptr %d, i64 {FIRST}
  %buffers = alloca [{BUFFER_BYTES} x i8], i64 %arrays, align 16
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
  %off = mul i64 %i, {BUFFER_BYTES}
  %buffer = getelementptr i8, ptr %buffers, i64 %off
  %i.next = add i64 %i, 1
  %kind.at = getelementptr i8, ptr %arg, i64 {KIND}
  %its.kind = load ptr, ptr %kind.at
  %plain = icmp eq ptr %its.kind, %ndarray
  br i1 %plain, label %own, label %array.foreign
own:
  %own.flags.p = getelementptr i8, ptr %arg, i64 {FLAGS}
  %own.flags = load i32, ptr %own.flags.p
  %own.flags64 = zext i32 %own.flags to i64
  %own.flags.want.p = getelementptr i64, ptr %row, i64 4
  %own.flags.want = load i64, ptr %own.flags.want.p
  %own.flags.both = and i64 %own.flags64, %own.flags.want
  %own.flags.ok = icmp eq i64 %own.flags.both, %own.flags.want
  %own.dtype.p = getelementptr i8, ptr %arg, i64 {DTYPE}
  %own.dtype = load i64, ptr %own.dtype.p
  %own.dtype.want.p = getelementptr i64, ptr %row, i64 5
  %own.dtype.want = load i64, ptr %own.dtype.want.p
  %own.dtype.ok = icmp eq i64 %own.dtype, %own.dtype.want
  %own.axes.p = getelementptr i8, ptr %arg, i64 {AXES}
  %own.axes = load i32, ptr %own.axes.p
  %own.axes64 = sext i32 %own.axes to i64
  %own.axes.want.p = getelementptr i64, ptr %row, i64 6
  %own.axes.want = load i64, ptr %own.axes.want.p
  %own.axes.ok = icmp eq i64 %own.axes64, %own.axes.want
  %own.one = and i1 %own.flags.ok, %own.dtype.ok
  %own.ok = and i1 %own.one, %own.axes.ok
  %lengths.p = getelementptr i8, ptr %arg, i64 {LENGTHS}
  %lengths = load ptr, ptr %lengths.p
  %lengths.want.p = getelementptr i64, ptr %row, i64 7
  %lengths.want = load ptr, ptr %lengths.want.p
  br i1 %own.ok, label %axis, label %array.foreign
axis:
  %a = phi i64 [ 0, %own ], [ %a.next, %axis.compare ]
  %a.more = icmp slt i64 %a, %own.axes.want
  br i1 %a.more, label %axis.compare, label %own.take
axis.compare:
  %length.p = getelementptr i64, ptr %lengths, i64 %a
  %length = load i64, ptr %length.p
  %length.want.p = getelementptr i64, ptr %lengths.want, i64 %a
  %length.want = load i64, ptr %length.want.p
  %length.ok = icmp eq i64 %length, %length.want
  %a.next = add i64 %a, 1
  br i1 %length.ok, label %axis, label %array.foreign
own.take:
  %own.data.p = getelementptr i8, ptr %arg, i64 {DATA}
  %own.data = load ptr, ptr %own.data.p
  %own.size.p = getelementptr i64, ptr %row, i64 1
  %own.size = load i64, ptr %own.size.p
  store ptr %own.data, ptr %buffer
  %own.holder.p = getelementptr ptr, ptr %buffer, i64 1
  store ptr null, ptr %own.holder.p
  %own.size.at = getelementptr i64, ptr %buffer, i64 2
  store i64 %own.size, ptr %own.size.at
  br label %array.kept
array.foreign:
  br i1 %exact, label %undo, label %array.ask
array.ask:
  %flags.p = getelementptr i64, ptr %row, i64 3
  %flags64 = load i64, ptr %flags.p
  %flags = trunc i64 %flags64 to i32
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
  br i1 %q.more, label %pair.take, label %extent
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
extent:
  %e = phi i64 [ 0, %pair ], [ 0, %sort.call ], [ %e.next, %extent.compare ]
  %e.before = phi i64 [ 0, %pair ], [ 0, %sort.call ], [ %e.start, %extent.compare ]
  %e.end = phi i64 [ 0, %pair ], [ 0, %sort.call ], [ %e.end.next, %extent.compare ]
  %e.stored.end = phi i64 [ 0, %pair ], [ 0, %sort.call ], [ %e.stored.next, %extent.compare ]
  %e.more = icmp slt i64 %e, %extents
  br i1 %e.more, label %extent.take, label %scalar
extent.take:
  %e.at = mul i64 %e, {PER_EXTENT}
  %e.row = getelementptr i64, ptr %order, i64 %e.at
  %e.number = load i64, ptr %e.row
  %e.stored.p = getelementptr i64, ptr %e.row, i64 1
  %e.stored64 = load i64, ptr %e.stored.p
  %e.stored = icmp ne i64 %e.stored64, 0
  %e.off = mul i64 %e.number, {BUFFER_BYTES}
  %e.buffer = getelementptr i8, ptr %buffers, i64 %e.off
  %e.start = load i64, ptr %e.buffer
  %e.len.p = getelementptr i64, ptr %e.buffer, i64 2
  %e.len = load i64, ptr %e.len.p
  %e.known = icmp uge i64 %e.start, %e.before
  br i1 %e.known, label %extent.compare, label %sort
extent.compare:
  %e.limit = select i1 %e.stored, i64 %e.end, i64 %e.stored.end
  %e.free = icmp uge i64 %e.start, %e.limit
  %e.stop = add i64 %e.start, %e.len
  %e.further = icmp ugt i64 %e.stop, %e.end
  %e.end.next = select i1 %e.further, i64 %e.stop, i64 %e.end
  %e.last = icmp ugt i64 %e.stop, %e.stored.end
  %e.longer = and i1 %e.last, %e.stored
  %e.stored.next = select i1 %e.longer, i64 %e.stop, i64 %e.stored.end
  %e.next = add i64 %e, 1
  br i1 %e.free, label %extent, label %undo
sort:
  %f = phi i64 [ 0, %extent.take ], [ %f.next, %sort.take ]
  %f.more = icmp slt i64 %f, %extents
  br i1 %f.more, label %sort.take, label %sort.call
sort.take:
  %f.at = mul i64 %f, {PER_EXTENT}
  %f.row = getelementptr i64, ptr %order, i64 %f.at
  %f.number = load i64, ptr %f.row
  %f.off = mul i64 %f.number, {BUFFER_BYTES}
  %f.buffer = getelementptr i8, ptr %buffers, i64 %f.off
  %f.start = load i64, ptr %f.buffer
  %f.address = getelementptr i64, ptr %f.row, i64 2
  store i64 %f.start, ptr %f.address
  %f.next = add i64 %f, 1
  br label %sort
sort.call:
  call void @qsort(ptr %order, i64 %extents, i64 {8 * PER_EXTENT}, ptr @by_address)
  br label %extent
scalar:
  %j = phi i64 [ 0, %extent ], [ %j.next, %scalar.kept ]
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
  %held = phi i64 [ 0, %crowd ], [ %i, %array.foreign ], [ %i, %array.none ], [ %i, %array.other ],
    [ %arrays, %pair.take ], [ %arrays, %extent.compare ], [ %arrays, %scalar.none ]
  %which = phi i64 [ -2, %crowd ], [ -3, %pair.take ], [ -3, %extent.compare ], [ %i, %array.foreign ],
    [ %i, %array.none ], [ %i, %array.other ], [ %k, %scalar.none ]
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


@once
def _ndarray() -> int:
    """The address of NumPy's class of arrays; 0 if its arrays are not laid out as is expected here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return 0
    kind = id(np.ndarray)
    for array in (np.zeros((3, 5), np.float32), np.zeros((), np.int64), np.zeros((2, 3, 4))[:, ::2]):
        word = [ctypes.c_int64.from_address(id(array) + at).value for at in (KIND, DATA, LENGTHS, DTYPE)]
        axes, flags = (ctypes.c_int32.from_address(id(array) + at).value for at in (AXES, FLAGS))
        plain = PLAIN * array.flags.c_contiguous | WRITEABLE * array.flags.writeable
        if (*word[:2], word[3], axes) != (kind, array.ctypes.data, id(array.dtype), array.ndim):
            return 0
        lengths = tuple((ctypes.c_int64 * axes).from_address(word[2])) if axes else ()
        if lengths != array.shape or flags & (PLAIN | WRITEABLE) != plain:
            return 0
    return kind


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


class FastFunctions(NamedTuple):
    """Two ways into one Program. `exact` takes NumPy's arrays alone, of exactly these dtypes and shapes; None where it
    cannot tell them."""

    fast: Any
    exact: Any


def fast_functions(
    entry: int,
    frame: Any,
    arrays: Sequence[tuple[int, int, int, bool]],
    scalars: Sequence[tuple[int, int]],
    pairs: Sequence[tuple[int, int, bool]],
    extents: Sequence[tuple[int, bool]],
    kinds: Sequence[tuple[Any, tuple[int, ...]]],
    kept: tuple[Any, ...],
) -> FastFunctions:
    """The functions for one Program. `arrays`: (frame slot, bytes, item size, written to); `scalars`: (slot, kind);
    `pairs`: two arrays that must not overlap, whether they may be one and the same; `extents`: arrays, and whether each
    is stored to and so must not overlap with any of them; `kinds`: the dtypes of NumPy's and the shapes of the arrays,
    or nothing."""
    unlock = int(sum(size for _, size, _, _ in arrays) > UNLOCKED_BYTES)
    cell = threads.pool_cell()
    ndarray = _ndarray() if kinds else 0
    shapes = [(ctypes.c_int64 * len(shape))(*shape) for _, shape in kinds]
    rows: list[int] = []
    for i, (slot, size, item, written) in enumerate(arrays):
        rows += [slot, size, item, CONTIGUOUS | (WRITABLE if written else 0), PLAIN | (WRITEABLE if written else 0)]
        rows += [id(kinds[i][0]), len(shapes[i]), ctypes.addressof(shapes[i])] if kinds else [0, -1, 0]
    rows += [v for slot, kind in scalars for v in (slot, kind, *[0] * (PER_ARGUMENT - 2))]
    rows += [v for one, other, same in pairs for v in (one, other, int(same), *[0] * (PER_ARGUMENT - 3))]
    order = (ctypes.c_int64 * (PER_EXTENT * len(extents)))(*(v for i, stored in extents for v in (i, int(stored), 0)))
    head = [entry, ctypes.addressof(frame), 0, unlock, ctypes.addressof(cell), len(arrays), len(scalars), len(pairs),
            ndarray, len(extents), ctypes.addressof(order)]  # fmt: skip
    description = (ctypes.c_int64 * (len(head) + len(rows)))(*head, *rows)
    alive = (description, order, frame, cell, shapes, tuple(kinds), *kept)
    address = ctypes.addressof(description)
    return FastFunctions(_builtin(address, alive), _builtin(address | 1, alive) if ndarray else None)


def _builtin(address: int, kept: tuple[Any, ...]) -> Any:
    handle = _Handle(address)
    handle.kept = kept
    _, method = _method()
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(method), handle, None)
