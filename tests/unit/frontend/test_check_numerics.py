"""Numerics warnings: their fixes compute the same, what is between bounds stays quiet, and `tessera check` says so."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.checks.ranges import Ranges
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.types import TensorType
from tests.frontend_harness import golden

PROGRAM = Path(__file__).parents[2] / "errors/programs/numerics.py"
HEAD = "import tessera as ts\nfrom tessera import Tensor, f16, bf16, f32, fp8_e4m3\n\n@ts.function\n"


def read(text: str) -> list[Analysis]:
    file = FileAnalysis("model.py")
    file.update(text)
    assert not file.problems
    return file.analyses


def codes(body: str, parameters: str = 'x: Tensor["B", "D"]') -> list[str]:
    (a,) = read(f"{HEAD}def f({parameters}):\n    return {body}\n")
    assert a.ok, a.diagnostics
    return [d.code for d in a.diagnostics]


def computed(a: Analysis) -> list[Any]:
    """The function on numbers near 1, with sizes 6, 7, 8 ... in order of appearance."""
    rng, sizes = np.random.default_rng(3), {}
    types: dict[str, Any] = {}
    arrays = []
    for p in a.params:
        shape = tuple(d if isinstance(d, int) else sizes.setdefault(str(d), 6 + len(sizes)) for d in p.shape or ())
        types[p.name] = TensorType(shape, p.dtype)
        kind = bool if p.dtype.kind == "bool" else p.dtype.numpy
        arrays.append((rng.random(shape) + 0.5).astype(kind))
    known = analyse(a.definition, types)
    assert known.op is not None
    with np.errstate(all="ignore"):
        return [np.asarray(v, np.float64) for v in evaluate(known.op, arrays)]


FIXED = [(a, d) for a in read(PROGRAM.read_text()) for d in a.diagnostics if d.fixes]


@pytest.mark.parametrize("a, d", FIXED, ids=[f"{d.function}-{d.span.line}" for _, d in FIXED])
def test_a_fix_computes_the_same(a: Analysis, d: Any) -> None:
    after = next(b for b in read(apply(PROGRAM.read_text(), d.fixes[0])) if b.name == a.name)
    assert len(after.diagnostics) < len(a.diagnostics)
    for old, new in zip(computed(a), computed(after), strict=True):
        np.testing.assert_allclose(old, new, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("rest", ["", " ** 2", ".max(axis=1)", "[0]", " * 2", " - x"])
def test_a_fix_that_is_an_expression_keeps_its_place(rest: str) -> None:
    text = f'{HEAD}def f(x: Tensor["B", "D"]):\n    return ts.log(ts.sigmoid(x)){rest}\n'
    (a,) = read(text)
    (d,) = a.diagnostics
    (mended,) = read(apply(text, d.fixes[0]))
    assert not mended.diagnostics
    np.testing.assert_allclose(computed(mended)[0], computed(a)[0], rtol=1e-5)


def test_no_softmax_is_offered_for_a_quotient_by_other_sums() -> None:
    for axis, offered in ((0, True), (1, False)):
        body = f"ts.exp(x) / ts.sum(ts.exp(x), axis={axis})"
        (a,) = read(f'{HEAD}def f(x: Tensor["N", "N"]):\n    return {body}\n')
        (d,) = a.diagnostics
        assert d.code == "TS312" and bool(d.fixes) is offered


def test_no_variance_is_offered_for_means_of_different_shapes() -> None:
    for kept, offered in ((", keepdim=True", True), ("", False)):
        body = f"(x * x).mean(axis=1, keepdim=True) - x.mean(axis=1{kept}) ** 2"
        (a,) = read(f'{HEAD}def f(x: Tensor["N", "M"]):\n    return {body}\n')
        (d,) = a.diagnostics
        assert d.code == "TS314" and bool(d.fixes) is offered


def test_the_fixes_mend_what_they_are_about() -> None:
    def stable(x):
        return ts.softmax(x, axis=-1), ts.expm1(x * 1e-6), 2 * ts.sin(x * 1e-6 / 2) ** 2

    x = np.array([[100.0, 200.0, 300.0]], np.float32)
    weights, small, cosine = golden(stable, x)
    np.testing.assert_allclose(weights, [[0, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(small, np.expm1(x.astype(np.float64) * 1e-6), rtol=1e-6)
    np.testing.assert_allclose(cosine, 1 - np.cos(x.astype(np.float64) * 1e-6), rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_hypot(dtype: Any) -> None:
    def f(x, y):
        return ts.hypot(x, y)

    top = float(np.finfo(dtype).max) / 2
    values = [0.0, 1.0, -3.0, 4.0, top, -top, math.inf, -math.inf, math.nan, float(np.finfo(dtype).tiny)]
    x, y = (v.astype(dtype) for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(golden(f, x, y), np.hypot(x, y), rtol=2e-3 if dtype == np.float16 else 1e-6)
    np.testing.assert_allclose(np.asarray(ts.function(f)(x, y)), golden(f, x, y), rtol=2e-3)


@pytest.mark.parametrize(
    "body, want",
    [
        ("ts.exp(ts.clip(x, -5.0, 5.0)) / ts.exp(ts.clip(x, -5.0, 5.0)).sum()", []),
        ("ts.exp(ts.clip(x, -500.0, 500.0)) / ts.exp(ts.clip(x, -500.0, 500.0)).sum()", ["TS312"]),
        ("ts.exp(-x * x) / ts.exp(-x * x).sum()", []),
        ("ts.exp(-0.5 * x * x / 2.0) / ts.exp(-0.5 * x * x / 2.0).sum()", []),
        ("ts.exp(0.5 * x * x) / ts.exp(0.5 * x * x).sum()", ["TS312"]),
        ("ts.exp(x / 8) / ts.exp(x / 8).sum()", ["TS312"]),
        ("ts.exp(ts.log_softmax(x)) / ts.exp(ts.log_softmax(x)).sum()", []),
        ("x / (x * x + 1).sum()", []),
        ("x / ts.sqrt(ts.mean(ts.square(x)) + 1e-8)", []),
        ("x / ts.maximum(ts.norm(x), 1e-8)", []),
        ("x / ts.norm(x, ord=1)", ["TS316"]),
        ("ts.log(ts.mean(ts.abs(x)))", ["TS315"]),
        ("ts.log(ts.mean(ts.abs(x) + 1e-3))", []),
        ("ts.log2(ts.sum(ts.softplus(x)))", []),
        ("x / ts.clip(x, min=3.0).sum()", []),
        ("x / ts.clip(x, max=3.0).sum()", []),
        ("x / ts.clip(x, 1.0, 3.0).sum()", []),
        ("x / ts.clip(x, 1.0, 0.0).sum()", ["TS316"]),
        ("x / ts.softmax(x).sum()", []),
        ("x / ts.stack([ts.softmax(x), ts.softmax(-x)]).sum()", []),
        ("x / ts.where(x > 0, ts.softmax(x), 0.5).sum()", []),
        ("x / ts.where(x > 0, ts.softmax(x), 0.0).sum()", ["TS316"]),
    ],
)
def test_what_bounds_a_value(body: str, want: list[str]) -> None:
    assert codes(body) == want


def test_a_number_that_its_dtype_does_not_hold() -> None:
    for dtype, eps, want in (("f16", 1e-8, ["TS316"]), ("f16", 1e-6, []), ("f32", 1e-8, []), ("bf16", 1e-38, [])):
        assert codes(f"x / (ts.norm(x) + {eps})", f'x: Tensor["B", {dtype}]') == want, (dtype, eps)


@given(st.recursive(st.sampled_from(["x", "0.5", "-2.0"]), lambda e: st.one_of(
    st.tuples(st.sampled_from(["abs", "tanh", "sigmoid", "relu", "exp", "sqrt", "square", "neg", "cos"]), e),
    st.tuples(st.sampled_from(["add", "sub", "mul", "maximum", "minimum", "div"]), e, e),
), max_leaves=6), st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4))  # fmt: skip
def test_ranges_hold_what_is_computed(tree: Any, values: list[float]) -> None:
    def text(e: Any) -> str:
        return e if isinstance(e, str) else f"ts.{e[0]}({', '.join(map(text, e[1:]))})"

    (a,) = read(f"{HEAD}def f(x: Tensor[4]):\n    return {text(tree)} + 0.0 * x\n")
    if a.op is None:
        return  # an operator of numbers alone is ordinary Python
    value = a.op.region.block.terminator.operands[0]
    low, high = Ranges().of(value)
    with np.errstate(all="ignore"):
        (found,) = evaluate(a.op, [np.array(values, np.float32)])
    kept = found[np.isfinite(found)]
    assert np.all(kept >= low * (1 + 1e-5 * np.sign(-low or 1)) - 1e-5), (low, kept)
    assert np.all(kept <= high * (1 + 1e-5 * np.sign(high or 1)) + 1e-5), (high, kept)


@pytest.mark.parametrize("where", ["tessera/kernels", "examples/tour.tess", "tests/seeds/kernels.py"])
def test_right_programs_draw_no_warning(where: str) -> None:
    """But for the quick start's attention, which rescales its sum twice."""
    root = Path(__file__).parents[3] / where
    for path in sorted(root.glob("*.py")) if root.is_dir() else [root]:
        found = {d.code for a in read(path.read_text()) for d in a.diagnostics if d.severity == "warning"}
        assert found <= {"TS311"}, (path, found)


