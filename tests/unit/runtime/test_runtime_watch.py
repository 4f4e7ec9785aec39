"""No stale kernel, ever: globals, closures, callees, attributes and containers that change; and why it recompiled."""

from __future__ import annotations

import array
import collections
import types

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.code import reads, watch
from tessera.runtime.code.why_recompiled import InputChange, compare

X = np.ones(3, np.float32)
scale = 2.0
table = [1.0, 2.0]
settings = {"gain": 2.0}
weights = np.full(3, 2, np.float32)
config = types.SimpleNamespace(heads=2, inner=types.SimpleNamespace(gain=3.0), unused=1)


@pytest.fixture(autouse=True)
def reference_target(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")


def helper(x):
    return x * scale


def other_helper(x):
    return x * 7


def plain_number():
    return scale + 1


@ts.function
def by_global(x: ts.Tensor["n", ts.f32]):
    return x * scale


@ts.function
def by_callee(x: ts.Tensor["n", ts.f32]):
    return helper(x) + 1


@ts.function
def by_function_callee(x: ts.Tensor["n", ts.f32]):
    return by_global(x) + 1


@ts.function
def by_compile_time_call(x: ts.Tensor["n", ts.f32]):
    return x * plain_number()


@ts.function
def by_list(x: ts.Tensor["n", ts.f32]):
    return x * table[0]


@ts.function
def by_dict(x: ts.Tensor["n", ts.f32]):
    return x * settings["gain"]


@ts.function
def by_attribute(x: ts.Tensor["n", ts.f32]):
    return x * config.heads


@ts.function
def by_inner_attribute(x: ts.Tensor["n", ts.f32]):
    return x * config.inner.gain


@ts.function
def by_array(x: ts.Tensor["n", ts.f32]):
    return x * weights


@pytest.mark.parametrize(
    ("function", "change", "before", "after"),
    [
        (by_global, lambda m: m.setitem(globals(), "scale", 5.0), 2, 5),
        (by_callee, lambda m: m.setitem(globals(), "scale", 5.0), 3, 6),
        (by_function_callee, lambda m: m.setitem(globals(), "scale", 5.0), 3, 6),
        (by_compile_time_call, lambda m: m.setitem(globals(), "scale", 5.0), 3, 6),
        (by_callee, lambda m: m.setitem(globals(), "helper", other_helper), 3, 8),
        (by_list, lambda _: table.__setitem__(0, 5.0), 1, 5),
        (by_dict, lambda m: m.setitem(settings, "gain", 5.0), 2, 5),
        (by_attribute, lambda m: m.setattr(config, "heads", 5), 2, 5),
        (by_inner_attribute, lambda m: m.setattr(config.inner, "gain", 5.0), 3, 5),
        (by_inner_attribute, lambda m: m.setattr(config, "inner", types.SimpleNamespace(gain=5.0)), 3, 5),
        (by_array, lambda m: m.setitem(globals(), "weights", np.full(3, 5, np.float32)), 2, 5),
        (by_array, lambda _: weights.fill(5), 2, 5),
        (by_array, lambda m: m.setitem(globals(), "weights", np.full(1, 5, np.float32)), 2, 5),
        (by_array, lambda m: m.setitem(globals(), "weights", 5.0), 2, 5),
    ],
)
def test_a_change_is_seen_by_the_next_call(function, change, before, after, monkeypatch):
    assert function(X)[0] == before
    assert function(X)[0] == before
    saved, first = weights.copy(), table[0]
    with monkeypatch.context() as patch:
        change(patch)
        assert function(X)[0] == after
        assert function(X)[0] == after
    weights[:], table[0] = saved, first
    assert function(X)[0] == before


def test_closures():
    gain = 2.0

    @ts.function
    def f(x: ts.Tensor["n", ts.f32]):
        return x * gain

    assert f(X)[0] == 2
    gain = 3.0
    assert f(X)[0] == 3


def test_what_does_not_matter_costs_no_compilation(monkeypatch):
    by_attribute(X)
    count = len(ts.runtime.code.why_recompiled.compilations(by_attribute))
    monkeypatch.setattr(config, "unused", 2)
    by_attribute(X)
    monkeypatch.setitem(globals(), "scale", 9.0)
    by_attribute(X)
    assert len(ts.runtime.code.why_recompiled.compilations(by_attribute)) == count


def test_an_equal_value_is_no_change(monkeypatch):
    by_global(X)
    count = len(ts.runtime.code.why_recompiled.compilations(by_global))
    monkeypatch.setitem(globals(), "scale", float("2.0"))
    by_global(X)
    assert len(ts.runtime.code.why_recompiled.compilations(by_global)) == count


def test_changed_weights_are_passed_and_not_compiled_for(monkeypatch):
    by_array(X)
    count = len(ts.runtime.code.why_recompiled.compilations(by_array))
    for value in (3, 4):
        monkeypatch.setitem(globals(), "weights", np.full(3, value, np.float32))
        assert by_array(X)[0] == value
    assert len(ts.runtime.code.why_recompiled.compilations(by_array)) == count


def test_methods_that_are_replaced():
    class Model:
        gain = 2.0

        def scale(self, x):
            return x * self.gain

        @ts.function
        def __call__(self, x: ts.Tensor["n", ts.f32]):
            return self.scale(x)

    model = Model()
    assert Model.__call__(model, X)[0] == 2
    model.gain = 3.0
    assert Model.__call__(model, X)[0] == 3
    Model.scale = lambda self, x: x * self.gain + 1
    assert Model.__call__(model, X)[0] == 4


def test_functions_as_arguments_are_looked_into():
    gain = 2.0

    def times(x):
        return x * gain

    @ts.function
    def apply(x: ts.Tensor["n", ts.f32], f):
        return f(x)

    assert apply(X, times)[0] == 2
    gain = 3.0
    assert apply(X, times)[0] == 3
    assert apply(X, lambda x: x + 1)[0] == 2


def test_paths_name_reads_alike_in_every_process():
    found = {r.path: r.kind for r in reads.reads(by_callee)}
    assert {("helper", "callee"), ("helper.scale", "global")} <= set(found.items())
    assert {r.path for r in reads.reads(by_inner_attribute)} >= {"config", "config.inner", "config.inner.gain"}


def test_recursive_objects_are_no_trap():
    loop = types.SimpleNamespace(gain=2.0)
    loop.self = loop

    def reads_self(x):
        return x * loop.self.self.gain

    assert watch.Watch(reads.reads(reads_self)).unchanged()


# why_recompiled


def test_why_names_a_target_in_few_words():
    """Of a processor's hundred properties those that differ."""
    cpu = "cpu-18 llvm-22.1.0 avx512 znver4 +64bit,+adx,+aes,-amx-bf16 16777216"
    assert str(InputChange("target", cpu, "sm_90a nvrtc-13.5 library-a7f9")) == "target: cpu-18 -> sm_90a"
    other = cpu.replace("+adx,", "").replace(" avx512 ", " avx2 ")
    assert str(InputChange("target", cpu, other)) == "target: avx512 +adx -> avx2"


def test_why_names_the_argument_and_the_axis():
    @ts.function
    def f(x: ts.Tensor["n", "m", ts.f32], k: int = 1):
        return x * k

    assert str(ts.why_recompiled(f)) == "f has not been compiled in this session."
    f(np.ones((8, 2), np.float32))
    assert not ts.why_recompiled(f)
    f(np.ones((16, 2), np.float32))
    why = ts.why_recompiled(f)
    assert why
    assert [str(c) for c in why.changes] == ["argument x axis 0: 8 -> 16"]
    f(np.ones((16, 2), np.float32), 3)
    assert "argument k: 1 -> 3" in str(ts.why_recompiled(f))
    assert "argument k" in ts.why_recompiled(f)._repr_html_()


def test_why_names_globals_callees_targets_and_edits(monkeypatch):
    by_callee(X)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "scale", 31.0)
        by_callee(X)
        assert "global helper.scale: 2.0 -> 31.0" in str(ts.why_recompiled(by_callee))
    by_callee(X)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "helper", other_helper)
        by_callee(X)
        assert "callee helper: helper#" in str(ts.why_recompiled(by_callee))


