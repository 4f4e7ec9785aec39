"""Errors that reach a user carry none of our frames, whichever entry they leave by; a knob shows them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.tracebacks import outward

OURS = os.path.dirname(ts.__file__) + os.sep
A, B = np.ones(3, np.float32), np.ones(4, np.float32)


@ts.function
def added(x: ts.Tensor["N", ts.f32], w: ts.Tensor["N", ts.f32]):
    return x + w


@ts.function
def wrong(x: ts.Tensor["N", ts.f32]):
    return x @ x.foo


@ts.kernel
def twice(x: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.f32]:
    return x * 2


@ts.profile_memory
def profiled() -> Any:
    return added(A, B)


def in_a_profile() -> None:
    with ts.profiler():
        added(A, B)


REFUSED: dict[str, Callable[[], Any]] = {
    "a call": lambda: added(A, B),
    "a call of what is wrong": lambda: wrong(A),
    "a call without an argument": lambda: added(A),
    "compile": lambda: ts.compile(wrong),
    "an unknown target": lambda: ts.compile(added, target="xx"),
    "f.compile": lambda: wrong.compile(),
    "f.ir": lambda: wrong.ir(),
    "f.explain": lambda: wrong.explain(),
    "compiled code": lambda: ts.compile(added, target="reference", dims={"N": 3})(B, B),
    "an eager function": lambda: ts.exp(A, A),
    "an eager operator": lambda: ts.tensor.rand((3,)) + ts.tensor.rand((4,)),
    "an eager method": lambda: ts.tensor.rand((3,)).reshape(7),
    "a creation": lambda: ts.tensor.rand((-1,)),
    "a decorator of functions": lambda: ts.function(3),  # type: ignore[call-overload]
    "a decorator of kernels": lambda: ts.kernel(3),  # type: ignore[call-overload]
    "numerics": lambda: ts.numerics(policy="@foo"),
    "a policy": lambda: ts.accum("xx"),
    "an annotation": lambda: ts.Tensor["N+", ts.f32],
    "an annotation of a tile": lambda: ts.Tile["N+", ts.f32],
    "a schedule": lambda: ts.Schedule(block=0),
    "with_schedule": lambda: added.with_schedule(ts.Schedule(block=(1, 2, 3, 4))),
    "a space of configurations": lambda: ts.autotune(space={}),
    "tune": lambda: twice.tune(A),
    "a mesh": lambda: ts.mesh(gpus=-1),
    "set_num_threads": lambda: ts.set_num_threads(-1),
    "profile_memory": profiled,
    "a profile": in_a_profile,
    "a name that is not there": lambda: ts.sofmax,
    "a level that is not there": lambda: added.ir("nope"),
    "an operator that is not there": lambda: ts.op.nope,
    "a layer that is not there": lambda: ts.nn.nope,
    "the length of a number": lambda: len(ts.ones(())),
    "a loop over a number": lambda: list(ts.ones(())),
    "a tensor as an index": lambda: [1, 2][ts.ones((2,))],
}
PYTHON_S_OWN = (AttributeError, TypeError, ValueError)


def frames(refused: Callable[[], Any]) -> list[str]:
    with pytest.raises(Exception) as e:
        refused()
    assert type(e.value).__module__.startswith("tessera") or isinstance(e.value, PYTHON_S_OWN), repr(e.value)
    assert e.value.__cause__ is None and (e.value.__context__ is None or e.value.__suppress_context__)
    return [f.name for f in traceback.extract_tb(e.value.__traceback__) if f.filename.startswith(OURS)]


@pytest.mark.parametrize("entry", REFUSED)
def test_none_of_our_frames(entry: str) -> None:
    assert frames(REFUSED[entry]) == []


@pytest.mark.parametrize("entry", ["a call", "a policy", "set_num_threads"])
def test_a_knob_shows_them(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TRACEBACKS", "1")
    assert frames(REFUSED[entry])


def test_a_fault_and_what_the_user_s_code_raises_keep_their_frames() -> None:
    """They have to be looked for."""

    @outward
    def calls(f: Callable[[], Any]) -> Any:
        return f()

    def raises() -> Any:
        raise ValueError("the user's own")

    for f, last in ((raises, "raises"), (lambda: int("x"), "<lambda>")):
        with pytest.raises(ValueError) as e:
            calls(f)
        names = [frame.name for frame in traceback.extract_tb(e.value.__traceback__)]
        assert names[-1] == last and "call" in names
