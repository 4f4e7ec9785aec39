"""Random control flow over lanes, against the same text run for one element after the other.

    python -m tests.fuzz lanes --count 1000 --seed 1 --emulate 20 --targets cpu,baseline,reference

Branches, loops, break, continue and functions that return early, over integers that each lane has its own of. What a
kernel says of a vector is what Python says of a number, so the text is its own oracle. Programs with odd seeds are of
int32, and convert the counters of loops, which are int64; the others are of int64.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from tessera.errors import register_source
from tests.fuzz.seeded import command
from tests.kernel_runner import run

NAMES = ("a", "b", "c")
LENGTH = 21
HEAD = "import tessera as ts\nfrom tessera import Tensor\n\n\n"
PYTHON = SimpleNamespace(int32=None, tile=SimpleNamespace(range_k=range, cast=lambda value, dtype: value))
"""what `ts` means to Python"""


class Writer:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.narrow = narrow(seed)
        self.lines: list[str] = []
        self.numbers = 0
        self.counters: list[str] = []
        self.most = 14
        self.functions: list[str] = []

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, prefix: str) -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def value(self) -> str:
        a, b = self.r.choice(NAMES), self.r.choice(NAMES)
        n, p = self.r.randint(1, 9), self.r.choice((5, 17, 97))
        counter = ""
        if self.counters and self.r.random() < 0.3:
            k = self.r.choice(self.counters)
            counter = f" + ts.tile.cast({k}, ts.int32)" if self.narrow else f" + {k}"
        if self.functions and self.r.random() < 0.2:
            return f"{self.r.choice(self.functions)}({a}, {b})"
        return f"({a} * {n} + {b}{counter}) % {p}" if self.r.random() < 0.7 else f"({a} - {b} * {n}) % {p}"

    def condition(self) -> str:
        one = f"{self.r.choice(NAMES)} {self.r.choice(('<', '>', '<=', '!='))} {self.r.randint(0, 12)}"
        if self.counters and self.r.random() < 0.2:
            return f"{self.r.choice(self.counters)} > {self.r.randint(0, 3)}"  # one for all lanes
        if self.r.random() < 0.3:
            return f"({one}) {self.r.choice('&|')} ({self.r.choice(NAMES)} % 2 == {self.r.randint(0, 1)})"
        return one

    def block(self, depth: int, loops: int, ends: tuple[str, ...] = ()) -> None:
        for _ in range(self.r.randint(1, 3)):
            self.statement(depth, loops)
        if ends and self.r.random() < 0.5:
            self.line(depth, self.r.choice(ends))

    def statement(self, depth: int, loops: int) -> None:
        self.most -= 1
        kind = self.r.choice(("assign", "assign", "if", "while", "for", "leave", "store"))
        if depth > 4 or self.most < 0 or (kind == "leave" and not loops):
            kind = "assign"
        if kind == "assign":
            self.line(depth, f"{self.r.choice(NAMES)} = {self.value()}")
        elif kind == "store":
            self.line(depth, f"z[i] = {self.value()}")
        elif kind == "leave":
            self.line(depth, f"if {self.condition()}:")
            if self.r.random() < 0.5:
                self.line(depth + 1, f"{self.r.choice(NAMES)} = {self.value()}")
            self.line(depth + 1, self.r.choice(("break", "continue")))
        elif kind == "if":
            self.line(depth, f"if {self.condition()}:")
            self.block(depth + 1, loops, ("break", "continue") if loops else ())
            if self.r.random() < 0.4:
                self.line(depth, "else:")
                self.block(depth + 1, loops, ("break", "continue") if loops else ())
        elif kind == "while":
            fuel = self.fresh("n")
            self.line(depth, f"{fuel} = a * 0")
            over_lanes = f"({self.condition()}) & ({fuel} < {self.r.randint(1, 6)})"
            self.line(depth, f"while {over_lanes}:")
            self.line(depth + 1, f"{fuel} = {fuel} + 1")
            self.block(depth + 1, loops + 1)
        else:
            counter = self.fresh("k")
            self.line(depth, f"for {counter} in ts.tile.range_k(0, {self.r.randint(1, 5)}):")
            self.counters.append(counter)
            self.block(depth + 1, loops + 1)
            self.counters.pop()

    def function(self) -> None:
        """One that returns early for some lanes."""
        name = self.fresh("f")
        self.line(0, f"def {name}(a, b):")
        self.line(1, "c = a + b")
        for _ in range(self.r.randint(1, 3)):
            self.line(1, f"if {self.condition()}:")
            if self.r.random() < 0.5:
                self.line(2, f"{self.r.choice(NAMES)} = {self.value()}")
            if self.r.random() < 0.7:
                self.line(2, f"return {self.value()}")
            else:
                self.line(2, f"b = {self.value()}")
        self.line(1, f"return {self.value()}")
        self.lines += ["", ""]
        self.functions.append(name)


def narrow(seed: int) -> bool:
    """Whether the program is of int32."""
    return seed % 2 == 1


def parameters(seed: int) -> str:
    return ", ".join(f'{name}: Tensor["n", ts.{"int32" if narrow(seed) else "int64"}]' for name in "xyz")


def program(seed: int) -> str:
    """The text of a kernel."""
    w = Writer(seed)
    for _ in range(w.r.randint(0, 2)):
        w.function()
    w.line(0, f"def kernel({parameters(seed)}, i=None):")
    w.line(1, "i = ts.tile.linear_id()")
    w.line(1, "a, b, c = x[i], (x[i] * 7) % 13, x[i] % 3")
    for _ in range(w.r.randint(2, 4)):
        w.statement(1, 0)
    w.line(1, "y[i] = (a * 100 + b) * 100 + c")
    return HEAD + "\n".join(w.lines) + "\n"


def wanted(seed: int) -> tuple[list[int], list[int]]:
    """What Python makes of the text, element by element."""
    plain = program(seed).removeprefix(HEAD).replace("    i = ts.tile.linear_id()\n", "")
    plain = plain.replace(parameters(seed), "x, y, z")
    names: dict[str, Any] = {"ts": PYTHON}
    exec(plain, names)
    x, y, z = list(range(LENGTH)), [0] * LENGTH, [0] * LENGTH
    for i in range(LENGTH):
        names["kernel"](x, y, z, i)
    return y, z


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """Raises AssertionError, with the text, where a target differs from Python, or refuses the program."""
    text = program(seed)
    expected = wanted(seed)
    kernel_text = text.replace(", i=None)", ")")
    name = f"lanes{seed}.py"
    register_source(name, kernel_text)
    names: dict[str, Any] = {"__name__": "fuzzed"}
    exec(compile(kernel_text, name, "exec"), names)
    for target in targets:
        dtype = np.int32 if narrow(seed) else np.int64
        x, y, z = np.arange(LENGTH, dtype=dtype), np.zeros(LENGTH, dtype), np.zeros(LENGTH, dtype)
        try:
            run(names["kernel"], x, y, z, target=target, BLOCK=8)
        except Exception as e:
            raise AssertionError(f"seed {seed} on {target}: {e}\n{text}") from e
        for got, want in zip((y, z), expected, strict=True):
            if not np.array_equal(got, want):
                raise AssertionError(f"seed {seed} on {target}: {got.tolist()}, not {want}\n{text}")
    return []


def main(arguments: list[str]) -> int:
    return command("lanes", __doc__, check, arguments)
