"""Random kernels over blocks of rows, of all dtypes, against the same statements as a function of each block.

    python -m tests.fuzz blocks --count 1000 --seed 1 --emulate 20 --targets cpu,avx2,baseline,reference

Arithmetic, conversions, comparisons, choices, reductions, scans, sorts, values that loops carry, branches of a program,
several results. Kernels compute narrow floats in f32, so that a cast rounds what each statement gives. Narrower vectors
give the same bits, other targets wherever nothing is rounded in an order of its own.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.errors import CompileError
from tests.fuzz import seeded
from tests.fuzz.fusion import SPECIAL, close, equal
from tests.fuzz.guard import Guarded
from tests.fuzz.levels import NARROWER
from tests.fuzz.programs import ARRAYS, HELD
from tests.fuzz.values import FLOATS, INTEGERS, KINDS
from tests.kernel_runner import run

ROWS, WIDTHS = (1, 3, 8, 21), (1, 2, 5, 8, 16, 33, 100)
EXACT = ("abs", "floor", "ceil", "trunc", "round", "sign", "square", "sqrt", "negative", "reciprocal")
ROUNDED = (
    "sin", "cos", "exp", "log", "tanh", "sigmoid", "gelu", "silu", "erf", "rsqrt", "softplus", "expm1", "log1p", "exp2",
    "log2", "relu", "tan", "atan", "sinh", "cosh", "log10", "gelu_tanh",
)  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class Value:
    """A name. `kind` of its elements; `axes`: "rw" for a block of rows, "r" and "w" for a number of each row or column;
    `exact`: rounded as every target rounds, with the sign of zero (which a maximum of 0 and -0 does not say)."""

    name: str
    kind: str
    axes: str
    exact: bool = True

    @property
    def letter(self) -> str:
        return KINDS[self.kind].letter


class Maker:
    def __init__(self, seed: int) -> None:
        self.r, self.lines, self.pool, self.count = random.Random(seed), list[str](), list[Value](), 0
        self.rows, self.width = self.r.choice(ROWS), self.r.choice(WIDTHS)
        self.below = (1 << self.width.bit_length() - 1) - 1
        """a mask of bits, whose numbers are indices of each row"""
        self.kinds = [*self.r.sample(["f32", "f64", "f16", "bf16", "bool_", *INTEGERS], 2), self.r.choice(FLOATS)]

    def pick(self, letters: str = "fiub", axes: str = "", exact: bool = False, kind: str = "") -> Value:
        fits = [v for v in self.pool if v.letter in letters and (not axes or v.axes == axes)
                and (not kind or v.kind == kind) and (v.exact or not exact)]  # fmt: skip
        if not fits:
            raise LookupError
        return fits[max(self.r.randrange(len(fits)), self.r.randrange(len(fits)))]

    def add(self, text: str, kind: str, axes: str, exact: bool) -> None:
        self.count += 1
        self.lines.append(f"v{self.count} = {self.rounded(text, kind)}")
        self.pool.append(Value(f"v{self.count}", kind, axes, exact))

    def rounded(self, text: str, kind: str) -> str:
        return f"T.cast({text}, ts.{kind})" if kind in ("f16", "bf16") else text

    def spread(self, v: Value, axes: str) -> str:
        """The value as it meets one with these axes."""
        return v.name if v.axes == axes else f"{v.name}[:, None]" if v.axes == "r" else f"{v.name}[None, :]"

    def number(self, v: Value) -> str:
        return str(self.r.choice([1, 2, 3]) if v.letter in "iub" else self.r.choice([0.5, 1.5, -2.0, 3.0]))

    def pair(self, letters: str, exact: bool = False) -> tuple[str, str, Value, bool]:
        """Two operands of one dtype, one of which may be a number; the one with all axes; whether both are exact."""
        a = self.pick(letters, exact=exact)
        if self.r.random() < 0.3:
            return a.name, self.number(a), a, a.exact
        b = self.pick(kind=a.kind, exact=exact)
        if {a.axes, b.axes} == {"r", "w"}:
            raise LookupError
        wide = a if len(a.axes) >= len(b.axes) else b
        return self.spread(a, wide.axes), self.spread(b, wide.axes), wide, a.exact and b.exact

    def statement(self) -> None:
        self.r.choice(KINDS_OF_STATEMENTS)(self)

    def arithmetic(self) -> None:
        a, b, v, exact = self.pair("fiu")
        op = self.r.choice(["+", "-", "*", "T.maximum", "T.minimum"])
        if op == "*" and not exact:
            raise LookupError
        exact = exact and (op[0] != "T" or v.letter != "f")
        self.add(f"{op}({a}, {b})" if op[0] == "T" else f"{a} {op} {b}", v.kind, v.axes, exact)

    def divided(self) -> None:
        a, b, v, _ = self.pair("fiu", exact=True)
        if v.letter == "f":
            self.add(f"{a} / {b}", v.kind, v.axes, True)
        else:
            self.add(f"{a} {self.r.choice(['//', '%'])} {b}", v.kind, v.axes, True)

    def bits(self) -> None:
        a, b, v, _ = self.pair("iu", exact=True)
        shifted = f"{v.name} {self.r.choice(['<<', '>>'])} 3"
        self.add(f"{a} {self.r.choice('&|^')} {b}" if self.r.random() < 0.7 else shifted, v.kind, v.axes, True)

    def compared(self) -> None:
        a, b, v, _ = self.pair("fiu", exact=True)
        self.add(f"{a} {self.r.choice(COMPARISONS)} {b}", "bool_", v.axes, True)

    def logical(self) -> None:
        a, b = self.pick("b"), self.pick("b")
        if a.axes != b.axes:
            raise LookupError
        self.add(f"{a.name} {self.r.choice('&|^')} {b.name}", "bool_", a.axes, True)

    def chosen(self) -> None:
        a, b, v, exact = self.pair("fiu")
        m = self.pick("b")
        if v.axes != "rw" and m.axes != v.axes:
            raise LookupError
        self.add(f"T.where({self.spread(m, v.axes)}, {a}, {b})", v.kind, v.axes, exact)

    def function(self) -> None:
        v = self.pick("f", exact=True)
        name, exact = (self.r.choice(EXACT), True) if self.r.random() < 0.5 else (self.r.choice(ROUNDED), False)
        self.add(f"T.{name}({v.name})", v.kind, v.axes, exact)

    def cast(self) -> None:
        kind = self.r.choice(self.kinds)
        v = self.pick(exact=KINDS[kind].letter != "f")
        exact = v.exact
        self.add(f"T.cast({v.name}, ts.{kind})", kind, v.axes, exact)

    def reduced(self) -> None:
        axis = self.r.randrange(2)
        kept, rest = self.r.random() < 0.4 and axis == 1, "r" if axis else "w"
        name = self.r.choice(["sum", "max", "min", "mean", "prod", "any", "argmax", "argmin"])
        v = self.pick("iub" if name == "prod" else "b" if name == "any" else "fiu", "rw", exact=True)
        kind, exact = v.kind, v.letter != "f"
        if name in ("argmax", "argmin"):
            kind, exact = "int64", True
        elif name in ("sum", "prod") and v.letter != "f":
            kind = "uint64" if v.letter == "u" else "int64"
        elif name == "mean" and v.letter != "f":
            raise LookupError
        text = f"T.{name}({v.name}, axis={axis}{', keepdims=True' if kept else ''})"
        self.add(f"{text}[:, 0]" if kept else text, kind, rest, exact)

    def scanned(self) -> None:
        name = self.r.choice(["cumsum", "cummax", "cummin", "flip", "sort", "argsort", "cumprod"])
        v = self.pick("iub" if name == "cumprod" else "fiu", "rw", exact=True)
        kind, exact = v.kind, v.letter != "f" or name in ("flip", "sort")
        if name == "argsort":
            kind = "int64"
        elif name in ("cumsum", "cumprod") and v.letter != "f":
            kind = "uint64" if v.letter == "u" else "int64"
        self.add(f"T.{name}({v.name}, axis=1)", kind, "rw", exact)

    def looped(self) -> None:
        """A value that a loop carries."""
        a, b, v, _ = self.pair("fiu", exact=True)
        self.add(f"{a} + {b}", v.kind, v.axes, v.letter != "f")
        name, k = self.pool[-1].name, f"k{self.count}"
        self.lines.append(f"for {k} in {self.r.choice(['ts.static_range', 'ts.RANGE'])}({self.r.choice([1, 2, 5])}):")
        if self.r.random() < 0.4:
            self.lines.append(
                f"    if {k} % 2 == 1:\n        {name} = T.cast(T.minimum({name}, {a}), ts.{v.kind})\n    else:"
            )
            self.lines.append(f"        {name} = {self.rounded(f'{name} - {b}', v.kind)}")
        else:
            text = self.rounded(f"{name} {self.r.choice('+-')} {b}", v.kind)
            self.lines.append(f"    {name} = T.cast(T.maximum({text}, {a}), ts.{v.kind})")

    def taken(self) -> None:
        v, i = self.pick("fiu", "rw"), self.pick("iu", "rw", exact=True)
        self.add(f"T.gather({v.name}, T.cast({i.name}, ts.int32) & {self.below}, axis=1)", v.kind, "rw", v.exact)


KINDS_OF_STATEMENTS = (
    Maker.arithmetic, Maker.arithmetic, Maker.arithmetic, Maker.divided, Maker.bits, Maker.compared, Maker.compared,
    Maker.logical, Maker.chosen, Maker.chosen, Maker.function, Maker.function, Maker.cast, Maker.cast, Maker.reduced,
    Maker.reduced, Maker.scanned, Maker.looped, Maker.taken,
)  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    rows: int
    width: int
    inputs: tuple[Value, ...]
    lines: tuple[str, ...]
    outputs: tuple[Value, ...]
    given: tuple[str, ...]

    def kernel(self, fixed: bool) -> str:
        shapes = {
            "rw": '"M", ' + (f"{self.width}" if fixed else '"W"'),
            "r": '"M"',
            "w": f"{self.width}" if fixed else '"W"',
        }
        params = [f"{v.name}: ts.Tensor[{shapes[v.axes]}, ts.{v.kind}]" for v in self.inputs]
        params += [f"o{v.name}: ts.Tensor[{shapes[v.axes]}, ts.{v.kind}]" for v in self.outputs]
        at = {"rw": "i : i + BM, :", "r": "i : i + BM", "w": ":"}
        body = [f"{v.name}_ = {v.name}[{at[v.axes]}]" for v in self.inputs]
        body += [line for text in self.lines for line in self.read(text, "ts.tile.").splitlines()]
        body += [f"o{v.name}[{at[v.axes]}] = {v.name}" for v in self.outputs]
        inner = "".join(f"        {line}\n" for line in body)
        return (f"import tessera as ts\n\n\ndef f({', '.join(params)}):\n    BM = ts.tile.context().BM\n"
                f"    for i in ts.tile.range(0, M, BM):\n{inner}")  # fmt: skip

    def read(self, text: str, names: str) -> str:
        for v in self.inputs:
            text = text.replace(f"<{v.name}>", f"{v.name}_" if names == "ts.tile." else v.name)
        return text.replace("T.", names).replace("ts.RANGE", "ts.tile.range" if names == "ts.tile." else "ts.range")

    def function(self) -> str:
        body = "".join(f"    {line}\n" for text in self.lines for line in self.read(text, "ts.").splitlines())
        return (f"import tessera as ts\n\n\ndef f({', '.join(v.name for v in self.inputs)}):\n{body}"
                f"    return {', '.join(v.name for v in self.outputs)},\n")  # fmt: skip


def blocks(seed: int) -> Blocks:
    m = Maker(seed)
    r, rows, width = m.r, m.rows, m.width
    inputs, given, special = list[Value](), list[str](), r.random() < 0.3
    for n in range(r.randint(2, 4)):
        v = Value(f"x{n}", r.choice(m.kinds), r.choice(["rw", "rw", "rw", "r", "w"]) if n else "rw")
        shape = tuple({"r": rows, "w": width}[a] for a in v.axes)
        inputs.append(v)
        given.append(array(r, v, shape, special))
        m.pool.append(Value(f"<{v.name}>", v.kind, v.axes))
    wanted = r.randint(3, 12)
    for _ in range(200):
        if m.count < wanted:
            try:
                m.statement()
            except LookupError:
                continue
    made = [v for v in m.pool[len(inputs) :] if v.axes != "w"]
    if not made:
        return blocks(seed + 10**9)
    return Blocks(
        rows, width, tuple(inputs), tuple(m.lines), tuple(r.sample(made, min(len(made), r.randint(1, 3)))), tuple(given)
    )


def array(r: random.Random, v: Value, shape: tuple[int, ...], special: bool) -> str:
    g = f"np.random.default_rng({r.randrange(1000)})"
    if v.letter == "f":
        some = f"{g}.choice({SPECIAL}, {shape})" if special else f"{g}.standard_normal({shape}) * 3"
        return f"({some}).astype({HELD[v.kind]})"
    low, high = (0, 2) if v.letter == "b" else (0, 9) if v.letter == "u" else (-8, 9)
    return f"{g}.integers({low}, {high}, {shape}).astype({HELD[v.kind]})"


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return checked(blocks(seed), seed, targets)


def checked(p: Blocks, seed: int, targets: tuple[str, ...]) -> list[str]:
    given: list[Any] = [eval(text, dict(ARRAYS)) for text in p.given]  # texts of our own
    size, fixed = random.Random(seed).choice([1, 4, 8, 16]), seed % 3 > 0
    text = p.kernel(fixed)
    f, first = seeded.kernel(text, f"blocks_{seed}.py"), list[np.ndarray]()
    for n, target in enumerate(targets):
        case = f"on {target}, blocks of {size}, {p.rows} rows of {p.width}\n{text}\n{p.given}"
        found = [
            Guarded(np.zeros([p.rows, p.width][: len(v.axes)], KINDS[v.kind].held), bool(n % 2)).array
            for v in p.outputs
        ]
        try:
            run(f, *(Guarded(a, bool(n % 2)).array for a in given), *found, target=target, debug=False, BM=size)
        except CompileError as e:
            codes = [d.code for d in e.diagnostics if d.severity == "error"]
            assert n == 0 and not seeded.INTERNAL & set(codes), f"{case}\n{e}"
            return codes
        except Exception as e:
            raise AssertionError(f"{case}\n{type(e).__name__}: {e}") from e
        if not n:
            wanted, first = by_function(p, given, size, seed), found
            compare(p, found, wanted, f"{case}\nfunction", False)
        else:
            compare(p, found, first, case, target in NARROWER)
    return []


def by_function(p: Blocks, given: list[Any], size: int, seed: int) -> list[np.ndarray]:
    f = ts.function(seeded.kernel(p.function(), f"blocks_{seed}_function.py"))
    parts = []
    for i in range(0, p.rows, size):
        some = [a if v.axes == "w" else a[i : i + size] for v, a in zip(p.inputs, given, strict=True)]
        with knobs.target.override("cpu"):
            parts.append([np.asarray(x) for x in f(*some)])
    return [np.concatenate(x) for x in zip(*parts, strict=True)]


def compare(p: Blocks, found: list[Any], wanted: list[Any], case: str, bits: bool) -> None:
    for v, a, b in zip(p.outputs, found, wanted, strict=True):
        kind = KINDS[v.kind]
        assert a.shape == b.shape and a.dtype == b.dtype, (
            f"{case}\n{v.name}: {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        )
        agree = equal if v.exact or bits else close(1.0)
        right = agree(a.astype(kind.wide), b.astype(kind.wide), kind)
        assert np.all(right), (
            f"{case}\n{v.name} is {a[~right][:5]}, not {b[~right][:5]} at {np.argwhere(~right)[:5].tolist()}"
        )


def main(arguments: list[str]) -> int:
    return seeded.command("blocks", __doc__, check, arguments)
