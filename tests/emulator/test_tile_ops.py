"""Every op of Tile IR, executed from the generated CUDA C++ and compared with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.language import dtypes as dt
from tessera.language.dims import ceildiv
from tessera.language.dtypes import DType
from tessera.language.scalars import ACCEPTED, REDUCERS, TABLE
from tests.emulator.harness import Arg, Case, LineBuilder, Ready, build, check, checked, ready
from tests.emulator.kernels import RNG, N, branch, loop, normal
from tests.together import builds


def data(shape: tuple[int, ...], dtype: DType, low: float = -4, high: float = 4) -> Any:
    if dtype.kind == "bool":
        return RNG.random(shape) < 0.5
    if dtype.is_integer:
        return RNG.integers(0 if dtype.kind == "uint" else int(low), int(high) + 5, shape).astype(dtype.numpy)
    if dtype.is_complex:
        return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype.numpy)
    return RNG.uniform(low, high, shape).astype(dtype.numpy)


def accepts(scalar: Any, dtype: DType) -> bool:
    return ACCEPTED[scalar.accepts](dtype)


DOMAIN = {
    "log": (0.1, 9),
    "log2": (0.1, 9),
    "log10": (0.1, 9),
    "log1p": (-0.9, 5),
    "sqrt": (0, 9),
    "rsqrt": (0.1, 9),
    "pow": (0.1, 3),
    "reciprocal": (0.2, 4),
    "tan": (-1.4, 1.4),
    "shift_left": (0, 3),
    "shift_right": (0, 3),
}


def elementwise_case(dtype: DType, names: list[str], n: int = 77) -> Case:
    """One kernel that applies every function; each has an output of its own."""
    outs: list[Arg] = []
    ins = [Arg("c", (n,), dt.bool_)]
    inputs: dict[str, Any] = {"c": data((n,), dt.bool_)}
    for name in names:
        for i in range(TABLE[name].arity - (name == "where")):
            ins.append(Arg(f"{name}_{i}", (n,), dtype))
            inputs[f"{name}_{i}"] = data((n,), dtype, *DOMAIN.get(name, (-4, 4)))

    def emit(t: LineBuilder, read: Any) -> dict[str, Value]:
        out: dict[str, Value] = {}
        for name in names:
            xs = [read(f"{name}_{i}") for i in range(TABLE[name].arity - (name == "where"))]
            out[name] = t.map(name, *([read("c")] if name == "where" else []), *xs)
        return out

    probe = LineBuilder(Block(), span=build.__globals__["SPAN"])
    types = emit(probe, lambda a: probe.full((n,), 1, dt.bool_ if a == "c" else dtype))
    outs = [Arg(f"{name}_out", (n,), v.type.dtype, out=True) for name, v in types.items()]  # type: ignore[union-attr]

    def body(t: LineBuilder, *args: Value) -> None:
        views = {a.hint: a for a in args}
        for name, v in emit(t, lambda a: t.load(views[a], [t.index(0)], (n,))).items():
            t.store(views[f"{name}_out"], v, [t.index(0)])

    program = build("functions", [*ins, *outs], (1,), body)
    tolerance = 2e-2 if dtype.bits <= 16 else 1e-12 if dtype in (dt.f64, dt.complex128) else 2e-6
    return Case(program, inputs, rtol=tolerance, atol=tolerance)


@checked(seeds=(0,))
@pytest.mark.parametrize(
    "dtype", [dt.f32, dt.f64, dt.bf16, dt.f16, dt.int32, dt.int64, dt.uint8, dt.uint64, dt.bool_], ids=str
)
def test_every_scalar_function(dtype: DType) -> Case:
    names = [name for name, s in TABLE.items() if accepts(s, dtype)]
    return elementwise_case(dtype, names)


@checked(seeds=(0,))
@pytest.mark.parametrize("dtype", [dt.complex64, dt.complex128], ids=str)
def test_complex_functions(dtype: DType) -> Case:
    names = [name for name, s in TABLE.items() if accepts(s, dtype) and name not in ("pow", "abs")]
    return elementwise_case(dtype, names)


@checked(seeds=(0,))
@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.f16, dt.bf16], ids=str)
def test_special_values_of_float_functions(dtype: DType) -> Case:
    names = [
        name
        for name, s in TABLE.items()
        if accepts(s, dtype) and name not in ("pow", "mod", "floordiv", "atan2", "gelu", "gelu_tanh")
    ]
    case = elementwise_case(dtype, names, n=12)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-38, 6e4, -6e4, 0.5, 2.5], np.float64)
    case.inputs = {
        k: v if k == "c" else np.roll(special, 5 * (k[-1] == "1")).astype(v.dtype) for k, v in case.inputs.items()
    }
    return case


@checked(seeds=(0,))
@pytest.mark.parametrize("dtype", [dt.int8, dt.int32, dt.uint16, dt.int64], ids=str)
def test_integer_division_by_zero_gives_zero(dtype: DType) -> Case:
    case = elementwise_case(dtype, ["floordiv", "mod", "shift_left", "shift_right"], n=6)
    low = 0 if dtype.kind == "uint" else int(-dtype.maximum - 1)
    case.inputs["floordiv_0"] = case.inputs["mod_0"] = np.array([5, low, low, 0, 7, 3], dtype.numpy)
    divisor = np.array([0, 1, 3, 0, 2, 1], dtype.numpy)
    if dtype.kind == "int":
        divisor[1] = -1
    case.inputs["floordiv_1"] = case.inputs["mod_1"] = divisor
    case.inputs["shift_left_1"] = case.inputs["shift_right_1"] = np.array(
        [0, 1, 2, dtype.bits - 1, dtype.bits, dtype.bits + 5], dtype.numpy
    )
    return case


CASTS = [d for d in dt.ALL if not d.is_complex]


SMALLEST = (dt.fp6_e2m3, dt.fp6_e3m2, dt.fp4_e2m1, dt.tf32)


def conversions(kinds: Sequence[DType] = CASTS) -> Case:
    """Every dtype cast to every other, each result an output of its own."""
    n = 64
    outs = [
        Arg(f"to_{a}_{b}", (n,), b, out=True)
        for a in kinds
        for b in kinds
        if a != b and a not in SMALLEST and b not in SMALLEST
    ]
    ins = [Arg(f"x_{a}", (n,), a) for a in kinds if a not in SMALLEST]

    def body(t: LineBuilder, *args: Value) -> None:
        views = {a.hint: a for a in args}
        for out in outs:
            _, a, _ = out.name.replace("fp8_", "fp8-").split("_")
            x = t.load(views[f"x_{a.replace('-', '_')}"], [t.index(0)], (n,))
            t.store(views[out.name], t.cast(x, out.dtype), [t.index(0)])

    inputs = {a.name: data((n,), a.dtype, 0, 100) for a in ins}
    return Case(build("casts", [*ins, *outs], (1,), body), inputs, rtol=0, atol=0)


@checked(seeds=(0,))
def test_casts_between_all_dtypes() -> Case:
    return conversions()


@checked(seeds=(0,))
@pytest.mark.parametrize(
    "dtype", [dt.bf16, dt.f16, dt.fp8_e4m3, dt.fp8_e5m2, dt.fp6_e2m3, dt.fp6_e3m2, dt.fp4_e2m1], ids=str
)
def test_rounding_to_small_floats(dtype: DType) -> Case:
    """Nearest even for every exponent, signs and ties; fp8 and smaller saturate."""
    grid = (
        np.arange(256, dtype=np.uint8).view(dtype.numpy)
        if dtype.bits == 8
        else np.arange(1 << min(dtype.bits, 16), dtype=np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
    )
    exact = np.unique(grid.astype(np.float64)[np.isfinite(grid.astype(np.float64))])
    ties = (exact[1:] + exact[:-1]) / 2
    x = np.concatenate([exact, ties, ties * (1 + 1e-6), ties * (1 - 1e-6)]).astype(np.float32)
    n = x.size

    def body(t: LineBuilder, a: Value, b: Value, back: Value) -> None:
        small = t.cast(t.load(a, [t.iop("imul", t.program_id(0), t.index(1024))], (1024,)), dtype)
        t.store(b, small, [t.iop("imul", t.program_id(0), t.index(1024))])
        t.store(back, t.cast(small, dt.f64), [t.iop("imul", t.program_id(0), t.index(1024))])

    args = [Arg("x", (n,), dt.f32), Arg("small", (n,), dtype, out=True), Arg("back", (n,), dt.f64, out=True)]
    expected = x.astype(dtype.numpy)
    case = Case(
        build("rounding", args, (ceildiv(n, 1024),), body),
        {"x": x},
        {"small": expected, "back": expected.astype(np.float64)},
        rtol=0,
        atol=0,
    )
    return case


def test_saturation_and_nan_of_fp8() -> None:
    x = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 449.0, 480.0], np.float32)

    def body(t: LineBuilder, a: Value, b: Value) -> None:
        t.store(b, t.cast(t.load(a, [t.index(0)], (7,)), dt.fp8_e4m3), [t.index(0)])

    got = check(
        Case(
            build("saturate", [Arg("x", (7,), dt.f32), Arg("y", (7,), dt.fp8_e4m3, out=True)], (1,), body),
            {"x": x},
            {"y": np.array([448, -448, 448, -448, np.nan, 448, 448])},
        )
    )
    assert got["y"].dtype == dt.fp8_e4m3.numpy


def reduction(op: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: DType = dt.f32, warps: int = 4) -> Case:
    x = data(shape, dtype)
    if op == "prod":
        x = (1 + x.astype(np.float64) / 50).astype(dtype.numpy)
    out = (
        dt.int64
        if op.startswith("arg")
        else dt.bool_
        if op in ("any", "all")
        else dtype.accumulate
        if dtype.is_integer
        else dtype.compute
    )
    kept = tuple(s for i, s in enumerate(shape) if i not in axes)

    def body(t: LineBuilder, a: Value, y: Value) -> None:
        tile = t.load(a, t.ints(*(0,) * len(shape)), shape)
        t.store(y, t.reduce(op, tile, axes, out), t.ints(*(0,) * len(kept)))

    program = build("reduction", [Arg("x", shape, dtype), Arg("y", kept, out, out=True)], (1,), body, num_warps=warps)
    return Case(program, {"x": x}, rtol=1e-5, atol=1e-5)


SHAPES = [
    ((300,), (0,)),
    ((5, 300), (1,)),
    ((48, 33), (0,)),
    ((16, 24), (0, 1)),
    ((4, 6, 40), (2,)),
    ((4, 6, 40), (1, 2)),
    ((4, 6, 40), (0, 1)),
    ((3, 10, 16), (1,)),
    ((1, 64, 1), (1,)),
    ((2, 3, 4, 5), (1, 3)),
    ((130, 3), (0,)),
]


@checked
@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
@pytest.mark.parametrize("op", ["sum", "max"])
def test_reductions_over_all_kinds_of_axes(op: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    return reduction(op, shape, axes)


def both_axes(op: str, dtype: DType) -> list[Ready]:
    if dtype.kind == "bool" and op not in ("any", "all"):
        pytest.skip("bools are reduced by any and all")
    if dtype.kind != "bool" and op in ("any", "all"):
        dtype = dt.bool_
    return [ready(reduction(op, (7, 65), (1,), dtype)), ready(reduction(op, (65, 7), (0,), dtype))]


@builds(both_axes)
@pytest.mark.parametrize("op", [*REDUCERS, "argmax", "argmin"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.int32, dt.bool_], ids=str)
def test_every_reducer(op: str, dtype: DType, built: list[Ready]) -> None:
    for made in built:
        check(made)


@builds(lambda shape, axes: [ready(reduction("sum", shape, axes, warps=w)) for w in (1, 2, 4, 16, 32)])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(48, 70), (2, 2500), (300, 9)], ids=str)
def test_sums_do_not_depend_on_the_number_of_warps(
    shape: tuple[int, int], axes: tuple[int, ...], built: list[Ready]
) -> None:
    """One warp walks these tiles in chunks, thirty-two hold them in registers."""
    x = data(shape, dt.f32)
    results = set()
    for made in built:
        made.case.inputs = {"x": x}
        results.add(check(made, seeds=(5,))["y"].tobytes())
    assert len(results) == 1


@checked
@pytest.mark.parametrize(("op", "expected"), [("argmax", 3), ("argmin", 3), ("max", np.nan), ("min", np.nan)])
def test_nan_wins_reductions(op: str, expected: float) -> Case:
    case = reduction(op, (9,), (0,))
    case.inputs = {"x": np.array([1, 5, -2, np.nan, 9, np.nan, 0, 1, 2], np.float32)}
    case.expected = {"y": np.array(expected)}
    return case


@checked
def test_ties_go_to_the_first_position() -> Case:
    case = reduction("argmax", (3, 200), (1,))
    x = np.zeros((3, 200), np.float32)
    x[1, [50, 199]] = 1
    x[2, :] = -np.inf
    case.inputs = {"x": x}
    case.expected = {"y": np.array([0, 50, 0])}
    return case


def folded(values: Any, partials: int = 1024) -> Any:
    """The documented order: ascending modulo `partials`, neighbours, then halves."""
    part = np.full(partials, -0.0, np.float32)
    for i, v in enumerate(values):
        part[i % partials] += v
    part = part[0::2] + part[1::2]
    while part.size > 1:
        part = part[: part.size // 2] + part[part.size // 2 :]
    return part[0]


def test_sums_are_folded_in_the_documented_order() -> None:
    x = data((3, 2100), dt.f32)
    rows, columns = reduction("sum", x.shape, (1,)), reduction("sum", x.T.shape, (0,))
    rows.inputs, columns.inputs = {"x": x}, {"x": x.T.copy()}
    assert check(rows)["y"].tolist() == [folded(row) for row in x]
    assert check(columns)["y"].tolist() == [folded(row, 128) for row in x]


def symbolic_reduction(op: str, axis: int, sizes: tuple[int, int], dtype: DType = dt.f32) -> Case:
    shape = (N, sizes[1]) if axis == 0 else (sizes[0], N)
    kept = (sizes[1],) if axis == 0 else (sizes[0],)
    out = dt.int64 if op.startswith("arg") else dtype

    def body(t: LineBuilder, a: Value, y: Value) -> None:
        t.store(y, t.reduce(op, t.load(a, t.ints(0, 0), shape), (axis,), out), t.ints(0))

    program = build("rows", [Arg("x", shape, dtype), Arg("y", kept, out, out=True)], (1,), body, ("n",))
    return Case(program, {"x": data(sizes, dtype)}, dims={"n": sizes[axis]}, rtol=1e-5, atol=1e-4)


@checked
@pytest.mark.parametrize("op", ["sum", "min", "argmax"])
@pytest.mark.parametrize(("axis", "sizes"), [(1, (2, 3000)), (0, (700, 20)), (1, (1, 1)), (0, (1, 9)), (1, (3, 1024))])
def test_reductions_along_axes_known_at_launch(op: str, axis: int, sizes: tuple[int, int]) -> Case:
    return symbolic_reduction(op, axis, sizes)


def test_reduction_is_the_same_whether_the_size_is_known_or_not() -> None:
    x = data((2, 5000), dt.f32)
    symbolic = symbolic_reduction("sum", 1, (2, 5000))
    known = reduction("sum", (2, 5000), (1,), warps=8)
    symbolic.inputs = known.inputs = {"x": x}
    assert check(symbolic)["y"].tobytes() == check(known)["y"].tobytes()


def moves(shape: tuple[int, ...], out: tuple[int, ...], move: Any, dtype: DType = dt.f32) -> Case:
    def body(t: LineBuilder, a: Value, y: Value) -> None:
        tile = t.load(a, t.ints(*(0,) * len(shape)), shape)
        t.store(y, move(t, tile), t.ints(*(0,) * len(out)))

    return Case(
        build("moves", [Arg("x", shape, dtype), Arg("y", out, dtype, out=True)], (1,), body),
        {"x": data(shape, dtype)},
        rtol=0,
        atol=0,
    )


@checked
@pytest.mark.parametrize(
    ("shape", "perm"), [((33, 20), (1, 0)), ((3, 4, 10), (2, 0, 1)), ((3, 1, 10), (1, 0, 2)), ((4, 5, 6), (1, 0, 2))]
)
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.bool_], ids=str)
def test_transpose(shape: tuple[int, ...], perm: tuple[int, ...], dtype: DType) -> Case:
    return moves(shape, tuple(shape[p] for p in perm), lambda t, x: t.transpose(x, perm), dtype)


@checked
@pytest.mark.parametrize(
    ("shape", "out"),
    [
        ((6, 40), (240,)),
        ((240,), (10, 24)),
        ((4, 6, 10), (24, 10)),
        ((4, 6, 10), (4, 60)),
        ((8, 1), (8,)),
        ((8,), (2, 1, 4)),
    ],
)
def test_reshape(shape: tuple[int, ...], out: tuple[int, ...]) -> Case:
    return moves(shape, out, lambda t, x: t.reshape(x, out))


@checked
@pytest.mark.parametrize(
    ("shape", "out", "axes"),
    [
        ((20,), (7, 20), (1,)),
        ((7,), (7, 20), (0,)),
        ((7, 1), (7, 20), (0, 1)),
        ((1, 20), (7, 20), (0, 1)),
        ((3, 5), (3, 4, 5), (0, 2)),
        ((4, 5), (3, 4, 5), (1, 2)),
        ((3, 4), (3, 4, 5), (0, 1)),
        ((1,), (9,), (0,)),
    ],
)
def test_broadcast(shape: tuple[int, ...], out: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    return moves(shape, out, lambda t, x: t.broadcast(x, out, axes))


@checked
def test_matrix_plus_its_own_row_and_column_sums() -> Case:
    def move(t: LineBuilder, x: Value) -> Value:
        rows, cols = (t.broadcast(t.reduce("sum", x, (1 - a,)), (24, 24), (a,)) for a in (0, 1))
        return t.map("add", x, t.map("sub", rows, cols))

    case = moves((24, 24), (24, 24), move)
    case.rtol = case.atol = 1e-5
    return case


@checked
@pytest.mark.parametrize(
    ("shape", "axis"), [((100,), 0), ((5, 70), 1), ((70, 5), 0), ((3, 40, 4), 1), ((2, 33), 0), ((1, 2000), 1)]
)
@pytest.mark.parametrize("op", ["sum", "max"])
def test_scan(shape: tuple[int, ...], axis: int, op: str) -> Case:
    case = moves(shape, shape, lambda t, x: t.value("tile.scan", (x,), x.type, {"op": op, "axis": axis}))
    case.rtol = case.atol = 1e-4
    return case


@checked
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((100,), 0), ((5, 70), 1), ((70, 5), 0), ((3, 40, 4), 1), ((4, 1), 1), ((9, 2), 1), ((513,), 0), ((20, 37), 1)],
)
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.f64, dt.int64, dt.uint8, dt.bool_], ids=str)
def test_sort(shape: tuple[int, ...], axis: int, dtype: DType) -> Case:
    """Values and positions, both ways round: NaN is the largest, equal elements keep their order."""
    outs = [Arg("up", shape, dtype, out=True), Arg("down", shape, dtype, out=True)]
    outs += [Arg("up_at", shape, dt.int64, out=True), Arg("down_at", shape, dt.int64, out=True)]

    def body(t: LineBuilder, x: Value, *views: Value) -> None:
        tile = t.load(x, t.ints(*(0,) * len(shape)), shape)
        for view, arg in zip(views, outs, strict=True):
            attrs = {"axis": axis, "descending": "down" in arg.name, "positions": "at" in arg.name}
            t.store(view, t.value("tile.sort", (tile,), TileType(shape, arg.dtype), attrs), t.ints(*(0,) * len(shape)))

    x = RNG.integers(0, 9, shape).astype(dtype.numpy)
    if dtype.is_float:
        x[RNG.random(shape) < 0.1] = np.nan
        x[RNG.random(shape) < 0.1] = -np.inf
    wide = x.astype(np.float64) if dtype.is_float else x
    up = np.argsort(wide, axis, kind="stable")
    down = shape[axis] - 1 - np.flip(np.argsort(np.flip(wide, axis), axis, kind="stable"), axis)
    expected = {
        "up": np.take_along_axis(x, up, axis),
        "down": np.take_along_axis(x, down, axis),
        "up_at": up,
        "down_at": down,
    }
    return Case(build("sorts", [Arg("x", shape, dtype), *outs], (1,), body), {"x": x}, expected, rtol=0, atol=0)


@checked
@pytest.mark.parametrize(("shape", "axis"), [((40,), 0), ((6, 40), 0), ((6, 40), 1), ((2, 3, 4), 1)])
def test_iota(shape: tuple[int, ...], axis: int) -> Case:
    case = moves(
        shape, shape, lambda t, x: t.cast(t.value("tile.iota", (), TileType(shape, dt.int32), {"axis": axis}), dt.f32)
    )
    return case


@checked
def test_philox_words() -> Case:
    n = 100

    def body(t: LineBuilder, c: Value, k: Value, y: Value) -> None:
        counter, key = (t.load(v, [t.index(0)], (n,)) for v in (c, k))
        t.store(y, t.value("tile.philox", (counter, key), counter.type), [t.index(0)])

    args = [Arg("c", (n,), dt.uint64), Arg("k", (n,), dt.uint64), Arg("y", (n,), dt.uint64, out=True)]
    inputs = {"c": RNG.integers(0, 2**63, n).astype(np.uint64), "k": RNG.integers(0, 2**63, n).astype(np.uint64)}
    return Case(build("philox", args, (1,), body), inputs, rtol=0, atol=0)


@checked
def test_bitcast() -> Case:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, [t.index(0)], (50,))
        t.store(y, t.value("tile.bitcast", (tile,), TileType((50,), dt.uint32)), [t.index(0)])

    x = normal(50)
    return Case(
        build("bits", [Arg("x", (50,), dt.f32), Arg("y", (50,), dt.uint32, out=True)], (1,), body),
        {"x": x},
        {"y": x.view(np.uint32)},
    )


@checked
def test_ragged_edges_read_as_fill_and_are_not_written() -> Case:
    """A 2-D tile that hangs over both edges of its view, with a fill value."""

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        at = [t.iop("imul", t.program_id(i), t.index(s)) for i, s in ((0, 16), (1, 32))]
        tile = t.load(x, at, (16, 32), fill=-1.0)
        total = t.reduce("sum", tile, (0, 1))
        t.store(y, t.map("add", tile, t.broadcast(total, (16, 32), ())), at)

    args = [Arg("x", (21, 45), dt.f32), Arg("y", (21, 45), dt.f32, out=True)]
    return Case(build("edges", args, (2, 2), body), {"x": normal(21, 45)}, rtol=1e-5, atol=1e-5)


@checked
def test_offsets_before_the_view_read_as_fill() -> Case:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        back = t.iop("isub", t.index(0), t.index(3))
        t.store(y, t.load(x, [back], (16,), fill=7.0), [t.index(0)])

    x = normal(10)
    expected = np.concatenate([np.full(3, 7), x, np.full(3, 7)])
    return Case(
        build("before", [Arg("x", (10,), dt.f32), Arg("y", (16,), dt.f32, out=True)], (1,), body),
        {"x": x},
        {"y": expected},
    )


@checked
def test_strided_and_dropped_windows() -> Case:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        sub = t.value(
            "tile.subview",
            (x, t.program_id(0), t.index(2), t.index(1)),
            ViewType((6, 8), dt.f32, (10, 1)),
            {"sizes": (1, 6, 8), "drop": (0,)},
        )
        tile = t.load(sub, t.ints(0, 0), (6, 8))
        t.store(y, t.reshape(t.transpose(tile, (1, 0)), (1, 8, 6)), [t.program_id(0), t.index(0), t.index(0)])

    x = normal(3, 9, 10)
    expected = x[:, 2:8, 1:9].transpose(0, 2, 1)
    args = [Arg("x", (3, 9, 10), dt.f32), Arg("y", (3, 8, 6), dt.f32, out=True)]
    return Case(build("windows", args, (3,), body), {"x": x}, {"y": expected})


@checked
@pytest.mark.parametrize("masked", [False, True])
def test_gather_and_scatter(masked: bool) -> Case:
    n = 60

    def body(t: LineBuilder, x: Value, i: Value, to: Value, y: Value) -> None:
        rows = t.load(i, [t.index(0)], (n,))
        cols = t.value("tile.iota", (), TileType((n,), dt.int64), {"axis": 0})
        cols = t.map("mod", cols, t.full((n,), 12, dt.int64))
        mask = [t.map("lt", cols, t.full((n,), 9, dt.int64))] if masked else []
        attrs: dict[str, Any] = {"fill": 5.0, **({"masked": True} if masked else {})}
        value = t.value("tile.gather", [x, rows, cols, *mask], TileType((n,), dt.f32), attrs)
        where = t.load(to, [t.index(0)], (n,))
        t.op("tile.scatter", [y, value, where, *mask], (), {"masked": True} if masked else {})

    args = [
        Arg("x", (20, 12), dt.f32),
        Arg("i", (n,), dt.int64),
        Arg("to", (n,), dt.int32),
        Arg("y", (n,), dt.f32, out=True),
    ]
    inputs = {"x": normal(20, 12), "i": RNG.integers(-3, 25, n), "to": RNG.permutation(n), "y": normal(n)}
    row, col = inputs["i"], np.arange(n) % 12
    seen = ((row >= 0) & (row < 20)) & (col < 9 if masked else True)
    value = np.where(seen, inputs["x"][np.clip(row, 0, 19), col], np.float32(5))
    expected = inputs["y"].copy()
    kept = col < 9 if masked else np.ones(n, bool)
    expected[inputs["to"][kept]] = value[kept]
    return Case(build("gather", args, (1,), body), inputs, {"y": expected})


@checked
def test_loops_branches_and_whiles() -> Case:
    n = 40

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, [t.index(0)], (n,))

        def step(k: Value, a: Value, b: Value) -> list[Value]:
            even = t.map(
                "eq",
                t.map("mod", t.value("tile.to_scalar", (k,), TileType((), dt.int64)), t.constant(2, dt.int64)),
                t.constant(0, dt.int64),
            )
            (c,) = branch(t, even, lambda: [t.map("add", a, tile)], lambda: [t.map("sub", a, b)], [a.type])
            return [b, c]  # the two change places: assignment must be parallel

        a, b = loop(t, t.index(0), t.index(5), t.index(1), [tile, t.full((n,), 1.0, dt.f32)], step)
        test, work = (
            Block([TileType((), dt.int32), a.type], ["i", "v"]),
            Block([TileType((), dt.int32), a.type], ["i", "v"]),
        )
        with t.inside(test):
            t.op("tile.yield", [t.map("lt", test.args[0], t.constant(3, dt.int32))])
        with t.inside(work):
            t.op("tile.yield", [t.map("add", work.args[0], t.constant(1, dt.int32)), t.map("mul", work.args[1], b)])
        last = t.op(
            "tile.while",
            [t.constant(0, dt.int32), a],
            [v.type for v in test.args],
            {},
            [Region([test]), Region([work])],
        )
        t.store(y, last.results[1], [t.index(0)])

    case = Case(
        build("control", [Arg("x", (n,), dt.f32), Arg("y", (n,), dt.f32, out=True)], (1,), body),
        {"x": normal(n) / 4},
        rtol=1e-5,
        atol=1e-5,
    )
    return case


@checked
def test_index_arithmetic_rounds_down() -> Case:
    def body(t: LineBuilder, y: Value) -> None:
        minus = t.iop("isub", t.index(0), t.index(7))
        values = [t.iop(op, minus, t.index(3)) for op in ("idiv", "imod", "imin", "imax", "imul", "iadd")]
        for i, v in enumerate(values):
            t.store(y, t.reshape(t.value("tile.to_scalar", (v,), TileType((), dt.int64)), (1,)), [t.index(i)])

    case = Case(
        build("indices", [Arg("y", (6,), dt.int64, out=True)], (1,), body), {}, {"y": np.array([-3, 2, -7, 3, -21, -4])}
    )
    return case


@checked
def test_values_computed_from_data_index_memory() -> Case:
    def body(t: LineBuilder, i: Value, x: Value, y: Value) -> None:
        row = t.load(i, [t.program_id(0)], (1,))
        at = t.value("tile.to_index", (t.reshape(row, ()),), INDEX)
        t.store(y, t.load(x, [at, t.index(0)], (1, 30)), [t.program_id(0), t.index(0)])

    i, x = np.array([4, 0, 2, 2], np.int64), normal(5, 30)
    args = [Arg("i", (4,), dt.int64), Arg("x", (5, 30), dt.f32), Arg("y", (4, 30), dt.f32, out=True)]
    return Case(build("rows", args, (4,), body), {"i": i, "x": x}, {"y": x[i]})


@checked
@pytest.mark.parametrize("swizzle", ["none", "xor"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.int8], ids=str)
def test_shared_tiles_hold_what_is_stored(swizzle: str, dtype: DType) -> Case:
    """Stored in one layout, changed by an async copy of other rows, read back transposed."""

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        s = t.value("tile.alloc_shared", (), SharedType((16, 32), dtype, swizzle), hint="stage")
        t.op("tile.store_shared", [s, t.load(x, t.ints(0, 0), (16, 32))])
        t.op("tile.barrier")
        first = t.value("tile.load_shared", (s,), TileType((16, 32), dtype))
        t.op("tile.copy_async", [s, x, *t.ints(16, 5)])  # overwrites what was just read, and hangs over the edge
        t.op("tile.barrier")
        second = t.value("tile.load_shared", (s,), TileType((16, 32), dtype))
        t.store(y, t.transpose(t.map("add", first, second), (1, 0)), t.ints(0, 0))

    args = [Arg("x", (32, 32), dtype), Arg("y", (32, 16), dtype, out=True)]
    x = data((32, 32), dtype)
    late = np.zeros((16, 32), x.dtype)
    late[:, :27] = x[16:, 5:]
    return Case(build("stage", args, (1,), body), {"x": x}, {"y": (x[:16] + late).T}, rtol=1e-2, atol=1e-2)


@checked(seeds=(0, 3, 4))
def test_a_missing_barrier_is_put_in() -> Case:
    """An async copy is read without a barrier of the author's, and its source tile rewritten in a loop."""

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        s = t.value("tile.alloc_shared", (), SharedType((64, 16), dt.f32), hint="stage")

        def step(k: Value, acc: Value) -> list[Value]:
            t.op("tile.copy_async", [s, x, k, t.index(0)])
            turned = t.transpose(t.value("tile.load_shared", (s,), TileType((64, 16), dt.f32)), (1, 0))
            return [t.map("add", acc, turned)]

        (acc,) = loop(t, t.index(0), t.index(192), t.index(64), [t.full((16, 64), 0.0, dt.f32)], step)
        t.store(y, acc, t.ints(0, 0))

    x = normal(192, 16)
    args = [Arg("x", (192, 16), dt.f32), Arg("y", (16, 64), dt.f32, out=True)]
    return Case(
        build("missing", args, (1,), body), {"x": x}, {"y": x.reshape(3, 64, 16).sum(0).T}, rtol=1e-5, atol=1e-5
    )


