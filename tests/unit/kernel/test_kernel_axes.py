"""The rule of docs/kernels.md, applied by hand to tricky kernels: for every index the axis, and what moves it.

The compiler's answer, that of an editor and the one written here are the same; what the rule refuses is refused with
all readings, each with a fix that mends it.
"""
# fmt: off

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tests.kernel_runner import check

HEAD = "import tessera as ts\nfrom tessera import Tensor, f32, int32\n\n\n@ts.kernel\n"


@dataclass(frozen=True)
class Kernel:
    """`says`: the indices of the subscripts in the text, in reading order; None where the rule refuses."""

    text: str
    says: tuple[str, ...]


def kernel(text: str, *says: str) -> Kernel:
    return Kernel(HEAD + "def f" + text.strip("\n") + "\n", says)


BY_HAND: dict[str, Kernel] = {
    "as many indices as axes": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    p = ts.tile.program_id(0)
    y[p, tile_n:tile_n + 8] = x[p, tile_n:tile_n + 8]
""", "0 M by pid0", "1 N by tile_n", "0 M by pid0", "1 N by tile_n"),
    "a range over the second dim": kernel("""
(q: Tensor["B*H", "S", "D", f32], o: Tensor["B*H", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        o[i:i + 16] = q[i:i + 16]
""", "1 S by i", "1 S by i"),
    "displaced by another loop": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        acc = ts.tile.zeros((16, D))
        for a in ts.tile.range_k(0, 3):
            acc += q[i + a:i + a + 16]
        o[i:i + 16] = acc
""", "1 S by a, i", "1 S by i"),
    "a range that ends before the dim": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S - 1, 16):
        o[i:i + 16] = q[i:i + 16]
""", "1 S by i", "1 S by i"),
    "a range over blocks": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    for t in ts.tile.range(0, ts.tile.cdiv(S, 16)):
        o[t * 16:t * 16 + 16] = q[t * 16:t * 16 + 16]
""", "1 S by t", "1 S by t"),
    "a range that ends at another counter": kernel("""
(k: Tensor["B", "S", "D", f32], o: Tensor["B", "S", f32]):
    for i in ts.tile.range(0, S, 16):
        total = ts.tile.zeros((16,))
        for j in ts.tile.range(0, i + 16, 16):
            total += ts.tile.row_sum(k[j:j + 16])
        o[i:i + 16] = total
""", "1 S by j", "1 S by i"),
    "an implicit coordinate over the last dim": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    y[tile_n:tile_n + 8] = x[tile_n:tile_n + 8]
""", "1 N by tile_n", "1 N by tile_n"),
    "a number beside what names its dim": kernel("""
