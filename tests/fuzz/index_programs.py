"""Random kernels of index arithmetic: nested ranges from computed starts, slices, gathers, masks, ragged sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.part_statements import PARTS
from tests.fuzz.tile_statements import STATEMENTS

HEADER = "import tessera as ts\nfrom tessera import Tensor\n"
SIGNATURE = (
    'def k(a: Tensor["N", ts.f32], b: Tensor["M", "K", ts.f32], g: Tensor["L", ts.int32], '
    'y: Tensor["P", "Q", ts.f32], o: Tensor["N", ts.f32]):'
)
WIDTHS = (1, 2, 4, 8, 16, 32, 3)


@dataclass
class Program:
    """`text` is the kernel, `plain` the same for the oracle. `config`: the schedule."""

    seed: int
    text: str
    plain: str
    sizes: dict[str, int]
    config: dict[str, int]
    symbolic: bool
    declared: bool = False
    """whether o is a result that the kernel declares, which holds 0 where nothing is stored"""

    def arrays(self) -> list[np.ndarray]:
        rng, n = np.random.default_rng(self.seed), self.sizes
        wild = rng.integers(-3, max(n["M"], n["N"]) + 3, n["L"])
        wild[rng.random(n["L"]) < 0.05] = rng.choice([2**31 - 1, -(2**31)])
        whole = [rng.integers(-4, 5, shape) for shape in ((n["N"],), (n["M"], n["K"]))]
        outs = [np.full((n["P"], n["Q"]), 7), np.full(n["N"], 0 if self.declared else 7)]
        a, b, y, o = (x.astype(np.float32) for x in (*whole, *outs))
        return [a, b, wild.astype(np.int32), y, o]


@dataclass
class Writer:
    draw: random.Random
    text: list[str] = field(default_factory=list[str])
    plain: list[str] = field(default_factory=list[str])
    counters: list[str] = field(default_factory=list[str])
    names: int = 0
    parts: bool = False
    """whether most statements read and store parts of tiles"""

    def line(self, depth: int, text: str, plain: str = "") -> None:
        self.text.append("    " * depth + text)
        self.plain.append("    " * depth + (plain or text))

    def only_text(self, depth: int, text: str) -> None:
        self.text.append("    " * depth + text)

    def only_plain(self, depth: int, text: str) -> None:
        self.plain.append("    " * depth + text)

    def fresh(self, what: str) -> str:
        self.names += 1
        return f"{what}{self.names}"

    def pick(self, *of: str) -> str:
        return self.draw.choice(of)

    def number(self, *of: int) -> int:
        return self.draw.choice(of)

    # index arithmetic: of at least one counter, so that nothing is a negative constant, which would count from the end
    def index(self, deep: int = 2, must: str = "") -> str:
        name = must or self.draw.choice(self.counters)
        if not deep:
            return name
        inner, c = self.index(deep - 1, must), self.number(1, 2, 3, 4, 8, 16)
        match self.draw.randrange(11):
            case 0:
                return f"({inner} + {c})"
            case 1:
                return f"({inner} - {c})"
            case 2 | 3:
                return f"{inner} * {c}"
            case 4:
                return inner if must else f"({inner}) // {c}"
            case 5:
                return inner if must else f"{name} % {self.number(3, 5, 7)}"  # of one that divides, it were a constant
            case 6:
                return inner if must else f"ts.tile.cdiv({inner}, {c})"
            case 7:
                return f"({inner} + {self.pick('N', 'K', 'Q')} - {c})"
            case 8:
                return inner if must else f"{self.pick('min', 'max')}({inner}, {self.index(0)} * {c})"
            case 9:
                others = [x for x in self.counters if x != name]
                return f"({inner} + {self.draw.choice(others)})" if others else inner
            case _:
                return inner

    def slice(self, width: int, must: str = "") -> str:
        at = self.index(self.number(1, 2), must)
        return f"{at} : {at} + {width}"

    # tiles of one axis: where two meet, one of them lies along nothing, for along two axes they would make a matrix
    def loose(self, depth: int, width: int, deep: int = 1, must: str = "") -> str:
        return f"{self.tile(depth, width, deep, must)}.reshape({width})"

    def tile(self, depth: int, width: int, deep: int = 1, must: str = "") -> str:
        if deep and self.draw.random() < 0.4:
            x = self.tile(depth, width, deep - 1, must)
            match self.draw.randrange(4):
                case 0:
                    return f"({x} + {self.loose(depth, width, deep - 1, must)})"
                case 1:
                    return f"({x} * {self.number(2, 3)} + 1)"
                case 2:
                    return f"ts.tile.maximum({x}, {self.loose(depth, width, deep - 1, must)})"
                case _:
                    return f"ts.tile.where({x} > 0, {x}, {self.loose(depth, width, deep - 1, must)})"
        match self.draw.randrange(2 if must else 9):
            case 0:
                return f"a[{self.slice(width, must)}]"
            case 1:
                return f"b[{self.index(1)}, {self.slice(width, must)}]"
            case 2:
                return f"b[g[{self.index(1)}], {self.slice(width)}]"
            case 3:
                return f"a[ts.tile.arange({width}) + {self.index()}]"
            case 4:
                return f"a[g[{self.slice(width)}]]"
            case 5:
                return self.load(width, f", other={self.number(0, 5)}")
            case 7:
                rows = f"g[{self.slice(width)}]"
                return f"ts.tile.row_sum(b[{rows}, {self.slice(self.number(2, 4, 8))}])"
            case 6:
                return f"ts.tile.row_sum(b[{self.slice(width)}, {self.slice(self.number(2, 4, 8))}])"
            case _:
                return self.load(width)

    def load(self, width: int, other: str = "") -> str:
        at = self.index(self.number(1, 2))
        return f"ts.tile.load(a[{at} : {at} + {width}], mask={self.mask(width, at)}{other})"

    def mask(self, width: int, at: str) -> str:
        """Half of them over the lanes that are read or written, which begin `at`; the others lie along nothing."""
        end = self.pick("N", "K", self.index(1))
        if self.draw.random() < 0.5:
            return f"(ts.tile.arange({width}) + {at} < {end})"
        return f"(ts.tile.arange({width}) + {self.index(1)} < {end}).reshape({width})"

    def scalar(self, depth: int) -> str:
        match self.draw.randrange(5):
            case 0:
                return f"a[{self.index()}]"
            case 1:
                return f"b[{self.index(1)}, {self.index(1)}]"
            case 2:
                return f"a[g[{self.index(1)}]]"
            case _:
                return f"ts.tile.{self.pick('sum', 'max')}({self.tile(depth, self.number(*WIDTHS))})"

    # statements: a program stores to its own row of y
    def statements(self, depth: int, left: int) -> None:
        for _ in range(self.number(1, 2)):
            self.statement(depth, left)

    def statement(self, depth: int, left: int) -> None:
        if self.parts and self.draw.random() < 0.6:
            self.draw.choice(PARTS)(self, depth)
            return
        width = self.number(*WIDTHS)
        kind = self.draw.randrange(12)
        if kind >= 8:
            self.draw.choice(STATEMENTS if self.draw.random() < 0.6 else PARTS)(self, depth)
            return
        if kind == 0:
            self.line(depth, f"y[p, {self.slice(width)}] = {self.tile(depth, width)}")
        elif kind == 1:
            self.line(depth, f"y[p, {self.index()}] = {self.scalar(depth)}")
        elif kind == 2:
            at, mask = self.index(), self.fresh("m")
            self.line(depth, f"{mask} = {self.mask(width, at)}")
            lanes, value = f"ts.tile.arange({width}) + {at}", self.loose(depth, width)
            self.line(depth, f"ts.tile.store(y[p, {lanes}], {value}, mask={mask})")
        elif kind == 3 and left:
            self.line(depth, f"if {self.index(1)} < {self.pick('N', 'Q', self.index(1))}:")
            self.statements(depth + 1, left - 1)
        elif kind <= 5 and left:
            self.loop(depth, lambda inner: self.statements(inner, left - 1))
        else:
            self.accumulated(depth, width)

    def accumulated(self, depth: int, width: int) -> None:
        acc = self.fresh("acc")
        self.line(depth, f"{acc} = ts.tile.zeros(({width},))")

        def body(inner: int) -> None:
            value = self.tile(inner, width, must=self.counters[-1])
            self.line(inner, f"{acc} = {acc} + {value}", f"{acc} = keep({acc}, {acc} + {value})")

        self.loop(depth, body)
        self.line(depth, f"y[p, {self.slice(width)}] = {acc}")

    def loop(self, depth: int, body: object) -> None:
        t = self.fresh("t")
        start = self.pick("0", self.index(1), self.pick(*self.counters))
        end = self.pick(
            "N", "K", "Q", f"ts.tile.cdiv({self.pick('N', 'K')}, {self.number(2, 4, 16)})", str(self.number(3, 16))
        )
        step = self.pick("1", "2", "4", "16", "P", f"({self.pick(*self.counters)} % 4 + 1)")
        self.line(depth, f"for {t} in ts.tile.range{self.pick('', '_k')}({start}, {end}, {step}):")
        self.counters.append(t)
        body(depth + 1)  # type: ignore[operator]
        self.counters.pop()

    def interleaved(self) -> None:
        """Blocks of o, shared out among the programs in turn: P apart, from a start of each one's own."""
        width, by = self.number(4, 8, 16), self.number(1, 2)
        if by == 1:
            self.line(2, f"for t in ts.tile.range(p, ts.tile.cdiv(N, {width}), P):")
            at = f"t * {width}"
        else:
            self.line(2, f"for t in ts.tile.range(p * {width}, N, P * {width}):")
            at = "t"
        self.counters.append("t")
        self.line(3, f"o[{at} : {at} + {width}] = {self.tile(3, width)}")
        self.counters.pop()


