"""A NumPy interpreter of Tile IR: the meaning of every op, executed one program after the other, with checks.

It is the oracle of all other targets. Sums of products have the order of language/order.py with one rounding per step,
so results do not depend on tile sizes. See `memory.py` for what is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Any, cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.machines import BLOCK_SCALED, REFERENCE
from tessera.compiler.tile.asserts import dtype_of, element_fault, shown, tested_tile
from tessera.compiler.tile.dialect import matrix_sizes
from tessera.compiler.tile.interpret.arithmetic import dot, order, philox, reduce, scalar_map
from tessera.compiler.tile.interpret.memory import SharedTile, WatchedView, fault, outside_text, user_axis
from tessera.compiler.tile.interpret.pipelines import run_pipeline
from tessera.compiler.tile.primitive import PRIMITIVES
from tessera.compiler.tile.printing import say
from tessera.compiler.tile.program_order import in_order
from tessera.errors import Note, Span
from tessera.immutable import mutable
from tessera.language import dtypes
from tessera.language.dims import Dim, evaluate
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.order import pairs
from tessera.language.rounding import round_to, rounded_number, to_compute
from tessera.language.scalars import REDUCERS


@mutable
class InterpreterOptions:
    """`check_nan`: storing a NaN is a fault, said where it arose. `check_indices`: so is a computed index outside its
    axis; else it reads as nothing and is not stored. `check_asserts`: so is an assert that does not hold. `on_print`
    receives (label, program, array)."""

    check_nan: bool = False
    check_indices: bool = True
    check_asserts: bool = True
    on_print: Callable[[str, tuple[int, ...], Any], None] | None = None
    on_program: Callable[[int], None] | None = None
    """called after each program with its number"""


def run_kernel(
    kernel: Op, args: Sequence[Any], dims: Mapping[str, int], options: InterpreterOptions | None = None
) -> None:
    """Runs every program of a `tile.func`. `args` are Views and NumPy scalars, `dims` the sizes of its free dims.

    Raises DebugCheckError (TS506) with the span of the op that failed.
    """
    options = options or InterpreterOptions()
    grid: tuple[Dim, ...] = kernel.attrs["grid"]  # type: ignore[assignment]
    sizes = [evaluate(g, dims) for g in grid]
    with np.errstate(all="ignore"):
        programs = list(product(*map(range, sizes)))
        for number in in_order(sizes, cast("int | None", kernel.attrs.get("grouped"))):
            where = programs[number]
            Interpreter(dims, where, number, options).run(kernel.region.block, args)
            if options.on_program:
                options.on_program(number)


def _filled(shape: Sequence[int], fill: Any, view: WatchedView) -> Any:
    dtype = dtypes.of(view.data.dtype)
    assert dtype is not None
    return round_to(np.full(shape, fill, dtype.compute.numpy), dtype)


_INDEX: dict[str, Callable[[int, int], int]] = {
    "tile.iadd": lambda a, b: a + b,
    "tile.isub": lambda a, b: a - b,
    "tile.imul": lambda a, b: a * b,
    "tile.idiv": lambda a, b: a // b if b else 0,
    "tile.imod": lambda a, b: a % b if b else 0,
    "tile.imin": min,
    "tile.imax": max,
}


@mutable
class Interpreter:
    """One program: `where` is its grid coordinate, `number` its place in the launch."""

    dims: Mapping[str, int]
    where: tuple[int, ...]
    number: int
    options: InterpreterOptions
    env: dict[Value, Any] = field(default_factory=dict[Value, Any])
    shared: list[SharedTile] = field(default_factory=list[SharedTile])
    nan_origin: tuple[str, Span] | None = None

    def run(self, block: Block, args: Sequence[Any]) -> list[Any]:
        """Binds the block's arguments, runs its ops and gives the terminator's operands."""
        self.env.update(zip(block.args, args, strict=True))
        for op in block.ops:
            if op.name in ("tile.yield", "tile.return"):
                return [self.env[v] for v in op.operands]
            self.step(op)
        return []

    def step(self, op: Op) -> None:
        name = op.name
        if name in _INDEX:
            a, b = (self.env[v] for v in op.operands)
            self.env[op.result] = _INDEX[name](a, b)
            return
        method = _METHODS.get(name) or (Interpreter.primitive if name in PRIMITIVES else None)
        result: Any = method(self, op) if method else self.map(op)
        if len(op.results) == 1:
            self.env[op.result] = result
            if self.options.check_nan and self.nan_origin is None:
                self.watch(op, result)
        else:
            self.env.update(zip(op.results, result or (), strict=True))

    def watch(self, op: Op, result: Any) -> None:
        """Remembers the first op that made a NaN of operands without one."""
        if _has_nan(result) and not any(_has_nan(self.env[v]) for v in op.operands):
            self.nan_origin = (op.name.partition(".")[2], op.span)

    def size(self, d: Dim) -> int:
        return evaluate(d, self.dims)

    def shape(self, v: Value) -> tuple[int, ...]:
        assert isinstance(v.type, (TileType, SharedType))
        return tuple(map(self.size, v.type.shape))

    def operands(self, op: Op) -> list[Any]:
        return [self.env[v] for v in op.operands]

    # values
    def map(self, op: Op) -> Any:
        types = [_dtype(v) for v in op.operands]
        return scalar_map(op.name.partition(".")[2], self.operands(op), types, _dtype(op.result))

    def program_id(self, op: Op) -> int:
        return self.where[op.attrs["axis"]]  # type: ignore[index]

    def dim(self, op: Op) -> int:
        return self.size(op.attrs["dim"])  # type: ignore[arg-type]

    def to_scalar(self, op: Op) -> Any:
        return np.asarray(self.env[op.operands[0]], _dtype(op.result).numpy)

    def to_index(self, op: Op) -> int:
        return int(self.env[op.operands[0]])

    def constant(self, op: Op) -> Any:
        return rounded_number(op.attrs["value"], _dtype(op.result))  # type: ignore[arg-type]

    def iota(self, op: Op) -> Any:
        shape, axis = self.shape(op.result), int(op.attrs["axis"])  # type: ignore[arg-type]
        line = np.arange(shape[axis], dtype=_dtype(op.result).numpy)
        return np.broadcast_to(line.reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape)

    def broadcast(self, op: Op) -> Any:
        x, axes = self.env[op.operands[0]], op.attrs["axes"]
        shape = self.shape(op.result)
        aligned = [1] * len(shape)
        for size, a in zip(x.shape, axes, strict=True):  # type: ignore[arg-type]
            aligned[a] = size
        return np.broadcast_to(x.reshape(aligned), shape)

    def reshape(self, op: Op) -> Any:
        return self.env[op.operands[0]].reshape(self.shape(op.result))

    def transpose(self, op: Op) -> Any:
        return self.env[op.operands[0]].transpose(op.attrs["perm"])

    def cast(self, op: Op) -> Any:
        return round_to(to_compute(self.env[op.operands[0]], _dtype(op.operands[0])), _dtype(op.result))

    def bitcast(self, op: Op) -> Any:
        return np.ascontiguousarray(self.env[op.operands[0]]).view(_dtype(op.result).numpy)

    def reduce(self, op: Op) -> Any:
        axes: tuple[int, ...] = op.attrs["axes"]  # type: ignore[assignment]
        x, name = self.env[op.operands[0]], str(op.attrs["op"])
        if not axes:
            return round_to(to_compute(x, _dtype(op.operands[0])), _dtype(op.result))
        return reduce(name, x, axes, _dtype(op.operands[0]), _dtype(op.result))

    def scan(self, op: Op) -> Any:
        x, source, result = self.env[op.operands[0]], _dtype(op.operands[0]), _dtype(op.result)
        ufunc = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
                 "logical_or": np.logical_or, "logical_and": np.logical_and}[REDUCERS[str(op.attrs["op"])]]  # fmt: skip
        wide = to_compute(x, source).astype(result.compute.numpy)
        return round_to(ufunc.accumulate(wide, axis=op.attrs["axis"]), result)

    def fold(self, op: Op) -> Any:
        """All pairs of a step at once: the region computes with arrays as with elements."""
        axis, prefixes = int(op.attrs["axis"]), bool(op.attrs.get("prefixes"))  # type: ignore[call-overload]
        tiles = [np.moveaxis(np.array(x), axis, 0) for x in self.operands(op)]
        for first, apart, count in pairs(len(tiles[0]), prefixes):
            left = first + 2 * apart * np.arange(count)
            found = self.run(op.region.block, [t[at] for at in (left, left + apart) for t in tiles])
            for t, x in zip(tiles, found, strict=True):
                t[left + apart if prefixes else left] = x
        out = [np.moveaxis(t, 0, axis) if prefixes else t[0] for t in tiles]
        return out if len(out) != 1 else out[0]

    def sort(self, op: Op) -> Any:
        x, axis = self.env[op.operands[0]], int(op.attrs["axis"])  # type: ignore[call-overload]
        positions = order(to_compute(x, _dtype(op.operands[0])), axis, bool(op.attrs.get("descending")))
        found = positions if op.attrs.get("positions") else np.take_along_axis(x, positions, axis)
        return np.take(found, np.arange(self.shape(op.result)[axis]), axis)

    def merge(self, op: Op) -> Any:
        line, at, x, *places = self.operands(op)
        run, (*whole, runs) = cast(int, op.attrs["run"]), (x, *places)
        first, n = cast(int, op.attrs.get("first", run)), runs.shape[1]
        some = [self.window(op, runs, (line, i), (1, min(first, n - i)), 0)[0] for i in range(0, n, run)]
        lines = [*(self.window(op, v, (line, 0), (1, n), 0)[0] for v in whole), np.concatenate(some)]
        keys = lines[0] if not places else lines[0][lines[1]]
        positions = order(to_compute(keys, _dtype(op.operands[2])), 0, bool(op.attrs.get("descending")))
        found = lines[-1][positions][at : at + self.shape(op.result)[1]]
        return np.pad(found, (0, self.shape(op.result)[1] - len(found)))[None]

    def philox(self, op: Op) -> Any:
        return philox(*self.operands(op))

    def primitive(self, op: Op) -> Any:
        """An op of a function's own, by the meaning that its definition gives."""
        arrays = [to_compute(self.env[v], _dtype(v)) for v in op.operands]
        out = np.asarray(PRIMITIVES[op.name].evaluate(op, arrays), _dtype(op.result).numpy)
        if out.shape != self.shape(op.result):
            why = f"its `reference` gives {out.shape}, its `result` {self.shape(op.result)}"
            raise PRIMITIVES[op.name].missing(REFERENCE, op, why)
        return out

    # matrix products
    def content(self, op: Op, v: Value) -> Any:
        """The elements of a tile or shared tile, low precision widened."""
        x = self.env[v]
        return to_compute(x.read(op) if isinstance(x, SharedTile) else x, _dtype(v))

    def mma(self, op: Op) -> Any:
        a, b, acc, *scales = op.operands
        factors = [self.content(op, v) for v in (a, b)]
        for i, s in enumerate(scales):
            spread = np.repeat(self.content(op, s), BLOCK_SCALED[_dtype(s)], 1 - i)
            factors[i] = to_compute(round_to(factors[i] * spread, dtypes.bf16), dtypes.bf16)
        return dot(factors[0], factors[1], self.env[acc], _dtype(acc))

    def contract(self, op: Op) -> Any:
        a, b, row, col = self.operands(op)
        rows, cols = self.shape(op.result)
        depth, dtype = self.size(matrix_sizes(op, 0)[1]), _dtype(op.result)
        diagonal = bool(op.attrs.get("diagonal"))
        left = self.matrix(op, 0, a, (row, 0), (rows, depth))
        right = self.matrix(op, 1, b, (0, row if diagonal else col), (depth, rows if diagonal else cols))
        wide_a, wide_b = to_compute(left, _dtype(op.operands[0])), to_compute(right, _dtype(op.operands[1]))
        if diagonal:
            wide_b = wide_b[..., None]  # of each k a column, as the left one
        return dot(wide_a, wide_b, np.zeros((rows, cols), dtype.numpy), dtype)

    def matrix(self, op: Op, i: int, view: WatchedView, at: tuple[int, int], shape: tuple[int, int]) -> Any:
        """A part of an operand of a product; elements outside are 0."""
        if "lead" not in op.attrs:
            return self.window(op, view, at, shape, 0)
        m, n = (self.size(d) for d in matrix_sizes(op, i))
        whole = self.window(op, view, (0,) * len(view.shape), view.shape, 0).reshape(m, n)
        part = whole[at[0] : at[0] + shape[0], at[1] : at[1] + shape[1]]
        return np.pad(part, [(0, s - d) for s, d in zip(shape, part.shape, strict=True)])

    # global memory
    def subview(self, op: Op) -> WatchedView:
        view, *offsets = self.operands(op)
        sizes = [self.size(d) for d in op.attrs["sizes"]]  # type: ignore[union-attr, arg-type]
        return view.subview(op, offsets, sizes, op.attrs.get("drop", ()))

    def window(
        self, op: Op, view: WatchedView, offsets: Sequence[int], shape: Sequence[int], fill: Any, mask: Any = None
    ) -> Any:
        """The tile at `offsets`; elements outside the view, or masked out, are `fill`."""
        out = _filled(shape, fill, view)
        source, target = _clip(offsets, shape, view.shape)
        used = None if mask is None else mask[target]
        if op.attrs.get("inside") and self.options.check_indices:
            self.demand_inside(op, view, offsets, shape, target, mask)
        values = view.read(op, source, self.number, used)
        out[target] = values if used is None else np.where(used, values, out[target])
        return out

    def demand_inside(
        self, op: Op, view: WatchedView, offsets: Sequence[int], shape: Sequence[int], target: Any, mask: Any
    ) -> None:
        """An access that the program computed itself must stay inside the view wherever its mask holds."""
        outside = np.ones(shape, bool)
        outside[target] = False
        outside = outside if mask is None else outside & mask
        for axis, (offset, extent) in enumerate(zip(offsets, view.shape, strict=True)):
            at = offset + np.nonzero(outside)[axis]
            bad = at[(at < 0) | (at >= extent)]
            if len(bad):
                fault(op, outside_text(int(bad[0]), user_axis(op, axis), view.name, extent))

    def load(self, op: Op) -> Any:
        view, *rest = self.operands(op)
        mask = rest.pop() if op.attrs.get("masked") else None
        return self.window(op, view, rest, self.shape(op.result), op.attrs.get("fill", 0), mask)

    def store(self, op: Op) -> None:
        view, tile, *rest = self.operands(op)
        mask = rest.pop() if op.attrs.get("masked") else None
        source, target = _clip(rest, tile.shape, view.shape)
        used = None if mask is None else mask[target]
        if op.attrs.get("inside") and self.options.check_indices:
            self.demand_inside(op, view, rest, tile.shape, target, mask)
        self.check_stored(op, view, tile[target], used)
        view.write(op, source, tile[target], self.number, used)

    def check_stored(self, op: Op, view: WatchedView, values: Any, used: Any) -> None:
        if self.options.check_nan and _has_nan(
            values if used is None else np.where(used, values, np.zeros_like(values))
        ):
            notes = (
                [Note(f"the first NaN came from {self.nan_origin[0]}", self.nan_origin[1])] if self.nan_origin else []
            )
            fault(op, f"Stores NaN into {view.name} (program {self.where}).", *notes)

    def indices(self, op: Op, view: WatchedView, index: Sequence[Any], used: Any) -> tuple[tuple[Any, ...], Any]:
        """Computed indices clipped to the view, and which elements count."""
        ok = np.ones(index[0].shape if index else (), bool) if used is None else used
        checked = self.options.check_indices and not op.attrs.get("anywhere")
        for axis, (i, extent) in enumerate(zip(index, view.shape, strict=True)):
            bad = ok & ((i < 0) | (i >= extent))
            if not checked or axis in cast("tuple[int, ...]", op.attrs.get("sliced", ())):
                ok = ok & ~bad
            elif np.any(bad):
                value = int(i[bad].ravel()[0])
                if "along" in op.attrs and value < 0:  # it has been counted from the end: shown as it was
                    value -= extent
                fault(op, outside_text(value, user_axis(op, axis), view.name, extent))
        return tuple(np.where(ok, i, 0).astype(np.int64) for i in index), ok

    def gather(self, op: Op) -> Any:
        view, *rest = self.operands(op)
        mask = rest.pop() if op.attrs.get("masked") else None
        out = _filled(self.shape(op.result), op.attrs.get("fill", 0), view)
        index, used = self.indices(op, view, rest, mask)
        if not np.any(used):
            return out
        return np.where(used, view.read(op, index, self.number, used), out)

    def scatter(self, op: Op) -> None:
        view, tile, *rest = self.operands(op)
        mask = rest.pop() if op.attrs.get("masked") else None
        index, used = self.indices(op, view, rest, mask)
        kept = tuple(i[used] for i in index)
        flat = np.ravel_multi_index(kept, view.shape) if kept and view.data.size else np.zeros(0, np.int64)
        if len(np.unique(flat)) != len(flat):
            fault(op, f"Two elements of a scatter go to one place of {view.name}: which one stays is not defined.")
        self.check_stored(op, view, tile[used], None)
        view.write(op, kept, tile[used], self.number)

    # shared memory
    def alloc_shared(self, op: Op) -> SharedTile:
        tile = SharedTile(op.result.hint or "shared tile", self.shape(op.result), _dtype(op.result))
        self.shared.append(tile)
        return tile

    def copy_async(self, op: Op) -> None:
        shared, view, *offsets = self.operands(op)
        shared.write(op, self.window(op, view, offsets, shared.data.shape, 0), asynchronous=True)

    def barrier(self, op: Op) -> None:
        for tile in self.shared:
            tile.barrier()

    def load_shared(self, op: Op) -> Any:
        return self.env[op.operands[0]].read(op)

    def store_shared(self, op: Op) -> None:
        shared, tile = self.operands(op)
        shared.write(op, tile, asynchronous=False)

    # control
    def loop(self, op: Op) -> list[Any]:
        lower, upper, step, *carried = self.operands(op)
        going = cast("int | None", op.attrs.get("going"))
        for i in range(lower, upper, max(step, 1)):  # with another step it would never end; debug mode reports it
            if going is not None and not carried[going]:
                break
            carried = self.run(op.region.block, [i, *carried])
        return carried if len(op.results) != 1 else carried[0]

    def branch(self, op: Op) -> Any:
        taken = op.regions[0 if bool(self.env[op.operands[0]]) else 1]
        out = self.run(taken.block, [])
        return out if len(op.results) != 1 else out[0]

    def while_loop(self, op: Op) -> Any:
        carried = self.operands(op)
        while bool(self.run(op.regions[0].block, carried)[0]):
            carried = self.run(op.regions[1].block, carried)
        return carried if len(op.results) != 1 else carried[0]

    def print(self, op: Op) -> None:
        shown = self.options.on_print or say
        shown(str(op.attrs.get("label", "")), self.where, np.array(self.env[op.operands[0]]))

    def check(self, op: Op) -> None:
        if not self.options.check_asserts:
            return
        condition, *indices = op.operands
        holds = np.asarray(self.env[condition])
        if not holds.all():
            first = tuple(
                int(i) for i in np.unravel_index(int(holds.argmin()), holds.shape)
            )  # of bools: the first false
            if indices:
                index, extent = self.env[indices[0]][first], self.size(op.attrs.get("extent", 0))  # type: ignore[arg-type]
                fault(op, str(op.attrs["message"]).replace("{index}", str(index)).replace("{extent}", str(extent)))
            about = tested_tile(condition)
            value = shown(np.asarray(self.env[about])[first], dtype_of(about)) if about is not None else None
            message = op.attrs.get("message") or "An assertion over a tile does not hold."
            fault(op, f"{message}\n{element_fault(first, self.where, value)}")


