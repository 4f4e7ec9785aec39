"""The ops of Tile IR, each with its meaning and its rules. One `tile.func` is one kernel: the program of one block.

Values: tiles (`TileType`, immutable, rank 0 = scalar), views onto global memory (`ViewType`), shared tiles
(`SharedType`, mutable), and index numbers. Elementwise ops carry the names of `language.scalars` (`tile.exp`,
`tile.add`, `tile.where`) and need operands of one shape: broadcasting is explicit (`tile.broadcast`). Loads and
stores are clipped to the view's extent by definition, so a ragged edge needs no mask; a mask operand narrows further.

Reductions have one order per target, fixed by the element's index along the axis alone, never by tile size, schedule
or number of threads.
"""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.spec import BRANCH, FOR, FUNCTION, WHILE, Reading, demand, invalid, spec
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.machines import BLOCK_SCALED
from tessera.language import dtypes
from tessera.language.dims import Dim, prod
from tessera.language.scalars import REDUCERS, TABLE

INDEX_OPS = ("iadd", "isub", "imul", "idiv", "imod", "imin", "imax")
REDUCE_OPS = (*REDUCERS, "argmax", "argmin")


def _operands(op: Op, n: int) -> None:
    demand(len(op.operands) == n, op, f"takes {n} operands, has {len(op.operands)}")


def _tile(op: Op, v: Value) -> TileType:
    if not isinstance(v.type, TileType):
        invalid(op, f"needs a tile, not {v.type}")
    return v.type


def _view(op: Op, v: Value) -> ViewType:
    if not isinstance(v.type, ViewType):
        invalid(op, f"needs a view, not {v.type}")
    return v.type


def _index(op: Op, *values: Value) -> None:
    for v in values:
        demand(v.type == INDEX, op, f"needs an index, not {v.type}")


def _result(op: Op) -> TileType:
    demand(len(op.results) == 1, op, "has one result")
    return _tile(op, op.result)


@spec(
    "tile.func",
    "A kernel. attrs: sym_name, grid (a Dim per axis), arg_names, writes and returns (indices of the arguments that it "
    "stores to and returns), num_warps, num_stages; grouped (how many rows run together, along the last two axes) and "
    "persistent (no more blocks than a GPU runs at a time). Its block's arguments are views and rank-0 tiles.",
    effects=True,
    reading=FUNCTION,
)
def _func(op: Op) -> None:
    demand(isinstance(op.attrs.get("sym_name"), str), op, "needs sym_name")
    grid = op.attrs.get("grid")
    demand(isinstance(grid, tuple), op, "needs grid")
    grouped = op.attrs.get("grouped", 1)
    demand(isinstance(grouped, int) and grouped > 0, op, "groups a number of rows")
    demand("grouped" not in op.attrs or len(grid) > 1, op, "has two axes to group")  # type: ignore[arg-type]
    for a in op.region.block.args:
        ok = isinstance(a.type, ViewType) or (isinstance(a.type, TileType) and a.type.rank == 0)
        demand(ok, op, f"argument {a.hint} is neither a view nor a scalar")


@spec("tile.return", "Ends a kernel; outputs are the views it stored to.", terminator=True, effects=True)
def _return(op: Op) -> None:
    _operands(op, 0)


@spec("tile.program_id", "This program's coordinate on grid axis `axis`.")
def _program_id(op: Op) -> None:
    demand(isinstance(op.attrs.get("axis"), int), op, "needs axis")
    demand(op.result.type == INDEX, op, "gives an index")


@spec(
    "tile.dim",
    "The size `dim`: an integer, or an expression over the kernel's free dims, known at launch.",
    reading=Reading(literal="dim"),
)
def _dim(op: Op) -> None:
    demand("dim" in op.attrs and op.result.type == INDEX, op, "needs dim and gives an index")


def _index_binary(op: Op) -> None:
    _operands(op, 2)
    _index(op, *op.operands, op.result)


for _name in INDEX_OPS:
    spec(f"tile.{_name}", f"Index arithmetic: {_name[1:]} (div and mod round down; by 0 both are 0).")(_index_binary)


@spec("tile.to_scalar", "An index as a rank-0 integer tile.")
def _to_scalar(op: Op) -> None:
    _index(op, *op.operands)
    demand(_result(op).rank == 0 and _result(op).dtype.is_integer, op, "gives an integer scalar")


