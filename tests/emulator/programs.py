"""Programs of several steps: temporaries, constants, branches, loops, debug asserts."""

from __future__ import annotations

from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.tile.program import Branch, Buffer, BufferArg, Launch, Loop, Program
from tessera.compiler.unit import Param
from tessera.language import dtypes as dt
from tests.emulator.harness import SPAN, Arg, LineBuilder, build
from tests.emulator.kernels import normal


def kernel(name: str, args: list[Arg], body: Any) -> Op:
    return build(name, args, (1,), body).launches[0].kernel


def launch(op: Op, *buffers: int) -> Launch:
    return Launch(op, tuple(BufferArg(b) for b in buffers), SPAN, 0, 0, str(op.attrs["sym_name"]))


def two_step_program() -> tuple[Program, Any, Any]:
    """t = x * constant (a temporary), then y = t + t, read at an offset of the whole buffer."""
    n = 50
    table = normal(n)

    def scale(t: LineBuilder, x: Value, c: Value, out: Value) -> None:
        a, b = (t.load(v, [t.index(0)], (n,)) for v in (x, c))
        t.store(out, t.map("mul", a, b), [t.index(0)])

    def double(t: LineBuilder, x: Value, out: Value) -> None:
        a = t.load(x, [t.index(0)], (n,))
        t.store(out, t.map("add", a, a), [t.index(0)])

    first = kernel("scale", [Arg("x", (n,), dt.f32), Arg("c", (n,), dt.f32), Arg("t", (n,), dt.f32, out=True)], scale)
    second = kernel("double", [Arg("t", (n,), dt.f32), Arg("y", (n,), dt.f32, out=True)], double)
    buffers = (
        Buffer(0, "x", (n,), dt.f32, "input", 0),
        Buffer(1, "table", (n,), dt.f32, "constant", None, table.tobytes()),
        Buffer(2, "t", (n,), dt.f32, "temp"),
        Buffer(3, "y", (n,), dt.f32, "output"),
    )
    x = normal(n)
    steps = (launch(first, 0, 1, 2), launch(second, 2, 3))
    return Program("two_steps", (Param("x", (n,), dt.f32),), buffers, steps, (3,)), x, 2 * (x * table)


def loop_program() -> tuple[Program, float]:
    """while x > 1: x = x / 2, in a temporary; then out = x + 10 if x > 0.6 else x + 20."""
    one, scalar = (1,), [Arg("a", (1,), dt.f32), Arg("b", (1,), dt.f32, out=True)]

    def mapped(name: str, function: Any) -> Op:
        def body(t: LineBuilder, a: Value, b: Value) -> None:
            t.store(b, function(t, t.load(a, [t.index(0)], one)), [t.index(0)])

        return kernel(name, scalar, body)

    def above(name: str, limit: float) -> Op:
        def body(t: LineBuilder, a: Value, b: Value) -> None:
            t.store(b, t.map("gt", t.load(a, [t.index(0)], one), t.full(one, limit, dt.f32)), [t.index(0)])

        return kernel(name, [scalar[0], Arg("b", one, dt.bool_, out=True)], body)

    def plus(value: float) -> Any:
        return lambda t, x: t.map("add", x, t.full(one, value, dt.f32))

    buffers = (
        Buffer(0, "x", one, dt.f32, "input", 0),
        Buffer(1, "out", one, dt.f32, "output"),
        Buffer(2, "state", one, dt.f32, "temp"),
        Buffer(3, "go", one, dt.bool_, "temp"),
        Buffer(4, "large", one, dt.bool_, "temp"),
    )
    halve = mapped("halve", lambda t, x: t.map("mul", x, t.full(one, 0.5, dt.f32)))
    steps = (
        launch(mapped("copy", plus(0.0)), 0, 2),
        Loop(3, (launch(above("over_one", 1.0), 2, 3),), (launch(halve, 2, 2),)),
        launch(above("over_half", 0.6), 2, 4),
        Branch(4, (launch(mapped("ten", plus(10.0)), 2, 1),), (launch(mapped("twenty", plus(20.0)), 2, 1),)),
    )
    return Program("loops", (Param("x", one, dt.f32),), buffers, steps, (1,)), 5.0 / 8 + 10


def assert_program() -> Program:
    def body(t: LineBuilder, x: Value) -> None:
        tile = t.load(x, [t.index(0)], (40,))
        t.op("tile.assert", [t.map("gt", tile, t.full((40,), 0.0, dt.f32))], (), {"message": "x must be positive"})

    return build("asserts", [Arg("x", (40,), dt.f32)], (1,), body)