def test_comments_that_ignore() -> None:
    line = "return ts.exp(x) - 1"
    for comment, want in (
        ("", ["TS314"]), ("# tessera: ignore", []), ("# tessera: ignore[TS314]", []),
        ("#tessera:ignore[TS316,TS314]", []), ("# tessera: ignore[TS316]", ["TS314"]), ("# ignore", ["TS314"]),
        ("# tessera: ignore [TS316]", ["TS314"]), ("# tessera: ignore [TS314]", []),
        ("# tessera: ignore[TS316", ["TS314"]), ("# tessera: ignored before", ["TS314"]),
    ):  # fmt: skip
        (a,) = read(f'{HEAD}def f(x: Tensor["B"]):\n    {line}  {comment}\n')
        assert [d.code for d in a.diagnostics] == want, comment
    (a,) = read(f'{HEAD}def f(x: Tensor["B"]):\n    return x + absent  # tessera: ignore\n')
    assert [d.code for d in a.diagnostics] == ["TS103"], "an error stays"


def test_ignored_findings_move_with_their_line() -> None:
    file = FileAnalysis("model.py")
    text = f'{HEAD}def f(x: Tensor["B"]):\n    return ts.exp(x) - 1  # tessera: ignore\n'
    file.update(text)
    assert not file.diagnostics
    file.update("\n\n" + text)
    assert not file.diagnostics
    file.update(text.replace("  # tessera: ignore", ""))
    assert [d.code for d in file.diagnostics] == ["TS314"]