@spec("tile.to_index", "A rank-0 integer tile as an index.")
def _to_index(op: Op) -> None:
    t = _tile(op, op.operands[0])
    demand(
        t.rank == 0 and t.dtype.is_integer and op.result.type == INDEX, op, "takes an integer scalar, gives an index"
    )


@spec("tile.constant", "A rank-0 constant, attr `value`.", reading=Reading(literal="value"))
def _constant(op: Op) -> None:
    demand(_result(op).rank == 0 and "value" in op.attrs, op, "is a scalar with a value")


@spec("tile.iota", "0, 1, 2 ... along `axis`, repeated along the others.")
def _iota(op: Op) -> None:
    t = _result(op)
    axis = op.attrs.get("axis")
    demand(
        isinstance(axis, int) and 0 <= axis < t.rank and t.dtype.is_integer, op, "needs an axis and an integer result"
    )


@spec(
    "tile.broadcast",
    "Operand axis i becomes result axis axes[i]; sizes of 1 stretch; the result's other axes repeat it.",
)
def _broadcast(op: Op) -> None:
    x, t, axes = _tile(op, op.operands[0]), _result(op), op.attrs.get("axes")
    demand(isinstance(axes, tuple) and len(axes) == x.rank, op, "needs one result axis per operand axis")
    assert isinstance(axes, tuple)
    demand(list(axes) == sorted(set(axes)), op, "axes ascend")  # type: ignore[type-var]
    for size, a in zip(x.shape, axes, strict=True):
        demand(size == 1 or size == t.shape[a], op, f"size {size} does not stretch to {t}")  # type: ignore[index]


@spec("tile.reshape", "The same elements in C order under another shape.")
def _reshape(op: Op) -> None:
    demand(_tile(op, op.operands[0]).dtype == _result(op).dtype, op, "keeps the dtype")


@spec("tile.transpose", "Result axis i is operand axis perm[i].")
def _transpose(op: Op) -> None:
    x, perm = _tile(op, op.operands[0]), op.attrs.get("perm")
    demand(isinstance(perm, tuple) and sorted(perm) == list(range(x.rank)), op, "needs a permutation")  # type: ignore[type-var]
    demand(_result(op).shape == tuple(x.shape[i] for i in perm), op, "result shape is the permuted one")  # type: ignore[union-attr, index]


@spec(
    "tile.cast",
    "Converts elements, rounding to nearest even; narrowing floats overflow to inf (fp8 and smaller saturate).",
)
def _cast(op: Op) -> None:
    demand(_tile(op, op.operands[0]).shape == _result(op).shape, op, "keeps the shape")


@spec("tile.bitcast", "Reinterprets elements of one width.")
def _bitcast(op: Op) -> None:
    demand(_tile(op, op.operands[0]).dtype.bits == _result(op).dtype.bits, op, "keeps the width")


def _elementwise(op: Op) -> None:
    scalar = TABLE[op.name.partition(".")[2]]
    _operands(op, scalar.arity)
    t = _result(op)
    for v in op.operands:
        demand(_tile(op, v).shape == t.shape, op, f"operand {v.type} and result {t} have different shapes")
    same = op.operands[1:] if scalar.name == "where" else op.operands
    demand(len({_tile(op, v).dtype for v in same}) == 1, op, "operands have different dtypes")
    if scalar.gives == "bool":
        demand(t.dtype == dtypes.bool_, op, "gives bool")
    if scalar.name == "where":
        demand(_tile(op, op.operands[0]).dtype == dtypes.bool_, op, "the condition is bool")


for _name, _scalar in TABLE.items():
    spec(f"tile.{_name}", f"Elementwise: {_scalar.doc}.")(_elementwise)


@spec(
    "tile.reduce",
    f"Reduces over `axes` with `op` ({', '.join(REDUCE_OPS)}); the axes disappear. "
    "The result dtype is the accumulator's. `any_of_equal`: an extremum may be any of equal elements: 0 or -0.",
)
def _reduce(op: Op) -> None:
    x, t, axes = _tile(op, op.operands[0]), _result(op), op.attrs.get("axes")
    demand(op.attrs.get("op") in REDUCE_OPS, op, "needs op")
    demand(isinstance(axes, tuple), op, "needs axes")
    demand(t.shape == tuple(s for i, s in enumerate(x.shape) if i not in axes), op, "result shape lacks the axes")  # type: ignore[operator]


