"""Two versions of a program by line: only what was edited is flagged, and equal programs are seldom called unequal."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tessera.profiler import Profiler, side_by_side
from tessera.profiler.trial import lines
from tessera.profiler.trial.lines import Repeated, Repetitions, compare_lines, repetitions_of
from tests.profiler.synthetic import launch, recorded, time_is_work

TEXT = "\n".join(f"line {n}" for n in range(1, 11))


def noisy(random: np.random.Generator, slower: float = 1.0, scale: float = 0.02) -> tuple[Repetitions, Repetitions]:
    """Thirty repetitions of five lines on a busy machine: it drifts, and now and then something takes three times as
    long. The second side's line 3 takes `slower` times as long."""
    sides = (Repetitions(texts={"a.py": TEXT}), Repetitions(texts={"a.py": TEXT}))
    drift = np.exp(np.cumsum(random.normal(0, 0.05, 30)))
    for now in drift:
        for side, factor in zip(sides, (1.0, slower), strict=True):
            noise = np.exp(random.normal(0, scale, 5)) * np.where(random.random(5) < 0.05, 3.0, 1.0)
            times = {("a.py", n + 1): float(n * now * noise[n - 1] * (factor if n == 2 else 1)) for n in range(1, 6)}
            side.add(sum(times.values()), times)
    return sides


def alarms(random: np.random.Generator, comparisons: int) -> int:
    found = [compare_lines(*noisy(random), by_turn=True) for _ in range(comparisons)]
    return sum(bool(one.flagged or one.total.verdict) for one in found)


def test_equal_programs_are_called_unequal_once_in_a_hundred_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alarms(np.random.default_rng(5), 1000) <= 10
    monkeypatch.setattr(lines, "SAME", 0.0)  # the intervals alone: their probability is one in a hundred
    assert alarms(np.random.default_rng(5), 2000) <= 20 + 3 * 20**0.5  # and three standard errors of counting it


def test_one_in_a_hundred_holds_for_samples_that_do_not_belong_together() -> None:
    random, alarms = np.random.default_rng(6), 0
    for _ in range(500):
        sides = [Repetitions(), Repetitions()]
        for side in sides:
            for _ in range(25):
                times = {("a.py", n): float(np.exp(random.normal(0, 0.3))) for n in range(1, 4)}
                side.add(sum(times.values()), times)
        found = compare_lines(sides[0], sides[1], by_turn=False)
        alarms += bool(found.flagged or found.total.verdict)
    assert alarms <= 5  # of five hundred


def test_a_line_that_is_a_tenth_slower_is_found_and_no_other() -> None:
    random = np.random.default_rng(7)
    for _ in range(100):
        found = compare_lines(*noisy(random, slower=1.1, scale=0.01), True)
        assert [(c.after, c.verdict) for c in found.flagged] == [(3, "slower")]


def sides(old: dict[int, float], new: dict[int, float], before: str, after: str) -> tuple[Repetitions, Repetitions]:
    out = (Repetitions(texts={"a.py": before}), Repetitions(texts={"a.py": after}))
    for side, times in zip(out, (old, new), strict=True):
        for _ in range(30):
            side.add(sum(times.values()), {("a.py", line): t for line, t in times.items()})
    return out


def test_lines_are_found_again_where_they_have_moved() -> None:
    before = "import x\ndef f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4"
    after = "import x\nimport y\n\ndef f():\n    a = 1\n    b = 20\n    d = 4\n    e = 5"
    found = compare_lines(
        *sides({3: 1.0, 4: 2.0, 5: 3.0, 6: 4.0}, {5: 1.0, 6: 4.0, 7: 4.0, 8: 5.0}, before, after), True
    )
    said = {(c.before, c.after): (c.verdict, c.edited, c.text) for c in found.changes}
    assert said == {
        (3, 5): ("", False, "a = 1"),
        (4, 6): ("slower", True, "b = 20"),
        (5, None): ("gone", True, "c = 3"),
        (6, 7): ("", False, "d = 4"),
        (None, 8): ("new", True, "e = 5"),
    }
    text = str(found)
    assert "a.py:4>6" in text and "slower edited  b = 20" in text
    assert "<b>slower edited</b>" in found._repr_html_() and "<script" not in found._repr_html_()