@checked(seeds=(0, 1, 2))
def test_reading_back_what_was_stored_to_global_memory() -> Case:
    """Rows are stored, then read as columns by other threads of the program."""

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, t.ints(0, 0), (32, 32))
        t.store(y, t.map("neg", tile), t.ints(0, 0))
        other = t.load(y, t.ints(0, 1), (32, 31))
        t.store(y, t.map("mul", other, other), t.ints(0, 0))

    x = normal(32, 32)
    expected = -x
    expected[:, :31] = (-x[:, 1:]) ** 2
    return Case(
        build("again", [Arg("x", (32, 32), dt.f32), Arg("y", (32, 32), dt.f32, out=True)], (1,), body),
        {"x": x},
        {"y": expected},
    )


@checked(seeds=(2,))
def test_large_tiles_are_walked_in_chunks() -> Case:
    """Far more elements than registers: elementwise in place, with row vectors along both axes."""
    shape = (200, 400)

    def body(t: LineBuilder, x: Value, r: Value, c: Value, y: Value) -> None:
        rows = t.broadcast(t.load(r, [t.index(0)], (200,)), shape, (0,))
        cols = t.broadcast(t.load(c, [t.index(0)], (400,)), shape, (1,))
        t.store(y, t.map("fma", t.load(x, t.ints(0, 0), shape), rows, cols), t.ints(0, 0))

    args = [
        Arg("x", shape, dt.f32),
        Arg("r", (200,), dt.f32),
        Arg("c", (400,), dt.f32),
        Arg("y", shape, dt.f32, out=True),
    ]
    return Case(build("large", args, (1,), body), {"x": normal(*shape), "r": normal(200), "c": normal(400)})


