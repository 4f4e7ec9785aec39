"""Compiling leaves Python's collector of cycles alone: a model's IR is hundreds of thousands of objects, all in use."""

from __future__ import annotations

import gc

import pytest

import tessera as ts
from tessera.collector import collector_paused
from tessera.compiler import pipeline
from tessera.errors import CompileError


def test_the_collector_rests_while_something_is_compiled_and_works_behind_it() -> None:
    during: list[bool] = []

    def watched(name: str, op: object) -> None:
        during.append(gc.isenabled())

    @ts.function
    def f(x: ts.Tensor["N", ts.f32]):  # type: ignore[name-defined]
        return x + 0.8125

    @ts.function
    def wrong(x: ts.Tensor["N", ts.f32]):  # type: ignore[name-defined]
        return x.no_such_name

    with pytest.MonkeyPatch.context() as patched:
        lower = pipeline.lower
        patched.setattr(pipeline, "lower", lambda unit, target, after=None: lower(unit, target, watched))
        ts.compile(f, target="cpu", dims={"N": 3})
    assert during and not any(during) and gc.isenabled()
    with pytest.raises(CompileError):
        ts.compile(wrong, target="cpu", dims={"N": 3})
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with collector_paused(), collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
