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


HEADS = ts.Tensor["B", "H", "S", 16, ts.f32]


@ts.function
def heads(q: HEADS, k: HEADS, v: HEADS):
    doubled = q * 2.0
    return ts.attention(doubled, k, v, causal=True)


@ts.function
def written(q: ts.Tensor["S", 16, ts.f32], k: ts.Tensor["S", 16, ts.f32]):
    scores = q @ k.T
    return ts.softmax(scores) @ k


def test_kernels_of_tesseras_own_are_named_after_what_the_author_wrote(tmp_path: Path) -> None:
    """And so are their tiles: their lines are lines of the program, also where attention was written out."""
    first = heads.definition().span.line + 2
    other = written.definition().span.line
    x, y = np.ones((1, 2, 64, 16), np.float32), np.ones((64, 16), np.float32)
    gradient = ts.grad(lambda q, k, v: ts.sum(ts.attention(q, k, v)), argnums=(0, 1))
    heads(x, x, x), written(y, y), gradient(x, x, x)  # compiled
    with ts.profiler() as prof:
        heads(x, x, x)
        written(y, y)
        gradient(x, x, x)
    titles = {launch.launch: launch.title for launch in prof.launches()}
    of_heads = f"heads:{first} attention(doubled, k, v)"
    of_written = f"written:{other + 1}-{other + 2} attention(q, k, k)"
    assert {of_heads, of_written} < set(titles.values())
    assert {"gradient of q in attention(q, k, v)", "gradient of k and v in attention(q, k, v)"} < {
        title.partition(" ")[2] for title in titles.values()
    }
    lines = {(titles[tile.launch], tile.line) for tile in prof.tiles()}
    assert {line for title, line in lines if title == of_heads} == {first}
    assert {line for title, line in lines if title == of_written} == {other + 1}
    text = str(prof.summary())
    assert f"  {of_heads}: " in text and f"  {of_written}: " in text
    prof.export_chrome_trace(tmp_path / "trace.json")
    prof.to_html(tmp_path / "page.html")
    prof.export_perfetto(tmp_path / "trace.pftrace")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert set(titles.values()) <= names and "attention_forward" not in names
    page = (tmp_path / "page.html").read_text()
    assert of_heads in page and "attention_forward" not in page
    assert of_heads.encode() in (tmp_path / "trace.pftrace").read_bytes()


def test_long_expressions_are_cut() -> None:
    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):
        return ts.sum(ts.exp(x) * 1.0000001 + ts.sin(x) * 1.0000002 + ts.cos(x) * 1.0000003 + ts.tan(x))

    f(np.ones(4, np.float32))
    assert all(len(k["title"]) <= LONGEST + len("f:1000 …") for k in f.explain().kernels)


def test_an_operator_on_its_own_stands_at_the_line_that_calls_it() -> None:
    """Its code is compiled once, and kept on the disk, for calls of all lines and files."""
    x = ts.tensor(np.ones((40, 40), np.float32))
    ts.exp(x)
    with ts.profiler() as prof:
        here = ts.exp(x)
    (launch,) = prof.launches()
    line = launch.attributes["line"]
    assert launch.attributes["file"] == __file__ and launch.title == f"exp:{line} here = ts.exp(x)"
    assert Path(__file__).read_text("utf-8").splitlines()[line - 1].strip() == "here = ts.exp(x)"
    assert {tile.line for tile in prof.tiles()} == {line} and here.shape == (40, 40)