@spec("tile.scan", "Inclusive prefix along `axis` with `op` (a reducer's name), in ascending order.")
def _scan(op: Op) -> None:
    demand(op.attrs.get("op") in REDUCERS and isinstance(op.attrs.get("axis"), int), op, "needs op and axis")
    demand(_tile(op, op.operands[0]).shape == _result(op).shape, op, "keeps the shape")


FOLDED = frozenset(
    f"tile.{name}" for name in (*TABLE, "cast", "bitcast", "constant", "to_scalar", "dim", "program_id", *INDEX_OPS)
)
"""ops that the region of a `tile.fold` may contain: one thread computes them from the elements that it holds"""


@spec(
    "tile.fold",
    "Combines elements along `axis` two at a time, in the order of language/order.py. Operands of one shape; the "
    "region takes an element of each and the elements to the right of them, and yields one for each. attr prefixes: "
    "each element is combined with all before it; otherwise the axis disappears. attr identity: the number, for each "
    "operand, in place of elements that do not exist; without it they are skipped.",
)
def _fold(op: Op) -> None:
    kinds = [_tile(op, v) for v in op.operands]
    axis, prefixes = op.attrs.get("axis"), bool(op.attrs.get("prefixes"))
    demand(kinds and len({t.shape for t in kinds}) == 1, op, "combines tiles of one shape")
    demand(isinstance(axis, int) and 0 <= axis < kinds[0].rank, op, "needs an axis")
    elements = [TileType((), t.dtype) for t in kinds]
    block = op.region.block
    demand([a.type for a in block.args] == elements * 2, op, "the region takes two elements of each operand")
    demand([v.type for v in block.terminator.operands] == elements, op, "the region yields an element of each operand")
    demand(all(o.name in FOLDED for o in block.ops[:-1]), op, "the region computes with elements alone")
    shapes = [t.shape if prefixes else tuple(n for a, n in enumerate(t.shape) if a != axis) for t in kinds]
    wanted = [TileType(s, t.dtype) for s, t in zip(shapes, kinds, strict=True)]
    demand([r.type for r in op.results] == wanted, op, "gives a tile for each operand")


@spec(
    "tile.sort",
    "The elements along `axis` in ascending order, NaN as the largest; attr descending: in descending order. Equal "
    "elements keep their order. attr positions: the positions of the elements, as int64, instead of the elements. attr "
    "first: only so many elements of each line.",
)
def _sort(op: Op) -> None:
    x, t, axis = _tile(op, op.operands[0]), _result(op), op.attrs.get("axis")
    demand(isinstance(axis, int) and 0 <= axis < x.rank, op, "needs an axis")
    demand(not x.dtype.is_complex, op, "orders real elements")
    shape = list(x.shape)
    shape[axis] = op.attrs.get("first", shape[axis])  # type: ignore[call-overload,index]
    dtype = dtypes.int64 if op.attrs.get("positions") else x.dtype
    demand(t == TileType(tuple(shape), dtype), op, "keeps the shape")


@spec(
    "tile.merge",
    "A part of a line in order: its elements from place `at` on. Operands line, at, x [lines, n]; each line of x "
    "consists of sorted runs of `run` elements (attr), in an order as for tile.sort (attr descending). Positions "
    "[lines, m] int64 as a fourth operand: these are sorted in runs, by the elements of x at them, and the result is "
    "positions. attr first: only so many elements of each run are there. Behind the end of the line the result's "
    "elements are any.",
)
def _merge(op: Op) -> None:
    line, at, x, *places = op.operands
    _index(op, line, at)
    kinds = [_view(op, v) for v in (x, *places)]
    t, run = _result(op), op.attrs.get("run")
    demand(len(places) < 2 and all(v.rank == 2 for v in kinds), op, "takes lines, and positions")
    demand(not kinds[0].dtype.is_complex and isinstance(run, int) and run > 0, op, "orders real elements in runs")
    demand(all(v.dtype == dtypes.int64 for v in kinds[1:]), op, "positions are int64")
    demand(t.rank == 2 and t.shape[0] == 1 and t.dtype == kinds[-1].dtype, op, "gives a part of a line")


