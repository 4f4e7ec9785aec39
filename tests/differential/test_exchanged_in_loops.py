"""What loops carry is exchanged, not copied: with the bits of the same program written out round by round.

Random programs permute, hand on and replace what they carry, in rounds of rounds and on paths, and return some of it or
compute with it afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import StatefulObject, Tensor, effect
from tessera.compiler.tile.lifetimes import place, temporaries
from tessera.compiler.tile.program import Launch, Loop, Program, Step, come_home, exchanges, turn
from tests.conftest import require

N = 5
NAMES = ("a", "b", "c")
EXPRESSIONS = [
    "{0}",
    "{0}",
    "{0} * 0.5 + {1}",
    "ts.roll({0}, 1, axis=0) - {1} * 0.25",
    "{0}.T",
    "{0} @ {1} * 0.1",
    "x",
    "{0}[::-1] * 0.5",
    "ts.softmax({0}) + {1}",
    "ts.concat([{0}[:2], {1}[2:]], axis=0)",
    "ts.zeros((5, 5))",
    "ts.put({0}, at, {1})",
]
Round: TypeAlias = tuple[tuple[tuple[int, tuple[str, str]], ...], str]
"""for each name an expression of others, and what is around the assignment"""

expressions = st.tuples(st.integers(0, len(EXPRESSIONS) - 1), st.tuples(*[st.sampled_from(NAMES)] * 2))
rounds = st.lists(
    st.tuples(st.tuples(*[expressions] * len(NAMES)), st.sampled_from(["", "", "if", "for"])), min_size=1, max_size=3
)
results = st.lists(st.sampled_from([*NAMES, *NAMES, "a + b", "ts.sum(c)"]), min_size=1, max_size=4)


def body(program: list[Round], outer: str, inner: str) -> list[str]:
    lines = [f"    for i in {outer}:"]
    for parts, around in program:
        made = ", ".join(EXPRESSIONS[k].format(*names) for k, names in parts)
        head = {"": "", "if": "if ts.sum(a) > 0.0:\n            ", "for": f"for j in {inner}:\n            "}[around]
        lines.append(f"        {head}a, b, c = {made}")
    return lines


def text(name: str, program: list[Round], given: list[str], count: int | None) -> str:
    """The program as source; with `count`, that many rounds written out."""
    names = [f"{n}: Tensor['N', 'N']" for n in (*NAMES, "x")]
    outer, inner = ("ts.range(n)", "ts.range(n - 1)") if count is None else (f"range({count})", f"range({count - 1})")
    head = f"def {name}({', '.join(names)}, at: Tensor['N', ts.int64], n: ts.Int):"
    return "\n".join([head, *body(program, outer, inner), f"    return {', '.join(given)}", ""])


COUNT = itertools.count()


def compiled(source: str, name: str, folder: Path) -> Any:
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    scope: dict[str, Any] = {"ts": ts, "Tensor": Tensor, "__name__": name}
    exec(compile(source, str(path), "exec"), scope)
    return ts.function(scope[name])


def run(function: Any, count: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((N, N)).astype(np.float32) for _ in range(4)]
    found = function(*arrays, rng.permutation(N), count)
    return [np.asarray(x).tobytes() for x in (found if isinstance(found, tuple) else (found,))]


def same_bits(program: list[Round], given: list[str], folder: Path, counts: tuple[int, ...]) -> None:
    name = f"rounds{next(COUNT)}"
    source = text(name, program, given, None)
    function = compiled(source, name, folder)
    for count in counts:
        written = f"{name}_{count}"
        wanted = run(compiled(text(written, program, given, count), written, folder), count)
        assert run(function, count) == wanted, source


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("rounds")


@settings(max_examples=30)
@given(rounds, results)
def test_random_programs(folder: Path, program: list[Round], given: list[str]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TESSERA_TARGET", "reference")  # compiles quickly
        same_bits(program, given, folder, (0, 1, 2, 3))


def assigned(*made: str) -> list[Round]:
    """One assignment of expressions that are in the list, with the names that they are of."""
    found = []
    for one in made:
        pattern, _, names = one.partition(": ")
        found.append((EXPRESSIONS.index(pattern), tuple(names.split() * 2)[:2]))
    return [(tuple(found), "")]


HAND = {
    "turned": assigned("{0}: b", "{0}: c", "{0}: a"),
    "swapped": assigned("{0}: b", "{0}: a", "{0}: c"),
    "handed on": assigned("{0}: b", "{0}: c", "{0} * 0.5 + {1}: a b"),
    "handed on beside": assigned("{0}: b", "{0}: c", "ts.roll({0}, 1, axis=0) - {1} * 0.25: a b"),
    "given twice": assigned("{0}: b", "{0}: b", "{0} * 0.5 + {1}: a b"),
    "transposed": assigned("{0}.T: b", "{0}.T: a", "{0}: c"),
    "from outside": assigned("x", "{0}: a", "{0}: b"),
    "replaced": assigned("{0} @ {1} * 0.1: a b", "{0} @ {1} * 0.1: b c", "{0} @ {1} * 0.1: c a"),
}


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
@pytest.mark.parametrize("program", HAND.values(), ids=HAND)
def test_ways_of_memory(folder: Path, program: list[Round], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if target.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target)
    same_bits(program, ["a", "b", "c"], folder, (0, 1, 2, 3))


class Waves(StatefulObject):
    now: Tensor["N", "N"]
    before: Tensor["N", "N"]

    @effect("update")
    def to(self, now, before):
        self.now, self.before = now, before


def stepped(now: Any, before: Any, module: Any) -> Any:
    return now * 2.0 - before + (module.roll(now, 1, axis=0) - now) * 0.25


@ts.function
def swing(s: Waves, n: ts.Int):
    first = s.now
    for _ in ts.range(n):
        s.to(stepped(s.now, s.before, ts), s.now)
    return s.before, first


@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
def test_states_are_where_they_were(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if target.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target)
    now, before = (np.random.default_rng(i).integers(-9, 9, (N, N)).astype(np.float32) for i in range(2))
    state = Waves(now.copy(), before.copy())
    arrays = state.now, state.before
    for count in (0, 1, 2, 3, 4):
        first = now
        for _ in range(count):
            now, before = stepped(now, before, np).astype(np.float32), now
        found = swing(state, count)
        assert state.now is arrays[0] and state.before is arrays[1]
        for a, b in zip((state.now, state.before, *found), (now, before, before, first), strict=True):
            np.testing.assert_array_equal(a, b)


@ts.function
def wave(now: Tensor["N", "N"], before: Tensor["N", "N"], n: ts.Int):
    for _ in ts.range(n):
        now, before = stepped(now, before, ts), now
    return now, before


def launches(steps: tuple[Step, ...]) -> Iterator[Launch]:
    """Those in the bodies of loops."""
    for step in steps:
        if isinstance(step, Loop):
            yield from (s for s in step.body if isinstance(s, Launch))


def program_of(function: Any, *arguments: Any) -> Program:
    return ts.compile(function, arguments=arguments).lowered.program


def test_nothing_is_copied_in_a_round() -> None:
    x = np.ones((64, 64), np.float32)
    program = program_of(wave, x, x, 3)
    assert not {launch.label for launch in launches(program.steps)} & {"copy", "cast"}
    (exchanged,) = [e for e in exchanges(program) if e.bound]
    assert len(exchanged.bound) == 2 and len(exchanged.others) == 1


def test_all_that_is_exchanged_lives_as_long() -> None:
    """Also to the end of the program, if one of it is a result."""
    x = np.ones((64, 64), np.float32)
    program = program_of(wave, x, x, 3)
    lives = {t.buffer: (t.first, t.last) for t in temporaries(program)}
    for exchanged in exchanges(program):
        assert len({lives[b] for b in exchanged.others}) == 1
        if exchanged.bound:
            assert {lives[b][1] for b in exchanged.others} == {len(program.launches) - 1}
    spans = [(int(t.bytes), t.first, t.last) for t in temporaries(program)]
    assert place(spans)[1] < 2 * x.nbytes  # one more array, and the loop's counter


@given(st.permutations(range(6)), st.integers(0, 5))
def test_home(places: list[int], bound: int) -> None:
    """From wherever the memory of six buffers has got to, what is in the bound ones gets back to theirs."""
    turns = [[0, 1, 2, 3, 4, 5], [0, 2], [4, 1, 3]]
    program = Program("f", (), (), (Loop(0, (), (), tuple(map(tuple, turns))),), ())
    (exchange,) = exchanges(program)
    exchange = type(exchange)(exchange.others[:bound], exchange.others[bound:])
    memory = dict(enumerate(places))
    turn(memory, turns)
    home = {b: b for b in range(6)}
    content = {place: b for b, place in memory.items()}

    def copy(to: int, source: int) -> None:
        content[to] = content[source]

    come_home(exchange, memory, home, copy)
    assert sorted(memory.values()) == list(range(6))
    assert all(memory[b] == b == content[b] for b in exchange.bound)
