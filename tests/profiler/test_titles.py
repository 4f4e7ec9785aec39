"""Kernels are called what a reader of the program would call them: where an expression stands, and its text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tessera as ts
from tessera.runtime.code.plan import LONGEST


@ts.function
def attend(q: ts.Tensor["S", "D", ts.f32], k: ts.Tensor["S", "D", ts.f32], v: ts.Tensor["S", "D", ts.f32]):
    scores = (q @ k.T) / D**0.5
    return ts.softmax(scores) @ v, scores  # read by the caller, so that this is not one kernel of attention


@ts.kernel
def doubled(x: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.f32]:
    return x[ts.tile.linear_id()] * 2


@ts.function
def twice(x: ts.Tensor["S", "S", ts.f32]):
    return same(x) + same(x.T @ x), ts.grad(lambda x: ts.sum(x @ x))(x)


def same(x):
    return (
        ts.softmax(x)
    )  # fmt: skip


LINE = Path(__file__).read_text().splitlines().index("    scores = (q @ k.T) / D**0.5")  # that of `def attend`


def test_titles_say_where_and_what(tmp_path: Path) -> None:
    x = np.ones((64, 16), np.float32)
    with ts.profiler() as prof:
        attend(x, x, x)
        doubled(np.ones(8, np.float32))
    titles = {launch.title for launch in prof.recording.launches}
    expected = {f"attend:{LINE + 1} q @ k.T", f"attend:{LINE + 2} ts.softmax(scores)"}
    assert titles == {*expected, f"attend:{LINE + 2} ts.softmax(scores) @ v", "doubled"}
    text = str(prof.summary())
    assert all(f"  {title}: " in text for title in titles) and "attend_0" not in text
    prof.export_chrome_trace(tmp_path / "trace.json")
    names = {e["name"] for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"}
    assert titles <= names


def test_explanations_give_the_kernels_name_too() -> None:
    """IR and machine code know it by that."""
    x = np.ones((64, 16), np.float32)
    attend(x, x, x)
    assert f"attend:{LINE + 1} q @ k.T = attend_0_contract_div: contract+div" in str(attend.explain())


def test_kernels_of_one_expression_are_numbered() -> None:
    x = np.ones((64, 64), np.float32)
    twice(x)
    titles = [k["title"] for k in twice.explain().kernels]
    assert len(set(titles)) == len({k["kernel"] for k in twice.explain().kernels})
    assert any(t.endswith("(2)") for t in titles), titles


def test_long_expressions_are_cut() -> None:
    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return ts.sum(ts.exp(x) * 1.0000001 + ts.sin(x) * 1.0000002 + ts.cos(x) * 1.0000003 + ts.tan(x))

    f(np.ones(4, np.float32))
    assert all(len(k["title"]) <= LONGEST + len("f:1000 …") for k in f.explain().kernels)
