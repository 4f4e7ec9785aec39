"""Passes, schedulers and targets from outside the package run programs, and are part of what caches go by."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler import extensions, levels, machines
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.core import Op
from tessera.compiler.targets import base
from tessera.errors import CompileError, TargetError
from tests.conftest import require

ROOT = Path(__file__).parents[2]
X = np.linspace(-1, 1, 600, dtype=np.float32)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = dict(extensions.PASSES), dict(extensions.SCHEDULERS), dict(base._registered), dict(machines.MACHINES)
    yield
    for now, then in zip(
        (extensions.PASSES, extensions.SCHEDULERS, base._registered, machines.MACHINES), before, strict=True
    ):
        now.clear()
        now.update(then)  # type: ignore[arg-type]
    base._targets.clear()
    extensions.changed()


def double_constants(func: Op) -> None:
    """A pass that changes results, so that it shows whether it ran."""
    for op in func.walk():
        if op.name == "graph.constant":
            op.attrs["value"] = 2 * op.attrs["value"]  # type: ignore[operator]


@ts.function
def shifted(x: ts.Tensor["N", ts.f32]):  # type: ignore[name-defined]
    return x + 1.0


@pytest.mark.parametrize("page, files", [("adding-a-pass", ["multiply", "unfused"]), ("adding-a-target", ["paper"])])
def test_the_pages_show_the_programs_of_this_folder(page: str, files: list[str]) -> None:
    """Which are programs that run: every Python block of a page is run by tests/unit/project/test_docs.py."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8"), re.S)
    assert blocks == [(Path(__file__).parent / f"{file}.py").read_text(encoding="utf-8") for file in files]


def test_a_pass_changes_functions_that_have_run_before_and_after_it_they_are_as_they_were() -> None:
    np.testing.assert_array_equal(shifted(X), X + 1)
    key = ts.compile(shifted).built.key
    ts.compiler.register_pass("double_constants")(double_constants)
    np.testing.assert_array_equal(shifted(X), X + 2)
    assert ts.compile(shifted).built.key != key
    extensions.remove("double_constants")
    np.testing.assert_array_equal(shifted(X), X + 1)
    assert ts.compile(shifted).built.key == key


def test_eager_operators_go_through_passes_from_outside() -> None:
    x = ts.asarray(X)
    seen: list[str] = []
    np.testing.assert_array_equal((x * x).numpy(), X * X)
    ts.compiler.register_pass("look", version=str(time.time_ns()))(lambda func: seen.append(func.attrs["sym_name"]))
    np.testing.assert_array_equal((x * x).numpy(), X * X)
    assert seen == ["mul"]