def test_why_sees_a_rerun_cell():
    scope: dict = {"ts": ts, "__name__": "notebook"}

    def run(body: str) -> None:
        import linecache

        name = f"<cell {len(linecache.cache)}>"
        text = f"@ts.function\ndef f(x: ts.Tensor['n', ts.f32]):\n    return {body}\n"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), scope)

    run("x * 2")
    assert scope["f"](X)[0] == 2
    run("x * 3")
    assert scope["f"](X)[0] == 3
    assert "the text of the function was edited" in str(ts.why_recompiled(scope["f"]))


def test_fields_compare():
    a = {"x": {"shape": (2, 3), "dtype": "f32"}, "n": "1"}
    b = {"x": {"shape": (2, 4), "dtype": "f16"}, "m": "2"}
    assert compare(a, a) == []
    assert set(map(str, compare(a, b))) == {
        "x axis 1: 3 -> 4", "x dtype: f32 -> f16", "n is gone (it was 1)", "m is new: 2",
    }  # fmt: skip
    ranks = compare({"x": {"shape": (2,), "dtype": "f32"}}, {"x": {"shape": (2, 3), "dtype": "f32"}})
    assert ranks == [InputChange("x shape", [2], [2, 3])]


def uses_what_is_installed(x):
    marked = pytest.mark.parametrize
    return x * scale if marked is not None and np.sqrt(4.0) > 1 else x


def test_what_is_installed_is_not_followed():
    """A test runner holds every test: to follow it takes minutes and gigabytes."""
    found = {r.path for r in reads.reads(uses_what_is_installed)}
    assert {"scale", "pytest"} <= found and len(found) < 10


class Ring(collections.deque):
    pass


@pytest.mark.parametrize(
    ("held", "key"),
    [
        (collections.deque([1.0]), 0),
        (Ring([1.0]), 0),
        (collections.UserList([1.0]), 0),
        (collections.UserDict(a=1.0), "a"),
        (collections.ChainMap({"a": 1.0}), "a"),
        (collections.defaultdict(float, a=1.0), "a"),
        (array.array("d", [1.0]), 0),
        (bytearray([1]), 0),
    ],
    ids=lambda v: type(v).__name__,
)
def test_items_of_containers_are_seen_to_change(held, key):
    """As a global, as an argument, and as an attribute of an object."""
    x = np.ones(2, np.float32)
    holder = types.SimpleNamespace(held=held)
    closed = ts.function(lambda x: x * held[key])
    given = ts.function(lambda x, held: x * held[key])
    owned = ts.function(lambda x: x * holder.held[key])
    for value in (1, 3, 5):
        held[key] = value
        for _ in range(2):
            assert [float(f[0]) for f in (closed(x), given(x, held), owned(x))] == [value] * 3


def test_arrays_in_a_container_may_be_replaced():
    held = collections.deque([np.ones(2, np.float32)])
    first = ts.function(lambda held: held[0] + 1)
    assert float(first(held)[0]) == 2
    held[0] = np.full(2, 5, np.float32)
    assert float(first(held)[0]) == float(first(held)[0]) == 6
    held.appendleft(np.zeros(2, np.float32))
    assert float(first(held)[0]) == 1
