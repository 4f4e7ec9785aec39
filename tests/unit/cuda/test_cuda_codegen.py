"""How tile programs become CUDA C++: spelling, layouts, bounds, barriers, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType
from tessera.compiler.targets.cuda.generate import generate
from tessera.compiler.targets.cuda.layouts.groups import LayoutGrouping, TensorCores
from tessera.compiler.targets.cuda.layouts.layout import AxisLayout, Layout, blocked, fragment, quarters, warp_grid
from tessera.compiler.targets.cuda.target import occupancy, settings_for
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.offsets import Bounds
from tessera.compiler.tile.program import Program
from tessera.compiler.tile.ranges import Interval
from tessera.errors import Span, TargetError, register_source
from tessera.language import dtypes as dt
from tessera.language.dims import parse, symbol
from tests.emulator import kernels as k
from tests.emulator.harness import Arg, LineBuilder, build


def source(program: Program, arch: int = 80) -> str:
    return generate(program, settings_for(arch, False, False)).source


def refused(program: Program, code: str, arch: int = 80) -> str:
    with pytest.raises(TargetError) as e:
        source(program, arch)
    assert e.value.code == code
    assert e.value.diagnostics[0].span.file == "kernel.py"
    return str(e.value)


# spelling
@given(st.floats(width=32))
def test_single_precision_literals_read_back_to_the_same_bits(x: float) -> None:
    text = cxx.literal(x, dt.f32)
    named = {"ts::nan_f32()": None, "ts::infinity()": float("inf"), "-ts::infinity()": float("-inf")}
    if text in named:
        assert x != x if named[text] is None else x == named[text]
    else:
        assert text.endswith("f") and struct.pack("f", float(text[:-1])) == struct.pack("f", x)


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from([d for d in dt.ALL if d.is_integer]))
def test_integer_literals_wrap_into_their_dtype(value: int, dtype: dt.DType) -> None:
    text = cxx.literal(value, dtype)
    number = text.rpartition("(")[2].rstrip(")") if text.startswith("ts::") else text
    evaluated = eval(number.replace("ull", "").replace("ll", ""))  # arithmetic that the library itself wrote
    assert (evaluated - value) % (1 << dtype.bits) == 0
    low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
    assert low <= evaluated < low + (1 << dtype.bits)


def test_values_beyond_a_float_become_infinite() -> None:
    assert cxx.literal(1e300, dt.f32) == "ts::infinity()"
    assert cxx.literal(-1e300, dt.bf16) == "ts::bf16(-ts::infinity())"
    assert cxx.literal(0.1, dt.f64) == "0.1"
    assert cxx.literal(1 + 2j, dt.complex64) == "ts::complex<float>{1.0f, 2.0f}"


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        ("7", "7"),
        ("n", "dim_n"),
        ("2*n+1", "(2 * dim_n + 1)"),
        ("n//4", "ts::idiv(dim_n, 4)"),
        ("(n+3)//4", "ts::idiv(dim_n + 3, 4)"),
        ("min(n, 128)", "ts::imin(128, dim_n)"),
        ("n-m", "(-dim_m + dim_n)"),
        ("3*(n%m)", "3 * ts::imod(dim_n, dim_m)"),
    ],
)
def test_sizes_as_expressions(dim: str, text: str) -> None:
    assert cxx.size(parse(dim)) == text


@pytest.mark.parametrize(
    ("hint", "name"), [("m_i", "m_i"), ("for", "for_"), ("2x", "v2x"), ("größe", "gr_e"), ("__a__b", "a_b"), ("", "v")]
)
def test_names_are_legal_cpp(hint: str, name: str) -> None:
    assert cxx.identifier(hint) == name


# layouts
def positions(axis: AxisLayout, thread: int) -> list[int]:
    a, b, c = (thread >> s & (n - 1) for n, s in ((axis.t0, axis.s0), (axis.t1, axis.s1), (axis.t2, axis.s2)))
    out = []
    for r in range(axis.registers):
        high = (r // axis.inner * axis.t2 + c) * axis.t1 + b
        out.append((high * axis.inner + r % axis.inner) * axis.t0 + a)
    return out


def holders(layout: Layout, threads: int) -> dict[tuple[int, int], int]:
    """How many registers of the block hold each element."""
    count: dict[tuple[int, int], int] = {}
    rows, cols = layout.shape
    for t in range(threads):
        for r in positions(layout.row, t):
            for c in positions(layout.col, t):
                if r < rows and c < cols:
                    count[r, c] = count.get((r, c), 0) + 1
    return count


@given(
    st.integers(1, 40),
    st.integers(2, 200),
    st.sampled_from([32, 64, 128]),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
)
def test_every_element_lies_in_one_register_of_one_thread(
    rows: int, cols: int, threads: int, vector: int, pairs: bool
) -> None:
    layout = blocked(rows, cols, threads, vector, row_pairs=pairs)
    count = holders(layout, threads)
    assert len(count) == rows * cols and set(count.values()) == {1}


@given(
    st.sampled_from([16, 32, 64, 128]),
    st.sampled_from([8, 16, 32, 64, 128]),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
)
def test_fragments_cover_the_accumulator(rows: int, cols: int, warps: int, keep_rows: bool) -> None:
    down, across = warp_grid(rows, cols, warps, keep_rows)
    count = holders(fragment(rows, cols, down, across), warps * 32)
    assert len(count) == rows * cols
    assert set(count.values()) == {warps // (down * across)}, "warps beyond the tile repeat it"


@given(
    st.sampled_from([32, 64, 96, 128]),
    st.sampled_from([8, 16, 32, 64, 128]),
    st.sampled_from([1, 2, 4, 8]),
    st.booleans(),
)
def test_quarters_of_a_warp_cover_the_accumulator(rows: int, cols: int, warps: int, keep_rows: bool) -> None:
    down, across = warp_grid(rows, cols, warps, keep_rows, 32)
    count = holders(quarters(rows, cols, down, across), warps * 32)
    assert len(count) == rows * cols
    assert set(count.values()) == {warps // (down * across)}


def test_warps_are_divided_squarely_unless_rows_must_stay_together() -> None:
    assert warp_grid(64, 64, 4, keep_rows=False) == (2, 2)
    assert warp_grid(64, 64, 4, keep_rows=True) == (4, 1)
    assert warp_grid(64, 128, 8, keep_rows=False) == (2, 4)


def test_rows_stay_inside_a_warp_where_there_are_rows_enough() -> None:
    assert not blocked(16, 512, 128, 4).col.warp_exchange(4)
    assert blocked(1, 4096, 128, 4).col.warp_exchange(4)


# bounds
def test_offsets_are_bounded_by_grid_and_loops() -> None:
    n = symbol("n")
    made: dict[str, Value] = {}

    def body(t: LineBuilder, x: Value) -> None:
        row = t.iop("imul", t.program_id(0), t.index(64))

        def step(at: Value, acc: Value) -> list[Value]:
            made.update(row=row, at=at, sum=t.iop("iadd", row, at), rest=t.iop("imod", at, t.index(7)), carried=acc)
            return [acc]

        k.loop(t, t.index(0), t.index(96), t.index(32), [t.index(5)], step)

    kernel = build("bounds", [Arg("x", (n,), dt.f32)], (4,), body).launches[0].kernel
    bounds = Bounds(kernel)
    assert bounds.of(made["row"]) == Interval(0, 192, 64)
    assert bounds.of(made["at"]) == Interval(0, 64, 32)
    assert bounds.of(made["sum"]) == Interval(0, 256, 32)
    assert bounds.of(made["rest"]).high == 6
    assert bounds.of(made["carried"]) == Interval(), "a carried index may be anything"
    assert not bounds.overhangs(256, bounds.of(made["row"]), 64) and bounds.overhangs(255, bounds.of(made["row"]), 64)
    assert bounds.overhangs(n, bounds.of(made["row"]), 64), "a size known at launch proves nothing"


def test_programs_over_a_symbolic_axis_stay_inside_it() -> None:
    n = symbol("n")

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        at = [t.program_id(0), t.index(0)]
        t.store(y, t.load(x, at, (1, 64)), at)

    args = [Arg("x", (n, 64), dt.f32), Arg("y", (n, 64), dt.f32, out=True)]
    text = source(build("rows", args, (n,), body, ("n",)))
    assert text.count("ts::Aligned<>") == 2


def test_ragged_programs_check_their_last_axis_only() -> None:
    text = source(k.saxpy(n=1000, block=256).program)
    assert "ts::Aligned<0>" in text and "Unaligned" not in text
    odd = source(k.softmax(rows=4, cols=201, block=1).program)
    assert "ts::Blocked<1, 201, 1, 128, 1>" in odd, "rows of 201 elements do not start at 16 bytes"
    symbolic = source(k.softmax(rows=4, cols=2000, block=1, dim=k.N).program)
    assert "ts::Unaligned<1>" in symbolic and "ts::Aligned" not in symbolic


# barriers
def test_barriers_only_where_threads_exchange_elements() -> None:
    assert "sync" not in source(k.saxpy().program), "each element stays with one thread"
    assert "sync" not in source(k.softmax().program)

    def body(t: LineBuilder, x: Value) -> None:
        t.store(x, t.map("neg", t.load(x, [t.index(0)], (64,))), [t.index(0)])
        t.store(x, t.map("exp", t.load(x, [t.index(0)], (64,))), [t.index(0)])

    assert "sync" not in source(build("twice", [Arg("x", (64,), dt.f32, out=True)], (1,), body))


def test_two_windows_of_one_buffer_are_one_memory() -> None:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        t.store(y, t.load(x, [t.index(0)], (64,)), [t.index(0)])

    program = build("move", [Arg("x", (64,), dt.f32), Arg("y", (64,), dt.f32, out=True)], (1,), body)
    assert "sync" not in source(program)
    (launch,) = program.launches
    from dataclasses import replace

    from tessera.compiler.tile.program import BufferArg

    same = replace(program, steps=(replace(launch, args=(BufferArg(0), BufferArg(0, 3))),))
    assert "ts::sync();" in source(same)


# sources
def test_statements_carry_the_users_line_and_names() -> None:
    register_source("notebook.py", "@ts.kernel\ndef f(x):\n    total = x + x  # twice\n    return total\n")
    span = Span("notebook.py", 3, 5, 3, 20)

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        t.span = span
        tile = t.load(x, [t.index(0)], (64,))
        total = Op("tile.add", [tile, tile], [tile.type], span, hints=("total",))
        t.insert(total)
        t.store(y, total.result, [t.index(0)])

    program = build("f", [Arg("x", (64,), dt.f32), Arg("y", (64,), dt.f32, out=True)], (1,), body)
    made = generate(program, settings_for(80, False, False))
    lines = made.source.splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if "auto total = ts::add(x_tile, x_tile);" in line]
    assert [number, "notebook.py", 3] in made.lines
    assert "  // notebook.py:3  total = x + x  # twice" in lines


def test_a_kernel_used_twice_is_written_once() -> None:
    from dataclasses import replace

    program = k.saxpy().program
    twice = replace(program, steps=program.steps * 2)
    assert source(twice).count("__global__") == 1


def test_user_names_cannot_break_the_source() -> None:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        t.store(y, t.map("exp", t.load(x, [t.index(0)], (64,))), [t.index(0)])

    for name in ("double", "ts", "shared", "x_data", "Vec64", "program", "kernel"):
        source(build(name, [Arg(name, (64,), dt.f32), Arg("y", (64,), dt.f32, out=True)], (1,), body))
    register_source("slash.py", "y = x \\\n")


# what is refused
@pytest.mark.parametrize("warps", [0, 3, 64, "four"])
def test_numbers_of_warps_that_cuda_lacks(warps: Any) -> None:
    message = refused(k.saxpy(warps=warps).program, "TS602")
    assert "1, 2, 4, 8, 16 or 32" in message


def test_what_exchanges_too_many_elements_is_named() -> None:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, t.ints(0, 0), (64, 1024))
        order = {"axis": 1, "descending": False, "positions": False}
        t.store(y, t.value("tile.sort", (tile,), tile.type, {**order}, hint="sorted"), t.ints(0, 0))

    args = [Arg("x", (64, 1024), dt.f32), Arg("y", (64, 1024), dt.f32, out=True)]
    program = build("sorts", args, (1,), body)
    with pytest.raises(TargetError) as e:
        generate(program, settings_for(80, False, False))
    (found,) = e.value.diagnostics
    (sort,) = [op for op in program.launches[0].kernel.walk() if op.name == "tile.sort"]
    assert found.code == "TS405" and found.span == sort.span and "exchange elements" in found.message


def test_shared_memory_has_a_limit_per_architecture() -> None:
    def body(t: LineBuilder, x: Value) -> None:
        s = t.value("tile.alloc_shared", (), SharedType((128, 256), dt.f32), hint="big")
        t.op("tile.store_shared", [s, t.full((128, 256), 0.0, dt.f32)])

    program = build("big", [Arg("x", (1,), dt.f32)], (1,), body)
    assert "131072 bytes" in refused(program, "TS405", arch=75)
    assert "131072 bytes" in refused(program, "TS405", arch=120)
    source(program, arch=90)


def test_stages_of_a_product_fit_or_say_so() -> None:
    assert "A_stages" in source(k.product(m=512, n=512, k=512, dtype=dt.f64, block=(256, 64), warps=8), 90)
    message = refused(k.product(m=1024, n=1024, k=64, dtype=dt.f64, block=(1024, 512), warps=32), "TS405", 75)
    assert "Use a smaller tile" in message


def test_what_needs_a_whole_tile_cannot_have_a_size_known_at_launch() -> None:
    n = symbol("n")

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, [t.index(0)], (n,))
        t.store(y, t.value("tile.scan", (tile,), tile.type, {"op": "sum", "axis": 0}), [t.index(0)])

    args = [Arg("x", (n,), dt.f32), Arg("y", (n,), dt.f32, out=True)]
    assert "too large for registers" in refused(build("prefix", args, (1,), body, ("n",)), "TS602")


def test_a_load_is_not_repeated_behind_a_store_to_its_memory() -> None:
    n = symbol("n")

    def body(t: LineBuilder, x: Value, y: Value) -> None:
        tile = t.load(x, [t.index(0)], (n,))
        t.store(x, t.map("neg", tile), [t.index(0)])
        total = t.broadcast(t.reduce("sum", tile, (0,)), (n,), ())
        t.store(y, t.map("add", tile, total), [t.index(0)])

    args = [Arg("x", (n,), dt.f32, out=True), Arg("y", (n,), dt.f32, out=True)]
    assert "overwritten" in refused(build("order", args, (1,), body, ("n",)), "TS602")


# figures
def test_occupancy_is_bounded_by_what_runs_out_first() -> None:
    assert occupancy(80, 128, 32, 0) == (16, 1.0, "registers")
    assert occupancy(80, 128, 16, 0) == (16, 1.0, "threads")
    assert occupancy(80, 32, 16, 0) == (32, 0.5, "blocks")
    assert occupancy(90, 128, 32, 100_000)[2] == "shared memory"
    assert occupancy(80, 256, 255, 0) == (1, 0.125, "registers")


def test_groups_share_what_meets_elementwise() -> None:
    program = k.layernorm().program
    grouping = LayoutGrouping(program.launches[0].kernel)
    grouping.stream(4096)
    layouts = grouping.assign(128, TensorCores())
    assert len(layouts) == 1, "one row of one layout throughout"