def of_lanes(w: Writer, seed: int) -> Program:
    """A kernel over `linear_id`, each of whose lanes stores one element of o; to the oracle, one after the other."""
    w.line(1, "i = ts.tile.linear_id()", "for i in ts.each_lane(N):")

    def index(deep: int) -> str:
        if not deep:
            return "i"
        c = w.number(1, 2, 3, 5)
        form = w.pick(
            f"({{}} + {c})", f"({{}} - {c})", f"{{}} * {c}", f"({{}}) // {c}", f"({{}}) % {c + 1}", "(N - 1 - {})"
        )
        return form.format(index(deep - 1))

    def value(deep: int) -> str:
        match w.draw.randrange(7 if deep else 3):
            case 0:
                return f"a[{index(2)}]"
            case 1:
                return f"b[g[{index(1)}], {index(1)}]"
            case 2:
                return f"b[{index(1)}, {w.number(0, 1, 5)}]"
            case 3:
                return f"({value(deep - 1)} + {value(deep - 1)})"
            case 4:
                return f"ts.tile.maximum({value(deep - 1)}, {value(deep - 1)})"
            case 5:
                return f"ts.tile.where({value(deep - 1)} > {w.number(-1, 0, 2)}, {value(deep - 1)}, {value(deep - 1)})"
            case _:
                return f"({value(deep - 1)} * {w.number(2, 3)} + 1)"

    condition = w.pick(
        "i < N", f"i < N - {w.number(1, 4)}", f"i % {w.number(2, 3)} < 1", f"a[i] > {w.number(-1, 0, 1)}"
    )
    stored, other, draw_else = value(2), value(1), w.draw.random() < 0.4
    for line in (f"if {condition}:", f"    o[i] = {stored}", *(("else:", f"    o[i] = {other}") if draw_else else ())):
        w.line(1, line, f"    {line}")
    return finished(w, seed, {"BLOCK": w.number(4, 32, 128)})


