"""Shapes that the front end says without running anything, against those of the same text on NumPy.

A hint, evaluated at sizes for which the launch checks hold, is the shape that NumPy gets; what has no finding runs; and
what has one fails on NumPy for some sizes.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.types import TensorType
from tessera.language import dims

SHAPES = {"x": "BS", "y": "SD", "z": "BSD", "w": "D", "u": "BS"}
FACTS = (
    "",
    "",
    "assert S % 2 == 0",
    "assert D % 4 == 0 and S % 2 == 0",
    "assert S >= 8",
    "assert D >= S",
    "assert B == D",
)
SIZES = (6, 7, 8, 9, 10, 11, 12, 16)
RANK = 4


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


ON_NUMPY = types.SimpleNamespace(**{n: getattr(np, n) for n in (
    "stack", "pad", "roll", "flip", "where", "einsum", "outer", "cumsum", "repeat", "split", "tanh", "maximum",
    "clip", "arange", "zeros", "take", "expand_dims", "swapaxes", "broadcast_to", "take_along_axis", "argmax",
)}, concat=np.concatenate, softmax=softmax, norm=np.linalg.norm,
    one_hot=lambda i, n: np.eye(n, dtype=np.float32)[i % n])  # fmt: skip

# What may be made of a value `v` of rank `r` with axis `a` and a small number `n`; `o` is any other value.
ANY = (
    "ts.tanh({v})", "{v} * 2 - 1", "{v}[None]", "{v}[..., None]", "{v}.reshape(-1)", "{v} + {o}",
    "{v} * {o}", "ts.where({v} > 0, {v}, {o})", "ts.maximum({v}, {o})",
)  # fmt: skip
WITH_AXES = (
    "{v}[{n}:]", "{v}[:-{n}]", "{v}[{n}]", "{v}[-{n}]", "{v}[::2]", "{v}[1::3]", "{v}[::-1]", "{v}[..., ::2]",
    "{v}[: {v}.shape[0] // 2]", "{v}[{v}.shape[0] // 2 :]", "{v}[-{n}:]", "{v}[{n} : {v}.shape[0] - {n}]", "{v}[:{n}]",
    "{v}[..., :{n}]", "{v}.mean(axis={a})", "{v}.sum(axis={a}, keepdims=True)", "{v}.max(axis={a})",
    "{v}.argmax(axis={a})", "ts.norm({v}, axis={a})", "{v}.cumsum(axis={a})", "ts.softmax({v}, axis={a})",
    "{v}.var(axis={a}, keepdims=True)", "ts.concat([{v}, {v}], axis={a})", "ts.concat([{v}, {o}], axis={a})",
    "ts.stack([{v}, {o}], axis={a})", "ts.stack([{v}, {v}, {v}], axis={a})", "ts.pad({v}, {n})", "{v}.T",
    "ts.roll({v}, {n}, axis={a})", "ts.flip({v}, axis={a})", "ts.repeat({v}, {n}, axis={a})",
    "ts.split({v}, 2, axis={a})[1]", "ts.split({v}, [1], axis={a})[1]", "ts.expand_dims({v}, {a})",
    "{v}.reshape({v}.shape[0], -1)", "{v}.reshape(-1, {v}.shape[-1])", "{v}.reshape(-1, 2)",
    "{v}.reshape((*{v}.shape[:-1], {v}.shape[-1] // 2, 2))", "{v}.reshape({v}.shape[::-1])", "{v} @ {o}",
    "ts.outer({v}.reshape(-1), {o}.reshape(-1))", "ts.einsum('...i,...i->...', {v}, {v})", "{v}[..., 0]",
    "ts.einsum('...i,...j->...ij', {v}, {o})", "ts.one_hot({v}.argmax(axis={a}), {n} + 3)", "{v}[ts.arange({n}) * 0]",
    "{v} + ts.arange({v}.shape[-1])", "ts.zeros({v}.shape) + {v}", "{v} - {v}.mean(axis={a}, keepdims=True)",
    "{v} / {v}.sum(axis={a})", "ts.broadcast_to({v}[:1], {v}.shape)", "{v} + {v}[::2]", "{v}[1:] - {v}[:-1]",
    "ts.take({v}, ts.arange({n}) * 0, axis={a})", "{v}.reshape({v}.shape[0] // 2, 2, -1)", "{v}[{v}.shape[0] // 3]",
    "{v}[: ({v}.shape[0] + 1) // 2] + {v}[::2]", "{v} + {v}[: {v}.shape[0] // 2]",
    "ts.concat([{v}[{n}:], {v}[:{n}]], axis=0) * {v}",
)  # fmt: skip
WITH_TWO = (
    "{v}.mT", "{v} @ {v}.mT", "{v}.mT @ {v}", "{v}[:, None]", "{v}[:, {n}:]", "{v}[1:-1, 1:-1]",
    "ts.swapaxes({v}, 0, {a})", "{v}.sum(axis=(0, -1))", "{v}[:, 0]", "{v}[..., 0, :]", "{v} @ {o}.mT",
    "{v}[:, ::2] + {v}[:, 1::2]", "{v}[2:, 1:-1] + {v}[1:-1, 2:]", "ts.einsum('ij...->ji...', {v})",
    "ts.einsum('...ij,...kj->...ik', {v}, {o})", "{v}[:, ::-1]", "{v} + {v}.mT", "{v}.sum(axis=-1)[..., None] * {v}",
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, str]:
    """A function's lines, one assignment each, and what it asserts."""
    names, lines = list(SHAPES), list[str]()
    for i in range(draw(st.integers(1, 8))):
        v, o = (draw(st.sampled_from(names)) for _ in range(2))
        kind = draw(st.sampled_from([ANY, WITH_AXES, WITH_AXES, WITH_TWO]))
        form, a, n = draw(st.sampled_from(kind)), draw(st.sampled_from((0, -1, 1))), draw(st.integers(1, 3))
        lines.append(f"v{i} = " + form.format(v=v, o=o, a=a, n=n))
        names += [f"v{i}"] * 2
    return "\n    ".join(lines), draw(st.sampled_from(FACTS))


