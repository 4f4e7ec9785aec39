"""The Tile IR interpreter on hand-built kernels: the meaning of memory ops, and every check it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType, ViewType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.interpret.interpreter import InterpreterOptions, run_kernel
from tessera.compiler.tile.interpret.memory import WatchedView
from tessera.compiler.tile.program import Buffer, BufferArg, Launch, Program
from tessera.compiler.unit import Param
from tessera.errors import DebugCheckError, Span
from tessera.language import dtypes
from tessera.language.dims import symbol
from tessera.language.dtypes import bf16, f32, int64

SPAN = Span("hand.py", 7, 3, 7, 9)


def kernel(
    views: list[ViewType], grid: tuple[int, ...], body: Callable[..., None], writes: tuple[int, ...] = (0,)
) -> Op:
    """A verified tile.func whose body is written by `body(builder, *view arguments)`."""
    block = Block(views, [f"v{i}" for i in range(len(views))])
    b = TileBuilder(block, span=SPAN)
    body(b, *block.args)
    b.op("tile.return")
    attrs = {"sym_name": "k", "grid": grid, "arg_names": tuple(a.hint for a in block.args), "writes": writes}
    op = Op("tile.func", (), (), SPAN, attrs, [Region([block])])
    verify(op)
    return op


def zero(b: TileBuilder) -> Value:
    return b.index(0)


def checked(array: np.ndarray, written: bool = True) -> WatchedView:
    none = np.full(array.shape, -1, np.int32)
    return WatchedView("x", array, None if written else np.zeros(array.shape, bool), none.copy(), none.copy())


def fault(match: str) -> Any:
    return pytest.raises(DebugCheckError, match=match)


def test_loads_are_clipped_and_filled() -> None:
    def body(b: TileBuilder, out: Value, x: Value) -> None:
        b.store(out, b.load(x, [b.index(3)], (4,), fill=-1.0), [zero(b)])

    out = np.zeros(4, np.float32)
    run_kernel(
        kernel([ViewType((4,), f32), ViewType((5,), f32)], (1,), body),
        [WatchedView("out", out), WatchedView("x", np.arange(5, dtype=np.float32))],
        {},
    )
    assert out.tolist() == [3, 4, -1, -1]


@pytest.mark.parametrize("offset", [-9, -3, 0, 2, 5, 9])
def test_stores_outside_change_nothing(offset: int) -> None:
    def body(b: TileBuilder, out: Value) -> None:
        b.store(out, b.full((4,), 1.0, f32), [b.index(offset)])

    out = np.zeros(5, np.float32)
    run_kernel(kernel([ViewType((5,), f32)], (1,), body), [WatchedView("out", out)], {})
    assert out.tolist() == [1.0 if offset <= i < offset + 4 else 0.0 for i in range(5)]


def test_symbolic_sizes() -> None:
    n = symbol("n")

    def body(b: TileBuilder, out: Value) -> None:
        at = b.iop("imul", b.program_id(0), b.index(4))
        b.store(out, b.full((4,), 2.0, f32), [at])

    out = np.zeros(10, np.float32)
    op = kernel([ViewType((n,), f32)], ((n + 3) // 4,), body)  # type: ignore[arg-type]
    run_kernel(op, [checked(out)], {"n": 10})
    assert (out == 2).all()


def test_race_between_programs_is_found_at_its_line() -> None:
    def body(b: TileBuilder, out: Value) -> None:
        b.store(out, b.full((4,), 2.0, f32), [zero(b)])

    with fault("another program of this launch writes") as e:
        run_kernel(kernel([ViewType((4,), f32)], (2,), body), [checked(np.zeros(4, np.float32))], {})
    assert e.value.code == "TS506" and e.value.diagnostics[0].span == SPAN


def test_reading_what_another_program_writes_is_a_race() -> None:
    def body(b: TileBuilder, out: Value) -> None:
        i = b.program_id(0)
        neighbour = b.iop("imod", b.iop("iadd", i, b.index(1)), b.index(4))
        b.store(out, b.load(out, [neighbour], (1,)), [i])

    with fault("another program"):
        run_kernel(kernel([ViewType((4,), f32)], (4,), body), [checked(np.zeros(4, np.float32))], {})


def test_reading_an_output_before_it_is_written() -> None:
    def body(b: TileBuilder, out: Value) -> None:
        b.store(out, b.load(out, [zero(b)], (2,)), [zero(b)])

    with fault("before anything was written"):
        run_kernel(kernel([ViewType((4,), f32)], (1,), body), [checked(np.zeros(4, np.float32), written=False)], {})


@pytest.mark.parametrize(("index", "ok"), [(3, True), (4, False), (-1, False)])
def test_computed_indices_stay_inside(index: int, ok: bool) -> None:
    def body(b: TileBuilder, out: Value, x: Value) -> None:
        where = b.full((2,), index, int64)
        got = b.value("tile.gather", (x, where), TileType((2,), f32), {"fill": 0.0})
        b.store(out, got, [zero(b)])

    op = kernel([ViewType((2,), f32), ViewType((4,), f32)], (1,), body)
    args = [WatchedView("out", np.zeros(2, np.float32)), WatchedView("x", np.arange(4, dtype=np.float32))]
    if ok:
        run_kernel(op, args, {})
        assert args[0].data.tolist() == [3, 3]
    else:
        with fault("leaves axis 0 of x"):
            run_kernel(op, args, {})


def test_scatter_to_one_place_twice() -> None:
    def body(b: TileBuilder, out: Value) -> None:
        b.op("tile.scatter", (out, b.full((2,), 1.0, f32), b.full((2,), 1, int64)))

    with fault("Two elements of a scatter"):
        run_kernel(kernel([ViewType((4,), f32)], (1,), body), [checked(np.zeros(4, np.float32))], {})


def shared_kernel(*steps: str) -> Op:
    """Ops on one shared tile by name, ending in a store of what was read last."""

    def body(b: TileBuilder, out: Value, x: Value) -> None:
        s = b.value("tile.alloc_shared", (), SharedType((4,), f32))
        got = b.full((4,), 0.0, f32)
        for step in steps:
            if step == "copy":
                b.op("tile.copy_async", (s, x, zero(b)))
            elif step == "store":
                b.op("tile.store_shared", (s, b.full((4,), 1.0, f32)))
            elif step == "read":
                got = b.value("tile.load_shared", (s,), TileType((4,), f32))
            else:
                b.op("tile.barrier")
        b.store(out, got, [zero(b)])

    return kernel([ViewType((4,), f32), ViewType((4,), f32)], (1,), body)


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (("copy", "barrier", "read"), None),
        (("store", "barrier", "read", "barrier", "copy", "barrier", "read"), None),
        (("copy", "read"), "before a barrier"),
        (("store", "read"), "before a barrier"),
        (("read",), "nothing was written"),
        (("copy", "barrier", "read", "copy"), "without a barrier after it was read"),
        (("copy", "copy"), "without a barrier after it was written"),
    ],
)
def test_shared_tiles_need_barriers(steps: tuple[str, ...], problem: str | None) -> None:
    x = np.arange(4, dtype=np.float32)
    args = [WatchedView("out", np.zeros(4, np.float32)), WatchedView("x", x)]
    if problem is None:
        run_kernel(shared_kernel(*steps), args, {})
        assert args[0].data.tolist() == x.tolist()
    else:
        with fault(problem):
            run_kernel(shared_kernel(*steps), args, {})


def test_nan_is_reported_with_its_origin() -> None:
    origin = Span("hand.py", 2, 1, 2, 4)

    def body(b: TileBuilder, out: Value) -> None:
        with b.at(origin):
            bad = b.map("sqrt", b.full((4,), -1.0, f32))
        b.store(out, b.map("add", bad, b.full((4,), 1.0, f32)), [zero(b)])

    op = kernel([ViewType((4,), f32)], (1,), body)
    run_kernel(op, [WatchedView("out", np.zeros(4, np.float32))], {})
    with fault("Stores NaN") as e:
        run_kernel(op, [WatchedView("out", np.zeros(4, np.float32))], {}, InterpreterOptions(check_nan=True))
    assert e.value.diagnostics[0].notes[0].span == origin


def test_product_does_not_depend_on_how_k_is_cut() -> None:
    rng = np.random.default_rng(1)
    a, w = rng.standard_normal((3, 24)).astype(np.float32), rng.standard_normal((24, 5)).astype(np.float32)

    def product(width: int) -> np.ndarray:
        def body(b: TileBuilder, out: Value, x: Value, y: Value) -> None:
            acc = b.full((3, 5), 0.0, f32)
            for k in range(0, 24, width):
                left, right = b.load(x, [zero(b), b.index(k)], (3, width)), b.load(y, [b.index(k), zero(b)], (width, 5))
                acc = b.value("tile.mma", (left, right, acc), TileType((3, 5), f32))
            b.store(out, acc, [zero(b), zero(b)])

        out = np.zeros((3, 5), np.float32)
        op = kernel([ViewType((3, 5), f32), ViewType((3, 24), f32), ViewType((24, 5), f32)], (1,), body)
        run_kernel(op, [WatchedView("out", out), WatchedView("a", a), WatchedView("w", w)], {})
        return out

    assert (product(24) == product(1)).all() and (product(24) == product(8)).all()
    np.testing.assert_allclose(product(8), a @ w, rtol=1e-5)


def test_loops_and_branches() -> None:
    def body(b: TileBuilder, out: Value) -> None:
        inner = Block([INDEX, TileType((), int64)], ["i", "s"])
        with b.inside(inner):
            i = b.value("tile.to_scalar", (inner.args[0],), TileType((), int64))
            b.op("tile.yield", (b.map("add", inner.args[1], i),))
        loop = b.op(
            "tile.for",
            (b.index(1), b.index(10), b.index(3), b.constant(0, int64)),
            (TileType((), int64),),
            regions=[Region([inner])],
        )
        test = b.map("gt", loop.result, b.constant(5, int64))
        sides = []
        for value in (1.0, 2.0):
            side = Block()
            with b.inside(side):
                b.op("tile.yield", (b.full((1,), value, f32),))
            sides.append(Region([side]))
        chosen = b.op("tile.if", (test,), (TileType((1,), f32),), regions=sides)
        b.store(out, chosen.result, [zero(b)])

    out = np.zeros(1, np.float32)
    run_kernel(kernel([ViewType((1,), f32)], (1,), body), [WatchedView("out", out)], {})
    assert out[0] == 1.0  # 1 + 4 + 7 = 12 > 5


@pytest.mark.parametrize("dtype", [bf16, dtypes.f16, dtypes.fp8_e4m3, dtypes.fp8_e5m2])
def test_casts_round_and_small_floats_saturate(dtype: dtypes.DType) -> None:
    x = np.array([1e30, -1e30, 0.1, 1.0], np.float32)

    def body(b: TileBuilder, out: Value, v: Value) -> None:
        b.store(out, b.cast(b.cast(b.load(v, [zero(b)], (4,)), dtype), f32), [zero(b)])

    out = np.zeros(4, np.float32)
    run_kernel(
        kernel([ViewType((4,), f32), ViewType((4,), f32)], (1,), body),
        [WatchedView("out", out), WatchedView("x", x)],
        {},
    )
    if dtype.bits <= 8:
        assert out[0] == dtype.maximum and out[1] == -dtype.maximum
    assert out[3] == 1.0 and abs(out[2] - 0.1) < 0.1 * 2.0**-dtype.mantissa


def test_target_runs_a_program_from_its_artifact() -> None:
    def body(b: TileBuilder, out: Value, x: Value) -> None:
        at = b.iop("imul", b.program_id(0), b.index(4))
        b.store(out, b.map("exp", b.load(x, [at], (4,))), [at])

    op = kernel([ViewType((6,), f32), ViewType((6,), f32)], (2,), body)
    buffers = (Buffer(0, "out", (6,), f32, "output"), Buffer(1, "x", (6,), f32, "input", 0))
    p = Program(
        "k", (Param("x", (6,), f32),), buffers, (Launch(op, (BufferArg(0), BufferArg(1)), SPAN, 6, 48, "exp"),), (0,)
    )
    target = base.get("reference")
    artifact = generate(p, target)
    restored = base.Artifact.restore(artifact.header(), artifact.files)
    x, out = np.linspace(-1, 1, 6, dtype=np.float32), np.empty(6, np.float32)
    target.load(restored).run([out.ctypes.data, x.ctypes.data], [], [])
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)


def test_an_output_left_unwritten_is_found() -> None:
    def body(b: TileBuilder, out: Value) -> None:
        b.store(out, b.full((4,), 1.0, f32), [zero(b)])

    op = kernel([ViewType((6,), f32)], (1,), body)
    p = Program(
        "k",
        (),
        (Buffer(0, "out", (6,), f32, "output"),),
        (Launch(op, (BufferArg(0),), SPAN, 0, 0, ""),),
        (0,),
        span=SPAN,
    )
    target, out = base.get("reference"), np.empty(6, np.float32)
    with fault("2 of the 6 elements of out were never written"):
        target.load(generate(p, target)).run([out.ctypes.data], [], [])
