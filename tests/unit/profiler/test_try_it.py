"""`hint.try_it()`: the change is made to the program, its results compared, both timed by turns."""

from __future__ import annotations

import importlib.util
import json
import linecache
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler import tried_edits
from tessera.compiler.frontend.fixes import apply
from tessera.errors import Fix
from tessera.language.dims import evaluate
from tessera.profiler import Profiler
from tessera.profiler.hints import VERSION, Hint, hints
from tessera.profiler.kernel_stats import kernel_stats
from tessera.profiler.rules.tiles import narrow_tiles
from tessera.profiler.trial import blocks, ledger
from tessera.profiler.trial.calls import Again, NotTried
from tessera.profiler.trial.ledger import Entry
from tessera.profiler.trial.made import HintTrial, compared
from tessera.runtime.autotune.candidates import Candidate
from tests.profiler.synthetic import MACHINE, launch, recorded
from tests.unit.cli.test_cli import answered

PROGRAM = """import tessera as ts
from tessera import Tensor


@ts.kernel(BM=4, BN=4)
def product(A: Tensor["M", "K"], B: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return A[tile_m : tile_m + c.BM, :] @ B[:, tile_n : tile_n + c.BN]


@ts.kernel(BN=2)
def columns(X: Tensor["M", "N"]) -> Tensor["N"]:
    c = ts.tile.context()
    return X[:, tile_n : tile_n + c.BN].sum(axis=0)


@ts.kernel(BN=16)
def wide_columns(X: Tensor["M", "N"]) -> Tensor["N"]:
    c = ts.tile.context()
    return X[:, tile_n : tile_n + c.BN].sum(axis=0)


@ts.kernel
def doubled(x: Tensor["n"], y: Tensor["n"]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = 2 * y[i] + x[i]


@ts.kernel(BLOCK=2048)
def powers(x: Tensor["n"], y: Tensor["n"]):
    i = ts.tile.linear_id()
    v = x[i]
    for t in range(6):
        v = ts.tile.exp(v) * 0.1
    y[i] = v


@ts.kernel(GROUP=2, SPARE=8)
def sixteen(A: Tensor["M", "K"], B: Tensor["K", "N"]) -> Tensor["M", "N"]:
    group, spare = ts.tile.context().GROUP, ts.tile.context().SPARE
    return A[tile_m : tile_m + 16, :] @ B[:, tile_n : tile_n + 16]


@ts.kernel
def in_text(A: Tensor["M", "K"], B: Tensor["K", "N"]) -> Tensor["M", "N"]:
    total = ts.tile.zeros((8, 8))
    total += A[tile_m : tile_m + 8, :] @ B[:, tile_n : tile_n + 8]
    return total


@ts.kernel
def rows(X: Tensor["M", "N"]) -> Tensor["M"]:
    return X[tile_m : tile_m + 2, :].sum(axis=1) * 2


@ts.kernel
def each(x: Tensor["n"]) -> Tensor["n"]:
    return x[tile_n] * 2


@ts.function
def scaled(x: Tensor["n"], w: Tensor["n"]):
    return x * w + 1.0


@ts.function
def curved(y: Tensor["n"]):
    return ts.tanh(y) * 2.0


def step(x, w):
    y = scaled(x, w)
    return curved(y)


def between(x, w):
    y = scaled(x, w)
    print("between", end="")
    return curved(y)


def made_between(x):
    y = scaled(x, abs(x))
    return curved(y)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    file = tmp_path_factory.mktemp("tried") / "tried_program.py"
    file.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("tried_program", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tried_program"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["tried_program"]


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))


def profiled(call: Any) -> Profiler:
    call()
    with Profiler(tiles=False) as prof:
        call()
    return prof


def hint(prof: Profiler, change: Any, predicted: tuple[float, float] = (0.0, 0.9)) -> Hint:
    """One that says so of all that was launched."""
    low, high = (int(part * 1_000_000) for part in predicted)
    trial = HintTrial(prof.recording, prof.launches(), change)
    return Hint("small tiles", "k", "", "", "", "do it", (low, high), 1_000_000, 1_000_000, "modelled", trial=trial)


FAST = replace(MACHINE, ceilings=tuple(replace(c, value=1000 * c.value) for c in MACHINE.ceilings))
"""far above what any kernel reaches, on whatever machine the tests run"""
A = np.random.default_rng(0).standard_normal((160, 160), np.float32)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], int]], None]:
    """`timed(us)`: a launch takes as many microseconds as `us` gives for its number of tiles, on any machine."""

    def use(us: Callable[[int], int]) -> None:
        def time(self: Candidate, repeat: int) -> float:
            env, launches = self.prepared.env, self.prepared.plan.launches
            return sum(us(math.prod(evaluate(n, env) for n in one.grid)) for one in launches) * 1e-6

        monkeypatch.setattr(Candidate, "time", time)

    return use


def test_a_bad_block_size_is_mended_with_equal_bits(program: ModuleType, timed: Any) -> None:
    timed(lambda tiles: tiles)
    found = hint(profiled(lambda: program.product(A, A)), "larger").try_it(0.0)
    assert found.results == "equal bits"
    assert found.verdict == "faster"
    assert found.warm is not None and found.warm.saved.low > 0.3
    assert "-@ts.kernel(BM=4, BN=4)" in found.diff
    assert any(
        line.startswith("+@ts.kernel(BM=") and line.endswith("def product") is False for line in found.diff.splitlines()
    )
    assert Path(program.__file__ or "").read_text() == PROGRAM  # shown, and not written
    (entry,) = ledger.entries()
    assert (entry.rule, entry.predicted) == ("small tiles", (0.0, 0.9))
    assert entry.measured[1] == found.warm.saved.middle
    assert "predicted: 0.0% to 90.0%" in str(found) and "faster" in str(found)


def test_editors_are_given_an_edit_that_made_it_faster(program: ModuleType, timed: Any) -> None:
    timed(lambda tiles: tiles)
    file = program.__file__ or ""
    assert hint(profiled(lambda: program.product(A, A)), "larger").try_it(0.0).verdict == "faster"
    ((title, edits),) = tried_edits.of(file, PROGRAM)
    sizes = re.search(r"Use (BM=\d+, BN=\d+) in product \(tried: [\d.]+% less time\)", title)
    assert sizes, title
    assert apply(PROGRAM, Fix("", edits)) == PROGRAM.replace("BM=4, BN=4", sizes[1])
    assert not list(tried_edits.of(file, PROGRAM + "# other\n")), "it was not tried on that text"
    timed(lambda tiles: 1000)
    assert hint(profiled(lambda: program.product(A, A)), "larger").try_it(0.0).verdict == "no gain"
    assert len(list(tried_edits.of(file, PROGRAM))) == 1
    Path(file).write_text(f"{PROGRAM}# edited meanwhile\n")
    tried_edits.record(file, PROGRAM, "", "too late")
    Path(file).write_text(PROGRAM)
    assert len(list(tried_edits.of(file, PROGRAM))) == 1


def test_the_command_line_tries_hints(program: ModuleType, timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(lambda tiles: tiles)
    file = Path(program.__file__ or "")
    monkeypatch.setattr(Profiler, "hints", lambda prof: [hint(prof, "larger")])
    ran = answered("profile", f"{file}:product", "--dims", "M=32,K=32,N=32", "--try", cwd=file.parent)
    assert "-@ts.kernel(BM=4, BN=4)" in ran.stdout and "results: equal bits" in ran.stdout
    assert [title.partition(" in ")[2].split()[0] for title, _ in tried_edits.of(str(file), PROGRAM)] == ["product"]
    monkeypatch.setattr(Profiler, "hints", lambda prof: [hint(prof, "by hand")])
    ran = answered("profile", f"{file}:product", "--dims", "M=32,K=32,N=32", "--try", cwd=file.parent)
    assert "Nothing to try" in ran.stdout
    assert "--try" in answered("profile", f"{file}:product", "--try", "--json", cwd=file.parent).stderr


def test_the_profiler_finds_that_hint_itself(program: ModuleType, timed: Any) -> None:
    timed(lambda tiles: tiles)
    program.product(A, A)
    with Profiler() as prof:
        program.product(A, A)
    prof.repeat(lambda: program.product(A, A), 3)
    prof.recording.machines["cpu:0"] = FAST
    (found,) = (h for h in prof.hints() if h.kind == "small tiles")
    assert found.change == "use larger tiles"
    tried = found.try_it(0.0)
    assert (tried.verdict, tried.results) == ("faster", "equal bits")


def test_a_useless_hint_says_no_gain(program: ModuleType, timed: Any) -> None:
    """Tiles that are large enough: larger ones take as long."""
    timed(lambda tiles: 1000)
    x = np.zeros(1 << 14, np.float32)
    prof = profiled(lambda: program.powers(x, np.empty_like(x)))
    tried = hint(prof, "larger").try_it(0.0)
    assert tried.results == "equal bits"
    assert tried.verdict == "no gain", str(tried)


def test_launches_are_joined_and_compared(program: ModuleType) -> None:
    x = np.random.default_rng(0).standard_normal(3000, np.float32)
    prof = profiled(lambda: program.step(x, x))
    tried = hint(prof, "one function").try_it(0.05)
    assert tried.results == "equal bits", tried
    assert "+@ts.function" in tried.diff and "return scaled_curved(x, w)" in tried.diff
    assert tried.warm is not None and not tried.notes
    assert not hasattr(program, "scaled_curved")
    assert "".join(linecache.getlines(program.__file__ or "")) == PROGRAM  # what is compiled next is what was imported


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("between", "one function", "print is called between"),
        ("made_between", "one function", "abs"),
        ("step", "larger", "a function, whose tiles the compiler chooses"),
        ("sixteen", "by hand", "not tried"),
    ],
)
def test_what_cannot_be_done_by_itself_says_so(program: ModuleType, name: str, change: Any, why: str) -> None:
    x = np.ones(100, np.float32)
    arguments = {"between": (x, x), "made_between": (x,), "step": (x, x), "sixteen": (A, A)}[name]
    tried = hint(profiled(lambda: getattr(program, name)(*arguments)), change).try_it(0.0)
    assert (tried.verdict, tried.warm) == ("not tried", None)
    assert why in str(tried)
    assert ledger.entries() == []


def test_arrays_that_are_gone_are_made_up_and_arguments_stay(program: ModuleType) -> None:
    y = np.ones(500, np.float32)

    def call() -> None:
        program.doubled(np.ones(500, np.float32), y)

    prof = profiled(call)
    before = y.copy()
    tried = hint(prof, "larger").try_it(0.0)
    assert tried.results == "equal bits"
    assert tried.notes[0] == "random numbers in the place of x, which are gone"
    assert "+@ts.kernel(BLOCK=" in tried.diff
    np.testing.assert_array_equal(y, before)


def test_block_sizes_that_are_not_the_decorator_s(program: ModuleType) -> None:
    def why(kernel: Any) -> str:
        with pytest.raises(NotTried) as refused:
            blocks.changes(Again(kernel, {}, (), {}), "larger")
        return str(refused.value)

    assert "does not run with" in why(program.product.with_config(BM=8))
    assert "are tuned" in why(ts.kernel.autotune(space={"BLOCK": [64]})(program.doubled))


def test_numbers_in_a_kernel_s_text_are_tried(program: ModuleType, timed: Any) -> None:
    """Sizes that stand at several places change together; a number that means something else is no block size."""
    timed(lambda tiles: tiles)
    tried = hint(profiled(lambda: program.in_text(A, A)), "larger").try_it(0.0)
    assert (tried.verdict, tried.results) == ("faster", "equal bits"), tried
    (size,) = set(re.findall(r"^\+.*[ (+] ?(\d+)[\])]", tried.diff, re.M)) - {"0"}
    assert f"+    total = ts.tile.zeros(({size}, {size}))" in tried.diff and int(size) > 8
    (edit,) = tried_edits.of(program.__file__ or "", PROGRAM)
    assert f"Use tile_m + {size}, tile_n + {size} in in_text" in edit[0]
    tried = hint(profiled(lambda: program.rows(A)), "larger").try_it(0.0)
    assert (tried.verdict, tried.results) == ("faster", "equal bits"), tried
    assert re.search(r"^\+    return X\[tile_m : tile_m \+ \d+, :\].sum\(axis=1\) \* 2$", tried.diff, re.M), tried.diff
    assert any("gives other bits" in note for note in tried.notes), "the other 2 was tried too, and refused"
    assert "".join(linecache.getlines(program.__file__ or "")) == PROGRAM
    tried = hint(profiled(lambda: program.each(A[0])), "larger").try_it(0.0)
    assert tried.reason == "each has no block sizes: neither parameters of @ts.kernel nor numbers behind an index"


def test_edits_keep_what_else_the_decorator_says(program: ModuleType) -> None:
    offered = blocks.changes(Again(program.sixteen, {}, (), {}), "other")
    lines = {next(x for x in b.after.splitlines() if x.startswith("@ts.kernel(GROUP=")) for b in offered}
    assert "@ts.kernel(GROUP=4, SPARE=16)" in lines and "@ts.kernel(GROUP=2, SPARE=16)" in lines
    assert all(b.before == PROGRAM for b in offered)


def test_results_are_compared() -> None:
    a = np.array([1.0, 2.0, np.nan], np.float32)
    assert compared(a, a.copy()) == "equal bits"
    assert compared((a, None), (a * np.float32(1 + 1e-7), None)).startswith("equal")
    assert compared(a, a * np.float32(1.001)).startswith("other results: they differ by 0.002")
    assert compared(a, np.array([1.0, 2.0, 3.0], np.float32)).startswith("other results")
    assert compared(np.arange(3), np.arange(3) + 1) == "other results: whole numbers differ"
    assert "float64[3] is float32[3]" in compared(a.astype(np.float64), a)
    assert compared(a[:0], a[:0]) == "equal bits"


def test_a_silent_rule_gives_no_hints_but_can_still_be_tried() -> None:
    recording = recorded(launch(flops=1, bytes=200_000, attributes={"occupancy": 0.25, "run": 1}), end=100_000)
    assert [h.kind for h in hints(recording)] == ["low occupancy"]
    for _ in range(10):
        ledger.record(Entry("low occupancy", VERSION, "saxpy", "cpu", (0.0, 0.1), (0.3, 0.4, 0.5), 1.0))
    assert hints(recording) == []
    assert [h.kind for h in hints(recording, silent=True)] == ["low occupancy"]
    shown = answered("hints", cwd=Path()).stdout
    assert "low occupancy: tried 10, 0 inside the predicted range, 10 faster  silent" in shown
    assert "outside" in answered("hints", "--entries", cwd=Path()).stdout
    (rule,) = json.loads(answered("hints", "--json", cwd=Path()).stdout)["rules"]
    assert rule == {"rule": "low occupancy", "tried": 10, "covered": 0, "gained": 10, "silent": True}


def test_a_profile_from_a_file_says_that_it_has_no_calls(program: ModuleType, tmp_path: Path) -> None:
    prof = profiled(lambda: program.product(A, A))
    loaded = Profiler.load(prof.save(tmp_path / "p.npz"))
    assert "comes from a file" in hint(loaded, "larger").try_it().reason


def test_tiles_of_few_columns_are_named_and_made_wider(program: ModuleType, timed: Any) -> None:
    """A sum over columns, two of them in a tile: 8 bytes of each row, where memory moves 64."""
    timed(lambda tiles: tiles)
    x = np.ones((640, 640), np.float32)
    program.columns(x)
    with Profiler() as prof:
        program.columns(x)
    prof.repeat(lambda: program.columns(x), 3)
    prof.recording.machines["cpu:0"] = FAST
    (found,) = narrow_tiles(prof.recording, kernel_stats(prof.recording))
    assert "8 bytes side by side of each row of X" in found.measured and "for 8 tiles" in found.cause
    tried = found.try_it(0.0)
    assert (tried.verdict, tried.results) == ("faster", "equal bits"), tried
    assert "-@ts.kernel(BN=2)" in tried.diff
    program.wide_columns(x)
    with Profiler() as wide:
        program.wide_columns(x)
    wide.repeat(lambda: program.wide_columns(x), 3)
    wide.recording.machines["cpu:0"] = FAST
    assert not list(narrow_tiles(wide.recording, kernel_stats(wide.recording)))