def test_another_text_or_version_of_a_pass_is_another_key() -> None:
    def keys(given: Any, **options: Any) -> str:
        ts.compiler.register_pass("one", **options)(given)
        return ts.compile(shifted).built.key

    def first(func: Op) -> None: ...
    def second(func: Op) -> None: ...

    assert len({keys(first), keys(second), keys(first, version="2"), keys(first, stage="tile")}) == 4
    assert keys(first) == keys(first)


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_a_pass_over_kernels_runs_on_every_target(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")

    @ts.compiler.register_pass("negate_stores", stage="tile")
    class NegateStores:
        def run(self, kernel: Op) -> None:
            from tessera.compiler.tile.builder import TileBuilder

            for op in [op for op in kernel.walk() if op.name == "tile.store"]:
                assert op.block is not None
                b = TileBuilder(op.block, op.block.ops.index(op), op.span)
                op.set_operand(1, b.map("neg", op.operands[1]))

    np.testing.assert_array_equal(ts.compile(shifted, target=target)(X), -(X + 1))
    assert "neg(" in shifted.ir("tile", target)


def test_the_editor_runs_them_where_they_are_registered() -> None:
    ts.compiler.register_pass("double_constants")(double_constants)
    graph = levels.graph(analyse(shifted.definition(), None, {}), {})
    assert [op.attrs["value"] for op in graph.walk() if op.name == "graph.constant"] == [2.0]


def invalid(func: Op) -> None:
    block = func.region.block
    block.ops.append(block.ops.pop(0))  # the terminator is no longer last


def raising(func: Op) -> None:
    raise KeyError("inside")


def replacing(func: Op) -> Op:
    return func.region.block.ops[0]


@pytest.mark.parametrize(
    "given, why", [(invalid, "InvalidIR"), (raising, "KeyError"), (replacing, "gives no graph.func")]
)
def test_faults_of_a_pass_are_said_as_its_own(given: Any, why: str) -> None:
    ts.compiler.register_pass("faulty")(given)
    with pytest.raises(CompileError, match=rf"TS615[\s\S]*pass faulty[\s\S]*{why}"):
        shifted(X)


@pytest.mark.parametrize(
    "options, why",
    [
        ({"name": "decompose"}, "the compiler has a pass of that name"),
        ({"name": "mine", "after": "mask_tails"}, "the stage 'graph' has hold_finite"),
        ({"name": "mine", "stage": "metal"}, "its stage is one of graph, kernel, tile, target"),
        ({"name": "my pass"}, "its name is an identifier"),
    ],
)
def test_what_cannot_be_registered_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(CompileError, match=rf"TS614[\s\S]*{why}"):
        ts.compiler.register_pass(**options)(double_constants)
    with pytest.raises(CompileError, match=r"TS614[\s\S]*a class with a method 'run'"):
        ts.compiler.register_pass("mine")(object())
    assert not extensions.PASSES


def test_passes_stand_where_they_say() -> None:
    from tessera.compiler.pipeline import passes

    for name, after in (("one", "decompose"), ("two", "one"), ("three", "")):
        ts.compiler.register_pass(name, after=after)(double_constants)
    names = [p.name for p in passes("graph")]
    at = names.index("decompose")
    assert names[at : at + 3] == ["decompose", "one", "two"] and names[-1] == "three"


# schedulers


def test_a_scheduler_decides_what_runs_together() -> None:
    from tests.extension.unfused import unfused

    @ts.function
    def f(x: ts.Tensor["N", "M", ts.f32]):  # type: ignore[name-defined]
        return ts.softmax(ts.exp(x) @ ts.exp(x).T)

    x = X.reshape(20, 30)
    ts.scheduler.register("unfused")(unfused)
    alone = f.with_config(scheduler="unfused")
    want = np.exp(x) @ np.exp(x).T
    want = np.exp(want - want.max(-1, keepdims=True))
    np.testing.assert_allclose(alone(x), want / want.sum(-1, keepdims=True), rtol=1e-4)
    np.testing.assert_array_equal(alone(x), f.with_schedule(ts.Schedule(scheduler="unfused"))(x))
    kernels = [len(ts.compile(g, dims={"N": 20, "M": 30}).built.plan.launches) for g in (f, alone)]
    assert kernels[0] < kernels[1]


def test_schedulers_that_nobody_registered_and_their_faults() -> None:
    with pytest.raises(CompileError, match=r"TS614[\s\S]*no scheduler 'missing'"):
        shifted.with_config(scheduler="missing")(X)
    with pytest.raises(CompileError, match=r"TS404[\s\S]*scheduler is the name"):
        shifted.with_config(scheduler=3)(X)
    ts.scheduler.register("faulty")(lambda func, target: func)
    with pytest.raises(CompileError, match=r"TS615[\s\S]*scheduler faulty gives no schedule.func"):
        shifted.with_config(scheduler="faulty")(X)


def test_another_text_of_a_scheduler_is_another_key() -> None:
    from tests.extension.unfused import unfused

    keys: set[str] = set()
    for version in ("1", "2"):
        ts.scheduler.register("unfused", version=version)(unfused)
        keys.add(ts.compile(shifted.with_config(scheduler="unfused")).built.key)
    assert len(keys) == 2


# targets


def test_a_target_runs_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.extension.paper import Paper

    ts.hardware.register("paper")(Paper)

    @ts.function
    def f(x: ts.Tensor[20, 30, ts.f32], y: ts.Tensor[30, ts.f32]):
        total = ts.sum(ts.where(x > 0.0, x, -x) * y, axis=0)
        return ts.exp(total) / 8.0, ts.max(x)

    x, y = X.reshape(20, 30), X[:30]
    want = np.exp((np.abs(x) * y).sum(0)) / 8
    got, most = ts.compile(f, target="paper")(x, y)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert most == x.max() and "def run(buffers)" in f.ir("target", "paper")
    monkeypatch.setenv("TESSERA_TARGET", "paper")
    np.testing.assert_allclose(f(x, y)[0], want, rtol=1e-5)
    assert "paper" in str(f.explain())


def test_a_target_refuses_what_it_does_not_write() -> None:
    from tests.extension.paper import Paper

    ts.hardware.register("paper")(Paper)

    @ts.function
    def product(x: ts.Tensor[20, 30, ts.f32]):
        return x @ x.T

    with pytest.raises(TargetError, match=r"TS602[\s\S]*does not write"):
        ts.compile(product, target="paper")


def test_a_targets_own_pass_and_machine() -> None:
    from tests.extension.paper import Paper

    class Small(Paper):
        name = "small"
        passes = (*Paper.passes, "count")

    seen: list[str] = []
    ts.compiler.register_pass("count", stage="target", optional=True)(lambda kernel: seen.append("count"))
    cpu = machines.MACHINES["cpu"]
    ts.hardware.register(
        "small", replace(cpu, name="small", sizes=replace(cpu.sizes, elements=128), aliases=("tiny",))
    )(Small)
    compiled = ts.compile(shifted, target="tiny", dims={"N": 600})
    assert compiled.target.name == "small" and seen == ["count"]
    assert [k.grid for k in compiled.built.plan.launches] == [(5,)]  # in blocks of 128
    np.testing.assert_array_equal(compiled(X), X + 1)
    ts.compile(shifted, target="cpu", dims={"N": 600})
    assert seen == ["count"]


def test_targets_that_cannot_be_registered_or_used() -> None:
    from tests.extension.paper import Paper

    for name in ("cpu", "h100", "auto", "Paper", "emulator:mine"):
        with pytest.raises(CompileError, match=r"TS614"):
            ts.hardware.register(name)(object)
    ts.hardware.register("empty")(object)
    with pytest.raises(CompileError, match=r"TS614[\s\S]*it has no name, device, passes, fingerprint, compile, load"):
        ts.compile(shifted, target="empty")
    ts.hardware.register("far")(type("Far", (Paper,), {"device": "moon"}))
    with pytest.raises(CompileError, match=r"TS614[\s\S]*its device is one of cpu, cuda, not 'moon'"):
        ts.compile(shifted, target="far")
    with pytest.raises(TargetError, match=r"TS601[\s\S]*empty"):  # it is among those that are known
        ts.compile(shifted, target="emty")
