"""What is proved of index values holds of every value that they take: random index arithmetic in random loops, run."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import product

import pytest

from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, TileType
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.ranges import Interval, Intervals
from tessera.errors import Span
from tessera.language.dims import Dim, Facts, ceildiv, evaluate, symbol
from tessera.language.dtypes import int32, int64

SPAN = Span("kernel.py", 1, 1, 1, 10)
N, M = symbol("n"), symbol("m")
OPS: dict[str, Callable[[int, int], int]] = {
    "iadd": lambda a, b: a + b, "isub": lambda a, b: a - b, "imul": lambda a, b: a * b, "idiv": lambda a, b: a // b,
    "imod": lambda a, b: a % b, "imin": min, "imax": max,
}  # fmt: skip
GRID: tuple[Dim, ...] = (ceildiv(N, 4), 3)


class Made:
    """A kernel of nested loops around random index arithmetic."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.block = Block([])
        self.fill(self.block, [], 0)
        attrs = {"sym_name": "random", "grid": GRID, "arg_names": (), "writes": ()}
        self.kernel = Op("tile.func", (), (), SPAN, attrs, [Region([self.block])])

    def leaf(self, t: TileBuilder) -> Value:
        if self.draw.random() < 0.3:
            return t.program_id(self.draw.randrange(2))
        return t.index(self.draw.choice([-3, 0, 1, 2, 4, 16, N, M, N - 5, ceildiv(N, 16), N * 4, N - M, -N]))

    def fill(self, block: Block, known: list[Value], depth: int) -> None:
        t = TileBuilder(block, None, SPAN)
        known = [*known, *(self.leaf(t) for _ in range(3))]
        for _ in range(self.draw.randrange(2, 7)):
            a, b = self.draw.choice(known), self.draw.choice([*known, self.leaf(t)])
            known.append(t.iop(self.draw.choice(list(OPS)), a, b))
        if depth < 2:
            for _ in range(self.draw.randrange(1, 3)):
                body = Block([INDEX])
                self.fill(body, [*known, body.args[0]], depth + 1)
                step = t.index(self.draw.choice([1, 2, 4, 16])) if self.draw.random() < 0.7 else self.draw.choice(known)
                bounds = [self.draw.choice(known), self.draw.choice([*known, t.index(N)]), step]
                t.op("tile.for", bounds, regions=[Region([body])])
        t.op("tile.yield" if depth else "tile.return")

    def run(self, block: Block, env: dict[Value, int], seen: Callable[[Value, int], None], budget: list[int]) -> None:
        """Runs as targets do: a step that is not positive counts as 1. What divides by 0 or a negative number, and all
        that is computed from it, is left out."""
        for op in block.ops:
            if op.name == "tile.for":
                given = [env.get(v) for v in op.operands]
                if None in given:
                    continue
                lower, upper, step = (int(x) for x in given if x is not None)
                steps = range(lower, upper, max(step, 1))
                for i in [*steps[:4], *steps[-3:]] if len(steps) > 7 else steps:
                    body = op.region.block
                    budget[0] -= 1
                    if budget[0] > 0:
                        seen(body.args[0], i)
                        self.run(body, {**env, body.args[0]: i}, seen, budget)
            elif op.results:
                if op.name == "tile.dim":
                    env[op.result] = evaluate(op.attrs["dim"], self.sizes)  # type: ignore[arg-type]
                elif op.name == "tile.program_id":
                    env[op.result] = self.program[op.attrs["axis"]]  # type: ignore[index]
                else:
                    a, b = (env.get(v) for v in op.operands)
                    name = op.name.removeprefix("tile.")
                    if a is None or b is None or (name in ("idiv", "imod") and b <= 0):
                        continue
                    env[op.result] = OPS[name](a, b)
                seen(op.result, env[op.result])

    def demand(self, ranges: Intervals, sizes: dict[str, int]) -> int:
        self.sizes, count = sizes, 0

        @cache
        def proved(v: Value) -> tuple[Interval, int | None, int | None]:
            r = ranges.of(v)
            return r, *(None if d is None else evaluate(d, sizes) for d in (r.low, r.high))  # type: ignore[return-value]

        def seen(v: Value, value: int) -> None:
            nonlocal count
            count += 1
            r, low, high = proved(v)
            assert low is None or low <= value, f"{value} is below {r}"
            assert high is None or value <= high, f"{value} is above {r}"
            assert value % r.multiple == 0 if r.multiple else value == 0, f"{value} is not a multiple: {r}"

        for self.program in product(*(range(evaluate(g, sizes)) for g in GRID)):
            self.run(self.block, {}, seen, [200])
        return count


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_every_value_lies_in_its_range(first: int) -> None:
    count = 0
    for seed in range(first, first + 50):
        made = Made(seed)
        ranges = Intervals(made.kernel)
        for n, m in ((0, 0), (1, 3), (17, 2), (40, 1)):
            count += made.demand(ranges, {"n": n, "m": m})
        facts = Facts()
        facts.assume_divisible(N, 16)
        count += made.demand(Intervals(made.kernel, facts), {"n": 32, "m": 5})
    assert count > 10_000


def counter(lower: Value, upper: Value, step: Value, t: TileBuilder) -> Value:
    body = Block([INDEX])
    TileBuilder(body, None, SPAN).op("tile.yield")
    t.op("tile.for", [lower, upper, step], regions=[Region([body])])
    return body.args[0]


def test_a_step_says_nothing_of_where_the_last_one_lies() -> None:
    """The start is one of several: 0, 2, ... and 1, 3, ... below 2 * k reach 2 * k - 1."""
    block = Block([])
    t = TileBuilder(block, None, SPAN)
    kernel = Op("tile.func", (), (), SPAN, {"sym_name": "k", "grid": (2,), "arg_names": ()}, [Region([block])])
    pid, zero, end, two = t.program_id(0), t.index(0), t.index(2 * N), t.index(2)
    ranges = Intervals(kernel)
    assert ranges.of(counter(pid, end, two, t)).high == 2 * N - 1
    assert ranges.of(counter(zero, end, two, t)).high == 2 * N - 2
    assert ranges.of(counter(t.iop("imul", pid, two), end, two, t)).high == 2 * N - 2, "all starts are even"


def test_elements_of_tiles_of_places() -> None:
    """Of 64 bits, as index arithmetic is; narrower ones may wrap around."""
    block = Block([])
    t = TileBuilder(block, None, SPAN)
    kernel = Op("tile.func", (), (), SPAN, {"sym_name": "k", "grid": (2,), "arg_names": ()}, [Region([block])])
    found: list[Interval] = []
    for dtype in (int64, int32):
        places = t.value("tile.iota", (), TileType((4, N), dtype), {"axis": 1})
        five = t.full((N,), 5, dtype)
        moved = t.reshape(t.transpose(places, (1, 0)), (N, 4))
        across = t.broadcast(five, (N, 4), (0,))
        found += [
            Intervals(kernel).of(t.value(f"tile.{x}", (moved, across), moved.type)) for x in ("add", "sub", "mul")
        ]
    assert found[:3] == [Interval(5, N + 4), Interval(-5, N - 6), Interval(0, 5 * N - 5, 5)]
    assert found[3:] == [Interval()] * 3
    ranges, start = Intervals(kernel), t.value("tile.to_scalar", (t.program_id(0),), TileType((), int64))
    places = t.value("tile.iota", (), TileType((8,), int64), {"axis": 0})
    at = t.value("tile.add", (places, t.broadcast(start, (8,), ())), places.type)
    assert ranges.inside(at, 1, 9) == (True, True)
    assert ranges.inside(at, 1, 8) == (True, False)