def program(seed: int) -> Program:
    draw = random.Random(seed)
    w = Writer(draw, parts=draw.random() < 0.3)
    w.line(0, SIGNATURE, "def k(a, b, g, y, o, N, M, K, L, P, Q):")
    if draw.random() < 0.1:
        return of_lanes(w, seed)
    numbered = draw.random() < 0.2
    interleaved = draw.random() < 0.5
    declared = interleaved and draw.random() < 0.3
    if declared:
        w.text[0] = SIGNATURE.replace(', o: Tensor["N", ts.f32]', "")
        w.only_text(1, 'o: Tensor["N", ts.f32]')
    w.line(1, "p = ts.tile.program_id()" if numbered else "for p in ts.tile.range(0, P):", "for p in range(P):")
    if numbered:
        w.only_text(1, "if p >= 0:")
        w.line(2, "y[p, 0] = 7")  # says how many there are
    w.counters.append("p")
    if interleaved:
        w.interleaved()
    w.statements(2, 2)
    if declared:
        w.only_text(1, "return o")
    return finished(w, seed, {}, declared)


def finished(w: Writer, seed: int, config: dict[str, int], declared: bool = False) -> Program:
    draw = w.draw
    sizes = {name: draw.choice([1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 48, 64]) for name in "NMKLQ"}
    sizes["P"] = draw.choice([1, 2, 3, 4])
    config = {"num_warps": draw.choice([1, 2, 4])} | config
    config |= {"num_stages": draw.choice([1, 2, 3])} if draw.random() < 0.3 else {}
    return Program(seed, "\n".join(w.text), "\n".join(w.plain), sizes, config, draw.random() < 0.4, declared)
