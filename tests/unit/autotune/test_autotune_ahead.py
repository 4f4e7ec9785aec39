"""Code compiled ahead of a call: the configuration that the tuning store knows for its target, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.arrays import devices
from tessera.runtime.autotune import store
from tests.unit.autotune.test_autotune import clock, doubled, numbers, tuned  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("own_cache", "clock")


def scaled(x: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", "K", ts.f32], factor: ts.f32, power: int = 1):
    BM = ts.tile.context().BLOCK
    y[tile_m : tile_m + BM, tile_k : tile_k + 16] = x[tile_m : tile_m + BM, tile_k : tile_k + 16] * factor


def untyped(x, y):
    i = ts.tile.linear_id()
    y[i] = x[i] + 1.0


def compiled(kernel: Any, dims: dict[str, int] | None = None, arguments: Sequence[Any] | None = None) -> Any:
    return ts.compile(kernel, target="cpu", dims=dims, arguments=arguments)


def test_the_best_that_is_stored_is_compiled():
    kernel, x = tuned(doubled), numbers(300)
    before = compiled(kernel, {"n": 300})
    assert before.configuration.config == {"BLOCK": 32}
    assert before.configuration.why == "the first one: none has been timed for x [300] f32 on cpu"
    kernel(x)
    after = compiled(kernel, {"n": 300})
    assert after.configuration.config == {"BLOCK": 128}
    assert "BLOCK=128: the best of 3 timed on" in str(after.explain())
    assert "under BLOCK=128" in repr(after) and "BLOCK=128" in after._repr_html_()
    assert after.source == ts.compile(kernel.with_config(BLOCK=128), target="cpu", dims={"n": 300}).source
    assert after.source != before.source
    np.testing.assert_array_equal(after(x), 2 * x)


def test_other_shapes_and_open_ones_have_no_timings():
    kernel = tuned(doubled)
    kernel(numbers(300))
    assert compiled(kernel, {"n": 301}).configuration.config == {"BLOCK": 32}
    open_size = compiled(kernel)
    assert open_size.configuration.config == {"BLOCK": 32} and "fix them with dims=" in str(open_size.explain())


def test_scalars_defaults_and_arguments_that_are_given():
    kernel = tuned(scaled)
    x, y = numbers(64, 48), numbers(64, 48)
    kernel(x, y, 2.0)
    for code in (compiled(kernel, {"M": 64, "K": 48}), compiled(kernel, None, [x, y, 3.0])):
        assert code.configuration.config == {"BLOCK": 128}
    other = compiled(kernel, None, [x, y, 3.0, 2])
    assert other.configuration.config == {"BLOCK": 32}, "another value of a compile-time argument"
    kernel = tuned(untyped)
    kernel(x[0], y[0])
    assert compiled(kernel, None, [x[0], y[0]]).configuration.config == {"BLOCK": 128}
    assert compiled(kernel, None, [x[0].astype(np.float64), y[0].astype(np.float64)]).configuration.config == {
        "BLOCK": 32
    }


def test_autotuning_that_is_off_is_off_ahead_of_calls_too():
    kernel = tuned(doubled)
    kernel(numbers(300))
    with ts.autotune.off():
        code = compiled(kernel, {"n": 300})
    assert code.configuration == ({"BLOCK": 32}, "the first one: autotuning is off")


def test_nothing_is_timed_and_a_program_without_a_space_has_no_configuration(clock):  # noqa: F811
    compiled(tuned(doubled), {"n": 300})
    assert not clock.measured
    plain = compiled(ts.kernel(doubled), {"n": 300})
    assert plain.configuration is None and "under" not in str(plain.explain())


def test_a_target_that_is_not_in_this_machine_takes_the_timings_of_the_one_that_was_tuned_on(monkeypatch, tmp_path):
    """As on a build machine that has got the store of one with a GPU."""
    kernel, x = tuned(doubled, cache=str(tmp_path / "gpu.sqlite")), numbers(300)
    monkeypatch.setenv("TESSERA_TARGET", "emulator:sm_80")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "device_text", lambda target, device: "NVIDIA A100, 108 multiprocessors")
        kernel(x)
    text = "best of 3 timed on NVIDIA A100, 108 multiprocessors"
    monkeypatch.setattr(devices, "home", lambda target: "cuda")
    code = ts.compile(kernel, target="emulator:sm_80", dims={"n": 300})
    assert code.configuration.config == {"BLOCK": 128} and text in code.configuration.why


@ts.kernel.autotune(space={"BLOCK": [32, 64, 128]})
def doubling(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    b = ts.tile.context().BLOCK
    return x[tile_n : tile_n + b] * 2.0


@ts.function
def calls_doubling(x: ts.Tensor["m", ts.f32]):
    return doubling(x) + 1


def test_a_function_launches_a_tuned_kernel_as_it_would_be_compiled(monkeypatch):
    """Under the best that is stored for the arguments which the function gives it, and anew when that changes."""
    monkeypatch.setenv("TESSERA_TARGET", "cpu")

    def grid(n: int) -> Any:
        code = ts.compile(calls_doubling, target="cpu", dims={"m": n})
        np.testing.assert_array_equal(code(numbers(n)), 2 * numbers(n) + 1)
        return next(k.grid for k in code.built.plan.launches if k.kernel == "doubling")

    assert grid(300) == (10,), "the first one: none has been timed"
    doubling(numbers(300))
    assert grid(300) == (3,)
    assert "timings of doubling: 0 timings -> 3 timings" in str(ts.why_recompiled(calls_doubling))
    assert grid(301) == (10,)
    with ts.autotune.off():
        assert grid(300) == (10,)
