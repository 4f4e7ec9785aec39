"""Graph IR lowered to tile programs means what Graph IR means: both are executed and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import for_, if_, while_
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.graph.passes.for_to_while import for_to_while
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Block, Builder, Op, Region, clone
from tessera.compiler.ir.types import TensorType
from tessera.compiler.lower.schedule_to_tile import schedule_to_tile
from tessera.compiler.schedule.graph_to_schedule import graph_to_schedule
from tessera.compiler.targets.reference.executable import ReferenceExecutable
from tessera.compiler.tile.interpret.interpreter import InterpreterOptions
from tessera.compiler.tile.program import Program
from tessera.compiler.unit import Param
from tessera.errors import Span
from tessera.language import dtypes
from tessera.language.dtypes import DType

SPAN = Span("program.py", 1, 1, 1, 2)


def function(arrays: Sequence[Any], body: Callable[..., Any]) -> Op:
    """A `graph.func` over arguments like `arrays`."""
    types = [TensorType(a.shape, found) for a in arrays if (found := dtypes.of(a.dtype)) is not None]
    names = tuple(f"x{i}" for i in range(len(arrays)))
    block = Block(types, names)
    g = GraphBuilder(Builder(block, span=SPAN))
    out = body(g, *block.args)
    g.builder.op("graph.return", list(out) if isinstance(out, (tuple, list)) else [out])
    return Op("graph.func", (), (), SPAN, {"sym_name": "f", "arg_names": names}, [Region([block])])


def lowered(func: Op, device: str = "cpu") -> tuple[Op, Program]:
    graph = clone(func, {})
    for_to_while(graph)
    decompose(graph)
    schedule = graph_to_schedule(graph, device)
    params = [Param(a.hint, a.type.shape, a.type.dtype) for a in func.region.block.args]
    return schedule, schedule_to_tile(schedule, params, (), device, len(func.region.block.terminator.operands) != 1)


def execute(program: Program, arrays: Sequence[Any]) -> list[Any]:
    outs = {i: np.empty(program.buffers[i].shape, program.buffers[i].dtype.numpy) for i in program.outputs}
    given = [np.ascontiguousarray(a) for a in arrays]
    pointers = [
        given[b.param].ctypes.data if b.role == "input" else outs[b.id].ctypes.data
        for b in program.buffers
        if b.role in ("input", "output")
    ]
    ReferenceExecutable(program, InterpreterOptions()).run(pointers, (), ())
    return [outs[i] for i in program.outputs]


def check(body: Callable[..., Any], *arrays: Any, device: str = "cpu", tolerance: float = 2e-6) -> tuple[Op, Program]:
    func = function(arrays, body)
    schedule, program = lowered(func, device)
    for got, want in zip(execute(program, arrays), evaluate(func, arrays), strict=True):
        assert got.shape == np.shape(want) and got.dtype == want.dtype
        np.testing.assert_allclose(got.astype("f8"), np.asarray(want).astype("f8"), rtol=tolerance, atol=tolerance)
    return schedule, program


def rand(*shape: int, dtype: DType = dtypes.f32, seed: int = 0) -> Any:
    values = np.random.default_rng(seed + len(shape)).standard_normal(shape)
    return (values * 4).astype(dtype.numpy)


def kinds(schedule: Op) -> list[str]:
    return [str(op.attrs["kind"]) for op in schedule.region.block.ops if op.name == "schedule.group"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 70), (1, 1), (4, 300)])
def test_softmax_and_layer_norm_are_one_kernel_each(shape: tuple[int, ...], device: str) -> None:
    x, w, b = rand(*shape), rand(shape[-1], seed=1), rand(shape[-1], seed=2)
    schedule, _ = check(lambda g, x: g.softmax(x), x, device=device)
    assert kinds(schedule) == ["row"]
    schedule, _ = check(lambda g, x, w, b: g.layer_norm(x, w, b), x, w, b, device=device)
    assert kinds(schedule) == ["row"]


def test_an_elementwise_chain_is_one_kernel_over_one_axis() -> None:
    schedule, program = check(lambda g, x, y: g.add(g.gelu(g.mul(x, y)), 1.0), rand(4, 6, 8), rand(4, 6, 8, seed=3))
    assert kinds(schedule) == ["map"]
    view = program.launches[0].kernel.region.block.args[0].type
    assert view.shape == (4 * 6 * 8,)


def test_broadcast_operands_keep_their_size() -> None:
    check(lambda g, x, row, column: g.mul(g.add(x, row), column), rand(5, 7), rand(7), rand(5, 1))


def test_a_row_vector_computed_in_the_kernel_is_computed_once_per_row() -> None:
    schedule, _ = check(lambda g, x: g.div(x, g.sqrt(g.mean(g.square(x), axis=-1, keepdims=True))), rand(6, 33))
    assert kinds(schedule) == ["row"]


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_any_axis(axis: Any, keepdims: bool) -> None:
    check(lambda g, x: (g.sum(x, axis=axis, keepdims=keepdims), g.max(x, axis=axis, keepdims=keepdims)), rand(3, 4, 5))


def test_argmax_counts_in_c_order_over_several_axes() -> None:
    check(lambda g, x: (g.argmax(x), g.argmin(x, axis=1), g.argmax(x, axis=0)), rand(4, 5))


def test_a_long_reduction_runs_in_fixed_chunks() -> None:
    schedule, program = check(lambda g, x: g.sum(g.square(x)), rand(70_000), tolerance=1e-3)
    assert kinds(schedule) == ["chunks"] and len(program.launches) == 2
    check(lambda g, x: (g.max(x), g.min(x)), -np.abs(rand(70_001)) - 1)


def test_what_a_long_reduction_reads_may_be_needed_elsewhere() -> None:
    def both(g: Any, x: Any) -> Any:
        v = g.sub(x, 1.0)
        return v, g.max(v)

    schedule, _ = check(both, rand(70_000))
    assert kinds(schedule) == ["map", "chunks"]

    def through_a_view(g: Any, x: Any) -> Any:
        v = g.sub(x, 1.0)
        return g.max(v), g.reshape(v, (70, 1000))

    check(through_a_view, rand(70_000))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_matmul_with_its_epilogue(device: str) -> None:
    schedule, _ = check(lambda g, x, w, b: g.gelu(g.add(g.matmul(x, w), b)), rand(2, 9, 8), rand(8, 70), rand(70),
                        device=device, tolerance=1e-4)  # fmt: skip
    assert kinds(schedule) == ["contract"]


def test_batched_and_transposed_products() -> None:
    x, y = rand(2, 3, 4, 5), rand(2, 3, 6, 5)
    check(lambda g, x, y: g.matmul(x, g.swapaxes(y, -1, -2)), x, y, tolerance=1e-4)
    check(lambda g, x, y: g.einsum("abij,abkj->bkai", x, y), x, y, tolerance=1e-4)
    check(lambda g, x, y: g.matmul(g.transpose(x), y), rand(5, 3), rand(5, 4), tolerance=1e-4)
    check(lambda g, x, y: g.matmul(x, y), rand(7), rand(7, 4), tolerance=1e-4)


def test_attention_as_it_decomposes() -> None:
    q, k, v = rand(2, 2, 6, 4), rand(2, 2, 6, 4, seed=5), rand(2, 2, 6, 4, seed=6)
    check(lambda g, q, k, v: g.attention(q, k, v, causal=True), q, k, v, tolerance=1e-4)


def test_views_cost_nothing_and_copies_happen_where_needed() -> None:
    x = rand(4, 6)
    schedule, _ = check(lambda g, x: g.add(g.transpose(x), 1.0), x)
    assert kinds(schedule) == ["map"]
    check(lambda g, x: g.reshape(g.transpose(x), (3, 8)), x)
    check(lambda g, x: g.flip(g.slice(x, (0, 1), (4, 5), (1, 2)), axis=0), x)
    check(lambda g, x: (x, x, g.transpose(x), g.reshape(x, (24,))), x)


def test_joins_pads_and_gathers() -> None:
    x, y = rand(3, 4), rand(2, 4)
    check(lambda g, x, y: g.concat([g.exp(x), y, x], axis=0), x, y)
    check(lambda g, x: g.pad(x, ((1, 2), (0, 3)), value=-1.0), x)
    check(lambda g, x: g.roll(x, 2, axis=1), x)
    index = np.array([[2, 0], [-1, 1]])
    check(lambda g, x, i: g.mul(g.take(x, i, axis=0), 2.0), x, index)
    check(lambda g, x, i: g.take(x, i, axis=1), x, index)
    check(lambda g, i: g.one_hot(i, 4), np.array([0, 3, 1]))
    check(lambda g, x: (g.tril(x), g.triu(x, 1)), rand(5, 5))


def test_scans_along_any_axis() -> None:
    check(lambda g, x: (g.cumsum(x, axis=0), g.cumsum(x, axis=1)), rand(4, 5))


def test_random_bits_are_the_definition_whatever_surrounds_them() -> None:
    seed = np.array(1234, np.uint64)
    check(lambda g, s: g.random_bits(s, (5, 7)), seed)
    check(lambda g, s: g.normal(s, (4, 6)), seed, tolerance=1e-5)


def test_low_precision_rounds_after_each_operator() -> None:
    x = rand(6, 8, dtype=dtypes.bf16)
    check(lambda g, x: g.sub(g.mul(x, x), x), x, tolerance=0)
    check(lambda g, x: g.softmax(x), x, tolerance=8e-3)


def test_branches_and_loops() -> None:
    def choose(g: GraphBuilder, x: Any) -> Any:
        return if_(g, g.gt(g.sum(x), 0.0), lambda: (g.mul(x, 2.0),), lambda: (x,))[0]

    check(choose, np.ones((2, 3), "f4"))
    check(choose, -np.ones((2, 3), "f4"))

    def halve(g: GraphBuilder, x: Any) -> Any:
        return while_(g, [x], lambda a: g.gt(g.max(a), 1.0), lambda a: (g.mul(a, 0.5),))[0]

    check(halve, np.array([9.0, 3.0], "f4"))

    def fibonacci(g: GraphBuilder, a: Any, b: Any) -> Any:
        zero, ten, one = (g.constant(i, dtypes.int64) for i in (0, 10, 1))
        return tuple(for_(g, zero, ten, one, [a, b], lambda i, a, b: (b, g.add(a, b))))

    check(fibonacci, np.array(0), np.array(1))


@st.composite
def programs(draw: st.DrawFn) -> Callable[..., Any]:
    """A random mix of elementwise ops, reductions and views over values of shape [A, B], [A, 1] and [B]."""
    steps = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9))

    def body(g: GraphBuilder, x: Any, y: Any) -> Any:
        full, rows = [x, y], []
        for what, i, j in steps:
            a, b = full[i % len(full)], full[j % len(full)]
            if what == 0:
                full.append(g.add(a, b))
            elif what == 1:
                full.append(g.tanh(g.mul(a, b)))
            elif what == 2:
                rows.append(g.sum(a, axis=1, keepdims=True))
            elif what == 3 and rows:
                full.append(g.maximum(a, rows[j % len(rows)]))
            elif what == 4:
                full.append(g.transpose(g.transpose(g.exp(g.neg(g.abs(a))))))
            elif what == 5:
                full.append(g.sub(a, g.max(b, axis=0, keepdims=True)))
            elif what == 6 and rows:
                rows.append(g.sigmoid(rows[i % len(rows)]))
        return (full[-1], *rows[-1:], full[len(full) // 2])

    return body


@settings(max_examples=60)
@given(body=programs(), rows=st.integers(1, 5), columns=st.integers(1, 40), device=st.sampled_from(["cpu", "cuda"]))
def test_random_programs(body: Callable[..., Any], rows: int, columns: int, device: str) -> None:
    check(body, rand(rows, columns), rand(rows, columns, seed=9), device=device, tolerance=1e-4)
