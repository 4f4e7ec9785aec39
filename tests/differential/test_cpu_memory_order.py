"""Random kernels that load, store, loop and branch over the same memory: the CPU target keeps the program's order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tessera.compiler.ir.core import Block, Region, Value
from tessera.compiler.ir.types import INDEX, SharedType, TileType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.language import dtypes as dt
from tests.emulator.harness import Arg, Case, LineBuilder, build, interpret, run

TARGET = CpuTarget()
N, TILE = 40, 16
SHAPE = (TILE,)

steps = st.deferred(
    lambda: st.lists(
        st.one_of(
            st.tuples(st.just("load"), st.integers(0, 1), st.integers(-3, 30)),
            st.tuples(st.just("store"), st.integers(0, 1), st.integers(-3, 30)),
            st.tuples(st.just("map"), st.integers(0, 9), st.integers(0, 9)),
            st.tuples(st.just("sum"), st.integers(0, 9)),
            st.tuples(st.just("shared"), st.integers(0, 9)),
            st.tuples(st.just("for"), st.integers(0, 3), steps),
            st.tuples(st.just("if"), st.booleans(), steps, steps),
            st.tuples(st.just("while"), st.integers(0, 3), steps),
        ),
        max_size=6,
    )
)


class Writer:
    """Writes a kernel from choices. `values` are tiles that may be used at this point."""

    def __init__(self, t: LineBuilder, views: list[Value]) -> None:
        self.t, self.views = t, views
        self.values = [t.load(views[0], t.ints(2), SHAPE), t.full(SHAPE, 0.5, dt.f32)]
        self.shared = t.value("tile.alloc_shared", (), SharedType(SHAPE, dt.f32))
        t.op("tile.store_shared", (self.shared, self.values[0]))
        t.op("tile.barrier")

    def pick(self, i: int) -> Value:
        return self.values[-1 - i % len(self.values)]

    def steps(self, program: list[Any]) -> None:
        for kind, *rest in program:
            getattr(self, f"do_{kind}")(*rest)

    def do_load(self, view: int, at: int) -> None:
        self.values.append(self.t.load(self.views[view], self.t.ints(at), SHAPE))

    def do_store(self, view: int, at: int) -> None:
        self.t.store(self.views[view], self.values[-1], self.t.ints(at))

    def do_map(self, a: int, b: int) -> None:
        t = self.t
        mixed = t.map("add", t.map("mul", self.pick(a), t.full(SHAPE, 0.75, dt.f32)), t.map("tanh", self.pick(b)))
        self.values.append(mixed)

    def do_sum(self, a: int) -> None:
        t = self.t
        weight = t.full(SHAPE, 1 / 32, dt.f32)  # small, so that repeating it does not blow up rounding errors
        total = t.reduce("sum", t.map("mul", t.map("tanh", self.pick(a)), weight), (0,))
        self.values.append(t.map("sub", self.pick(a), t.broadcast(t.map("sin", total), SHAPE, ())))

    def do_shared(self, a: int) -> None:
        t = self.t
        old = t.value("tile.load_shared", (self.shared,), TileType(SHAPE, dt.f32))
        t.op("tile.barrier")
        t.op("tile.store_shared", (self.shared, self.pick(a)))
        t.op("tile.barrier")
        self.values.append(old)

    def inside(self, program: list[Any], arguments: list[Value], block: Block) -> None:
        kept = list(self.values)
        self.values = kept + arguments
        with self.t.inside(block):
            self.steps(program)
            self.t.op("tile.yield", (self.values[-1],))
        self.values = kept

    def do_for(self, trips: int, program: list[Any]) -> None:
        t, start = self.t, self.values[-1]
        body = Block((INDEX, start.type))
        bounds = t.ints(0, trips, 1)
        self.inside(program, [body.args[1]], body)
        loop = t.op("tile.for", (*bounds, start), (start.type,), regions=(Region([body]),))
        self.values.append(loop.result)

    def do_if(self, taken: bool, then: list[Any], otherwise: list[Any]) -> None:
        t = self.t
        sign = t.reduce("max", self.values[-1], (0,))
        condition = t.map("gt" if taken else "lt", sign, t.constant(0.1, dt.f32))
        blocks = [Block(), Block()]
        self.inside(then, [], blocks[0])
        self.inside(otherwise, [], blocks[1])
        branch = t.op("tile.if", (condition,), (self.values[-1].type,), regions=[Region([b]) for b in blocks])
        self.values.append(branch.result)

    def do_while(self, trips: int, program: list[Any]) -> None:
        t, start, counter = self.t, self.values[-1], self.t.constant(0, dt.int64)
        types = (start.type, counter.type)
        head, body = Block(types), Block(types)
        with t.inside(head):
            t.op("tile.yield", (t.map("lt", head.args[1], t.constant(trips, dt.int64)),))
        kept = list(self.values)
        self.values = [*kept, body.args[0]]
        with t.inside(body):
            self.steps(program)
            after = t.map("add", body.args[1], t.constant(1, dt.int64))
            t.op("tile.yield", (self.values[-1], after))
        self.values = kept
        loop = t.op("tile.while", (start, counter), types, regions=(Region([head]), Region([body])))
        self.values.append(loop.results[0])


@settings(max_examples=100)
@given(steps, st.integers(0, 9))
@example([("load", 1, 9)], 0)  # the second half of a tile lies where the first half is stored
def test_memory_is_read_and_written_in_the_programs_order(program: list[Any], seed: int) -> None:
    def body(t: LineBuilder, x: Value, y: Value) -> None:
        w = Writer(t, [x, y])
        w.steps(program)
        t.store(y, w.values[-1], t.ints(24))

    args = [Arg("x", (N,), dt.f32, out=True), Arg("y", (N,), dt.f32, out=True)]
    built = build("order", args, (1,), body)
    verify(built.launches[0].kernel)
    rng = np.random.default_rng(seed)
    case = Case(built, {n: rng.standard_normal(N).astype(np.float32) for n in "xy"})
    wanted, got = interpret(case), run(case, "cpu", 0, TARGET.load(generate(built, TARGET)))  # type: ignore[arg-type]
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