@spec(
    "tile.mma",
    "acc + a @ b: a [M, K], b [K, N] (tiles or shared), acc [M, N]; products summed in acc's dtype in the order of "
    "language/order.py, the first chain starts at acc. Batches have axes before these, as many in a and b as in "
    "acc; an axis of size 1 is used for all matrices of acc. With scales of a [M, K / B] and of b [K / B, N] as two "
    "further operands (fp8_e8m0: B = 32, fp8_e4m3: 16), a and b are first multiplied by them and rounded to bf16. Attr "
    "subnormals: subnormal elements of bf16 do not count as zero.",
)
def _mma(op: Op) -> None:
    _operands(op, 5 if has_scales(op) else 3)
    a, b, acc, *scales = (v.type for v in op.operands)
    if (
        not isinstance(a, (TileType, SharedType))
        or not isinstance(b, (TileType, SharedType))
        or not isinstance(acc, TileType)
    ):
        invalid(op, "takes tiles or shared tiles and an accumulator tile")
    demand(a.rank == b.rank == acc.rank >= 2, op, "operands have one rank, from 2 on")
    fits = a.shape[-1] == b.shape[-2] and acc.shape[-2:] == (a.shape[-2], b.shape[-1])
    for m, n, both in zip(a.shape[:-2], b.shape[:-2], acc.shape[:-2], strict=True):
        fits = fits and both == (n if m == 1 else m) and n in (1, both)
    demand(fits, op, f"shapes {a}, {b}, {acc} do not fit")
    demand(_result(op) == acc, op, "gives the accumulator's type")
    for s, t, along in zip(scales, (a, b), (-1, -2), strict=False):
        assert isinstance(s, (TileType, SharedType))
        demand(
            s.dtype in BLOCK_SCALED and s.rank == t.rank == 2, op, "takes scales of matrices, in fp8_e8m0 or fp8_e4m3"
        )
        whole = list(s.shape)
        whole[along] *= BLOCK_SCALED[s.dtype]
        demand(tuple(whole) == t.shape, op, f"scales {s} do not fit {t}")


def has_scales(op: Op) -> bool:
    """Whether a product takes its operands' scales of blocks itself."""
    return op.name == "tile.mma" and len(op.operands) == 5


@spec(
    "tile.contract",
    "A whole block of A @ B from global memory: rows [row, row+BM) of A [M, K] times columns [col, col+BN) of B "
    "[K, N]. Operands A, B, row, col; the result [BM, BN] is in the accumulator dtype. The target chooses staging and "
    "blocking; products are summed in the order of language/order.py. Elements outside M or N are zero. Attr diagonal "
    "(floats of the accumulator's dtype, M = N): element i of the column [BM, 1] is that of row and column row + i. "
    "Attr lead: how many axes of A are its rows, and of B are those of K, where several axes count as one in C order.",
)
def _contract(op: Op) -> None:
    _operands(op, 4)
    a, b, t = _view(op, op.operands[0]), _view(op, op.operands[1]), _result(op)
    _index(op, op.operands[2], op.operands[3])
    (_, k), (depth, _) = (matrix_sizes(op, i) for i in range(2))
    demand(t.rank == 2 and k == depth, op, f"shapes {a}, {b} do not fit")
    if op.attrs.get("diagonal"):
        demand(a.rank == b.rank == 2, op, "takes matrices with one axis of rows and one of columns")
        demand(a.shape[0] == b.shape[1] and t.shape[1] == 1, op, "gives a column of a square product's diagonal")
        demand(a.dtype == b.dtype == t.dtype, op, "takes and gives one dtype")


def matrix_axes(op: Op, i: int) -> tuple[range, range]:
    """The axes of rows and of columns of an operand of `tile.contract`."""
    t = op.operands[i].type
    assert isinstance(t, ViewType)
    lead = cast("tuple[int, int]", op.attrs.get("lead", (1, 1)))[i]
    return range(lead), range(lead, t.rank)


def matrix_sizes(op: Op, i: int) -> tuple[Dim, Dim]:
    """How many rows and columns an operand of `tile.contract` has."""
    t = op.operands[i].type
    assert isinstance(t, ViewType)
    rows, columns = matrix_axes(op, i)
    demand(bool(rows) and bool(columns), op, f"{t} has no axis of rows, or none of columns")
    return prod(t.shape[a] for a in rows), prod(t.shape[a] for a in columns)


