"""Elementwise updates of state and of what loops carry: in the memory of the old value, with the bits of a copy.

Random programs replace several states from one another, through views, broadcasts, gathers, reductions, branches and
loops, and return old and new values. They are held against the same program in NumPy's order of steps, and against
themselves with nothing changed in place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import StatefulObject, Tensor, effect
from tessera.compiler.lower import schedule_to_tile
from tessera.compiler.lower.in_place import changes
from tests.conftest import require

N = 6
NAMES = ("a", "b", "c")
EXPRESSIONS = [
    "{0} * 0.5 + {1}",
    "{0} - {1} * {2}",
    "ts.where({0} > {1}, {0}, {2} * 2.0)",
    "{0}.T + {1}",
    "{0}[::-1] * 0.25 + {1}",
    "{0}[0] + {1}",
    "{0} + {1}[:, :1]",
    "ts.take({0}, at, axis=0) + {1}",
    "{0} - ts.sum({1}, axis=0)",
    "{0} / (1.0 + ts.sum(ts.square({1})))",
    "ts.softmax({0}) + {1}",
    "ts.cumsum({0}, axis=1) * 0.1 + {1}",
    "ts.concat([{0}[:2], {1}[2:]], axis=0)",
    "{0}.reshape(4, 9).reshape(6, 6) + {1}",
    "ts.put({0}, at, {1})",
    "{0} @ {1} * 0.1",
    "{0}",
    "x + {0}",
    "x * 3.0",
]


class Three(StatefulObject):
    a: Tensor["N", "N"]
    b: Tensor["N", "N"]
    c: Tensor["N", "N"]

    @effect("update")
    def to(self, a, b, c):
        self.a, self.b, self.c = a, b, c


@dataclass(frozen=True)
class Step:
    """In one step each state becomes an expression of states; `around`: always, on a path, or in rounds."""

    parts: tuple[tuple[int, tuple[str, ...]], ...]
    around: str
    seen: str


parts = st.tuples(st.integers(0, len(EXPRESSIONS) - 1), st.tuples(*[st.sampled_from(NAMES)] * 3))
steps = st.lists(
    st.builds(
        Step, st.tuples(parts, parts, parts), st.sampled_from(["", "", "if", "for"]), st.sampled_from(["", *NAMES])
    ),
    min_size=1,
    max_size=3,
)


def text(program: list[Step], name: str) -> str:
    """The program as source."""
    lines, given = [f"def {name}(s: Three, x: Tensor['N', 'N'], at: Tensor['N', ts.int64], n: ts.Int):"], ["s.a"]
    for k, step in enumerate(program):
        made = [EXPRESSIONS[i].format(*(f"s.{v}" for v in names)) for i, names in step.parts]
        if step.seen:
            lines.append(f"    seen{k} = s.{step.seen}")
            given.append(f"seen{k}")
        head = {"": [], "if": ["    if ts.sum(s.a) > 0:"], "for": ["    for i in ts.range(n):"]}[step.around]
        lines += [*head, f"{'    ' * (1 + len(head))}s.to({', '.join(made)})"]
    return "\n".join([*lines, f"    return {', '.join(given)}", ""])


COUNT = itertools.count()


def compiled(source: str, name: str, folder: Any) -> Any:
    """The function of a text, which must stand in a file."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    scope: dict[str, Any] = {"ts": ts, "Three": Three, "Tensor": Tensor, "__name__": name}
    exec(compile(source, str(path), "exec"), scope)
    return ts.function(scope[name])