def test_a_mistake_elsewhere_does_not_hide_a_warning() -> None:
    (a,) = read(f'{HEAD}def f(x: Tensor["B"]):\n    y = ts.exp(x) - 1\n    return y + absent\n')
    assert sorted(d.code for d in a.diagnostics) == ["TS103", "TS314"]
    assert next(d for d in a.diagnostics if d.code == "TS314").fixes


def test_every_rule_is_found_by_the_compiler_too() -> None:
    """Live objects are checked like text, and a warning keeps nothing from being compiled."""

    @ts.function
    def f(x: ts.Tensor["B", "D"]):
        return x / ts.norm(x)

    from tessera.compiler.frontend.names.live import live_definition

    found = analyse(replace(live_definition(f), kind="function"))
    assert [d.code for d in found.diagnostics] == ["TS316"] and found.op is not None
    np.testing.assert_allclose(np.asarray(f(np.full((1, 4), 2.0, np.float32))), 0.5)


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tessera", "check", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("step", ["x * x", "ts.exp(x - x)", "ts.maximum(x, x) / (x + x)", "ts.where(x > x, x, x)"])
def test_long_chains_are_looked_at_briefly(step: str) -> None:
    """Each step uses the one before twice: what looks at every path would never end."""
    lines = "".join(f"    x = {step}\n" for _ in range(200))
    (a,) = read(f'{HEAD}def f(x: Tensor["B"]):\n{lines}    return ts.exp(x) / ts.exp(x).sum(), x / ts.norm(x)\n')
    assert a.op is not None