def _view_access(op: Op, view: Value, rest: list[Value]) -> ViewType:
    v = _view(op, view)
    masked = bool(op.attrs.get("masked", False))
    demand(len(rest) == v.rank + masked, op, f"needs {v.rank} offsets{' and a mask' if masked else ''}")
    return v


@spec(
    "tile.subview",
    "The window of `view` that starts at the offsets; attrs sizes (a Dim per axis) and drop (axes of size"
    " 1 that are removed). Operands view, offsets. Sizes are not clipped: the caller keeps the window inside. Attr"
    " computed: the indices of removed axes are the author's; if one is outside, the whole window is. Attr"
    " clipped: the same for a part of a tile at an edge, which debug mode does not check.",
)
def _subview(op: Op) -> None:
    v = _view_access(op, op.operands[0], list(op.operands[1:]))
    demand(len(op.attrs.get("sizes", ())) == v.rank, op, "needs a size per axis")  # type: ignore[arg-type]
    _view(op, op.result)


@spec(
    "tile.load",
    "The tile that starts at the offsets. Operands view, offsets, [mask]. Elements outside the view, or "
    "masked out, read as attr `fill` (default 0); they are padding, unless attr `defined` is true.",
    reading=Reading({"fill": 0}),
)
def _load(op: Op) -> None:
    v = _view_access(op, op.operands[0], list(op.operands[1:]))
    _index(op, *op.operands[1 : 1 + v.rank])
    demand(_result(op).rank == v.rank and _result(op).dtype == v.dtype, op, "result has the view's rank and dtype")


@spec(
    "tile.store",
    "Writes the tile at the offsets. Operands view, tile, offsets, [mask]. Elements outside are not written.",
    effects=True,
)
def _store(op: Op) -> None:
    v = _view_access(op, op.operands[0], list(op.operands[2:]))
    t = _tile(op, op.operands[1])
    demand(t.rank == v.rank and t.dtype == v.dtype, op, f"tile {t} does not fit view {v}")


@spec(
    "tile.gather",
    "Elementwise load at computed indices. Operands view, one integer tile per view axis (all of one shape), [mask]. "
    "Outside indices read as `fill`; attr `defined` as for tile.load. Attr along: the author's "
    "number for the view's axis `middle`, whose negative indices have been counted from the end; others are inside. "
    "Attr `anywhere`: indices outside are meant, and debug mode does not report them.",
    reading=Reading({"fill": 0}),
)
def _gather(op: Op) -> None:
    v = _view_access(op, op.operands[0], list(op.operands[1:]))
    for x in op.operands[1:]:
        demand(_tile(op, x).shape == _result(op).shape, op, "index and result shapes differ")
    demand(_result(op).dtype == v.dtype, op, "result has the view's dtype")


@spec(
    "tile.scatter",
    "Elementwise store at computed indices, which must be distinct. Operands view, tile, index tiles, [mask]; attr "
    "sliced as for tile.gather.",
    effects=True,
)
def _scatter(op: Op) -> None:
    _view_access(op, op.operands[0], list(op.operands[2:]))
    for x in op.operands[2:]:
        demand(_tile(op, x).shape == _tile(op, op.operands[1]).shape, op, "index and value shapes differ")


@spec("tile.alloc_shared", "A shared tile, uninitialised.", effects=True)
def _alloc_shared(op: Op) -> None:
    demand(isinstance(op.result.type, SharedType), op, "gives a shared tile")


@spec(
    "tile.copy_async",
    "Starts copying the tile of `view` at the offsets into a shared tile; elements outside arrive as 0. "
    "Operands shared, view, offsets. Complete after the next barrier.",
    effects=True,
)
def _copy_async(op: Op) -> None:
    v = _view_access(op, op.operands[1], list(op.operands[2:]))
    s = op.operands[0].type
    demand(isinstance(s, SharedType) and s.dtype == v.dtype, op, "copies into a shared tile of the view's dtype")


@spec("tile.barrier", "Waits for this program's async copies, then synchronises its threads.", effects=True)
def _barrier(op: Op) -> None:
    _operands(op, 0)


