"""Hints about the numbers that programs read, and about calls in a loop: the edit, the results, what is refused."""

from __future__ import annotations

import importlib.util
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
from tessera.profiler import Profiler
from tessera.profiler.hints import RULES, VERSION, Hint, hints
from tessera.profiler.kernel_stats import kernel_stats
from tessera.profiler.machine import Ceiling
from tessera.profiler.trial import blocks, ledger, narrowing
from tessera.profiler.trial.calls import Again, like
from tessera.profiler.trial.ledger import Entry
from tessera.profiler.trial.made import HintTrial, compared
from tessera.profiler.trial.texts import redefined
from tests.profiler.synthetic import MACHINE, launch, recorded
from tests.unit.cli.test_cli import answered
from tests.unit.cuda.host_cuda import HostGpu, gpu  # noqa: F401 - a fixture

PROGRAM = '''import numpy as np
import tessera as ts
from tessera import Tensor


@ts.function
def scored(q: Tensor["M", "K"], k: Tensor["K", "N"]):
    return q @ k + 1.0


@ts.function(numerics="@compute(bf16)")
def scored_already(q: Tensor["M", "K"], k: Tensor["K", "N"]):
    return q @ k + 1.0


@ts.kernel(BM=32, BN=64, num_stages=2)
def product(a: Tensor["M", "K"], b: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]


@ts.function
def blended(a: Tensor["M", "N"], b: Tensor["M", "N", ts.f32]):
    """What it says."""
    return ts.sum(a * b, axis=-1)


@ts.function
def shown_once(a: Tensor["M", "N"]): return ts.sum(a * a, axis=-1)


@ts.kernel(BLOCK=1024)
def added(x: Tensor["n"], y: Tensor["n"]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = y[i] + x[i] * 2


@ts.function
def residual(x: Tensor["M", "N"], y: Tensor["M", "N"]):
    return x + y * 0.5


@ts.function
def turned(x: Tensor["M", "N"], y: Tensor["N", "M"]):
    return x + y.T * 2.0


@ts.function
def both_ways(x: Tensor["N", "N"], y: Tensor["N", "N"]):
    return x + y.T + y


@ts.function
def wide(x: Tensor["M", "K"], w: Tensor["K", "N"]):
    return ts.tanh(x @ w * 0.01)


@ts.function
def dense(x: Tensor["K"], w: Tensor["K", "N"]):
    return ts.tanh(x @ w)


def copied(x, w):
    for _ in range(3):
        for _ in range(2):
            out = residual(x, w.T)
    return out


def answered(xs, w):
    out = []
    for x in xs:
        y = wide(x, w)
        out.append(y)
    return out


def copied_inside(x, w):
    return residual(x, w.T)


def changed(x, w):
    for _ in range(3):
        x = residual(x, w.T)
        w[0] = 1.0
    return x


def each(xs, w):
    return [dense(x, w) for x in xs]


def stored(xs, w, out):
    for i in range(len(xs)):
        out[i] = dense(xs[i], w)
    return out


def some(xs, w, out, n):
    for i in range(n):
        out.append(dense(xs[i], w))
    return out


def recurrent(x, w):
    for _ in range(12):
        x = dense(x, w)
    return x
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ModuleType]]:
    """A text as a module of its own."""
    made: list[str] = []

    def use(text: str) -> ModuleType:
        made.append(f"tried_data_{len(made)}")
        file = tmp_path_factory.mktemp("tried") / f"{made[-1]}.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(made[-1], file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[made[-1]] = module
        spec.loader.exec_module(module)
        return module

    yield use
    for name in made:
        del sys.modules[name]


@pytest.fixture(scope="module")
def program(run: Callable[[str], ModuleType]) -> ModuleType:
    return run(PROGRAM)


@pytest.fixture(autouse=True)
def own_ledger(own_cache: Path) -> None:
    """Outcomes of other tests do not count."""


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32) for shape in shapes]


FAST = replace(
    MACHINE,
    ceilings=(
        Ceiling("bandwidth", "memory", 1e13, "measured", "copy"),
        Ceiling("bandwidth", "cache", 1e14, "measured", "copy"),
        Ceiling("compute", "f32", 1e13, "measured", "product"),
        Ceiling("compute", "bf16", 2e13, "measured", "product"),
    ),
    last_cache_bytes=1 << 16,
)
"""above what any kernel reaches; its operations take long against its bytes, and its caches hold little"""


def profiled(call: Callable[[], Any], machine: Any = FAST, times: int = 4) -> Profiler:
    call()
    with Profiler(host=False):  # compiles, for tile records too
        call()
    prof = Profiler(host=False)
    prof.repeat(call, times)
    prof.recording.machines["cpu:0"] = machine
    return prof


def found(prof: Profiler, kind: str) -> Hint | None:
    """What the rules say, however small a part of the region it is: on a busy machine the region is long."""
    stats = kernel_stats(prof.recording)
    return next((h for rule in RULES for h in rule(prof.recording, stats) if h.kind == kind), None)


def hint(prof: Profiler, kind: str) -> Hint:
    one = found(prof, kind)
    assert one is not None, [h.kind for h in prof.hints(silent=True)]
    low, high = one.saving
    assert 0 <= low <= high <= one.local_time and one.legality and f"legality: {one.legality}" in str(one)
    return one


def added_lines(diff: str) -> list[str]:
    return [line[1:] for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++")]


def test_each_changed_text_of_a_file_stays_known(program: ModuleType) -> None:
    x, y = arrays((3, 2), (3, 2))
    once, twice = (redefined(program.residual, PROGRAM.replace("y * 0.5", by)) for by in ("y * 2.0", "y * 4.0"))
    np.testing.assert_array_equal(twice(x, y), x + y * 4)
    np.testing.assert_array_equal(once(x, y), x + y * 2)  # compiled after the other one was made


def test_products_are_narrowed_by_a_policy_or_by_casts(program: ModuleType) -> None:
    a, b = arrays((256, 256), (256, 256))
    tried = hint(profiled(lambda: program.scored(a, b)), "narrower products").try_it(0.0)
    assert added_lines(tried.diff) == ['@ts.function(numerics="@compute(bf16)")']
    assert tried.warm is not None and "of the largest result (tolerance 0.01)" in tried.results
    (entry,) = ledger.entries()
    assert entry.rule == "narrower products" and entry.measured[1] == tried.warm.saved.middle
    tried = hint(profiled(lambda: program.product(a, b)), "narrower products").try_it(0.0)
    assert added_lines(tried.diff) == [
        "    return ts.tile.cast(a[tile_m : tile_m + c.BM, :], ts.bf16)"
        " @ ts.tile.cast(b[:, tile_n : tile_n + c.BN], ts.bf16)"
    ]
    assert tried.warm is not None
    text = apply(PROGRAM, Fix("", tuple(narrowing._for_products(program.product))))
    assert text == PROGRAM.replace(*(line + "\n" for line in (_removed(tried.diff), added_lines(tried.diff)[0])))


def _removed(diff: str) -> str:
    (line,) = [x[1:] for x in diff.splitlines() if x.startswith("-") and not x.startswith("---")]
    return line


def test_an_error_above_the_tolerance_ends_the_trial(program: ModuleType) -> None:
    a, b = arrays((256, 256), (256, 256))
    narrow = hint(profiled(lambda: program.scored(a, b)), "narrower products")
    tried = narrow.try_it(0.0, tolerance=1e-4)
    assert (tried.verdict, tried.warm) == ("other results", None)
    assert "more than 0.0% of it" in str(tried) and "numerics=" in tried.diff
    assert not ledger.entries(), "a change that is refused says nothing about the prediction"
    wide, close = np.array([1.0, 2.0], np.float32), np.array([1.0, 2.01], np.float32)
    assert compared(wide, close, 0.01) == "within 0.005 of the largest result (tolerance 0.01)"
    assert compared(wide, close).startswith("other results")
    assert compared(wide, np.array([1.0, np.inf], np.float32), 0.01).startswith("other results")


def test_products_stay_wide_where_it_gains_nothing(program: ModuleType) -> None:
    a, b = arrays((256, 256), (256, 256))
    assert found(profiled(lambda: program.scored_already(a, b)), "narrower products") is None
    same = replace(FAST, ceilings=(*FAST.ceilings[:3], Ceiling("compute", "bf16", 1e13, "measured", "product")))
    assert found(profiled(lambda: program.scored(a, b), same), "narrower products") is None
    slow = replace(FAST, ceilings=(Ceiling("bandwidth", "memory", 1e9, "measured", "copy"), *FAST.ceilings[2:]))
    assert found(profiled(lambda: program.scored(a, b), slow), "narrower products") is None, "its bytes take the time"
    assert found(profiled(lambda: program.blended(a, b)), "narrower products") is None
    small = program.product.with_config(BM=8, BN=8)
    assert found(profiled(lambda: small(a, b)), "narrower products") is None, "its tiles round more than they multiply"


def test_arrays_are_kept_narrow_and_computed_with_wide(program: ModuleType) -> None:
    a, b = arrays((200, 300), (200, 300))
    tried = hint(profiled(lambda: program.blended(a, b)), "narrower arrays").try_it(0.0)
    assert added_lines(tried.diff) == [
        'def blended(a: Tensor["M", "N", ts.bf16], b: Tensor["M", "N", ts.bf16]):',
        "    a, b = ts.cast(a, ts.f32), ts.cast(b, ts.f32)",
    ]
    assert tried.warm is not None and any("callers convert a, b once" in note for note in tried.notes)
    tried = hint(profiled(lambda: program.blended(a, b)), "narrower arrays").try_it(0.0, tolerance=1e-3)
    assert 'ts.f16], b: Tensor["M", "N", ts.f16]' in tried.diff, "the finer one, where bf16 is too coarse"
    x, y = arrays((100_000,), (100_000,))
    assert not narrowing.arrays_can(program.added, ["y"]), "it is stored to"
    assert not narrowing.arrays_can(program.shown_once, ["a"]), "its body has no line of its own"
    tried = hint(profiled(lambda: program.added(x, y)), "narrower arrays").try_it(0.0, tolerance=0.1)
    assert "        y[i] = y[i] + ts.tile.cast(x[i], ts.f32) * 2" in added_lines(tried.diff)
    assert tried.warm is not None


def test_arrays_that_fit_into_the_caches_or_meet_in_products_stay_wide(program: ModuleType) -> None:
    a, b = arrays((200, 300), (200, 300))
    roomy = replace(FAST, last_cache_bytes=1 << 24)
    assert found(profiled(lambda: program.blended(a, b), roomy), "narrower arrays") is None
    x, w = arrays((300, 300), (300, 300))
    assert found(profiled(lambda: program.scored(x, w)), "narrower arrays") is None


def test_a_copy_is_moved_out_of_the_loop(program: ModuleType) -> None:
    x, w = arrays((300, 200), (200, 300))
    prof = profiled(lambda: program.copied(x, w))
    one = hint(prof, "copied arguments")
    assert one.source == "measured" and "of y in 24 calls" in one.measured
    about = prof.launches()[0].attributes
    assert about["copied"] == w.nbytes and 0 < about["copying"] < prof.recording.duration
    tried = one.try_it(0.0)
    assert tried.results == "equal bits"
    assert added_lines(tried.diff) == [
        "    y_kept = np.ascontiguousarray(w.T)",
        "            out = residual(x, y_kept)",
    ]


def test_hints_of_a_script_are_tried_when_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.profiler.hints.WORTH_SAYING", 0.0)
    file = tmp_path / "script.py"
    calls = "x, w = np.ones((300, 200), np.float32), np.ones((200, 300), np.float32)\n"
    file.write_text(f"{PROGRAM}\n\n{calls}for _ in range(4):\n    residual(x, w.T)\n")
    shown = answered("profile", str(file), "--try", cwd=tmp_path).stdout
    assert "+y_kept = np.ascontiguousarray(w.T)" in shown and "+    residual(x, y_kept)" in shown
    assert "results: equal bits" in shown and "legality: nothing is stored to the array" in shown


def test_weights_are_frozen_in_front_of_the_loop(program: ModuleType) -> None:
    xs, w = arrays((4, 8, 768), (768, 768))
    prof = profiled(lambda: program.answered(xs, w))
    one = hint(prof, "packed weights")
    assert one.measured == "w, the same array in 16 calls, packed at each of them" and "about 8 rows" in one.cause
    tried = one.try_it(0.0)
    assert tried.results == "equal bits"
    assert added_lines(tried.diff) == ["    w_frozen = ts.frozen(w)", "        y = wide(x, w_frozen)"]
    frozen = ts.frozen(w)
    assert found(profiled(lambda: program.answered(xs, frozen)), "packed weights") is None
    assert found(profiled(lambda: program.wide(xs[0], w.copy())), "packed weights") is None, "another array each time"
    many, few = arrays((3, 300, 768), (3, 2, 768))
    assert found(profiled(lambda: program.answered(many, w)), "packed weights") is None, "multiplying takes the time"
    assert found(profiled(lambda: program.answered(few, w)), "packed weights") is None, "two rows are not packed for"


def test_without_a_loop_the_function_transposes(program: ModuleType) -> None:
    x, w = arrays((300, 200), (200, 300))
    tried = hint(profiled(lambda: program.copied_inside(x, w)), "copied arguments").try_it(0.0)
    assert tried.results == "equal bits"
    assert added_lines(tried.diff) == [
        'def residual(x: Tensor["M", "N"], y: Tensor["N", "M"]):',
        "    y = y.T",
        "    return residual(x, w)",
    ]
    assert not list(tried_edits.of(program.__file__ or "", PROGRAM)), "other callers would have to change, too"


def test_arrays_of_other_libraries_get_no_line_for_numpys(program: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    x, w = (torch.from_numpy(a) for a in arrays((300, 200), (200, 300)))
    prof = profiled(lambda: program.copied(x, w))
    assert {held.library for held in prof.recording.calls[0].arguments.values()} == {"torch"}
    tried = hint(prof, "copied arguments").try_it(0.0)
    assert "ascontiguousarray(w.T)" not in tried.diff and "y = y.T" in tried.diff, "the function can transpose them"
    xs, v = (torch.from_numpy(a) for a in arrays((40, 16), (16, 16)))
    assert found(profiled(lambda: program.each(xs, v)), "calls in a loop") is None


def test_what_changes_in_the_loop_is_not_moved_out(program: ModuleType) -> None:
    (w,) = arrays((200, 200))
    one = hint(profiled(lambda: program.changed(w, w.copy())), "copied arguments")
    tried = one.try_it(0.0)
    assert "y = y.T" in tried.diff, "the loop stores to w, so that only the function can transpose it"
    x = np.ones((300, 200), np.float32)
    sliced = profiled(lambda: program.residual(x, np.ones((300, 400), np.float32)[:, ::2]))
    why = hint(sliced, "copied arguments").try_it(0.0).reason
    assert why.endswith("keep a contiguous copy of it where it is made")


def test_arrays_that_are_gone_lie_as_they_did() -> None:
    x = np.zeros((6, 8), np.float32)
    for view in (x.T, x[:, ::2], x[::-1], x[1:, 2:].T, np.broadcast_to(x[0], (5, 8))):
        made = like(view.shape, "f32", 0, view.strides)
        assert (made.shape, made.strides, made.dtype) == (view.shape, view.strides, view.dtype)
        assert np.isfinite(made).all()


def test_a_copy_is_not_the_result_that_lay_at_its_address_before(program: ModuleType) -> None:
    """The copy of an argument may get the memory of the last result, which was given back."""
    x, w = arrays((300, 200), (200, 300))
    prof = profiled(lambda: program.copied(x, w))
    assert found(prof, "memory-bound neighbours") is None
    first, second = prof.launches()[:2]
    written = {buffer for buffer, _ in first.attributes["writes"]}
    assert not written & {buffer for buffer, _ in second.attributes["reads"]}


def test_a_parameter_is_kept_as_it_is_read(program: ModuleType) -> None:
    x, y = arrays((200, 300), (300, 200))
    one = hint(profiled(lambda: program.turned(x, y)), "transposed reads")
    tried = one.try_it(0.0)
    assert tried.results == "equal bits"
    assert added_lines(tried.diff) == [
        'def turned(x: Tensor["M", "N"], y: Tensor["M", "N"]):',
        "    return x + y * 2.0",
    ]
    assert any("all callers of turned give np.ascontiguousarray(y.T)" in note for note in tried.notes)
    assert not list(tried_edits.of(program.__file__ or "", PROGRAM))
    (square,) = arrays((200, 200))
    assert found(profiled(lambda: program.both_ways(square, square)), "transposed reads") is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("each", ["    return list(ts.vmap(dense, in_axes=(0, None))(np.asarray(xs), w))"]),
        ("stored", ["    out[: len(xs)] = ts.vmap(dense, in_axes=(0, None))(np.asarray(xs), w)"]),
        ("some", ["    out.extend(ts.vmap(dense, in_axes=(0, None))(np.asarray(xs)[:n], w))"]),
    ],
)
def test_a_loop_becomes_one_call(program: ModuleType, run: Any, name: str, shown: list[str]) -> None:
    xs, w = arrays((40, 16), (16, 16))
    rest = {"each": (), "stored": (np.zeros((40, 16), np.float32),), "some": ([], 30)}[name]
    one = hint(profiled(lambda: getattr(program, name)(xs, w, *rest)), "calls in a loop")
    assert one.change == "call ts.vmap of dense once, instead of dense for each element"
    tried = one.try_it(0.0)
    assert tried.results.startswith("equal") and tried.warm is not None
    assert added_lines(tried.diff) == shown
    assert any("calls of the loop" in note for note in tried.notes)
    if tried.verdict == "faster":
        ((title, edits),) = tried_edits.of(program.__file__ or "", PROGRAM)
        assert title.startswith("Call dense once for the whole loop (tried: ")
        changed = run(apply(PROGRAM, Fix("", edits)))
        fresh = {"each": (), "stored": (np.zeros((40, 16), np.float32),), "some": ([], 30)}[name]
        got, wanted = getattr(changed, name)(xs, w, *fresh), [program.dense(x, w) for x in xs]
        np.testing.assert_allclose(np.array(got), np.array(wanted)[: len(got)], rtol=1e-5, atol=1e-6)


def test_calls_that_need_each_other_stay_apart(program: ModuleType) -> None:
    x, w = arrays((16,), (16, 16))
    prof = profiled(lambda: program.recurrent(x, w))
    assert found(prof, "calls in a loop") is None
    one = found(prof, "launch overhead")
    assert one is not None and "program to say" in one.try_it(0.0).reason


def test_rounds_of_a_loop_are_not_two_functions(program: ModuleType) -> None:
    x, w = arrays((256,), (256, 256))
    one = found(profiled(lambda: program.recurrent(x, w), slow_memory()), "memory-bound neighbours")
    assert one is not None and "several rounds of the loop that calls dense" in one.change
    assert "rounds of a loop" in one.try_it(0.0).reason


def slow_memory() -> Any:
    """Kernels are bound by it, however fast they are."""
    slow = Ceiling("bandwidth", "memory", 1e6, "measured", "copy")
    return replace(MACHINE, ceilings=(slow, *MACHINE.ceilings[2:]), last_cache_bytes=1 << 30)


def test_copying_is_no_launch_overhead() -> None:
    """Three calls of 10 us, 90 us apart, of which copying takes 80 us."""
    copied = {"run": 0, "copied": 4000, "copying": 80_000}
    calls = [launch(n, start=n * 100_000, duration=10_000, attributes=copied | {"run": n}) for n in range(1, 6)]
    (one,) = (h for h in hints(recorded(*calls)) if h.kind == "launch overhead")
    assert one.saving[1] == pytest.approx(4 * 10_000)
    plain = [replace(c, attributes={"run": c.launch}) for c in calls]
    (one,) = (h for h in hints(recorded(*plain)) if h.kind == "launch overhead")
    assert one.saving[1] == pytest.approx(4 * 90_000)


@pytest.mark.parametrize(
    "kind",
    [
        "narrower products",
        "narrower arrays",
        "copied arguments",
        "transposed reads",
        "calls in a loop",
        "packed weights",
    ],
)
def test_each_rule_falls_silent_where_it_is_wrong(program: ModuleType, kind: str) -> None:
    a, b, c, d = arrays((200, 200), (200, 200), (8, 768), (768, 768))
    calls: dict[str, Callable[[], Any]] = {
        "narrower products": lambda: program.scored(a, b),
        "narrower arrays": lambda: program.blended(a, b),
        "copied arguments": lambda: program.copied(a, b),
        "transposed reads": lambda: program.turned(a, b),
        "calls in a loop": lambda: program.each(a, b),
        "packed weights": lambda: program.wide(c, d),
    }
    prof = profiled(calls[kind])
    prof.recording.end = max(x.start + (x.duration or 0) for x in prof.launches())
    prof.recording.start = prof.recording.end - sum(x.duration or 0 for x in prof.launches())
    assert kind in [h.kind for h in prof.hints()]
    for _ in range(10):
        ledger.record(Entry(kind, VERSION, "p", "cpu", (0.5, 0.6), (0.0, 0.1, 0.2), 1.0))
    assert kind not in [h.kind for h in prof.hints()]
    assert kind in [h.kind for h in prof.hints(silent=True)]
    for _ in range(30):
        ledger.record(Entry(kind, VERSION, "p", "cpu", (0.5, 0.6), (0.5, 0.6, 0.7), 2.0))
    assert kind in [h.kind for h in prof.hints()], "good outcomes bring it back"


def test_stages_are_a_gpus(program: ModuleType, gpu: HostGpu) -> None:  # noqa: F811
    a, b = (gpu.put(x) for x in arrays((64, 64), (64, 64)))
    prof = profiled(lambda: program.product(a, b))
    prof.recording.machines["cuda:0"] = replace(FAST, device="cuda:0")
    one = hint(prof, "more stages")
    assert one.source == "modelled" and one.measured.startswith("num_stages=2") and "num_stages=3" in one.change
    ideal = sum(k.ideal.value or 0.0 for k in kernel_stats(prof.recording))
    assert one.saving[1] == pytest.approx((one.local_time - ideal) / 3)
    offered = blocks.changes(Again(program.product, {}, (), {}), "more stages")
    assert [o.said for o in offered] == ["num_stages=3", "num_stages=4"]
    assert offered[0].after == PROGRAM.replace("BN=64, num_stages=2", "BN=64, num_stages=3")
    assert offered[0].make().config["num_stages"] == 3
    c, d = arrays((64, 64), (64, 64))
    on_cpu = profiled(lambda: program.product(c, d))
    assert found(on_cpu, "more stages") is None
    asked = replace(one, trial=HintTrial(on_cpu.recording, on_cpu.launches(), "more stages"))
    assert "a CPU copies nothing ahead" in asked.try_it(0.0).reason


def test_no_stages_without_a_loop_that_copies_ahead(program: ModuleType, gpu: HostGpu) -> None:  # noqa: F811
    x, y = (gpu.put(v) for v in arrays((4096,), (4096,)))
    prof = profiled(lambda: program.added(x, y))
    prof.recording.machines["cuda:0"] = replace(FAST, device="cuda:0")
    assert found(prof, "more stages") is None