@checked(seeds=(0,))
def test_both_sizes_known_at_launch() -> Case:
    from tessera.language.dims import symbol

    m = symbol("m")

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        t.store(y, t.map("exp", t.load(x, t.ints(0, 0), (m, N))), t.ints(0, 0))

    x = normal(33, 1500)
    args = [Arg("x", (m, N), dt.f32), Arg("y", (m, N), dt.f32, out=True)]
    return Case(build("both", args, (1,), body, ("m", "n")), {"x": x}, {"y": np.exp(x)}, {"m": 33, "n": 1500})


def test_products_of_tiles_in_registers() -> None:
    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        left, right = t.load(a, t.ints(0, 0), (48, 32)), t.load(b, t.ints(0, 0), (32, 24))
        zero = t.full((48, 24), 0.0, dt.f32)
        t.store(y, t.value("tile.mma", (left, right, zero), zero.type), t.ints(0, 0))

    for dtype in (dt.bf16, dt.f32):
        a, b = normal(48, 32).astype(dtype.numpy), normal(32, 24).astype(dtype.numpy)
        args = [Arg("a", (48, 32), dtype), Arg("b", (32, 24), dtype), Arg("y", (48, 24), dt.f32, out=True)]
        check(
            Case(
                build("product", args, (1,), body),
                {"a": a, "b": b},
                {"y": a.astype("f8") @ b.astype("f8")},
                rtol=1e-4,
                atol=1e-4,
            )
        )