@spec("tile.load_shared", "The content of a shared tile.", effects=True)
def _load_shared(op: Op) -> None:
    s = op.operands[0].type
    demand(
        isinstance(s, SharedType) and (s.shape, s.dtype) == (_result(op).shape, _result(op).dtype),
        op,
        "gives the tile's type",
    )


@spec("tile.store_shared", "Overwrites a shared tile. Operands shared, tile.", effects=True)
def _store_shared(op: Op) -> None:
    s, t = op.operands[0].type, _tile(op, op.operands[1])
    demand(isinstance(s, SharedType) and (s.shape, s.dtype) == (t.shape, t.dtype), op, "stores the tile's type")


@spec(
    "tile.philox",
    "Philox4x32-10 (Salmon et al. 2011). Operands counter (uint64 tile), key (uint64 tile of that shape);"
    " gives words 0 and 1 of the block with counter (lo, hi, 0, 0) as uint64: word0 | word1 << 32.",
)
def _philox(op: Op) -> None:
    _operands(op, 2)
    demand(_result(op).dtype == dtypes.uint64, op, "gives uint64")


@spec(
    "tile.for",
    "Serial ascending loop. Operands lower, upper, step, initial values; the block's arguments are the "
    "counter and the carried values; tile.yield gives the next ones; results are the last. Attr going: the number of a "
    "carried bool; if it is false, this step and all later ones change nothing and may be skipped.",
    effects=True,
    reading=FOR,
)
def _for(op: Op) -> None:
    _index(op, *op.operands[:3])
    carried = [v.type for v in op.operands[3:]]
    body = op.region.block
    demand(
        [a.type for a in body.args] == [INDEX, *carried], op, "block arguments are the counter and the carried values"
    )
    demand([r.type for r in op.results] == carried, op, "results have the carried types")
    demand([v.type for v in body.terminator.operands] == carried, op, "yields the carried types")
    if "going" in op.attrs:
        going = op.attrs["going"]
        ok = isinstance(going, int) and 0 <= going < len(carried) and carried[going] == TileType((), dtypes.bool_)
        demand(ok, op, "going numbers a carried bool")


@spec(
    "tile.if",
    "Runs one of two regions. Operand: a rank-0 bool. Both regions yield the results' types.",
    effects=True,
    reading=BRANCH,
)
def _if(op: Op) -> None:
    demand(_tile(op, op.operands[0]) == TileType((), dtypes.bool_), op, "the condition is a bool scalar")
    demand(len(op.regions) == 2, op, "has two regions")
    for r in op.regions:
        demand(
            [v.type for v in r.block.terminator.operands] == [x.type for x in op.results],
            op,
            "regions yield the results",
        )


@spec(
    "tile.while",
    "Operands: initial values. Region 0 yields a bool scalar and region 1 the next values; both take the "
    "carried values.",
    effects=True,
    reading=WHILE,
)
def _while(op: Op) -> None:
    carried = [v.type for v in op.operands]
    demand(len(op.regions) == 2, op, "has two regions")
    demand(
        [v.type for v in op.regions[0].block.terminator.operands] == [TileType((), dtypes.bool_)],
        op,
        "region 0 yields a bool",
    )
    demand(
        [v.type for v in op.regions[1].block.terminator.operands] == carried, op, "region 1 yields the carried values"
    )


@spec("tile.yield", "Ends a region of tile.for, tile.if, tile.while or tile.fold.", terminator=True, effects=True)
def _yield(op: Op) -> None:
    demand(
        op.parent is not None and op.parent.name in ("tile.for", "tile.if", "tile.while", "tile.pipeline", "tile.fold"),
        op,
        "is not inside a loop or branch",
    )


@spec("tile.print", "Prints a tile, once per program, with attr `label`.", effects=True)
def _print(op: Op) -> None:
    _operands(op, 1)
    _tile(op, op.operands[0])


@spec(
    "tile.assert",
    "In debug mode: fails with attr `message` unless every element of the bool tile is true. Operands bool tile, [tile "
    "of the same shape]: `{index}` in the message is its element at the first false one, `{extent}` attr extent.",
    effects=True,
)
def _assert(op: Op) -> None:
    demand(_tile(op, op.operands[0]).dtype == dtypes.bool_, op, "needs bools")
    for x in op.operands[1:]:
        demand(_tile(op, x).shape == _tile(op, op.operands[0]).shape, op, "shows a tile of another shape")
