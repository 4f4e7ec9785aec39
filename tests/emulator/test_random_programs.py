"""Random tile programs: whatever layouts meet, emulated CUDA computes what the interpreter computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.errors import TargetError
from tessera.language import dtypes as dt
from tessera.language.dims import Dim
from tests.emulator.harness import Arg, Case, LineBuilder, build, check
from tests.emulator.kernels import N

SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 33, 70])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "maximum", "neg", "tanh", "reduce", "row", "transpose", "reshape", "scan", "stretch", "where"]
        ),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=3,
    max_size=9,
)


def shape_of(v: Value) -> tuple[int, ...]:
    assert isinstance(v.type, TileType)
    return tuple(int(d) for d in v.type.shape)  # type: ignore[call-overload]


def split(n: int) -> tuple[int, int]:
    """n as a product of two factors, as even as it goes."""
    a = next(d for d in range(int(n**0.5), 0, -1) if n % d == 0)
    return a, n // a


def apply(t: LineBuilder, values: list[Value], name: str, i: int, j: int) -> Value:
    """One more value, computed from earlier ones; `i` and `j` choose operands and axes."""
    x = values[i % len(values)]
    shape = shape_of(x)
    alike = [v for v in values if shape_of(v) == shape]
    y = alike[j % len(alike)]
    axis = j % max(1, len(shape))
    match name:
        case "add" | "maximum":
            return t.map(name, x, y)
        case "neg" | "tanh":
            return t.map(name, x)
        case "where":
            return t.map("where", t.map("lt", x, y), y, t.map("neg", x))
        case "reduce" if len(shape) > 1:
            return t.reduce(["max", "sum", "min"][i % 3], x, (axis,))
        case "row" if len(shape) > 1:
            kept = t.reduce("max", x, (axis,))
            return t.map("sub", x, t.broadcast(kept, shape, tuple(a for a in range(len(shape)) if a != axis)))
        case "transpose" if len(shape) > 1:
            return t.transpose(x, tuple(np.roll(range(len(shape)), 1 + i % (len(shape) - 1)).tolist()))
        case "reshape" if shape:
            return t.reshape(x, split(int(np.prod(shape))))
        case "scan" if shape:
            return t.value("tile.scan", (x,), x.type, {"op": "max", "axis": axis})
        case "stretch" if len(shape) < 3 and np.prod(shape) < 3000:
            return t.broadcast(x, (3, *shape), tuple(range(1, len(shape) + 1)))
        case _:
            return t.map("abs", x)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(SIZES, SIZES, STEPS, st.sampled_from([1, 2, 4]), st.integers(0, 5))
def test_agrees_with_the_interpreter(rows: int, cols: int, steps: list[Any], warps: int, seed: int) -> None:
    shapes: list[tuple[int, ...]] = []

    def program(t: LineBuilder, x: Value) -> list[Value]:
        values = [t.load(x, t.ints(0, 0), (rows, cols))]
        for step in steps:
            values.append(apply(t, values, *step))
        return values

    def probe(t: LineBuilder, x: Value) -> None:
        shapes.extend(shape_of(v) for v in program(t, x))

    source = Arg("x", (rows, cols), dt.f32)
    build("probe", [source], (1,), probe)
    outs = [Arg(f"y{i}", shape, dt.f32, out=True) for i, shape in enumerate(shapes)]

    def body(t: LineBuilder, x: Value, *results: Value) -> None:
        for v, y in zip(program(t, x), results, strict=True):
            t.store(y, v, t.ints(*(0,) * len(shape_of(v))))

    x = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32)

    def compare(**attrs: int) -> None:
        made = build("random", [source, *outs], (1,), body, **attrs)
        check(Case(made, {"x": x}, rtol=1e-5, atol=1e-4), seeds=(0, seed + 1))

    try:
        compare(num_warps=warps)
    except TargetError as e:
        # All values live to the end, which is too much for few warps; then the compiler chooses how many there are.
        assert [d.code for d in e.diagnostics] == ["TS411"]
        compare()


def fold(t: LineBuilder, x: Value, name: str, axis: int, shape: tuple[Dim, ...]) -> Value:
    """x minus, or compared with, what a reduction along `axis` gives."""
    rest = tuple(a for a in range(2) if a != axis)
    return t.map("sub", x, t.broadcast(t.reduce(name, x, (axis,)), shape, rest))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([(2, None), (None, 3), (5, None), (None, 40)]),
    st.sampled_from([1, 7, 1024, 1500]),
    st.lists(
        st.tuples(st.sampled_from(["add", "tanh", "sum", "max", "where"]), st.integers(0, 5)), min_size=1, max_size=6
    ),
    st.sampled_from([None, 1, 8]),
)
def test_sizes_known_at_launch_change_nothing(sizes: Any, n: int, steps: list[Any], warps: int | None) -> None:
    """One axis is as long as the launch says; reductions run along both."""
    shape: tuple[Dim, ...] = tuple(N if d is None else d for d in sizes)

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        values = [t.load(x, t.ints(0, 0), shape)]
        for name, i in steps:
            a, b = values[i % len(values)], values[-1]
            match name:
                case "sum" | "max":
                    values.append(fold(t, a, name, i % 2, shape))
                case "where":
                    values.append(t.map("where", t.map("lt", a, b), b, t.map("neg", a)))
                case _:
                    values.append(t.map(name, *([a, b] if name == "add" else [a])))
        t.store(y, values[-1], t.ints(0, 0))

    attrs = {} if warps is None else {"num_warps": warps}
    made = build("long", [Arg("x", shape, dt.f32), Arg("y", shape, dt.f32, out=True)], (1,), body, ("n",), **attrs)
    concrete = tuple(n if d is None else d for d in sizes)
    x = np.random.default_rng(n).standard_normal(concrete).astype(np.float32)
    check(Case(made, {"x": x}, dims={"n": n}, rtol=1e-4, atol=2e-3), seeds=(0, 3))