(x: Tensor["B", "H", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        y[i:i + 16] = x[0, i:i + 16]
""", "1 S by i", "1 H", "2 S by i"),
    "a computed index beside what names its dim": kernel("""
(x: Tensor["B", "P", "S", "D", f32], table: Tensor["B", int32], y: Tensor["B", "S", "D", f32]):
    for i in ts.tile.range(0, S, 16):
        y[i:i + 16] = x[table[ts.tile.each()], i:i + 16]
""", "1 S by i", "1 P by computed", "0 B by one program each", "2 S by i"),
    "lanes lie along the last axis": kernel("""
(x: Tensor["B", "n", f32], y: Tensor["B", "n", f32]):
    i = ts.tile.linear_id()
    y[i] = x[i]
""", "1 n by i", "1 n by i"),
    "lanes before a slice": kernel("""
(x: Tensor["B", "n", "D", f32], y: Tensor["B", "n", "D", f32]):
    i = ts.tile.linear_id()
    y[i, :] = x[i, :]
""", "1 n by i", "2 D", "1 n by i", "2 D"),
    "the same dim twice": kernel("""
(x: Tensor["B", "S", "S", f32], y: Tensor["B", "S", "S", f32]):
    for i in ts.tile.range(0, S, 8):
        y[i:i + 8] = x[i:i + 8]
""", "1 S by i", "1 S by i"),
    "any rank, one index for each named dim": kernel("""
(x: Tensor["...", "N", f32], y: Tensor["...", "N", f32]):
    p = ts.tile.program_id(0)
    y[p * 8:p * 8 + 8] = x[p * 8:p * 8 + 8]
""", "1 N by pid0", "1 N by pid0"),
    "any rank, fewer indices than named dims": kernel("""
(x: Tensor["...", "S", "D", f32], y: Tensor["...", "S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        y[i:i + 8] = x[i:i + 8]
""", "1 S by i", "1 S by i"),
    "a product of dims": kernel("""
(x: Tensor["B*S", "D", f32], y: Tensor["B*S", "D", f32]):
    for b in ts.tile.range(0, B):
        for i in ts.tile.range(0, S, 8):
            y[b * S + i:b * S + i + 8] = x[b * S + i:b * S + i + 8]
""", "0 B*S by b, i", "0 B*S by b, i"),
    "a slice up to a dim": kernel("""
(k: Tensor["H", "S", "D", f32], o: Tensor["H", "S", f32]):
    o[0:S] = ts.tile.row_sum(k[0:S])
""", "1 S", "1 S"),
    "each, and what it leaves": kernel("""
(x: Tensor["B", "S", "D", f32], y: Tensor["B", "S", "D", f32]):
    p = ts.tile.program_id(0)
    y[ts.tile.each(), p * 8:p * 8 + 8, :] = x[ts.tile.each(), p * 8:p * 8 + 8, :]
""", "0 B by one program each", "1 S by pid0", "2 D", "0 B by one program each", "1 S by pid0", "2 D"),
    "a dim that part of another mentions": kernel("""
(x: Tensor["D//2", "D", f32], y: Tensor["D//2", "D", f32]):
    for i in ts.tile.range(0, D, 8):
        y[0:4, i:i + 8] = x[0:4, i:i + 8]
""", "0 D//2", "1 D by i", "0 D//2", "1 D by i"),
    "a literal dim": kernel("""
(x: Tensor["n", 3, f32]) -> Tensor["n", 3, f32]:
    return x[tile_n:tile_n + 8, :] * 2
""", "0 n by tile_n", "1 3"),
    # refused
    "a program's number": kernel("""
(q: Tensor["B", "S", "D", f32], o: Tensor["B", "S", "D", f32]):
    p = ts.tile.program_id(0)
    o[p * 16:p * 16 + 16, :, :] = q[p * 16:p * 16 + 16]
"""),
    "a counter up to a number": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    for c in ts.tile.range(0, 64, 8):
        y[c:c + 8, :] = x[c:c + 8]
"""),
    "a number alone": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["N", f32]):
    y[tile_n:tile_n + 8] = x[0]
"""),
    "two dims in one index": kernel("""
(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]):
    for i in ts.tile.range(0, M, 8):
        for j in ts.tile.range(0, N, 8):
            y[i:i + 8, j:j + 8] = x[i + j:i + j + 8]
"""),
    "neighbours of which one is elsewhere": kernel("""
(x: Tensor["B", "S", "H", "D", f32], y: Tensor["S", "D", f32]):
    for i in ts.tile.range(0, S, 8):
        for j in ts.tile.range(0, D, 8):
            y[i:i + 8, j:j + 8] = x[i:i + 8, j:j + 8]
"""),
    "a gather alone": kernel("""
(table: Tensor["V", "D", f32], index: Tensor["n", int32], y: Tensor["n", "D", f32]):
    i = ts.tile.linear_id()
    y[i, :] = table[index[i]]
"""),
}  # fmt: skip


def analysed(text: str) -> FileAnalysis:
    file = FileAnalysis("axes.py")
    file.update(text)
    return file


@pytest.mark.parametrize("name", [n for n, k in BY_HAND.items() if k.says])
def test_the_rule_by_hand_is_the_compilers(name: str) -> None:
    (analysis,) = analysed(BY_HAND[name].text).analyses
    assert analysis.ok, [d.render() for d in analysis.diagnostics]
    found = sorted((e for e in analysis.expressions if e.kind == "index"), key=lambda e: (e.span.line, e.span.col))
    assert tuple(f"{e.type.axis} {e.type.label}" for e in found) == BY_HAND[name].says


@pytest.mark.parametrize("name", [n for n, k in BY_HAND.items() if not k.says])
def test_what_is_open_is_refused_with_every_reading(name: str) -> None:
    text = BY_HAND[name].text
    found = [d for d in analysed(text).diagnostics if d.severity == "error"]
    assert [d.code for d in found] == ["TS419"], [d.render() for d in found]
    readings = [line for line in found[0].message.splitlines() if " means " in line]
    assert len(readings) >= 2, found[0].message
    for fix in found[0].fixes:
        assert "TS419" not in [d.code for d in analysed(apply(text, fix)).diagnostics]


def test_both_readings_have_a_fix() -> None:
    text = HEAD + '''def f(x: Tensor["M", "N", f32], at: int32, y: Tensor["M", f32]):
    y[ts.tile.each()] = ts.tile.sum(x[at])
'''
    (found,) = analysed(text).diagnostics
    assert [f.message for f in found.fixes] == ["Let it mean M", "Let it mean N"], found.render()
    assert "ts.tile.sum(x[at, :])" in apply(text, found.fixes[0])
    assert "ts.tile.sum(x[ts.tile.each(), at])" in apply(text, found.fixes[1])
    for fix in found.fixes:
        assert not analysed(apply(text, fix)).diagnostics


def too_many(x: ts.Tensor["n", 3, ts.f32], y: ts.Tensor["n", 3, ts.f32]):
    y[tile_n : tile_n + 8, 0, 0] = x[tile_n : tile_n + 8, :]


def every_batch_to_one_place(x: ts.Tensor["...", "N", ts.f32], y: ts.Tensor["N", ts.f32]):
    for i in ts.tile.range(0, N, 8):
        y[i : i + 8] = x[i : i + 8]


def of_other_lengths(x: ts.Tensor["n", 3, ts.f32], v: ts.Tensor[5, ts.f32], y: ts.Tensor["n", 3, ts.f32]):
    y[tile_n : tile_n + 8, :] = x[tile_n : tile_n + 8, :] * v[:]


def without_annotations(x: ts.Tensor, v: ts.Tensor) -> ts.Tensor:
    return x * v


@pytest.mark.parametrize(
    ("kernel", "shapes", "says"),
    [
        (too_many, [(9, 3), (9, 3)], "2 axes [n, 3]"),
        (every_batch_to_one_place, [(2, 9), (9,)], "programs along batch_2 (2)"),
        (of_other_lengths, [(9, 3), (5,), (9, 3)], "runs along 5, which is not an axis of [8 along tile_n, 3]"),
        (without_annotations, [(4, 6), (5,)], "5"),
    ],
)
def test_messages_show_no_names_of_the_compilers_own(
    kernel: Callable[..., Any], shapes: list[tuple[int, ...]], says: str
) -> None:
    found = check(kernel, *(np.zeros(s, np.float32) for s in shapes)).diagnostics
    assert found
    text = "\n".join(d.render() for d in found)
    own = "\n".join(d.message for d in found)
    assert says in own, text
    assert not re.search(r"\d'\d|%|#\d|'\?", own), text
    assert all(c.isprintable() or c == "\n" for c in own)
