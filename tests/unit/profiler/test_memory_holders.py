"""Who holds memory: at the peak and at the end of a profile, and in the error for want of it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.profiler import session
from tessera.profiler.memory import MemoryReport
from tessera.profiler.session import Profiler
from tessera.runtime import events
from tessera.runtime.arrays import holders

HERE = Path(__file__)
SIZE = 400_000
LINES = HERE.read_text("utf-8").splitlines()


@ts.function
def shifted(x: Tensor["n", ts.f32]):
    return x + 1


class Cache:
    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}


class Slots:
    __slots__ = ("kept",)


def at(mark: str) -> int:
    return next(n for n, line in enumerate(LINES, 1) if line.endswith(f"# {mark}"))


def entries(report: MemoryReport, when: Any) -> dict[int, Any]:
    return {h.line: h for h in report.holders(when) if h.file == __file__}


@pytest.fixture
def source() -> np.ndarray:
    x = np.ones(SIZE, np.float32)
    shifted(x)
    return x


def test_the_line_that_leaks_and_the_variable_that_holds_it(source: np.ndarray, tmp_path: Path) -> None:
    cache, slots = Cache(), Slots()
    with Profiler(host=False) as prof:
        for i in range(3):
            cache.entries[f"step {i}"] = shifted(source)  # leak
        slots.kept = shifted(source)  # slot
        passing = [shifted(source) for _ in range(4)]  # passing
        del passing
    report = prof.memory()
    peak, end = entries(report, "peak"), entries(report, "end")
    assert {line: h.count for line, h in end.items()} == {at("leak"): 3, at("slot"): 1}
    assert {line: h.count for line, h in peak.items()} == {at("leak"): 3, at("slot"): 1, at("passing"): 4}
    assert end[at("leak")].nbytes == 3 * 4 * SIZE
    where = f" ({HERE.name}, test_the_line_that_leaks_and_the_variable_that_holds_it)"
    assert f"cache.entries['step 0']{where}" in end[at("leak")].paths
    assert end[at("slot")].paths == (f"slots.kept{where}",)
    assert any(not h.number and f"source{where}" in h.paths for h in report.holders("end"))
    said = report.details()
    assert "Held at the peak:" in said and f":{at('leak')}: 3 x result, 4.80 MB, by cache.entries['step 0']" in said
    prof.save(tmp_path / "kept.npz")
    assert Profiler.load(tmp_path / "kept.npz").memory().details() == said


@pytest.mark.usefixtures("young")
def test_what_no_frame_reaches_is_found_by_the_object_that_holds_it(source: np.ndarray) -> None:
    class Hidden:
        def __init__(self) -> None:
            self.stuff, self.me = shifted(source), self  # hidden

    gc.disable()
    try:
        with Profiler(host=False) as prof:
            Hidden()
    finally:
        gc.enable()
    held = entries(prof.memory(), "end")[at("hidden")]
    assert held.paths == (".stuff of a Hidden",)
    gc.collect()


def test_memory_that_is_given_back_is_held_by_nobody(source: np.ndarray) -> None:
    with Profiler(host=False) as prof:
        shifted(source)
    assert entries(prof.memory(), "end") == {}


PROGRAM = """
import resource
from pathlib import Path
import numpy as np
import tessera as ts

@ts.function
def shifted(x: ts.Tensor["n", ts.f32]):
    return x + 1

large, part = np.ones(60_000_000, np.float32), np.ones(8_000_000, np.float32)
kept = {}
for i in range(2):
    kept[i] = shifted(part)
shifted(np.ones(8, np.float32))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), resource.RLIM_INFINITY))
try:
    shifted(large)
except ts.errors.LaunchError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says what a process has")
def test_an_error_for_want_of_memory_names_who_holds_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    first, request, *notes = done.stdout.splitlines()
    assert "TS505" in first
    assert request.startswith("  result would take 228.9 MiB; ") and request.endswith("MiB are free on cpu.")
    assert notes[0] == "  note: 228.9 MiB are held by large (program.py)"
    line = 1 + PROGRAM.splitlines().index("    kept[i] = shifted(part)")
    for i in range(2):
        said = f"30.52 MiB are held by kept[{i}] (program.py), as result of this line"
        assert any(said in note and f"program.py:{line}" in note for note in notes), notes


def test_looking_for_variables_keeps_nothing_alive() -> None:
    cache = Cache()
    seen, x = weakref.ref(cache), np.ones(SIZE, np.float32)
    with Profiler() as prof:
        cache.entries["y"] = shifted(x)
    assert any("cache.entries['y']" in path for holder in prof.memory().holders() for path in holder.paths)
    del cache
    assert seen() is None


def test_a_variable_is_named_once_in_a_shell_that_holds_all_variables() -> None:
    shell = Cache()
    variables = {"holders": holders, "shell": shell, "y": np.ones(SIZE, np.float32)}
    shell.entries = variables
    exec(compile("found = holders.holders()", "cell.py", "exec"), variables)
    (paths,) = [h.paths for h in variables["found"] if any(p.startswith(("y ", "shell.")) for p in h.paths)]
    assert paths == ("y (cell.py)",)


class Hostile:
    """Runs code wherever it is looked at from outside, as proxies that load what they stand for do."""

    def __init__(self, kept: Any) -> None:
        object.__setattr__(self, "kept", kept)

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name} was read")

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("the class was read")


class HostileList(list[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("the list was walked")


class HostileDict(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("the dict was walked")


def test_none_of_the_programs_code_runs(source: np.ndarray) -> None:
    with Profiler(host=False) as prof:
        hostile = Hostile(shifted(source))  # hostile
        items, named = HostileList([shifted(source)]), HostileDict(a=shifted(source))  # both
    held = entries(prof.memory(), "end")
    assert any(path.startswith("hostile.kept ") for path in held[at("hostile")].paths)
    assert {path.partition(" ")[0] for path in held[at("both")].paths} == {"items[0]", "named['a']"}
    del hostile, items, named


def test_what_another_thread_changes_meanwhile_is_passed_over(
    source: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be made to come in between here: the walk of a queue changes it."""
    changing, kept = deque([1, 2, 3]), None

    def first(items: Any) -> Any:
        found = iter(items)
        if type(found) is type(iter(changing)) and len(changing):
            next(found, None)
            changing.append(4)
        return real(found)

    real = holders._first  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(holders, "_first", first)
    with Profiler(host=False) as prof:
        kept = shifted(source)  # beside
    assert entries(prof.memory(), "end")[at("beside")].paths[0].startswith("kept ")
    assert len(changing) > 3 and kept is not None


def test_a_search_that_fails_leaves_nobody_listening(source: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(session, "holders", fails)
    prof, kept = Profiler(), None
    with pytest.raises(ZeroDivisionError), prof:
        kept = shifted(source)
    assert not events.active() and kept is not None
    assert not any(thread.name == "tessera-sampler" for thread in threading.enumerate())


def test_a_profile_holds_nothing_of_the_program_s(source: np.ndarray) -> None:
    """Its own tables, of an earlier profile in a variable, are not what the program would free."""
    with ts.profiler() as earlier:
        shifted(source)
    earlier.recording.batches = [np.zeros(1 << 20)]  # type: ignore[list-item]
    found = holders.holders(50)
    assert not [h for h in found if any("earlier" in path for path in h.paths)]
    assert any("source" in path for h in found for path in h.paths)