def read(body: str, fact: str) -> Analysis:
    parameters = ", ".join(f"{n}: Tensor[{', '.join(map(repr, s))}]" for n, s in SHAPES.items())
    file = FileAnalysis("program.py")
    file.update(
        f"import tessera as ts\nfrom tessera import Tensor\n\n@ts.function\ndef f({parameters}):\n"
        f"    {fact or 'pass'}\n    {body}\n    return x\n"
    )
    (a,) = file.analyses
    return a


def sizes(fact: str, seed: int) -> Iterator[dict[str, int]]:
    """Sizes that satisfy the fact: distinct ones where it leaves them so."""
    rng = np.random.default_rng(seed)
    condition = compile(fact.removeprefix("assert ") or "True", "fact", "eval")
    found = 0
    while found < 5:
        env = dict(zip("BSD", (int(n) for n in rng.choice(SIZES, 3, replace="B == D" in fact)), strict=True))
        if eval(condition, {}, env):
            found += 1
            yield env


def run(body: str, env: dict[str, int]) -> tuple[dict[str, Any], int | None]:
    """The values on NumPy, and the number of the line that fails; -1 where nothing is to be learned."""
    values: dict[str, Any] = {n: np.ones([env[d] for d in s], np.float32) for n, s in SHAPES.items()}
    for i, line in enumerate(body.split("\n")):
        try:
            exec(line.strip(), {"ts": ON_NUMPY}, values)
        except (ValueError, IndexError, np.exceptions.AxisError, TypeError):
            return values, i
        if not np.ndim(values[f"v{i}"]) or np.size(values[f"v{i}"]) > 5000:
            return values, -1  # NumPy takes axis=0 of a number, and refuses what does not fit into memory
    return values, None


def asked(a: Analysis, env: dict[str, int]) -> bool:
    """Whether the launch checks hold."""
    return all(dims.evaluate(c.left, env) == dims.evaluate(c.right, env) for c in a.checks)


@given(programs(), st.integers(0, 9))
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_hints_are_the_shapes_of_a_run(program: tuple[str, str], seed: int) -> None:
    body, fact = program
    a = read(body, fact)
    hints = {e.name: e.type for e in a.expressions if e.kind == "assign"}
    errors = [d for d in a.diagnostics if d.severity == "error"]
    wrong = min((d.span.line - 7 for d in errors), default=None)
    failures: list[int | None] = []
    for env in sizes(fact, seed):
        try:
            if not asked(a, env):
                continue
        except dims.DimError:
            continue
        values, failed = run(body, env)
        if failed == -1:
            return
        failures.append(failed)
        assert failed is None or (wrong is not None and wrong <= failed), f"not found at {env}: line {failed}"
        for name, type in hints.items():
            if isinstance(type, TensorType) and name in values:
                assert tuple(dims.evaluate(d, env) for d in type.shape) == np.shape(values[name]), (name, type, env)
    if wrong is not None and failures:
        assert any(f is not None for f in failures), f"a false alarm: {errors[0].render()}"
