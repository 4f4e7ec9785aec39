"""Random programs over the whole table of operators and tile functions, with odd arguments, annotations and constants.

Whatever is written, the front end answers with findings: no exception, no TS900, and no program takes long.

python -m tests.fuzz frontend --count 100000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.kernel.builtins import public
from tessera.compiler.graph.operator import FUNCTIONS, METHODS
from tessera.language import dtypes

HEAD = "import math\nimport tessera as ts\nfrom tessera import Const, Tensor\n\nK = 3\nT = (1, 2)\n\n\n"
LONGEST = 20.0
"""seconds of processor time for one program"""
ODD = (
    "None", "True", "-1", "0", "1", "2", "7", "1.5", "-0.0", "1e400", "float('nan')", "2j", "10**30", "'a'", "''", "()",
    "(0,)", "(-1, 2)", "[1, 2]", "[]", "{}", "{'a': 1}", "range(3)", "...", "ts", "ts.f32", "ts.int8", "ts.exp", "len",
    "lambda a: a", "K", "T", "math.pi", "slice(None)", "f'{K}'", "ts.tile", "b'x'", "set()", "ts.cdiv(K, 2)",
)  # fmt: skip
SIZES = (
    "'N'",
    "'M'",
    "3",
    "0",
    "'N*M'",
    "'N//2'",
    "'N-1'",
    "'min(N, 4)'",
    "...",
    "'2*N'",
    "-1",
    "'1'",
    "'N%3'",
    "K",
    "2.5",
)
OTHERS = (
    "Const['N']", "int", "float", "ts.f32", "Const[3]", "list[Tensor['N']]", "Tensor", "K", "str", "Tensor['N'] | None",
    "tuple[Tensor['N'], int]", "'Tensor[N]'", "dict[str, Tensor['N']]", "3",
)  # fmt: skip
SYMBOLS = (
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "@",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "<",
    "==",
    "!=",
    "and",
    "or",
    "is",
    "in",
)
KEYWORDS = ("axis", "keepdim", "dtype", "shape", "dim", "key", "out", "correction", "nonsense", "mask", "other")


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.names: list[str] = []
        self.kernel = self.r.random() < 0.35

    def program(self) -> str:
        r = self.r
        self.names = [f"p{i}" for i in range(r.randint(1, 3))]
        given = ", ".join(f"{n}: {self.annotation()}" for n in self.names)
        returns = f" -> {self.annotation()}" if r.random() < 0.3 else ""
        if self.kernel:
            self.names += ["tile_n", "pid"]
        lines = ["    pid = ts.tile.program_id(0)"] if self.kernel else []
        lines += [line for _ in range(r.randint(1, 4)) for line in self.statement("    ", 2)]
        decorator = "@ts.kernel" if self.kernel else "@ts.function"
        return (
            HEAD
            + f"{decorator}\ndef f({given}){returns}:\n"
            + "\n".join([*lines, f"    return {self.value(1)}"])
            + "\n"
        )

    def annotation(self) -> str:
        r = self.r
        kind = r.random()
        if kind < 0.75:
            parts = [
                r.choice(SIZES) if r.random() < 0.3 else r.choice(("'N'", "'M'", "3")) for _ in range(r.randint(0, 3))
            ]
            parts += [f"ts.{r.choice(list(dtypes.BY_NAME))}"] if r.random() < 0.6 else []
            return f"Tensor[{', '.join(parts) or '()'}]"
        return r.choice(OTHERS)

    def statement(self, indent: str, depth: int) -> list[str]:
        r = self.r
        kind = r.random()
        inner = indent + "    "
        if depth and kind < 0.08:
            return [f"{indent}if {self.value(2)}:", *self.statement(inner, depth - 1), f"{indent}else:",
                    *self.statement(inner, depth - 1)]  # fmt: skip
        if depth and kind < 0.16:
            over = r.choice((f"range({self.value(1)})", f"ts.range({self.value(1)})", self.value(1)))
            self.names.append("i")
            return [f"{indent}for i in {over}:", *self.statement(inner, depth - 1)]
        if kind < 0.24:
            return [f"{indent}{r.choice(self.names)} {r.choice(('+=', '*=', '//=', '@='))} {self.value(2)}"]
        if kind < 0.32:
            return [f"{indent}{r.choice(self.names)}[{self.value(1)}] = {self.value(2)}"]
        if kind < 0.38:
            return [f"{indent}assert {self.value(2)}"]
        name = f"v{len(self.names)}"
        line = f"{indent}{name} = {self.value(3)}"
        self.names.append(name)
        return [line]

    def value(self, depth: int) -> str:
        r = self.r
        kind = r.random()
        if depth <= 0 or kind < 0.2:
            return r.choice(ODD) if r.random() < 0.35 else r.choice(self.names)
        if kind < 0.55:
            if self.kernel and r.random() < 0.8:
                return f"ts.tile.{r.choice(sorted(public()))}({self.arguments(depth)})"
            return f"ts.{r.choice(sorted(FUNCTIONS))}({self.arguments(depth)})"
        if kind < 0.67:
            return f"{self.value(depth - 1)}.{r.choice(sorted(METHODS))}({self.arguments(depth)})"
        if kind < 0.8:
            return f"({self.value(depth - 1)} {r.choice(SYMBOLS)} {self.value(depth - 1)})"
        if kind < 0.88:
            return f"{self.value(depth - 1)}[{self.index(depth)}]"
        if kind < 0.93:
            return f"({self.value(depth - 1)}).{r.choice(('shape', 'T', 'dtype', 'ndim', 'size', 'real', 'nothing'))}"
        if kind < 0.97:
            return f"[{self.value(depth - 1)} for j in {self.value(depth - 1)}]"
        return f"({self.value(depth - 1)} if {self.value(depth - 1)} else {self.value(depth - 1)})"

    def index(self, depth: int) -> str:
        part = self.value(depth - 1)
        return self.r.choice((part, f"{part}:", f":{part}", f"{part}, ...", f"None, {part}", "::-1", f"{part}, {part}"))

    def arguments(self, depth: int) -> str:
        r = self.r
        given = [self.value(depth - 1) for _ in range(r.choice((0, 1, 1, 1, 2, 2, 3)))]
        names = r.sample(KEYWORDS, r.choice((0, 0, 0, 1, 1, 2)))
        return ", ".join([*given, *(f"{n}={self.value(depth - 1)}" for n in names)])


def failure(seed: int) -> tuple[str, str] | None:
    """What is wrong with the answer to a program, and the program; None where nothing is."""
    text = Writer(seed).program()
    started = time.process_time()
    try:
        file = FileAnalysis(f"fuzz_{seed}.py")
        file.update(text)
        wrong = next((f"{d.message} {[n.message for n in d.notes]}" for d in file.diagnostics if d.code == "TS900"), "")
    except Exception as e:
        wrong = f"raised {type(e).__name__}: {e}"
    took = time.process_time() - started
    if not wrong and took > LONGEST:
        wrong = f"took {took:.0f} s of processor time"
    return (wrong, text) if wrong else None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz frontend", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first program; each has its own")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long")
    options = parser.parse_args(arguments)
    started, seen, done = time.monotonic(), dict[str, int](), 0
    for seed in range(options.seed, options.seed + options.count):
        if options.seconds and time.monotonic() - started > options.seconds:
            break
        done += 1
        found = failure(seed)
        if found is not None:
            kind = found[0]
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] == 1:
                print(f"seed {seed}: {kind}\n{found[1].removeprefix(HEAD)}", flush=True)
    print(f"{done} programs, {sum(seen.values())} failures of {len(seen)} kinds")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
