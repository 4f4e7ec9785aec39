"""`tessera.compile`: code ahead of a call, for any target, and everything that can be asked of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tessera as ts
from tessera.errors import CompileError, LaunchError, TargetError
from tessera.runtime.code.plan import LaunchPlan

TARGETS = ["reference", "cpu"]


@ts.function
def scores(x: ts.Tensor["B", "S", ts.f32], b: ts.Tensor["S", ts.f32], causal: bool = True):
    y = ts.softmax(x * 2.0 + b)
    return y if causal else -y


def arrays(b: int = 2, s: int = 8):
    rng = np.random.default_rng(0)
    return rng.standard_normal((b, s), np.float32), rng.standard_normal(s, np.float32)


def want(x, b):
    e = np.exp(x * 2 + b - (x * 2 + b).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("target", TARGETS)
def test_fixed_dims(target):
    compiled = ts.compile(scores, target=target, dims={"B": 2, "S": 8})
    x, b = arrays()
    np.testing.assert_allclose(compiled(x, b), want(x, b), rtol=1e-5)
    with pytest.raises(LaunchError, match="B was fixed to 2") as caught:
        compiled(*arrays(3))
    assert caught.value.code == "TS209"


@pytest.mark.parametrize("target", TARGETS)
def test_open_dims_are_solved_from_the_arguments(target):
    compiled = ts.compile(scores, target=target)
    assert set(compiled.built.plan.free) == {"B", "S"}
    for b, s in ((2, 8), (5, 3), (1, 100)):
        x, bias = arrays(b, s)
        np.testing.assert_allclose(compiled(x, bias), want(x, bias), rtol=1e-5)
    with pytest.raises(LaunchError, match="TS208"):
        compiled(arrays(2, 8)[0], arrays(2, 7)[1])


@ts.function
def from_the_end(x: ts.Tensor["N", ts.f32], y: ts.Tensor["S", ts.f32]):
    return x[-5]


@ts.function
def size_from_the_end(x: ts.Tensor["N", ts.f32], y: ts.Tensor["S", ts.f32]):
    return x[-S]


@ts.function
def difference(x: ts.Tensor["N", ts.f32], y: ts.Tensor["S", ts.f32]):
    return x[2 - S]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "fn, sizes, want", [(from_the_end, (3, 1), 4), (size_from_the_end, (3, 5), 7), (difference, (9, 5), 0)]
)
def test_an_index_of_open_sizes_stays_within_its_axis(fn, sizes, want, target):
    x = np.arange(9, dtype=np.float32)
    code = ts.compile(fn, target=target)
    assert code(x, x[:2]) == want
    with pytest.raises(LaunchError, match="before the first element"):
        code(x[: sizes[0]], x[: sizes[1]])


def test_other_compile_time_values_are_refused():
    compiled = ts.compile(scores, target="reference", dims={"B": 2, "S": 8})
    with pytest.raises(LaunchError, match="another value"):
        compiled(*arrays(), False)
    other = ts.compile(scores, target="reference", arguments=(*arrays(), False))
    np.testing.assert_allclose(other(*arrays(), False), -want(*arrays()), rtol=1e-5)


def test_example_arguments_stand_in_for_annotations():
    @ts.function
    def loose(x, n: int):
        return x * n

    with pytest.raises(CompileError, match="must be known"):
        ts.compile(loose, target="reference")
    compiled = ts.compile(loose, target="reference", arguments={"x": np.ones((2, 2), np.float32), "n": 3})
    np.testing.assert_array_equal(compiled(np.ones((2, 2), np.float32), 3), np.full((2, 2), 3))
    with pytest.raises(LaunchError):
        compiled(np.ones((3, 2), np.float32), 3)
    typed = ts.compile(loose, target="reference", arguments={"x": ts.Tensor[2, 2, ts.f32], "n": 3})
    assert typed.built.key == compiled.built.key


@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
def test_numbers_of_an_annotated_dtype_stay_open(target: str):
    @ts.function
    def line(x: ts.Tensor["N", ts.f32], n: ts.int64, a: ts.f32 = 2.0, b: ts.Tensor[ts.f32] = 1, p: int = 1):
        return (x + n * a + b) ** p

    x = np.arange(3, dtype=np.float32)
    for arguments in [(x, 7), {"x": x, "n": 7}, {"x": x, "n": np.int32(7), "a": 1.0}, (x, 7, np.float64(5), 3.0)]:
        compiled = ts.compile(line, target=target, arguments=arguments)
        np.testing.assert_array_equal(compiled(x, 7), x + 15)
        np.testing.assert_array_equal(compiled(x, 8, 3.0, b=2), x + 26)
        with pytest.raises(LaunchError, match="another value"):
            compiled(x, 7, p=2)


def test_numbers_of_kernels_stay_open_and_must_fit():
    @ts.kernel
    def saxpy(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32], a: float, n: ts.int8 = 0):
        i = ts.tile.linear_id()
        y[i] = a * x[i] + y[i] + n

    x, y = np.ones(4, np.float32), np.ones(4, np.float32)
    compiled = ts.compile(saxpy, target="reference", arguments=(x, y, 2.0))
    compiled(x, y, 3.0, 5)
    np.testing.assert_array_equal(y, np.full(4, 9))
    with pytest.raises(LaunchError, match="n is 300, which int8 cannot hold"):
        ts.compile(saxpy, target="reference", arguments=(x, y, 2.0, 300))


def test_levels():
    compiled = ts.compile(scores, target="reference", dims={"B": 2, "S": 8})
    assert compiled.ir().startswith("func scores(x: [2, 8] f32")
    assert "group(x, " in compiled.ir("schedule")
    assert " = reduce(" in compiled.ir("tile")
    for level in ("graph", "schedule", "tile"):
        assert compiled.ir(level, generic=True).startswith(f'"{level}.func"')
    assert compiled.ir("target") == compiled.source
    with pytest.raises(ValueError, match="graph, schedule, tile, target"):
        compiled.ir("assembly")


def test_levels_are_there_when_the_code_comes_from_a_cache():
    first = ts.compile(scores, target="reference", dims={"B": 3, "S": 8})
    again = ts.compile(scores, target="reference", dims={"B": 3, "S": 8})
    assert again.built.lowered is None
    assert again.ir("tile") == first.ir("tile")


def test_open_sizes_are_explained_as_people_write_them():
    @ts.function
    def shifted(x: ts.Tensor["B", "2*S"]):
        return x + 1

    assert ts.compile(shifted, target="reference").explain().parameters == ["x [B, 2*S] f32"]


def test_explain_says_what_runs_where_and_from_where_it_came():
    compiled = ts.compile(scores, target="reference", dims={"B": 4, "S": 8})
    text = str(compiled.explain())
    assert "scores on reference" in text
    assert __file__ in text
    assert "x [4, 8] f32" in text
    assert "compiled now" in text
    again = ts.compile(scores, target="reference", dims={"B": 4, "S": 8}).explain()
    assert again.cache == "hit"
    assert again.kernels == compiled.explain().kernels
    json.dumps(again.to_json())
    assert "<table" in compiled._repr_html_()


def test_save_writes_what_was_compiled(tmp_path):
    compiled = ts.compile(scores, target="reference", dims={"B": 2, "S": 8})
    written = compiled.save(tmp_path / "out")
    assert all(path.exists() for path in written)
    about = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    assert about["target"] == "reference"
    assert about["resources"] == compiled.resources


def test_save_for_the_cpu_writes_object_and_assembly(tmp_path):
    compiled = ts.compile(scores, target="cpu", dims={"B": 2, "S": 8})
    names = {path.suffix for path in compiled.save(tmp_path)}
    assert {".o", ".s", ".json"} <= names


@pytest.mark.parametrize("target", ["sm_80", "h100"])
def test_targets_that_are_not_here_compile_all_the_same(target, tmp_path):
    compiled = ts.compile(scores, target=target, dims={"B": 64, "S": 128})
    assert "__global__" in compiled.source
    assert compiled.resources
    names = {path.suffix for path in compiled.save(tmp_path)}
    assert {".cu", ".cubin", ".json"} <= names
    x, b = arrays(64, 128)
    with pytest.raises(LaunchError, match="TS504"):
        compiled(x, b)


@pytest.mark.parametrize("ask", [lambda f, x: f.ir(x), lambda f, x: f.ir("graph", x), lambda f, x: f.explain(x)])
def test_arguments_of_a_call_in_the_place_of_names(ask):
    @ts.function
    def twice(x):
        return x * 2

    with pytest.raises(LaunchError, match=r"TS105[\s\S]*not ndarray; .*call twice first, then twice\.ir\(\)"):
        ask(twice, np.ones(3, np.float32))


def test_unknown_targets_and_sizes():
    with pytest.raises(TargetError, match="Did you mean reference"):
        ts.compile(scores, target="referense")
    for size in (-1, 2.0, "8", True):
        with pytest.raises(LaunchError, match="TS501"):
            ts.compile(scores, target="reference", dims={"B": size})


def test_plain_functions_can_be_compiled():
    def double(x: ts.Tensor["n", ts.f32]):
        return x + x

    assert ts.compile(double, target="reference")(np.ones(2, np.float32)).tolist() == [2, 2]


def test_shortcuts_of_functions(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    assert scores.ir("graph", dims={"B": 2, "S": 8}).startswith("func scores(x: [2, 8] f32")
    assert scores.ir("graph", dims={"B": 2, "S": 8}, generic=True).startswith('"graph.func"')
    assert str(scores.explain(dims={"B": 2, "S": 8})).startswith("scores on reference: 1 kernel")
    x, b = arrays()
    np.testing.assert_allclose(scores.compile(dims={"B": 2})(x, b), want(x, b), rtol=1e-5)


def test_wrong_programs_are_refused_with_every_finding():
    @ts.function
    def wrong(x: ts.Tensor["B", "S", ts.f32], y: ts.Tensor["C", ts.f32]):
        a = x + y
        return unknown(a)

    with pytest.raises(CompileError) as caught:
        ts.compile(wrong, target="reference")
    assert {"TS202", "TS103"} <= {d.code for d in caught.value.diagnostics}


@pytest.mark.parametrize("dims", [{"B": 2, "S": 8}, {"B": 2}, {}], ids=str)
def test_plans_survive_storage(dims):
    plan = ts.compile(scores, target="reference", dims=dims).built.plan
    assert LaunchPlan.from_json(plan.to_json()) == plan


def test_the_passes_can_be_dumped(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_DUMP", str(tmp_path / "dump"))
    ts.compile(scores, target="reference", dims={"B": 2, "S": 8})
    names = [p.name for p in sorted((tmp_path / "dump").iterdir())]
    assert any("decompose" in name for name in names)
    assert any("schedule_to_tile" in name for name in names)
    assert all(p.read_text(encoding="utf-8").startswith('"') for p in (tmp_path / "dump").iterdir())


@ts.function
def weighted(x: ts.Tensor["S", "D", ts.f32], rate: float, H: ts.Const[int] = 8):
    return x * math.log2(x.shape[0]) + H * rate  # a power of two has no code for open sizes


def test_what_is_told_is_of_the_last_call(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    f = ts.function(weighted.__wrapped__)
    with pytest.raises(CompileError, match="must be known"):
        f.explain()
    f(np.ones((4, 64), np.float32), 2.0, H=3)
    assert str(f.explain()).startswith("weighted on reference: 2 kernels in the last call\n")
    assert f.explain().parameters == ["x [4, 64] f32", "rate scalar f32", "H = 3"]
    assert "mul(3.0, rate)" in f.ir() and "x: [4, 64] f32" in f.ir()
    f(np.ones((8, 8), np.float32), 2.0)
    assert "mul(8.0, rate)" in f.ir("graph") and "[64] f32" in f.ir("tile")
    f(np.ones((4, 64), np.float32), 2.0, H=3)  # prepared long ago: the last call all the same
    assert "mul(3.0, rate)" in f.ir()
    ahead = f.explain(dims={"S": 16, "D": 2})
    assert not ahead.called and ahead.parameters[0] == "x [16, 2] f32"
    assert "cpu" in str(f.explain(target="cpu", dims={"S": 16, "D": 2}))


def test_of_a_tuned_program_it_is_the_variant_that_ran(monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")

    @ts.autotune(space={"BLOCK": [16, 32]})
    @ts.kernel
    def copy(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
        return x[ts.tile.linear_id()] * 2

    with ts.autotune.off():
        copy(np.ones(64, np.float32))
    assert copy.explain().called and copy.explain().configuration["config"] == {"BLOCK": 16}
    assert "[16] f32" in copy.ir("tile")


@ts.kernel
def times(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], k: int):
    i = ts.tile.linear_id()
    y[i] = x[i] * k


def test_annotated_parameters_need_no_example() -> None:
    run = ts.compile(times, arguments={"k": 3})
    y = np.zeros(5, np.float32)
    run(np.ones(5, np.float32), y, 3)
    assert (y == 3).all()
    with pytest.raises(ts.LaunchError, match="k is 4, but times was compiled for another value"):
        run(np.ones(5, np.float32), y, 4)
