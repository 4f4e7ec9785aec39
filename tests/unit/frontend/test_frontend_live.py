"""Live functions: what they read from outside, what changes them, which exceptions become findings."""

from __future__ import annotations

import importlib
import linecache
import math
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f16, f32
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.result import Static, changed
from tessera.compiler.ir.types import TensorType
from tessera.errors import CompileError
from tests.frontend_harness import agree, analysed, golden

X = np.arange(6, dtype=np.float32).reshape(2, 3)
K = 2
W = np.ones((3, 3), np.float32)


def codes(f: Callable[..., object], *args: object) -> list[str]:
    return [d.code for d in analysed(f, *args).diagnostics]


class TestDependencies:
    def test_a_changed_global_is_noticed(self) -> None:
        def f(x):
            return x * K

        a = analysed(f, X)
        assert not changed(a)
        f.__globals__["K"] = 3
        try:
            assert changed(a) == [("K", "2", "3")]
            np.testing.assert_array_equal(golden(f, X), X * 3)
        finally:
            f.__globals__["K"] = 2

    def test_a_changed_closure_and_callee_are_noticed(self) -> None:
        scale = 2.0

        def helper(x):
            return x * scale

        def f(x):
            return helper(x) + inner[0]

        inner = [1.0]
        a = analysed(f, X)
        inner[0] = 5.0
        assert [c[0] for c in changed(a)] == ["inner"]
        inner[0] = 1.0
        assert not changed(a)

        def other(x):
            return x + scale

        helper = other  # noqa: F811
        assert [c[0] for c in changed(a)] == ["helper"]

    def test_what_a_function_called_at_compile_time_reads(self) -> None:
        table = {"a": 1.0}

        def width(n):
            return table["a"] + n

        def f(x):
            return x * width(2)

        a = analysed(f, X)
        table["a"] = 2.0
        assert [c[0] for c in changed(a)] == ["width"]

    def test_another_array_of_the_same_type_changes_nothing(self) -> None:
        def f(x):
            return x @ W

        a = analysed(f, X)
        f.__globals__["W"] = W * 2
        try:
            assert not changed(a)  # it is read anew under its name at each launch
            assert a.capture_names == ("W",)
        finally:
            f.__globals__["W"] = W

    def test_attributes_that_are_read(self) -> None:
        settings = types.SimpleNamespace(width=2, unused=1)

        def f(x):
            return x * settings.width

        a = analysed(f, X)
        assert dict(a.dependencies)["settings.width"] == "2"


class TestLiveCalls:
    def test_ordinary_functions_of_ordinary_values_run(self) -> None:
        def f(x):
            return x * math.hypot(3, 4) + np.float32(0.5) + np.pi

        np.testing.assert_allclose(golden(f, X), X * 5 + 0.5 + math.pi, rtol=1e-6)

    def test_their_exceptions_are_findings(self) -> None:
        def check(n):
            if n > 2:
                raise ValueError("at most 2")
            return n

        def f(x):
            return x * check(x.shape[1]) + math.sqrt(-1)

        a = analysed(f, X)
        assert [d.code for d in a.diagnostics] == ["TS107", "TS107"]
        assert "ValueError" in a.diagnostics[0].message and "at most 2" in a.diagnostics[0].message

    def test_decorated_functions_are_inlined_with_the_chain_of_calls(self) -> None:
        @ts.function
        def inner(x: Tensor["B", 4]):
            return x * 2

        @ts.function
        def bad(x: Tensor["B", "D"]):
            return x @ x

        def middle(x):
            return bad(x)

        def f(x):
            return middle(x), inner(x)

        a = analysed(f, X)
        assert [d.code for d in a.diagnostics] == ["TS203", "TS209"]
        notes = [n.message for n in a.diagnostics[0].notes]
        assert notes[-2:] == ["bad was called from middle", "middle was called from f"]
        assert a.diagnostics[0].function == "bad"

    def test_arrays_meet_foreign_functions(self) -> None:
        def f(x):
            return np.exp(x)

        (d,) = analysed(f, X).diagnostics
        assert d.code == "TS105" and "use ts.exp" in d.message and d.fixes[0].edits[0].text == "ts.exp"

    def test_method_of_a_live_object(self) -> None:
        class Model:
            def __init__(self):
                self.w = W
                self.scale = 0.5

            def forward(self, x):
                return x @ self.w * self.scale

            def __call__(self, x):
                return self.forward(x) + 1

        model = Model()

        def f(x):
            return model(x) + model.forward(x)

        agree(f, X)