@checked
@pytest.mark.parametrize("shape", [(7, 5, 9), (1, 16, 8), (16, 1, 8), (33, 40, 17)])
def test_products_of_odd_sizes(shape: tuple[int, int, int]) -> Case:
    m, n, k = shape

    def body(t: LineBuilder, a: Value, b: Value, y: Value) -> None:
        left, right = t.load(a, t.ints(0, 0), (m, k)), t.load(b, t.ints(0, 0), (k, n))
        zero = t.full((m, n), 1.0, dt.f32)
        t.store(y, t.value("tile.mma", (left, right, zero), zero.type), t.ints(0, 0))

    a, b = normal(m, k), normal(k, n)
    args = [Arg("a", (m, k), dt.f32), Arg("b", (k, n), dt.f32), Arg("y", (m, n), dt.f32, out=True)]
    return Case(build("odd", args, (1,), body), {"a": a, "b": b}, {"y": 1 + a @ b}, rtol=1e-4, atol=1e-4)


def test_every_op_of_the_dialect_has_a_writer() -> None:
    from tessera.compiler.ir.spec import SPECS
    from tessera.compiler.targets.cuda import generate  # noqa: F401 - registers the writers
    from tessera.compiler.targets.cuda.emit.emitter import HANDLERS
    from tessera.compiler.tile.primitive import PRIMITIVES

    written = {*HANDLERS, "tile.func", *PRIMITIVES}  # a primitive brings its own code
    written.add("tile.merge")  # made for CPUs, refused elsewhere
    assert "tile.primitive" in HANDLERS
    assert not [name for name in SPECS if name.startswith("tile.") and name not in written]
    assert isinstance(Op, type)