def run(function: Any, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    state = Three(*(rng.standard_normal((N, N)).astype(np.float32) for _ in NAMES))
    held = [getattr(state, n) for n in NAMES]
    results = function(state, rng.standard_normal((N, N)).astype(np.float32), rng.integers(0, N, N), 3)
    assert all(getattr(state, n) is h for n, h in zip(NAMES, held, strict=True))
    return [np.array(r) for r in (*(results if isinstance(results, tuple) else (results,)), *held)]


def apart(group: Any, out: Any) -> dict[Any, Any]:
    """Instead of `changes`: nothing is."""
    return {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    return tmp_path_factory.mktemp("programs")


def same_bits(program: list[Step], folder: Any, monkeypatch: Any) -> int:
    """Asserts that a program gives the bits that it gives where nothing is changed in place. How much was."""
    name, count = f"program{next(COUNT)}", 0
    source = text(program, name)

    def counted(group: Any, out: Any) -> dict[Any, Any]:
        nonlocal count
        found = changes(group, out)
        count += len(found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(schedule_to_tile, "changes", counted)
        found = run(compiled(source, name, folder), 0)
        patched.setattr(schedule_to_tile, "changes", apart)
        wanted = run(compiled(source.replace(name, f"{name}_apart"), f"{name}_apart", folder), 0)
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes(), source
    return count


@settings(max_examples=40)
@given(steps)
def test_random_programs(folder: Any, program: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TESSERA_TARGET", "reference")  # is told of races, and compiles quickly
        same_bits(program, folder, monkeypatch)


CHOSEN = {
    "chain": ([Step(((0, ("a", "b", "c")), (1, ("b", "b", "c")), (2, ("c", "c", "c"))), "", "")], 3),
    "circle": ([Step(((0, ("a", "b", "c")), (0, ("b", "c", "c")), (0, ("c", "a", "c"))), "", "")], 2),
    "seen": ([Step(((0, ("a", "b", "c")), (16, ("b", "b", "c")), (17, ("c", "c", "c"))), "", "a")], 1),
    "views": ([Step(((3, ("a", "a", "c")), (4, ("b", "b", "c")), (5, ("c", "c", "c"))), "", "")], 0),
    "paths": ([Step(((0, ("a", "b", "c")), (1, ("b", "c", "c")), (18, ("c", "c", "c"))), "if", "")], 3),
    "rounds": ([Step(((0, ("a", "b", "c")), (1, ("b", "c", "c")), (17, ("c", "c", "c"))), "for", "")], 3),
    "rotation": ([Step(((16, ("b", "b", "c")), (16, ("a", "c", "c")), (0, ("c", "c", "c"))), "for", "b")], 1),
}


@pytest.mark.parametrize("target", ["cpu", "cpu, 2 threads", "reference", "emulator:sm_80"])
@pytest.mark.parametrize("name", CHOSEN)
def test_chosen_programs(name: str, target: str, folder: Any, monkeypatch: Any) -> None:
    if target.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target.partition(",")[0])
    monkeypatch.setenv("TESSERA_NUM_THREADS", "2" if "2" in target.partition(",")[2] else "1")
    program, count = CHOSEN[name]
    assert same_bits(program, folder, monkeypatch) == count


class Moments(StatefulObject):
    a: Tensor["N", "M"]
    b: Tensor["N", "M"]
    c: Tensor["N", "M"]

    @effect("update")
    def to(self, a, b, c):
        self.a, self.b, self.c = a, b, c


@ts.function
def blended(s: Moments, x: Tensor["N", "M"], rate: ts.f32):
    """All of them from one another, as an optimizer's moments: what is replaced last is read by the others."""
    a = s.a * rate + x
    b = s.b * 0.5 + ts.square(a)
    s.to(a, b, s.c - a / (ts.sqrt(b) + 1e-3))


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("shape", [(7, 3), (301, 513)], ids=["small", "many programs"])
def test_blocks_and_their_ends(shape: tuple[int, int], threads: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("TESSERA_NUM_THREADS", threads)
    rng = np.random.default_rng(0)
    a, b, c, x = (np.abs(rng.standard_normal(shape)).astype(np.float32) for _ in range(4))
    state = Moments(a.copy(), b.copy(), c.copy())
    for _ in range(2):
        blended(state, x, 0.25)
        a = a * np.float32(0.25) + x
        b = b * np.float32(0.5) + a * a
        c = c - a / (np.sqrt(b) + np.float32(1e-3))
    for found, wanted in zip((state.a, state.b, state.c), (a, b, c), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_one_argument_more_is_no_state() -> None:
    """Also where each element is read before it is stored: whether it is refused does not hang on the program."""
    state = Moments(*(np.ones((2, 2), np.float32) for _ in NAMES))
    with pytest.raises(ts.LaunchError, match="TS507"):
        blended(state, state.a, 0.5)
    assert np.all(state.a == 1) and np.all(state.c == 1)
