"""What the functions of `ts.tile` say of shapes and of costs, in words for people, is what the compiler does."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from tessera.compiler.frontend.kernel.builtins import public
from tessera.compiler.ir.core import Op
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.compiler.tile.primitive import PRIMITIVES
from tests.kernel_runner import check

BUILTINS = list(dict.fromkeys(public().values()))
SIZES = {"M": 2, "N": 4, "K": 8, "parts": 2, "repeats": 2}
BEFORE, BEHIND = 2, 8
"""what `...` stands for before and behind an axis with a name"""

COUNT = itertools.count()
CASE = re.compile(r"`([^`]*?) -> ([^`]*)`|`(\[[^`]*\])`")
CALLS: dict[str, list[list[str]]] = {
    "`[...] -> [...]`": [["a"]],
    "`[], [...] -> [...]`": [["a, b"]],
    "`[..., N, ...] -> [..., N, ...]`": [["a, axis=1"]],
    "`[..., N, ...] -> [..., N, ...]`; of a tuple a tuple": [["a, lambda p, q: p + q, axis=1"]],
    "`[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both": [["a, axis=0", "a, axis=1", "a"]],
    "`[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both; of a tuple a tuple": [
        [f"a, lambda p, q: p + q{axis}" for axis in (", axis=0", ", axis=1", "")]
    ],
    "`[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`": [["a", "a, keepdim=True"]],
    "`[M, N] -> [N]`, or `[1, N]` with `keepdim=True`": [["a", "a, keepdim=True"]],
    "`[M, N] -> [1, M, N]`, `[M, 1, N]` or `[M, N, 1]`": [["a, 0", "a, 1", "a, 2"]],
    "`[M, N] -> [N, M]`; with `axes` any order": [["a"]],
    "`[M, N] -> [M, N]`; `q0` and `k0` are indices": [["a, 0, 0"]],
    "`[..., M, K], [..., K, N] -> [..., M, N]`; up to 64 matrices; scales as above": [["a, b"]],
    "`[..., N, ...] -> [..., N * repeats, ...]`": [["a, 2, axis=1"]],
    "`[..., N, ...] -> [..., 2 N, ...]`": [["a, axis=1"]],
    "`([M, N], [M, K], ...) -> [M, N + K + ...]`": [["(a, b), axis=1"]],
    "`([M, N], [M, N], ...) -> [..., M, N]`, `[M, ..., N]` or `[M, N, ...]`": [
        [f"(a, b), axis={axis}" for axis in (0, 1, 2)]
    ],
    "`[..., N, ...] -> ([..., N / parts, ...], ...)`": [["a, 2, axis=1"]],
    "`[..., N, ...], [K] -> [..., K, ...]`; `[..., N, ...], [] -> [..., ...]`": [["a, b, axis=1"], ["a, b, axis=1"]],
    "`[..., N, ...], [K], [..., K, ...] -> [..., N, ...]`": [["a, b, c, axis=1"]],
}
"""For each way to say it: calls with the operands a, b, c, for each result that it names."""
WHOLE = {"take", "scatter_add"}
"""their second operand is whole numbers"""
OF_WHOLE = {"random_bits", "uniform"}


def cases(words: str) -> list[tuple[str, list[str]]]:
    """(operands, the results that may come of them), as the words spell them."""
    found: list[tuple[str, list[str]]] = []
    for operands, result, other in CASE.findall(words):
        if result:
            found.append((operands, [result]))
        elif found:
            found[-1][1].append(other)
    return found


def shapes(text: str, behind: int = BEHIND) -> list[tuple[int, ...]]:
    return [shape(x, behind) for x in re.findall(r"\[[^\]]*\]", text)]


def shape(text: str, behind: int) -> tuple[int, ...]:
    """`[..., N / parts, ...]` as numbers; `[...]` alone is any shape: that of a matrix."""
    parts = [p.strip() for p in text[1:-1].split(",") if p.strip()]
    if parts == ["..."]:
        return SIZES["M"], SIZES["N"]
    out: list[int] = []
    for i, part in enumerate(parts):
        if part == "...":
            out.append(BEFORE if i == 0 else behind)
        else:
            out.append(int(eval(part.removesuffix(" + ...").replace("2 N", "2 * N"), {}, SIZES)))
    return tuple(out)


def windows(operands: list[tuple[int, ...]], dtypes: list[str]) -> tuple[str, str]:
    """Parameters of a kernel, and the lines that make its tiles; an operand without axes is a number."""
    parameters, lines = ["out: Tensor[2, ts.f32]"], list[str]()
    for name, sizes, dtype in zip("abc", operands, dtypes, strict=False):
        if sizes:
            parameters.append(f"x_{name}: Tensor[{', '.join(map(str, sizes))}, ts.{dtype}]")
            lines.append(f"    {name} = x_{name}[{', '.join(f'0:{n}' for n in sizes)}]")
        else:
            lines.append(f"    {name} = 1")
    return ", ".join(parameters), "\n".join(lines)


def analysed(call: str, operands: list[tuple[int, ...]], dtypes: list[str], folder: Path, used: str = "") -> Any:
    """`used`: what is done with the result, without which nothing of it is left."""
    parameters, lines = windows(operands, dtypes)
    program = (
        f"@ts.kernel\ndef f({parameters}):\n{lines}\n    found = {call}\n{used}    out[0:2] = ts.tile.zeros((2,))\n"
    )
    file = folder / f"words_{next(COUNT)}.py"  # a name of its own: sources are read once
    file.write_text(f"import tessera as ts\nfrom tessera import Tensor\n\n\n{program}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return check(module.f)


def found_in(analysis: Any, call: str) -> Any:
    assert not [d.message for d in analysis.diagnostics if d.severity == "error"], call
    return next(e.type for e in analysis.expressions if e.name == "found")


def taken(builtin: TileBuiltin) -> str:
    """A dtype that it takes."""
    words = builtin.dtypes.partition(" -> ")[0]
    return {"uint8": "uint8", "integers": "int32", "integers and bools": "int32", "complex numbers": "complex64"}.get(
        words, "f32"
    )


def trials(builtin: TileBuiltin) -> list[tuple[str, list[tuple[int, ...]], list[str], list[tuple[int, ...]]]]:
    """(call, shapes and dtypes of its operands, shapes of its results), as its words say it."""
    out: list[tuple[str, list[tuple[int, ...]], list[str], list[tuple[int, ...]]]] = []
    known = cases(builtin.shapes)
    given = CALLS[builtin.shapes]
    assert [len(results) for _, results in known] == [len(calls) for calls in given], builtin.name
    first = "int32" if builtin.name in OF_WHOLE else taken(builtin)
    dtypes = [first, "int32" if builtin.name in WHOLE | OF_WHOLE else first, first]
    for (operands, results), calls in zip(known, given, strict=True):
        behind = 2 if builtin.name == "stack" else BEHIND
        for call, result in zip(calls, results, strict=True):
            wanted = shapes(result.removesuffix(", ...)"), behind)
            if builtin.name == "split":
                wanted *= SIZES["parts"]
            out.append((f"ts.tile.{builtin.name}({call})", shapes(operands.removesuffix(", ...)")), dtypes, wanted))
    return out


SPELLED = [b for b in BUILTINS if cases(b.shapes) and b.name not in ("reduce_across", "gather", "scatter", "cast")]


@pytest.mark.parametrize("builtin", SPELLED, ids=lambda b: b.name)
def test_shapes(builtin: TileBuiltin, tmp_path: Path) -> None:
    for call, operands, dtypes, wanted in trials(builtin):
        found = found_in(analysed(call, operands, dtypes, tmp_path), call)
        assert [t.shape for t in (found if isinstance(found, tuple) else (found,))] == wanted, call


MEET = [b for b in BUILTINS if b.shapes == "the operands meet by the axes that they lie along"]


@pytest.mark.parametrize("builtin", MEET, ids=lambda b: b.name)
def test_operands_meet(builtin: TileBuiltin, tmp_path: Path) -> None:
    names = ["a", "b", "b"][: len(builtin.parameters)]
    call = f"ts.tile.{builtin.name}({', '.join(names)})"
    assert found_in(analysed(call, [(2, 4), (2, 1)], [taken(builtin)] * 2, tmp_path), call).shape == (2, 4)


def emitted(builtin: TileBuiltin, folder: Path) -> list[Op]:
    """The ops of the trials of a function."""
    used = f"    ts.tile.print({'*' if builtin.name == 'split' else ''}found)\n"
    made = (analysed(call, operands, dtypes, folder, used).op for call, operands, dtypes, _ in trials(builtin))
    return [inner for op in made for inner in op.walk()]


MOVING = "Every element moves through scratch memory, or through shared memory on a GPU."


@pytest.mark.parametrize("builtin", SPELLED, ids=lambda b: b.name)
def test_what_moves_every_element_says_so(builtin: TileBuiltin, tmp_path: Path) -> None:
    moves = any(getattr(PRIMITIVES.get(o.name), "moves", ()) for o in emitted(builtin, tmp_path))
    first = builtin.cost.partition(";")[0].rstrip(".") + "."
    assert moves == (first in (MOVING, MOVING.replace("element", "byte")))


FREE = {"func", "return", "load", "store", "dim", "index", "constant", "debug_print", "print", "broadcast", "reshape"}


@pytest.mark.parametrize("builtin", [b for b in SPELLED if b.cost.startswith("Nothing:")], ids=lambda b: b.name)
def test_what_costs_nothing_computes_nothing(builtin: TileBuiltin, tmp_path: Path) -> None:
    names = {o.name.removeprefix("tile.") for o in emitted(builtin, tmp_path)}
    assert not names - FREE


@pytest.mark.parametrize("builtin", [b for b in BUILTINS if b.cost.startswith("2 M N K")], ids=lambda b: b.name)
def test_what_multiplies_matrices(builtin: TileBuiltin, tmp_path: Path) -> None:
    assert [o.name for o in emitted(builtin, tmp_path)].count("tile.mma") == 1