class TestArguments:
    def test_shapes_must_fit_annotations(self) -> None:
        def f(x: Tensor["B", "B"], y: Tensor["B", 4, f32]):
            return x

        a = analyse(live_definition(f), {"x": TensorType((2, 3), f32), "y": TensorType((2, 5), f16)})
        assert sorted(d.code for d in a.diagnostics) == ["TS208", "TS209", "TS304"]
        assert any("B is 2 (axis 0 of x) and 3 (axis 1 of x)" in d.message for d in a.diagnostics)

    def test_derived_sizes_are_solved_or_refuted(self) -> None:
        def f(x: Tensor["B*H", "S"], h: ts.Const["H"]):
            return x.reshape(B, H, S)

        good = analyse(live_definition(f), {"x": TensorType((64, 5), f32), "h": Static(8)})
        assert good.ok and [str(e.text) for e in good.expressions if e.kind == "return"] == ["[8, 8, 5] f32"]
        bad = analyse(live_definition(f), {"x": TensorType((65, 5), f32), "h": Static(8)})
        assert [d.code for d in bad.diagnostics] == ["TS209"]

    def test_dims_fix_symbols_before_evaluation(self) -> None:
        def f(x: Tensor["B", "H"]):
            if H > 224:
                return x.sum(-1)
            return x

        assert analyse(live_definition(f)).op is None
        wide = analyse(live_definition(f), dims={"H": 300})
        assert wide.op is not None and [e.text for e in wide.expressions if e.kind == "return"] == ["[B] f32"]

    def test_missing_argument_and_default(self) -> None:
        def f(x, k=3):
            return x * k

        np.testing.assert_array_equal(golden(f, X), X * 3)
        assert [d.code for d in analyse(live_definition(f), {}).diagnostics] == ["TS105"]

    def test_what_is_not_known_is_undecided_and_no_error(self) -> None:
        def f(x: Tensor, y):
            return (x @ y).softmax(nonsense=3)[7].whatever

        a = analyse(live_definition(f))
        assert a.ok and a.op is None
        assert [d.message for d in a.undecided] == ["the shape of x must be known", "the type of y must be known"]

    def test_containers_of_tensors(self) -> None:
        def f(params, xs):
            return sum([x @ params["w"] + params["b"] for x in xs])

        t = TensorType((2, 3), f32)
        a = analyse(
            live_definition(f),
            {"params": {"w": TensorType((3, 3), f32), "b": Static(1.0)}, "xs": (t, t)},  # type: ignore[dict-item]
        )
        assert a.ok and [p.name for p in a.params] == ["params.w", "xs.0", "xs.1"]


def test_a_function_without_source_is_a_finding() -> None:
    names: dict[str, object] = {}
    exec("def f(x):\n    return x\n", names)
    with pytest.raises(CompileError) as e:
        live_definition(names["f"])  # type: ignore[arg-type]
    assert e.value.code == "TS109"
    with pytest.raises(CompileError):
        live_definition(len)