_NAMED = (
    "program_id", "dim", "to_scalar", "to_index", "constant", "iota", "broadcast", "reshape", "transpose", "cast",
    "bitcast", "reduce", "scan", "fold", "sort", "merge", "philox", "mma", "contract", "subview",
    "load", "store",
    "gather", "scatter", "alloc_shared", "copy_async", "barrier", "load_shared", "store_shared", "print",
)  # fmt: skip
_METHODS: dict[str, Callable[[Interpreter, Op], Any]] = {
    **{f"tile.{name}": getattr(Interpreter, name) for name in _NAMED},
    "tile.for": Interpreter.loop,
    "tile.if": Interpreter.branch,
    "tile.while": Interpreter.while_loop,
    "tile.pipeline": run_pipeline,
    "tile.assert": Interpreter.check,
}


def _dtype(v: Value) -> DType:
    return cast("TileType | ViewType", v.type).dtype


def _has_nan(values: Any) -> bool:
    if not isinstance(values, (np.ndarray, np.generic)) or values.dtype.kind in "iub":
        return False
    wide = values if values.dtype.kind in "fc" and values.dtype.itemsize >= 4 else values.astype(np.float32)
    return bool(np.isnan(wide).any())


def _clip(
    offsets: Sequence[int], shape: Sequence[int], extent: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of a tile that is inside a view: as slices of the view and of the tile."""
    source: list[slice] = []
    target: list[slice] = []
    for o, n, size in zip(offsets, shape, extent, strict=True):
        lo, hi = max(o, 0), max(min(o + n, size), max(o, 0))
        if o >= size or o + n <= 0:
            lo = hi = min(max(o, 0), size)
        source.append(slice(lo, hi))
        target.append(slice(lo - o if hi > lo else 0, hi - o if hi > lo else 0))
    return tuple(source), tuple(target)
