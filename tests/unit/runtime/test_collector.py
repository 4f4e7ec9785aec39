"""Compiling leaves Python's collector of cycles alone: a model's IR is hundreds of thousands of objects, all in use."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

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


# A process of its own: in that of the tests, what was there before them is frozen.
OLD = """
    import gc
    from tessera import collector

    collections = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: collections.append(info["generation"]) if phase == "start" else None)

    def made(count, old):
        collections.clear()
        with collector.collector_paused(old=old):
            rings = [[] for _ in range(count)]
            for ring in rings:
                ring.append(ring)
        young = {id(o) for o in gc.get_objects(0)}
        return sum(id(ring) in young for ring in rings)

    assert made(collector.MANY, old=False) == 0 and collections  # looked at, and moved to those that are older
    assert made(collector.MANY, old=True) == 0 and not collections
    assert gc.collect() >= collector.MANY  # rings are found by a full collection
    for _ in range(collector.MOST // collector.MANY - 1):
        made(collector.MANY, old=True)
        assert not collections
    made(collector.MANY, old=True)
    assert 2 in collections  # no more may wait
    gc.freeze()
    frozen = gc.get_freeze_count()
    made(collector.MANY, old=True)
    assert gc.get_freeze_count() == frozen
"""


def test_many_objects_are_old_at_once_and_do_not_wait_for_ever() -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(OLD)], check=True)


AHEAD = """
    import gc
    import tessera as ts

    @ts.function
    def deep(x: ts.Tensor["N", ts.f32]):
        for k in range(300):
            x = x.sin() * 0.5 if k % 2 else x.roll(1, 0)
        return x

    young = []
    gc.collect()
    gc.callbacks.append(lambda phase, info: young.append(len(gc.get_objects(0))) if phase == "start" else None)
    ts.compile(deep, target="cpu", dims={"N": 64})
    made = [[] for _ in range(1000)]  # the collector comes by itself
    assert young and young[0] < 10_000, young
"""


def test_what_was_compiled_ahead_is_old_at_once(tmp_path: Path) -> None:
    file = tmp_path / "ahead.py"  # functions are read from their files
    file.write_text(textwrap.dedent(AHEAD), encoding="utf-8")
    subprocess.run([sys.executable, file], check=True, env=os.environ | {"TESSERA_CACHE_DIR": str(tmp_path)})