def test_a_file_that_has_changed_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "changing_module.py"
    path.write_text("def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("changing_module")
    path.write_text("def f(x, y):\n    return x + y\n")
    linecache.checkcache()
    with pytest.raises(CompileError) as e:
        live_definition(module.f)
    assert e.value.code == "TS109" and "has changed" in str(e.value)


def test_nested_functions_see_the_names_of_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import tessera as ts

K = 10.0

def mapped(x):
    def scaled(y):
        return y * K

    return ts.remat(lambda y: scaled(y) + K)(x)
"""
    (tmp_path / "another_module.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("another_module")

    def f(x):
        return module.mapped(x) * K

    np.testing.assert_array_equal(golden(f, X), (X * 10 + 10) * K)  # and not those of the caller's file


def test_captured_arrays_are_taken_out_of_containers() -> None:
    pair, named = [X, X + 1], {"a": X, "b": X * 2}

    def summed(x, *arrays, a=0, b=0):
        for array in arrays:
            x = x + array
        return x + a + b

    def f(x):
        first, second = pair
        return summed(x, *pair, **named) + first * second + sum([v for _, v in named.items()])

    def wanted() -> np.ndarray:
        return X + sum(pair) + sum(named.values()) * 2 + pair[0] * pair[1]

    compiled = ts.function(f)
    np.testing.assert_array_equal(compiled(X), wanted())
    pair[0] = X * 5
    pair[1][:] = 7
    np.testing.assert_array_equal(compiled(X), wanted())


def test_a_fix_that_does_not_mend_is_not_offered() -> None:
    def f(x: Tensor["B", "D"], weigth_t: Tensor["E", "D"]):
        return x @ weigth

    def g(x: Tensor["B", "D"], weight: Tensor["D", "E"]):
        return x @ weigth

    (d,) = analyse(live_definition(f)).diagnostics
    assert d.code == "TS103" and "weigth_t" in d.message and not d.fixes  # [B, D] @ [E, D] would be the next mistake
    (d,) = analyse(live_definition(g)).diagnostics
    assert d.fixes[0].edits[0].text == "weight"


def test_every_error_is_reported() -> None:
    def f(x):
        a = x @ x
        b = x.sum(axis=5)
        c = x.reshape(7)
        return a, b, c

    assert codes(f, X) == ["TS203", "TS204", "TS205"]


def test_deep_nesting_is_a_finding() -> None:
    text = "import tessera as ts\n@ts.function\ndef f(x: ts.Tensor['D']):\n    return " + "-" * 400 + "x\n"
    from tessera.compiler.frontend.incremental import FileAnalysis

    file = FileAnalysis("deep.py")
    file.update(text)
    assert [d.code for d in file.diagnostics] in ([], ["TS102"], ["TS101"])


def test_lambdas_on_one_line_are_told_apart() -> None:
    x = np.arange(3, dtype=np.float32)
    add, choose, nested, short = ts.function(lambda x: x + 1), ts.function(lambda x: x * 5 if x.ndim else x), ts.function(lambda x: (lambda y: y - 1)(x)), ts.function(lambda x: x.ndim and x * 7)  # fmt: skip  # noqa: E501
    for f, want in ((add, x + 1), (choose, x * 5), (nested, x - 1), (short, x * 7)):
        np.testing.assert_array_equal(f(x), want)


KEPT: list[object] = []
TABLE: dict[str, object] = {}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: KEPT.append(x),
        lambda x: TABLE.update(a=x),
        lambda x: TABLE.setdefault("a", x),
    ],
    ids=["append", "update", "setdefault"],
)
def test_lists_from_outside_are_not_changed(change):
    """What a program makes of tensors exists inside alone, and only when it is compiled."""

    @ts.function
    def f(x):
        change(x)
        return x

    with pytest.raises(ts.CompileError, match=r"(?s)TS102.*no side effects: a (list|dict) from outside cannot be cha"):
        f(np.ones(2, np.float32))
    assert not KEPT and not TABLE


NESTED: dict = {"rows": [], "of": ([],)}


def kept_in_a_default(x, seen=[]):  # noqa: B006
    seen.append(x)
    return x


@pytest.mark.parametrize(
    "change",
    [
        lambda x: NESTED["rows"].append(x),
        lambda x: NESTED["of"][0].append(x),
        lambda x: [rows.append(x) for rows in NESTED["of"]],
        kept_in_a_default,
    ],
    ids=["in a dict", "in a tuple", "in a loop", "default"],
)
def test_lists_in_what_is_outside_are_not_changed(change):
    with pytest.raises(ts.CompileError, match=r"(?s)TS102.*no side effects: a list from outside cannot be changed"):
        ts.function(lambda x: (change(x), x)[1])(np.ones(2, np.float32))
    assert NESTED == {"rows": [], "of": ([],)} and kept_in_a_default.__defaults__ == ([],)


def test_lists_of_the_program_are_changed():
    @ts.function
    def f(x):
        own, table = [x], {}
        own.append(2 * x)
        own += [3 * x]
        table["a"] = own[2]
        TABLE["a"] = x if KEPT else 1  # fails below
        return own[1] + table["a"]

    with pytest.raises(ts.CompileError, match="TS102") as raised:
        f(np.ones(2, np.float32))
    assert [d.message[:34] for d in raised.value.diagnostics] == ["a function has no side effects: a "]
