"""Random kernels' `kernel.backward()` against differences of what the kernels compute.

    python -m tests.fuzz backwards --count 1000 --seed 1 --targets cpu,reference

Kernels in f64 over rows or blocks of a matrix, a vector along each of its axes, a square matrix and a number: functions
of elements, choices, masks, reductions, scans, moves, products, loops that add up, unrolled loops, stores under masks.
What cannot be derived is refused (TS355), and counted.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.errors import CompileError
from tests.fuzz.seeded import INTERNAL, command, kernel

STEP, NEAR = 1e-5, 1e-6
SIZES = (1, 2, 3, 5, 7, 8, 9)
HEAD = "import tessera as ts\nfrom tessera import Tensor\n\n\n"
ELEMENTWISE = (
    "ts.tile.sin({t})", "ts.tile.tanh({t}) * {o}", "{t} + {o}", "{t} - {o}", "{t} * {o}", "{t} / (1.5 + {o} * {o})",
    "ts.tile.exp(-{t} * {t})", "ts.tile.sigmoid({t})", "ts.tile.where({o} > {k}, {t}, {o} * {t})", "-{t}",
    "ts.tile.maximum({t}, {o})", "ts.tile.minimum({t}, {k})", "ts.tile.sqrt(1.5 + {t} * {t})", "abs({t})", "s * {t}",
    "ts.tile.log(2.5 + ts.tile.cos({t}))", "{t} * {k} + s", "ts.tile.silu({t})", "helped({t}, {o})",
    "ts.tile.softplus({t})", "ts.tile.square({t})", "ts.tile.where(ts.tile.abs({t}) < {k}, {o}, s * {t})", "{t} ** 2",
    "ts.tile.gelu({t})",
)  # fmt: skip
FOLDS = ("sum", "sum", "mean", "max", "min")
MOVES = ("ts.tile.flip({t}, axis=1)", "ts.tile.cumsum({t}, axis=1)", "ts.tile.sort({t}, axis=1)", "{t} @ m[:, :]",
         "{t} / ts.tile.sum(1 + {t} * {t}, axis=1, keepdim=True)", "({t} @ m[:, :].T)")  # fmt: skip
HELPER = "def helped(a, b):\n    c = a * b\n    return ts.tile.sin(c) + a\n\n\n"


class Writer:
    """The text of a kernel. `tiles` are names of blocks, `columns` of one number for each row."""

    def __init__(self, seed: int) -> None:
        self.r = r = random.Random(seed)
        self.sizes = r.choice(SIZES), r.choice(SIZES)
        self.rows = r.random() < 0.6  # a program has whole rows
        self.block = r.choice([2, 4, 8]), r.choice([2, 4, 8])
        self.made, self.lines = 0, list[str]()
        self.tiles, self.columns = ["x0"], ["w0"]
        self.text = self.written()

    def line(self, text: str, deep: int = 0) -> None:
        self.lines.append("    " * deep + text)

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def late(self) -> str:
        return self.r.choice(self.tiles[-3:])

    def other(self) -> str:
        return self.r.choice([*self.tiles, *self.columns, "v0"])

    def filled(self, text: str) -> str:
        k = round(self.r.uniform(-1.5, 1.5), 2)
        return text.format(t=self.late(), o=self.other(), k=k)

    def statement(self) -> None:
        r = self.r
        kind = r.random()
        if kind < 0.4 or (not self.rows and kind < 0.75):
            name = self.name("t")
            self.line(f"{name} = {self.filled(r.choice(ELEMENTWISE))}")
        elif kind < 0.55:
            fold, column = r.choice(FOLDS), self.name("r")
            self.line(f"{column} = ts.tile.{fold}({self.late()}, axis=1, keepdim=True)")
            self.columns.append(column)
            name = self.name("t")
            self.line(
                f"{name} = {self.late()} * {column}" if r.random() < 0.5 else f"{name} = {self.late()} - {column}"
            )
        elif kind < 0.75:
            name = self.name("t")
            self.line(f"{name} = {self.filled(r.choice(MOVES))}")
        elif kind < 0.85:
            name = self.name("t")
            self.line(f"{name} = {self.late()} + 0.5")
            self.line(f"if {self.other()} > {round(r.uniform(-1, 1), 2)} + 0 * {self.late()}:")
            self.line(f"{name} = {self.filled(r.choice(ELEMENTWISE))}", 1)
            if r.random() < 0.5:
                self.line("else:")
                self.line(f"{name} = {self.filled(r.choice(ELEMENTWISE))}", 1)
        elif kind < 0.92:
            name, j = self.name("t"), self.name("j")
            self.line(f"{name} = {self.late()}")
            self.line(f"for {j} in range({r.randint(1, 3)}):")
            self.line(f"{name} = {name} * {self.other()} + {j}", 1)
        else:
            self.blocked()
            return
        self.tiles.append(name)

    def blocked(self) -> None:
        """A sum over blocks of the rows, or of a product with them."""
        r, j, b = self.r, self.name("j"), self.r.choice([2, 4])
        own = f"x[{self.at()}, {j} : {j} + {b}]"
        if self.rows and r.random() < 0.5:
            total = self.name("r")
            self.line(f"{total} = ts.tile.zeros(({self.block[0]}, 1), ts.f64)")
            self.line(f"for {j} in ts.tile.range_k(0, N, {b}):")
            body = r.choice([own, f"ts.tile.sin({own})", f"{own} * {own}", f"{own} * {self.r.choice(self.columns)}"])
            self.line(f"{total} += ts.tile.sum({body}, axis=1, keepdim=True)", 1)
            self.columns.append(total)
        else:
            total = self.name("t")
            columns = ":" if self.rows else f"tile_n : tile_n + {self.block[1]}"
            width = "N" if self.rows else self.block[1]
            self.line(f"{total} = ts.tile.zeros(({self.block[0]}, {width}), ts.f64)")
            self.line(f"for {j} in ts.tile.range_k(0, N, {b}):")
            left = own if r.random() < 0.6 else f"ts.tile.tanh({own})"
            self.line(f"{total} += {left} @ m[{j} : {j} + {b}, {columns}]", 1)
            self.tiles.append(total)

    def at(self) -> str:
        return f"i : i + {self.block[0]}" if self.rows else f"tile_m : tile_m + {self.block[0]}"

    def written(self) -> str:
        r = self.r
        columns = ":" if self.rows else f"tile_n : tile_n + {self.block[1]}"
        self.line(f"x0 = x[{self.at()}, {columns}]")
        self.line(f"v0 = v[{columns}] + 0 * x0" if r.random() < 0.2 else f"v0 = v[{columns}]")
        self.line(f"w0 = w[{self.at()}][:, None]")
        for _ in range(r.randint(1, 5)):
            self.statement()
        body, last = self.lines, f"{self.late()} + 0 * x0"
        if r.random() < 0.25:
            body += [
                f"if {self.other()} > {round(r.uniform(-1, 1), 2)} + 0 * x0:",
                f"    y[{self.at()}, {columns}] = {last}",
            ]
        else:
            body.append(f"y[{self.at()}, {columns}] = {last}")
        both = self.rows and r.random() < 0.4
        if both:
            body.append(f"z[{self.at()}] = ts.tile.sum({r.choice(self.columns)} + 0 * w0, axis=1)")
        whole, row = 'Tensor["M", "N", ts.f64]', 'Tensor["M", ts.f64]'
        head = [f'def f(x: {whole}, v: Tensor["N", ts.f64], w: {row}, m: Tensor["N", "N", ts.f64], s: ts.f64) -> '
                f"{f'tuple[{whole}, {row}]' if both else whole}:", f"    y: {whole}"]  # fmt: skip
        head += [f"    z: {row}"] if both else []
        head += [f"    for i in ts.tile.range(0, M, {self.block[0]}):"] if self.rows else []
        indent = "        " if self.rows else "    "
        lines = [*head, *(indent + line for line in body), f"    return y{', z' if both else ''}"]
        return HEAD + HELPER + "@ts.kernel\n" + "\n".join(lines) + "\n"

    def arrays(self) -> list[Any]:
        m, n = self.sizes
        values = np.random.default_rng(self.r.randrange(1000))
        return [values.uniform(-2, 2, shape) for shape in ((m, n), (n,), (m,), (n, n))] + [float(values.uniform(-1, 1))]


def flat(found: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,))]


def differences(f: Any, given: list[Any], weights: list[np.ndarray]) -> list[np.ndarray]:
    """Of the weighted sum of what `f` returns, by each argument."""

    def loss(*args: Any) -> float:
        return sum(float((np.asarray(v) * w).sum()) for v, w in zip(flat(f(*args)), weights, strict=True))

    found: list[np.ndarray] = []
    for n, value in enumerate(given):
        slope = np.zeros(np.shape(value))
        for at in np.ndindex(slope.shape):
            sides: list[float] = []
            for step in (STEP, -STEP):
                moved = np.array(value)
                moved[at] += step
                sides.append(loss(*given[:n], moved if moved.ndim else float(moved), *given[n + 1 :]))
            slope[at] = (sides[0] - sides[1]) / (2 * STEP)
        found.append(slope)
    return found


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """The codes by which a kernel or its derivative is refused. Raises AssertionError where a gradient is wrong."""
    w = Writer(seed)
    given, f = w.arrays(), kernel(w.text, f"backwards{seed}.py")
    case = f"backwards{seed}.py, sizes {w.sizes}\n{w.text}"
    for target in targets:
        with knobs.target.override(target), warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.TrainingWarning)  # of arguments that are not read
            try:
                results = flat(f(*given))
                weights = [np.random.default_rng(n).standard_normal(v.shape) for n, v in enumerate(results)]
                wanted = differences(f, given, weights)
                f.vjp(rule := f.backward())
                found = [np.asarray(v) for v in _gradients(f, given, weights)]
            except CompileError as e:
                codes = [d.code for d in e.diagnostics if d.severity == "error"]
                assert not INTERNAL & set(codes), f"{case}\n{e}"
                return codes
            except Exception as e:
                raise AssertionError(f"{case}\n{type(e).__name__}: {e}") from e
        far = max(1.0, *(float(np.abs(v).max(initial=0)) for v in wanted))
        for name, a, b in zip(("x", "v", "w", "m", "s"), found, wanted, strict=True):
            assert np.allclose(a, b, rtol=1e-5, atol=NEAR * far), (
                f"{case}\non {target}: the gradient of {name} is\n{a}\nnot\n{b}\n{rule.source}"
            )
    return []


def _gradients(f: Any, given: list[Any], weights: list[np.ndarray]) -> Any:
    def loss(x: Any, v: Any, w: Any, m: Any, s: ts.f64, weights: Any) -> Any:
        found = f(x, v, w, m, s)
        pairs = zip(found if isinstance(found, tuple) else (found,), weights, strict=True)
        return sum(ts.sum(a * b) for a, b in pairs)

    return ts.grad(loss, argnums=(0, 1, 2, 3, 4))(*given, tuple(weights))


def main(arguments: list[str]) -> int:
    return command("backwards", __doc__, check, arguments)
