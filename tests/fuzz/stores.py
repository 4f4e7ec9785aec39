"""Random kernels that store to the arrays that they read: at the same places, beside them, turned, in loops.

    python -m tests.fuzz stores --count 1000 --seed 1 --targets cpu,reference

One program stores to parts of three matrices, from parts of them and from what it has read before. NumPy executes the
same statements. Elements are small integers, so that all sums are exact.
"""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

from tests.fuzz.seeded import command, held

Shape = tuple[int, int]
ARRAYS = "xyz"
SHAPES: tuple[Shape, ...] = ((16, 16), (16, 32), (8, 8), (16, 8))
HEAD = """import tessera as ts

M = ts.Tensor["r", "c"]


def row(a):
    return ts.tile.row_sum(a)[:, None]


def col(a):
    return ts.tile.col_sum(a)[None, :]


def f(x: M, y: M, z: M) -> None:
    ts.tile.grid(1)
"""
LARGEST = 1e12


class Program:
    """Statements that are Python's for both: `body` with the names of `HEAD`."""

    def __init__(self, seed: int) -> None:
        self.r, self.lines, self.tiles, self.names = random.Random(seed), list[str](), list[tuple[str, Shape]](), 0
        for _ in range(self.r.randint(2, 7)):
            self._statement("    ", 0)
        if not any("] =" in line or "] +=" in line for line in self.lines):
            self.lines.append("    x[0:8, 0:8] = y[0:8, 0:8]")

    def _name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def _place(self, shape: Shape) -> str:
        row, column = (self.r.choice((0, 0, 0, 1, 2, 4)) for _ in shape)
        return f"{self.r.choice(ARRAYS)}[{row}:{row + shape[0]}, {column}:{column + shape[1]}]"

    def _atom(self, shape: Shape) -> str:
        same = [name for name, other in self.tiles if other == shape]
        turned = [f"{name}.T" for name, other in self.tiles if other == shape[::-1]]
        chance = self.r.random()
        if same and chance < 0.5:
            return self.r.choice(same)
        if turned and chance < 0.6:
            return self.r.choice(turned)
        return self._place(shape) + (".T" if shape[0] == shape[1] and chance < 0.7 else "")

    def _expression(self, shape: Shape) -> str:
        a, b = self._atom(shape), self._atom(shape)
        forms = (f"{a} * 2", f"{a} + {b} * 3", f"{a} - {b}", f"{a} + row({b})", f"{a} + col({b})", a, a)
        return self.r.choice((*forms, f"{a} + ts.tile.sum({b})"))

    def _statement(self, indent: str, depth: int) -> None:
        r, shape = self.r, self.r.choice(SHAPES)
        chance = r.random()
        if chance < 0.4:
            value, name = self._expression(shape), self._name("t")
            self.lines.append(f"{indent}{name} = {value}")
            self.tiles.append((name, shape))
        elif chance < 0.9 or depth:
            self.lines.append(
                f"{indent}{self._place(shape)} {r.choice(('=', '=', '=', '+='))} {self._expression(shape)}"
            )
        else:
            condition = f"if {r.choice(ARRAYS)}[0, 0] > {r.choice((2, 40, 400))}:"
            self.lines.append(indent + r.choice((f"for {self._name('i')} in ts.tile.range_k(0, 3):", condition)))
            known = list(self.tiles)
            for _ in range(r.randint(1, 3)):
                self._statement(indent + "    ", depth + 1)
            self.tiles = known  # names of a branch are not known behind it

    @property
    def text(self) -> str:
        return HEAD + "\n".join(self.lines) + "\n"

    def by_numpy(self, arrays: dict[str, Any]) -> None:
        """What is read is a value: a copy, where NumPy would give a view."""
        body = re.sub(r"^( *(?:t\d+|\w\[.*?\]) \+?=) (.*)$", r"\1 np.array(\2)", "\n".join(self.lines), flags=re.M)
        body = body.replace("ts.tile.range_k", "range").replace("ts.tile.sum", "np.sum")
        names = {"np": np, "row": lambda a: a.sum(1, keepdims=True), "col": lambda a: a.sum(0, keepdims=True)}
        exec(f"def f({', '.join(arrays)}):\n{body}", names)
        names["f"](**arrays)


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    program, values = Program(seed), np.random.default_rng(seed)
    dtype = values.choice([np.float32, np.float64]) if seed % 4 else np.int64
    given = {name: values.integers(0, 3, (24, 40)).astype(dtype) for name in ARRAYS}
    wanted = {name: a.copy() for name, a in given.items()}
    program.by_numpy(wanted)
    if max(abs(a).max() for a in wanted.values()) >= (LARGEST if dtype != np.float32 else 1 << 22):
        return []  # no longer exact
    text = program.text.replace(
        '"c"]', f'"c", ts.{ {"float32": "f32", "float64": "f64"}.get(dtype.__name__, "int64") }]'
    )
    return held(text, f"stores {seed}", [], [*given.values()], [*wanted.values()], targets)


def main(given: list[str]) -> int:
    return command("stores", __doc__, check, given)
