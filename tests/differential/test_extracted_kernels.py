"""What "Extract kernel" makes of a function computes what the function did, bit for bit where it does the same."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from lsprotocol import types as lsp
from tessera_lsp.document import Document

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.result import Analysis
from tessera.editor.refactor import Selection, extract_kernel
from tessera.errors import Fix
from tessera.language import dims

HEAD = "import math\n\nimport tessera as ts\nfrom tessera import Tensor, bf16\n\nEPS = 1e-5\n\n\n@ts.function\n"
SIZES = {"B": 2, "H": 3, "S": 37, "T": 20, "D": 70, "F": 90, "N": 300, "n": 5}
NUMBER = itertools.count()


class NothingToDo(Exception):
    """The function only passes an argument on: -(-x)."""


def edited(file: Path, text: str) -> tuple[Analysis, str]:
    """The analysis of the one function of a text, and the text in which its whole body is a kernel."""
    document = Document(lsp.TextDocumentItem(file.as_uri(), "python", 1, text))
    asyncio.run(document.analyse(document.text))
    (known,) = document.known
    first, last = known.span(known.tree.body[0]), known.span(known.tree.body[-1])
    assert first is not None and last is not None
    selection = Selection((first.line, first.col), (last.end_line, last.end_col))
    (offer,) = extract_kernel.offers(document, known, selection)
    if offer.disabled == "a result is one of the arguments as it is":
        raise NothingToDo
    assert not offer.disabled, offer.disabled
    return known.analysis, apply(text, Fix("", offer.edits))


def imported(file: Path, text: str) -> ModuleType:
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def argument(rng: np.random.Generator, shape: tuple[Any, ...] | None, dtype: str, known: dict[str, int] = SIZES) -> Any:
    if not shape:
        return 1.5
    sizes = [d if isinstance(d, int) else dims.evaluate(d, known) for d in shape]
    if dtype.startswith("int"):
        return rng.integers(-5, 6, sizes)
    return rng.standard_normal(sizes).astype(ml_dtypes.bfloat16 if dtype == "bf16" else np.dtype(dtype))


def both(
    folder: Path, text: str, sizes: dict[str, int] = SIZES, prepare: Callable[..., Any] = lambda *args: args
) -> tuple[list[np.ndarray], list[np.ndarray], str]:
    """The results before and after, and the text after. `prepare` may change the arguments."""
    n = next(NUMBER)
    analysis, after = edited(folder / f"before{n}.py", HEAD + text)
    before = imported(folder / f"before{n}.py", HEAD + text)
    kernel = imported(folder / f"after{n}.py", after)
    rng = np.random.default_rng(n)
    names = {"f32": "float32", "f64": "float64", "f16": "float16"}
    args = prepare(*(argument(rng, p.shape, names.get(str(p.dtype), str(p.dtype)), sizes) for p in analysis.params))
    results = [found if isinstance(found, tuple) else (found,) for found in (before.f(*args), kernel.f(*args))]
    return [np.asarray(x) for x in results[0]], [np.asarray(x) for x in results[1]], after


CASES = {
    "numbers": 'def f(x: Tensor["N"], y: Tensor["N"], alpha: ts.f32):\n    z = alpha * x + y\n    return z * z',
    "bias": 'def f(x: Tensor["B", "S", "D"], b: Tensor["D"], s: Tensor["B", "S"]):\n'
    "    return ts.gelu(x + b) * s[:, :, None]",
    "axes of 1": 'def f(x: Tensor["B", "S", "D"], b: Tensor["B", 1, "D"], s: Tensor["S", 1]):\n'
    "    return x * b + s, x + 1",
    "batches": 'def f(x: Tensor["B", "H", "S", "D"], b: Tensor["B", "H"], s: Tensor["H", 1, 1]):\n'
    "    return x * b[:, :, None, None] + s",
    "transposed": 'def f(x: Tensor["S", "D"], y: Tensor["D", "S"]):\n    return x + y.T',
    "square": 'def f(x: Tensor["S", "S"], y: Tensor["S", "S"]):\n    return x + y.T',
    "sizes": 'def f(x: Tensor[40, "D//2"]):\n    return ts.exp(x) - 1e-3',
    "one letter": 'def f(x: Tensor["n", "N"], y: Tensor["n", "N"]):\n    return x + y',
    "softmax": 'def f(x: Tensor["B", "S", "D"]):\n    return ts.softmax(x * 0.125)',
    "row results": 'def f(x: Tensor["S", "D"]):\n    return ts.softmax(x), x.sum(-1), ts.logsumexp(x, axis=-1)',
    "row vectors": 'def f(x: Tensor["S", "D"], g: Tensor["S"]):\n'
    "    return (x - x.mean(-1, keepdim=True)) * g[:, None]",
    "layer_norm": 'def f(x: Tensor["B", "S", "D"], g: Tensor["D"], b: Tensor["D"]):\n    return ts.layer_norm(x, g, b)',
    "layer_norm bf16": 'def f(x: Tensor["B", "S", "D", bf16], g: Tensor["D", bf16], b: Tensor["D", bf16]):\n'
    "    return ts.layer_norm(x, g, b)",
    "rms_norm": 'def f(x: Tensor["S", "D"], eps: float = EPS):\n'
    "    return x * ts.rsqrt((x * x).mean(-1, keepdim=True) + eps) * -EPS",
    "one row": 'def f(x: Tensor["D"]):\n    return ts.softmax(x), x / x.sum()',
    "prefixes": 'def f(x: Tensor["S", "D"]):\n    return ts.cumsum(x, axis=-1) / D',
    "positions": 'def f(x: Tensor["S", "D"]):\n    return x.argmax(axis=-1)',
    "variance": 'def f(x: Tensor["S", "D"]):\n    return x.var(axis=-1), ts.where(x > 0, x, -1.0)',
    "product": 'def f(x: Tensor["S", "D"], w: Tensor["D", "F"], b: Tensor["F"]):\n    return ts.silu(x @ w + b)',
    "residual": 'def f(x: Tensor["B", "S", "D"], w: Tensor["D", "D"]):\n    return x + x @ w',
    "linear": 'def f(x: Tensor["B", "S", "D"], w: Tensor["F", "D"], b: Tensor["F"]):\n    return ts.linear(x, w, b)',
    "two products": 'def f(x: Tensor["B", "S", "D"], g: Tensor["D", "F"], u: Tensor["D", "F"]):\n'
    "    hidden = ts.silu(x @ g) * (x @ u)\n    return hidden",
    "scores": 'def f(q: Tensor["B", "H", "S", "D"], k: Tensor["B", "H", "S", "D"]):\n'
    "    return q @ k.mT / math.sqrt(64)",
    "heads inside": 'def f(q: Tensor["B", "S", "H", "D"], k: Tensor["B", "T", "H", "D"]):\n'
    "    return q.transpose(1, 2) @ k.transpose(1, 2).mT",
    "heads outside": 'def f(p: Tensor["B", "H", "T", "S"], v: Tensor["B", "S", "H", "D"], g: Tensor["H", "D"]):\n'
    '    return ts.einsum("bhts,bshd->bthd", p, v) * g',
    "columns first": 'def f(x: Tensor["S", "D"], w: Tensor["F", "S"]):\n    return ts.einsum("sd,fs->df", x, w)',
    "casts": 'def f(x: Tensor["S", "D"], w: Tensor["D", "F"]):\n    y = x.to(bf16) @ w.to(bf16)\n    return y',
    "f64": 'def f(x: Tensor["S", "D", ts.f64], w: Tensor["D", "F", ts.f64]):\n    return x @ w * 2',
    "integers": 'def f(x: Tensor["S", "D", ts.int64], y: Tensor["S", "D"]):\n'
    "    return x * 0.5 + y, x // 3, (x > 2) & (y < 0.5), x.to(ts.f32) * y",
    "columns of a whole": 'def f(x: Tensor["B", "S", "D"]):\n    return ts.softmax(x, axis=1), x.cumsum(axis=1)',
    "batch_norm": 'def f(x: Tensor["S", "D"], g: Tensor["D"]):\n'
    "    return (x - x.mean(0)) / ts.sqrt(x.var(axis=0) + EPS) * g",
    "positions of columns": 'def f(x: Tensor["S", "D"]):\n    return x.argmax(axis=0)',
    "largest of columns": 'def f(x: Tensor["B", "S", "D"]):\n'
    "    return x.max(1), x.min(1), (x > 2).any(1), (x > -2).all(1)",
    "columns of integers": 'def f(x: Tensor["S", "D", ts.int64]):\n    return x.max(0), x.min(0), x.sum(0)',
    "numbered": 'def f(x: Tensor["S", "D"], y: Tensor["S"]):\n'
    "    rows = ts.arange(S)\n    columns = ts.arange(0, D)\n"
    "    return ts.where(columns < rows[:, None] // 2, x, 0) + y[:, None]",
    "numbered lanes": 'def f(x: Tensor["N"]):\n    return ts.where(ts.arange(N) % 3 == 0, x, -x)',
    "triangles": 'def f(x: Tensor["S", "S"], y: Tensor["B", "S", "D"]):\n    return ts.tril(x) + ts.triu(x, 1) * 2',
    "whole rows of a product": 'def f(x: Tensor["B", "S", "D"], w: Tensor["D", "F"], h: Tensor["B", "S", "F"], '
    'g: Tensor["F"], b: Tensor["F"]):\n    y = h + x @ w\n    return ts.layer_norm(y, g, b)',
    "probabilities": 'def f(q: Tensor["B", "H", "S", "D"], k: Tensor["B", "H", "S", "D"]):\n'
    "    scores = q @ k.mT * 0.125\n"
    "    return ts.softmax(ts.where(ts.arange(S)[:, None] >= ts.arange(S), scores, -math.inf))",
    "interior": 'def f(u: Tensor["S", "D"]):\n'
    "    lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]\n"
    "    return u[1:-1, 1:-1] + 0.1 * lap",
    "differences": 'def f(x: Tensor["N"]):\n    return x[1:] - x[:-1]',
    "rotated": 'def f(x: Tensor["B", "H", "S", "D"], cos: Tensor["S", "D//2"], sin: Tensor["S", "D//2"]):\n'
    "    assert D % 2 == 0\n    a, b = x[..., : D // 2], x[..., D // 2 :]\n"
    "    return ts.concatenate([a * cos - b * sin, b * cos + a * sin], -1)",
    "joined": 'def f(x: Tensor["S", "D"], y: Tensor["S", "F", bf16]):\n'
    "    return ts.concatenate([x * 2, y.to(ts.f32), x], -1), x + 1",
    "halves": 'def f(x: Tensor["S", "D"]):\n    assert D % 2 == 0\n    return ts.silu(x[:, : D // 2]) * x[:, D // 2 :]',
    "thirds": 'def f(x: Tensor["S", 96]):\n    q, k, v = ts.split(x, 3, -1)\n    return ts.softmax(q * k) + v',
    "one of an axis": 'def f(x: Tensor["B", "S", "D"], w: Tensor["D", "F"]):\n    return x[:, 0] @ w',
    "the last one": 'def f(x: Tensor["B", "S", "D"]):\n    return ts.softmax(x[:, -1])',
    "shifted rows": 'def f(x: Tensor["B", "S", "D"]):\n    return x[:, 1:] * 0.5 + x[:, :-1] * 0.5',
    "loops": 'def f(x: Tensor["S", "D"]):\n    a = x.clip(-1.0, 1.0) * D\n    for i in range(3):\n'
    "        a = a * 0.5 + ts.tanh(x) * i\n    return a",
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_the_same_bits(tmp_path: Path, text: str) -> None:
    before, after, _ = both(tmp_path, text + "\n")
    for x, y in zip(before, after, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))


def test_what_is_held_in_bf16_between_is_f32_in_a_kernel(tmp_path: Path) -> None:
    text = 'def f(x: Tensor["S", "D", bf16], w: Tensor["D", "F", bf16]):\n    return ts.relu(x @ w).to(ts.f32)\n'
    (x,), (y,), _ = both(tmp_path, text)
    np.testing.assert_allclose(x, y, rtol=2**-8)
    assert (x != y).any()


UNARY = ("ts.tanh({})", "ts.exp(-ts.abs({}))", "-{}", "ts.silu({})", "ts.sqrt(ts.abs({}))", "({} > 0.25).to(ts.f32)")
BINARY = ("({} + {})", "({} - {})", "({} * {})", "ts.maximum({}, {})", "ts.where({} > 0, {}, 0.5)")
ROWS = ("({0} - {0}.max(axis=-1, keepdim=True))", "{0} / (1 + ts.abs({0}).sum(-1, keepdim=True))", "ts.softmax({0})")
LEAVES = ("x", "y", "row", "column", "2.5", "EPS", "rate")


@st.composite
def chains(draw: Any) -> str:
    """Statements, each of an operator over what there is, with or without a reduction along rows."""
    known, lines = ["x"], list[str]()
    forms = (*UNARY, *BINARY, *BINARY, *(ROWS if draw(st.booleans()) else ()))
    for n in range(draw(st.integers(1, 6))):
        form = draw(st.sampled_from(forms))
        text = form if "{0}" in form else form.replace("{}", "{0}", 1).replace("{}", "{1}", 1)
        operands = [draw(st.sampled_from(known)), draw(st.sampled_from((*known, *LEAVES)))]
        lines.append(f"    v{n} = " + text.format(*operands))
        known.append(f"v{n}")
    results = [*draw(st.lists(st.sampled_from(known[1:]), unique=True, max_size=1)), known[-1]]
    return "\n".join((*lines, f"    return {', '.join(dict.fromkeys(results))}\n"))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(body=chains())
def test_chains(tmp_path: Path, body: str) -> None:
    vectors = 'y: Tensor["S", "D"], row: Tensor["D"], column: Tensor["S", 1]'
    head = f'def f(x: Tensor["B", "S", "D"], {vectors}, rate: ts.f32):\n'
    try:
        before, after, text = both(tmp_path, head + body)
    except NothingToDo:
        reject()
    for x, y in zip(before, after, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), text
        np.testing.assert_array_equal(x, y, text)
