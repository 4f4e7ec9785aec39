"""What Python lets anybody replace after a function was compiled: the next call computes what Python would."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import tessera as ts
from tessera import nn

X = np.arange(3, dtype=np.float32)


def agree(f: Any, *args: Any) -> None:
    np.testing.assert_allclose(f(*args), f.__wrapped__(*args), rtol=1e-6)


numbers, table, row, settings = [1.0], {"k": 1.0}, np.ones(3, np.float32), SimpleNamespace(k=1.0, w=np.ones(3))


def scaled(x, by=numbers, of=table, plus=row, *, also=settings):
    return x * by[0] * of["k"] * also.k + plus


def through(x, how=scaled):
    return how(x)


@ts.function
def calls(x):
    return scaled(x) + through(x)


def test_values_of_parameters_that_no_call_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    agree(calls, X)
    own = ts.function(through)
    gradient = ts.grad(lambda x: ts.sum(scaled(x)))
    for change in (
        lambda: numbers.__setitem__(0, 3.0),
        lambda: monkeypatch.setitem(table, "k", 5.0),
        lambda: monkeypatch.setattr(settings, "k", 7.0),
        lambda: row.__setitem__(1, 4.0),
        lambda: monkeypatch.setattr(scaled, "__defaults__", ([2.0], table, row)),
        lambda: monkeypatch.setattr(scaled, "__kwdefaults__", {"also": SimpleNamespace(k=11.0)}),
        lambda: monkeypatch.setattr(through, "__defaults__", (lambda x: x - 1,)),
    ):
        change()
        agree(calls, X)
        agree(own, X)
        np.testing.assert_allclose(gradient(X), scaled(np.ones(3)) - scaled(np.zeros(3)))


def test_code_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def inner(x):
        return x + 1

    def other(x):
        return x * 10

    f = ts.function(lambda x: inner(x))
    gradient = ts.grad(lambda x: ts.sum(inner(x)))
    assert f(X).tolist() == [1, 2, 3] and gradient(X).tolist() == [1, 1, 1]
    monkeypatch.setattr(inner, "__code__", other.__code__)
    assert f(X).tolist() == [0, 10, 20] and gradient(X).tolist() == [10, 10, 10]
    straight = ts.value_and_grad(inner)
    assert straight(np.float32(2.0))[1] == 10
    monkeypatch.undo()
    assert straight(x=np.float32(2.0))[1] == 1


class Layer:
    k = 2.0

    def go(self, x):
        return x + 1

    @staticmethod
    def twice(x):
        return 2 * x


class Other(Layer):
    def go(self, x):
        return x + 100


layer = Layer()


@ts.function
def layered(x):
    return layer.go(x) + layer.twice(x) * layer.k


def test_methods_of_an_object_and_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    agree(layered, X)
    monkeypatch.setattr(layer, "go", lambda x: x * 3, raising=False)
    agree(layered, X)
    monkeypatch.setattr(layer, "twice", lambda x: x * 5, raising=False)
    agree(layered, X)
    monkeypatch.setattr(layer, "k", 4.0)
    agree(layered, X)
    monkeypatch.undo()
    agree(layered, X)
    layer.__class__ = Other
    agree(layered, X)
    layer.__class__ = Layer
    agree(layered, X)


def test_a_global_that_hides_a_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ts.function(counted)
    agree(f, X)
    monkeypatch.setitem(globals(), "len", lambda items: 10)
    agree(f, X)
    monkeypatch.undo()
    agree(f, X)


def counted(x):
    return x * len([1, 2, 3])


held = SimpleNamespace(k=1.0, w=np.ones(3, np.float32))
name = "k"


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * getattr(held, "k"),  # noqa: B009
        lambda x: x * getattr(held, "scale", 1.0),
        lambda x: x * 2 if hasattr(held, "scale") else x,
        lambda x: x * vars(held)["k"],
        lambda x: x * held.__dict__["k"],
        lambda x: x * operator.attrgetter("k")(held),
        lambda x: x * getattr(held, name),
        lambda x: x * getattr(held, f"{name}") + getattr(held, "w"),  # noqa: B009
    ],
)
def test_attributes_by_names_that_are_computed(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = ts.function(f)
    agree(f, X)
    monkeypatch.setattr(held, "k", 5.0)
    agree(f, X)
    monkeypatch.setattr(held, "scale", 7.0, raising=False)
    agree(f, X)
    monkeypatch.setattr(held, "w", np.full(3, 9, np.float32))
    agree(f, X)
    monkeypatch.setitem(globals(), "name", "scale")
    agree(f, X)
    monkeypatch.undo()
    agree(f, X)


class Net(nn.Module):
    def __init__(self) -> None:
        self.fc0, self.fc1, self.depth = nn.Linear(3, 3, key=0), nn.Linear(3, 3, key=1), 2

    def forward(self, x):
        for i in range(self.depth):
            x = getattr(self, f"fc{i}")(x)
        return self.extra(x) if hasattr(self, "extra") else x


def test_a_global_model_whose_forward_looks_for_its_layers() -> None:
    net: Any = Net()
    f, given = ts.function(lambda x: net(x)), ts.function(lambda net, x: net(x))
    x = X[None]

    def check() -> None:
        layers = [getattr(net, f"fc{i}") for i in range(net.depth)] + ([net.extra] if hasattr(net, "extra") else [])
        wanted = x
        for layer in layers:
            wanted = wanted @ np.asarray(layer.weight) + np.asarray(layer.bias)
        np.testing.assert_allclose(f(x), wanted, rtol=1e-5)
        np.testing.assert_allclose(given(net, x), wanted, rtol=1e-5)

    check()
    net.depth = 1
    check()
    net.extra = nn.Linear(3, 3, key=2)
    check()
    net.fc0 = nn.Linear(3, 3, key=3)
    check()
    del net.extra
    check()


class Settings(dict):
    __getattr__ = dict.__getitem__


class Raises:
    k = 3.0

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize("settings", [Settings(k=2.0, inner=Settings(k=5.0)), Raises()], ids=["dict", "raises"])
def test_objects_whose_getattr_raises_what_it_likes(settings: Any) -> None:
    f = ts.function(lambda x: x * settings.k)
    given = ts.function(lambda x, settings: x * settings.k)
    assert f(X).tolist() == given(X, settings).tolist() == (X * settings.k).tolist()


# files that change


def _write(path: Path, text: str, at: int) -> None:
    path.write_text("import tessera as ts\n" + text)
    os.utime(path, (4e9 + at, 4e9 + at))  # clocks of files may be coarse
    importlib.invalidate_caches()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes and imports a module, and imports it again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "edited_module", raising=False)
    path, count = tmp_path / "edited_module.py", iter(range(100))

    def write(text: str, load: bool = True) -> Any:
        _write(path, text, next(count))
        if not load:
            return sys.modules["edited_module"]
        if "edited_module" in sys.modules:
            return importlib.reload(sys.modules["edited_module"])
        return importlib.import_module("edited_module")

    yield write
    sys.modules.pop("edited_module", None)


FIRST = "@ts.function\ndef f(x): return x + 1\ndef g(x): return x * 2\n"
SECOND = "@ts.function\ndef f(x): return x + 100\ndef g(x): return x * 200\n"


def test_a_file_that_is_edited_and_imported_again(module: Any) -> None:
    m = module(FIRST)
    f, g = m.f, m.g
    assert f(X).tolist() == [1, 2, 3]
    m = module(SECOND)
    assert m.f(X).tolist() == [100, 101, 102]
    assert f(X).tolist() == [1, 2, 3]
    old = ts.function(lambda x: g(x))  # compiled after its file was edited: of the text that was read before
    assert old(X).tolist() == [0, 2, 4]


def test_a_file_that_is_edited_before_it_was_read(module: Any) -> None:
    m = module(FIRST)
    module(SECOND, load=False)
    with pytest.raises(ts.CompileError, match="has changed since it was imported"):
        m.f(X)
    assert module(SECOND).f(X).tolist() == [100, 101, 102]


def test_autoreload_of_ipython(module: Any, tmp_path: Path) -> None:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "autoreload")
    shell.run_line_magic("autoreload", "2")
    text = "def helper(x): return x + {}\nclass K:\n    a = {}\n    def go(self, x): return x * {}\n"

    def run(code: str) -> Any:
        result = shell.run_cell(code)
        result.raise_error()
        return result.result

    try:
        module(text.format(1, 2.0, 3))
        run("import edited_module, numpy as np, tessera as ts\nfrom edited_module import helper, K")
        run("k, x = K(), np.ones(2)")
        run("f = ts.function(lambda x: helper(x) + k.go(x) * k.a)\ng = ts.grad(lambda x: ts.sum(helper(x) * k.a))")
        assert run("f(x).tolist(), g(x).tolist()") == ([8, 8], [2, 2])
        module(text.format(10, 20.0, 30) + "\n", load=False)
        assert run("f(x).tolist(), g(x).tolist()") == ([611, 611], [20, 20])
    finally:
        shell.run_line_magic("autoreload", "0")
        InteractiveShell.clear_instance()
