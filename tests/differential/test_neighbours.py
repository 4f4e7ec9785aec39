"""Programs that read their values at other places: slices, rolls, paddings and concatenations of computed values.

They are computed part by part, and again for each slice, without a value in memory on the way. Each operator rounds as
NumPy's does, so that results are NumPy's to the bit, and so are the gradients' of linear programs.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.machines import Peaks
from tessera.compiler.schedule import graph_to_schedule
from tests.conftest import require

EXPRESSIONS = [
    "{0} - ts.roll({1}, 1, 0)",
    "ts.roll({0} * 0.5, -1, 1) + {1}",
    "ts.roll(ts.roll({0}, 2, 0), 1, 1) - {0}",
    "ts.concat([{0}[1:] - {0}[:-1], {1}[:1]], axis=0)",
    "ts.concat([-{0}[:, 2:], {1}[:, :2]], axis=1) + {0}[:1]",
    "ts.concat([{0}, {1}], axis=0)[1:-1][:{0}.shape[0]] * {1}[0, 0] + {0}",
    "ts.pad({0}, 1)[2:, 1:-1] + ts.pad({1}, 1, value=3)[:-2, 1:-1] - {0}[:, :1]",
    "ts.pad({0}[:, 1:] + {0}[:, :-1], ((0, 0), (0, 1)), value=2) - {1}",
    "ts.stack([{0} * 0.5, {1}])[1] + ts.stack([{0}, {1}], axis=2)[:, :, 0]",
    "ts.where({0} > ts.roll({1}, 2, 1), {0}, -{1})",
    "ts.abs({0})[::-1] - {1}",
    "ts.max(ts.concat([{0}, {1} * 2], axis=0), axis=0) - {0}",
    "ts.maximum({0}, ts.pad({1}, ((1, 0), (0, 0)))[:-1])",
    "2 * {0} - {1}",
    "ts.concat([{0}, {1}], axis=1).reshape(2 * {0}.shape[0], -1)[1::2] * 0.25",
]
NAMES = ("a", "b")
NUMPY = SimpleNamespace(
    roll=np.roll, concat=lambda xs, axis: np.concatenate(xs, axis), stack=np.stack, where=np.where, abs=np.abs,
    max=np.max, maximum=np.maximum,
    pad=lambda x, width, value=0: np.pad(x, width, constant_values=value),
)  # fmt: skip
COUNT = itertools.count()
EAGER = Peaks(100, 20, 0)
"""launches that cost nothing, so that everything is computed in pieces"""

steps = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, len(EXPRESSIONS) - 1), *[st.sampled_from(NAMES)] * 2),
    min_size=1, max_size=5,
)  # fmt: skip


def text(program: Any, name: str, seen: bool) -> str:
    lines = [f"def {name}(a, b):"]
    for k, (to, i, x, y) in enumerate(program):
        lines += [f"    {to} = {EXPRESSIONS[i].format(x, y)}", f"    seen{k} = {to}"]
    results = [*(f"seen{k}" for k in range(len(program) - 1) if seen), "a", "b"]
    return "\n".join([*lines, f"    return {', '.join(results)}", ""])


def made(source: str, name: str, scope: Any, folder: Any) -> Any:
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    names: dict[str, Any] = {"ts": scope, "__name__": name}
    exec(compile(source, str(path), "exec"), names)
    return names[name]


def check(program: Any, shape: tuple[int, int], seen: bool, folder: Any) -> None:
    """Asserts that a program's results are NumPy's."""
    name = f"neighbours{next(COUNT)}"
    source = text(program, name, seen)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for _ in NAMES)
    wanted = made(source, name, NUMPY, folder)(a, b)
    found = ts.function(made(source, name, ts, folder))(a, b)
    for k, (x, y) in enumerate(zip(found, wanted, strict=True)):
        np.testing.assert_array_equal(np.asarray(x), y, f"result {k} of\n{source}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    return tmp_path_factory.mktemp("programs")


@settings(max_examples=60)
@given(steps, st.sampled_from([(5, 4), (7, 6), (3, 9)]), st.booleans(), st.booleans())
def test_random_programs(folder: Any, program: Any, shape: tuple[int, int], seen: bool, eager: bool) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TESSERA_TARGET", "reference")  # is told of races, and compiles quickly
        if eager:
            monkeypatch.setattr(graph_to_schedule, "peaks_of", lambda target: EAGER)
        check(program, shape, seen, folder)


CHOSEN = [("a", 0, "a", "a"), ("b", 4, "a", "b"), ("a", 6, "a", "b"), ("b", 1, "b", "a"), ("a", 3, "b", "a")]


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80", "emulator:sm_90a"])
def test_targets(target: str, folder: Any, monkeypatch: Any) -> None:
    if target.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target)
    monkeypatch.setattr(graph_to_schedule, "peaks_of", lambda target: EAGER)
    check(CHOSEN, (21, 34), True, folder)


def rotary(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + ts.concat([-x[..., half:], x[..., :half]], axis=-1) * sin


def sobel(x):
    across, down = x[:, 2:] - x[:, :-2], x[2:] - x[:-2]
    a, b = across[:-2] + 2 * across[1:-1] + across[2:], down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
    return ts.sqrt(a * a + b * b)


def heat(x):
    return x + 0.2 * (ts.roll(x, 1, 0) + ts.roll(x, -1, 0) + ts.roll(x, 1, 1) + ts.roll(x, -1, 1) - 4 * x)


def padded(x):
    y = ts.pad(x, 1)
    return y[2:, 1:-1] + y[:-2, 1:-1] + y[1:-1, 2:] + y[1:-1, :-2] - 4 * x


def parts(x, w):
    return ts.concat([x @ w, ts.softmax(x), ts.exp(x)], axis=1)


def columns(x):
    return ts.stack([ts.sin(x), ts.cos(x)], axis=-1)


def read_twice(x):
    y = ts.exp(x)
    return ts.concat([y, y], axis=0), y


def slope(x):
    return ts.grad(lambda x: ts.sum(ts.square(x[1:] - x[:-1])))(x)


def rounds(x, n: ts.Int):
    for _ in ts.range(n):
        x = ts.concat([x[1:] * 0.5, x[:1] + 1.0], axis=0)
    return x


@pytest.mark.parametrize(
    ("f", "shapes", "count"),
    [
        (rotary, [(4, 96, 64), (96, 64), (96, 64)], 1),
        (sobel, [(130, 140)], 1),
        (heat, [(120, 140)], 4),  # the inside, rows and columns at the edges, corners
        (padded, [(120, 140)], 4),
        (parts, [(60, 40), (40, 8)], 2),
        (columns, [(500,)], 1),
        (read_twice, [(500,)], 3),  # what is read elsewhere too is copied to both of its places
        (slope, [(500, 40)], 2),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_nothing_is_copied(f: Any, shapes: list[tuple[int, ...]], count: int) -> None:
    """How many kernels a program has: none of them puts together what others have computed."""
    given = [np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)]
    function = ts.function(f)
    found = function(*given)
    assert function.ir("tile").count("func ") == count
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TESSERA_TARGET", "reference")
        monkeypatch.setattr(graph_to_schedule, "compute_by_parts", lambda *_: {})
        monkeypatch.setattr(graph_to_schedule, "compute_again", lambda *_: {})
        wanted = ts.function(f)(*given)
    for x, y in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-6, atol=2e-6)


def test_what_a_loop_carries() -> None:
    x = np.arange(700, dtype=np.float32).reshape(100, 7)
    found = np.asarray(ts.function(rounds)(x, 5))
    for _ in range(5):
        x = np.concatenate([x[1:] * np.float32(0.5), x[:1] + 1])
    np.testing.assert_array_equal(found, x)


def steps_of_heat(xp: Any, x: Any, steps: int) -> Any:
    """The outermost elements stay as they are."""
    for _ in range(steps):
        inner = 0.5 * x[1:-1, 1:-1] + 0.125 * (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
        middle = xp.concat([x[1:-1, :1], inner, x[1:-1, -1:]], axis=1)
        x = xp.concat([x[:1], middle, x[-1:]], axis=0)
    return x


def test_many_steps_of_parts_of_parts() -> None:
    """Each way from a step back to the first one is walked once, not all of the 5 ** 16."""
    x = np.random.default_rng(0).standard_normal((9, 11)).astype(np.float32)
    got = ts.function(lambda x: steps_of_heat(ts, x, 16))(x)
    np.testing.assert_array_equal(got, steps_of_heat(NUMPY, x, 16))


def test_steps_store_nothing_but_their_results() -> None:
    """What the next step computes from the results of one, `2 * u - v`, is computed there."""

    @ts.function
    def waves(u: ts.Tensor[256, 256, ts.f32], v: ts.Tensor[256, 256, ts.f32]):
        for _ in range(4):
            around = ts.roll(u, 1, 0) + ts.roll(u, -1, 0) + ts.roll(u, 1, 1) + ts.roll(u, -1, 1)
            u, v = 2 * u - v + 0.1 * (around - 4 * u), u
        return u

    compiled = ts.compile(waves, target="cpu")
    inside = [line for line in str(compiled.ir("schedule")).splitlines() if "space=[254, 254]" in line]
    assert len(inside) == 4 and not any("," in line.split("=")[0] for line in inside)
