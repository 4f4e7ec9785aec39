"""Operators called with what no operator was made for: a result, or an error with a code at the caller's line."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import functions, knobs
from tessera.compiler.graph.operator import FUNCTIONS, MEMBERS, Operator
from tessera.errors import CompileError, LaunchError, TesseraError

OWN = str(Path(ts.__file__).parent)


def odd() -> list[Any]:
    two = ts.ones((2,))
    return [
        None, "a", "", [1.0, 2.0], [[1, 2], [3]], [], (), {}, {"a": 1}, set(), object(), b"x", 1j, float("nan"),
        float("inf"), -1, 2**70, 10**400, 10**5000, True, 1.5, np.float32(1), np.str_("a"), np.array(["a"]),
        np.array([object()]), two, ts.ones((2, 2)), ts.f32, int, print, slice(1), range(3), ..., NotImplemented, [None],
        ["a"], [two, 1], np.datetime64("2020-01-01"), np.ma.masked_array([1.0], [True]), np.array([1.0], ">f4"),
    ]  # fmt: skip


def usual(operator: Operator) -> list[Any]:
    """Arguments that most operators take."""
    known = {"shape": (2, 2), "axis": 0, "dtype": ts.f32, "equation": "ij,jk->ik"}
    x = ts.ones((2, 2))
    return [
        ([x, x] if p.variadic else x) if p.operand else known.get(p.name, 1) if p.required else p.default
        for p in operator.parameters
    ]


def demand_coded(function: Any, args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except TesseraError as error:
        assert error.code != "TS900", (args, error)
        assert not [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(OWN)]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda x, theirs: ts.exp(theirs), "TS501"),
        (lambda x, theirs: ts.stack([x, theirs]), "TS501"),
        (lambda x, theirs: x + theirs, "TS501"),
        (lambda x, theirs: theirs + x, "TS501"),
        (lambda x, theirs: ts.mse(x, theirs), "TS501"),
        (lambda x, theirs: ts.exp(np.array([1, None])), "TS501"),
        (lambda x, theirs: x.__setitem__(..., theirs), "TS207"),
        (lambda x, theirs: x[theirs], "TS207"),
    ],
)
def test_arrays_that_cannot_be_read_are_refused_at_the_call(call, code):
    """PyTorch's parameters, whose gradients would be lost, and arrays of objects."""
    torch = pytest.importorskip("torch")
    with pytest.raises(LaunchError) as raised:
        call(ts.ones((3,)), torch.nn.Parameter(torch.ones(3)))
    (found,) = raised.value.diagnostics
    assert found.code == code and found.span.file == __file__ and found.span.line == call.__code__.co_firstlineno


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_odd_arguments(name: str) -> None:
    demand_errors_with_codes(getattr(ts.op, name), FUNCTIONS[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [f"{space}.{name}" for space, names in MEMBERS.items() for name in sorted(names)])
def test_odd_arguments_of_functions_of_modules(path: str) -> None:
    space, _, name = path.partition(".")
    demand_errors_with_codes(getattr(getattr(ts, space), name), MEMBERS[space][name])


def demand_errors_with_codes(function: Any, operator: Operator) -> None:
    given = usual(operator)
    for i in range(len(given)):
        for value in odd():
            demand_coded(function, (*given[:i], value, *given[i + 1 :]))
    demand_coded(function, ())
    demand_coded(function, (1,) * 9)


def test_lists_are_taken_as_numpy_takes_them():
    np.testing.assert_allclose(ts.exp([1.0, 2.0]).numpy(), np.exp(np.array([1.0, 2.0], np.float32)), rtol=1e-6)
    assert ts.maximum([1, 5], ts.tensor([3, 4])).tolist() == [3, 5]
    assert ts.abs(np.float32(-2)).dtype == ts.f32
    assert ts.sum([[1, 2], [3, 4]], axis=0).tolist() == [4, 6]
    assert ts.tensor([1, 2]).add([3, 4]).tolist() == [4, 6]


def test_the_caret_stands_under_the_call():
    with pytest.raises(LaunchError) as caught:
        ts.abs(None)
    assert "ts.abs(None)\n" in str(caught.value)
    assert "^^^^^^^^^^^^" in str(caught.value)
    with pytest.raises(CompileError, match="needs a number known at compile time, not 'a'"):
        ts.full_like(ts.ones((2,)), "a")


def raised(f: Any) -> list[str]:
    with pytest.raises(TesseraError) as caught:
        f()
    return [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]


@ts.function
def added(x, y):
    return x + y


REFUSED = {
    "operator": lambda: ts.ones((2, 3)) + ts.ones((4, 5)),
    "matmul": lambda: ts.ones((2, 3)) @ ts.ones((4, 5)),
    "array on the left": lambda: np.ones((4, 5)) + ts.ones((2, 3)),
    "operator function": lambda: ts.softmax(ts.ones((2,)), axis=3),
    "method": lambda: ts.ones((2,)).reshape(5),
    "conversion": lambda: float(ts.ones((2,))),
    "subscript": lambda: ts.ones((2,))[7],
    "creation": lambda: ts.rand(-1),
    "tensor": lambda: ts.tensor("a"),
    "device": lambda: ts.ones((2,)).to("tpu"),
    "function": lambda: added(ts.ones((2, 3)), ts.ones((4, 5))),
    "compile": lambda: ts.compile(added, target="toaster"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_tracebacks_hold_none_of_our_frames(what: str) -> None:
    assert all(name == __file__ for name in raised(REFUSED[what]))
    with knobs.tracebacks.override("1"):
        assert any(name.startswith(OWN) for name in raised(REFUSED[what]))


PROGRAMS = {
    **{f"ts.{n}": getattr(ts, n) for n in functions.HOME},
    **{f"ts.linalg.{n}": getattr(ts.linalg, n) for n in ts.linalg.HOME},
    **{f"ts.fft.{n}": getattr(ts.fft, n) for n in ts.fft.HOME},
    **{f"ts.nn.{n}": getattr(ts.nn, n) for n in ("huber", "binary_cross_entropy", "rope", "alibi")},
}
NEEDED = {"q": 0.5, "sizes": (1, 2), "axis": 0, "start": 0, "length": 1, "factor": 1, "count": 2, "n": 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_odd_arguments_of_functions_that_are_made_of_operators(name: str) -> None:
    """An error of ours: with a code, or one of Python's that says what is wrong, without our frames."""
    two, given = ts.ones((2, 2)), dict[str, Any]()
    for p in inspect.signature(PROGRAMS[name]).parameters.values():
        if p.kind is not p.VAR_POSITIONAL:
            usual = [two, two] if p.name == "xs" else NEEDED.get(p.name, two)
            given[p.name] = usual if p.default is p.empty else p.default
    for parameter in given:
        for value in odd():
            if isinstance(value, int) and value > 10**400:  # which Python itself cannot write
                continue
            try:
                PROGRAMS[name](**{**given, parameter: value})
            except Exception as error:
                frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(OWN)]
                assert not frames, (parameter, value, error, frames[-1])