def test_the_lines_of_two_functions_of_one_file_are_joined_by_their_texts() -> None:
    text = "def old(x):\n    y = x @ x\n    return y + 1\n\ndef new(x):\n    y = x @ x\n    return y - 1"
    found = compare_lines(*sides({2: 5.0, 3: 1.0}, {6: 5.0, 7: 1.0}, text, text), True)
    assert [(c.before, c.after, c.edited) for c in found.changes] == [(2, 6, False), (3, 7, True)]


def test_a_line_that_took_no_time_in_some_repetitions() -> None:
    left, right = Repetitions(), Repetitions()
    for n in range(30):
        left.add(1.0, {("a.py", 1): 1.0} if n % 2 else {})
        right.add(1.0, {("a.py", 1): 1.0} if n % 2 else {})
    assert left.lines == {("a.py", 1): [0.0, 1.0] * 15}
    assert compare_lines(left, right, True).flagged == ()


def test_markup_in_a_program_is_text() -> None:
    found = compare_lines(*sides({1: 1.0}, {1: 1.0}, "s = '<b>'", "s = '<b>'"), True)
    assert "<b>" not in found._repr_html_()


def test_the_calls_of_a_profile_are_its_repetitions() -> None:
    events = []
    for n in range(3):
        about = {"run": 2 * n, "function": "f", "file": "a.py"}
        events += [
            launch(2 * n, duration=1000 + n, attributes=about | {"line": 3}),
            launch(2 * n + 1, duration=500, attributes=about | {"line": 4}),
        ]
    found = repetitions_of(recorded(*events))
    assert found.lines.keys() == {("a.py", 3), ("a.py", 4)}
    assert found.lines["a.py", 3] == pytest.approx([1e-6, 1.001e-6, 1.002e-6])
    assert found.lines["a.py", 4] == pytest.approx([5e-7] * 3)
    assert found.total == pytest.approx([1.5e-6, 1.501e-6, 1.502e-6])


PROGRAM = """import tessera as ts
from tessera import Tensor


@ts.function
def layer(x: Tensor["N", "D"], w: Tensor["D", "E"]):
    h = ts.softmax(x)
    y = h @ w
    return ts.sort(y)
"""


def loaded(folder: Path, name: str, text: str) -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


X = np.random.default_rng(0).standard_normal((64, 64), np.float32)


def test_only_the_edited_line_is_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time_is_work(monkeypatch)
    old = loaded(tmp_path, "old_layer", PROGRAM)
    new = loaded(tmp_path, "new_layer", PROGRAM.replace("h @ w", "h @ w @ w @ w @ w @ w"))
    found = side_by_side(lambda: old.layer(X, X), lambda: new.layer(X, X), budget=0)
    (line,) = (c for c in found.changes if c.edited)
    assert (line.before, line.after, line.verdict, line.text) == (8, 8, "slower", "y = h @ w @ w @ w @ w @ w")
    assert [c.after for c in found.flagged] == [8], found
    assert found.by_turn and found.pairs == lines.LEAST


def test_both_sides_are_measured() -> None:
    calls: list[str] = []
    found = side_by_side(lambda: calls.append("old"), lambda: calls.append("new"), budget=0)
    assert {"old", "new"} == {*calls} and found.pairs == lines.LEAST and not found.changes
    assert all(seconds > 0 for seconds in found.total.seconds)


def test_profiles_are_compared_also_when_they_were_saved(tmp_path: Path) -> None:
    module = loaded(tmp_path, "saved_layer", PROGRAM)
    module.layer(X, X)
    profiles = [Profiler(), Profiler()]
    for prof in profiles:
        prof.repeat(lambda: module.layer(X, X), 8)
    again = Profiler.load(profiles[0].save(tmp_path / "p.npz"))
    assert "h = ts.softmax(x)" in next(iter(again.recording.texts.values()))
    found = again.compare_lines(profiles[1])
    assert {c.after for c in found.changes} == {7, 8, 9}
    assert not found.flagged and not found.by_turn  # eight are too few to say anything
    assert "what else the machine did counts as well" in str(found)


def test_a_call_that_raises_leaves_nobody_listening() -> None:
    from tessera.runtime import events

    def fails() -> None:
        time.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Repeated(fails).once()
    assert not events.active()