def test_a_helper_in_another_file(tmp_path: Path) -> None:
    """It is found once, where it stands, with the place that uses it; other functions of the folder see the same."""
    (tmp_path / "layers.py").write_text("import tessera as ts\n\n\ndef unit(x):\n    return x / ts.norm(x)\n")
    (tmp_path / "model.py").write_text(
        f'from layers import unit\n{HEAD}def f(x: Tensor["B"]):\n    y = x * 2\n    return unit(y) + 1\n'
        '\n\n@ts.function\ndef g(x: Tensor["B"]):\n    return unit(x)\n'
    )
    (d,) = json.loads(check(tmp_path, "--json").stdout)["diagnostics"]
    assert (d["code"], d["file"], d["line"], d["fixes"]) == ("TS316", "layers.py", 5, [])
    (note,) = [n for n in d["notes"] if n["message"] == "its result is used here"]
    assert (note["file"], note["line"]) == ("model.py", 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("project")
    (out / "model.py").write_text(
        f'{HEAD}def f(x: Tensor["B", "D", f16]):\n    return x / x.abs().mean(axis=-1, keepdim=True)\n'
    )
    (out / "other.py").write_text("print 'another language'\n")
    for name in (".hidden", "node_modules"):
        (out / name).mkdir()
        (out / name / "model.py").write_text("import tessera\nthis is not Python\n")
    return out


def test_check_reads_the_folder_it_stands_in(folder: Path) -> None:
    done = check(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TS316" in done.stdout and done.stdout.strip().endswith("no errors, 1 warning in 1 file")
    assert check(folder, "--strict").returncode == 1
    assert check(folder, "other.py").returncode == 1, "a file that is named is read"
    assert check(folder, ".", "model.py").stdout == done.stdout, "it is read once"


def test_sums_of_what_cannot_be_compiled_yet(tmp_path: Path) -> None:
    """Also those in loops over who knows how many; what several functions inline is one line."""
    (tmp_path / "model.py").write_text(
        f'{HEAD}def norm(x: Tensor["...", "D"]):\n    return x / (x.abs().sum(-1, keepdim=True) + 1)\n\n\n'
        '@ts.function\ndef f(x: Tensor["B", "D"], ws: list[Tensor["D", "D", bf16]]):\n'
        "    for w in ws:\n        x = norm(x @ w)\n        x = ts.exp(x * 100) / ts.exp(x * 100).sum()\n"
        "    return norm(x) / D**0.5\n"
    )
    found = json.loads(check(tmp_path, "--numerics", "--json").stdout)
    assert [(s["line"], s["text"], s["type"]) for s in found["numerics"]] == [
        (6, "x.abs().sum(-1, keepdim=True)", "f32 summed in f32"),
        (12, "x @ w", "f32 summed in f32"),
        (13, "ts.exp(x * 100).sum()", "f32 summed in f32"),
    ]
    assert [(d["code"], d["line"]) for d in found["diagnostics"]] == [("TS312", 13)]


def test_check_lists_sums(folder: Path) -> None:
    done = check(folder, "--numerics", "--shapes")
    assert "model.py:6: x.abs().mean(axis=-1, keepdim=True): f16 summed in f32, rounded to f16" in done.stdout
    assert "model.py:5: x: [B, D] f16" in done.stdout
    found = json.loads(check(folder, "--numerics", "--json").stdout)
    (item,) = found["numerics"]
    assert (item["line"], item["column"], item["type"]) == (6, 16, "f16 summed in f32, rounded to f16")
    assert found["diagnostics"][0]["severity"] == "warning" and "shapes" not in found
