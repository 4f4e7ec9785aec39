"""Calling functions and kernels: binding, keys, results, mistakes, threads, interrupts, fork."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import tessera as ts
from tessera.errors import CompileError, LaunchError
from tessera.runtime import events as runtime_events
from tessera.runtime.arrays import host_memory
from tessera.runtime.code import build


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def target(request, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    return request.param


@ts.function
def scaled(x: ts.Tensor["B", "S", ts.f32], y: ts.Tensor["S", ts.f32], n: int = 2):
    return x * n + y


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


def arrays(b: int = 2, s: int = 3):
    return np.arange(b * s, dtype=np.float32).reshape(b, s), np.ones(s, np.float32)


def compilations(fn) -> int:
    return sum(len(site.table) for site in fn.launcher.sites.values())


def code_of(error) -> list[str]:
    return [d.code for d in error.value.diagnostics]


# Binding


def test_positions_keywords_and_defaults_mean_the_same():
    x, y = arrays()
    want = x * 2 + y
    for result in (scaled(x, y), scaled(x, y=y), scaled(y=y, x=x), scaled(x, y, 2), scaled(x, y, n=2)):
        np.testing.assert_array_equal(result, want)
    np.testing.assert_array_equal(scaled(x, y, n=5), x * 5 + y)


@pytest.mark.usefixtures("young")
def test_the_first_calls_arrays_are_not_kept():
    @ts.function
    def doubled(x: ts.Tensor["n", ts.f32]):
        return x * 2.0

    x = ts.tensor(np.ones(7, np.float32))
    seen = weakref.ref(x)
    doubled(x)
    doubled(x)
    del x
    gc.collect()
    assert seen() is None


def test_keyword_only_and_collected_parameters():
    @ts.function
    def total(*xs, start: ts.Tensor["n"], scale: float = 1.0):
        out = start
        for x in xs:
            out = out + x * scale
        return out

    a = np.ones(3, np.float32)
    np.testing.assert_array_equal(total(a, a, start=a), 3 * a)
    np.testing.assert_array_equal(total(a, a, a, start=a), 4 * a)
    np.testing.assert_array_equal(total(start=a), a)


def test_nested_arguments():
    @ts.function
    def mlp(x: ts.Tensor["B", "D", ts.f32], layers, options):
        for w, b in layers:
            x = ts.relu(x @ w + b) * options["gain"]
        return x

    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4), np.float32)
    layers = [(rng.standard_normal((4, 4), np.float32), rng.standard_normal(4, np.float32)) for _ in range(2)]
    want = x
    for w, b in layers:
        want = np.maximum(want @ w + b, 0) * np.float32(0.5)
    np.testing.assert_allclose(mlp(x, layers, {"gain": 0.5}), want, rtol=1e-5)
    deeper = [*layers, layers[0]]
    assert not np.allclose(mlp(x, deeper, {"gain": 0.5}), want)
    assert not np.allclose(mlp(x, layers, {"gain": 0.25}), want)


def test_optional_arguments_specialise():
    @ts.function
    def maybe(x: ts.Tensor["n", ts.f32], bias: ts.Tensor["n", ts.f32] | None = None):
        if bias is None:
            return x
        return x + bias

    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(maybe(x), x)
    np.testing.assert_array_equal(maybe(x, x), 2 * x)
    np.testing.assert_array_equal(maybe(x, None), x)


def test_scalars_are_passed_and_not_compiled_in():
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    fresh = ts.kernel(saxpy.__wrapped__)
    for alpha in (1.0, 2.5, -3.0):
        y[:] = 0
        fresh(x, y, alpha)
        np.testing.assert_array_equal(y, np.full(4, alpha, np.float32))
    assert compilations(fresh) == 1
    for alpha in (3, np.float64(3), np.array(3.0), True):
        y[:] = 0
        saxpy(x, y, alpha)
        np.testing.assert_array_equal(y, np.full(4, float(alpha), np.float32))


def test_compile_time_values_are_part_of_the_key():
    @ts.function
    def power(x: ts.Tensor["k", ts.f32], n: int):
        out = x
        for _ in range(n - 1):
            out = out * x
        return out

    x = np.full(2, 2, np.float32)
    assert [power(x, n)[0] for n in (1, 2, 3, 1)] == [2, 4, 8, 2]


def test_signed_zeros_are_different_constants():
    @ts.function
    def divided(x: ts.Tensor["n", ts.f32], by):
        return x / by

    x = np.ones(1, np.float32)
    with np.errstate(divide="ignore"):
        assert divided(x, 0.0)[0] == np.inf
        assert divided(x, -0.0)[0] == -np.inf


def test_methods():
    class Layer:
        def __init__(self, weight):
            self.weight = weight
            self.gain = 2.0

        @ts.function
        def forward(self, x: ts.Tensor["B", "D", ts.f32]):
            return x @ self.weight * self.gain

    x = np.ones((1, 2), np.float32)
    a, b = Layer(np.eye(2, dtype=np.float32)), Layer(3 * np.eye(2, dtype=np.float32))
    np.testing.assert_array_equal(a.forward(x), [[2, 2]])
    np.testing.assert_array_equal(b.forward(x), [[6, 6]])
    a.weight = 5 * np.eye(2, dtype=np.float32)
    np.testing.assert_array_equal(a.forward(x), [[10, 10]])
    a.gain = 1.0
    np.testing.assert_array_equal(a.forward(x), [[5, 5]])


# Results


def test_results_belong_to_the_library_of_the_first_array():
    x, y = arrays()
    want = x * 2 + y
    assert isinstance(scaled(x, torch.from_numpy(y)), np.ndarray)
    for convert, kind in ((torch.from_numpy, torch.Tensor), (jnp.asarray, jnp.ndarray), (ts.asarray, ts.Tensor)):
        result = scaled(convert(x), convert(y))
        assert isinstance(result, kind)
        np.testing.assert_array_equal(np.asarray(result), want)


def test_parameters_written_in_place_come_back_as_they_are():
    for convert in (lambda a: a, torch.from_numpy, ts.asarray):
        x, y = convert(np.ones(4, np.float32)), convert(np.arange(4, dtype=np.float32))
        assert saxpy(x, y, 2.0) is y
        np.testing.assert_array_equal(np.asarray(y), [2, 3, 4, 5])


def test_several_results():
    @ts.function
    def both(x: ts.Tensor["n", ts.f32]):
        return x + 1, x.sum()

    plus, total = both(np.ones(3, np.float32))
    np.testing.assert_array_equal(plus, [2, 2, 2])
    assert total.shape == ()
    assert total == 3


def test_results_are_new_memory_every_time():
    x, y = arrays(200, 300)
    first = scaled(x, y)
    kept = first.copy()
    second = scaled(x + 1, y)
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)


def test_a_function_without_arrays_gives_tensors():
    @ts.function
    def fixed():
        return ts.full((2,), 3.0)

    assert isinstance(fixed(), ts.Tensor)
    assert fixed().tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32], ids=lambda d: np.dtype(d).name
)
def test_dtypes_without_annotation_come_from_the_arguments(dtype):
    @ts.function
    def double(x: ts.Tensor["n"]):
        return x + x

    x = np.arange(4).astype(dtype)
    result = double(x)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result.astype(np.float32), 2 * x.astype(np.float32))


def test_zero_sizes():
    x, y = np.zeros((0, 3), np.float32), np.ones(3, np.float32)
    assert scaled(x, y).shape == (0, 3)
    assert saxpy(np.zeros(0, np.float32), np.zeros(0, np.float32), 1.0).shape == (0,)


# Memory layout


def test_inputs_need_not_be_contiguous():
    x, y = arrays(4, 6)
    np.testing.assert_array_equal(scaled(x.T[:, ::2], y[:2]), x.T[:, ::2] * 2 + y[:2])
    np.testing.assert_array_equal(scaled(x[::-1, ::2], y[::2]), x[::-1, ::2] * 2 + y[::2])
    t = torch.from_numpy(x)
    np.testing.assert_array_equal(scaled(t.T, torch.ones(4)), x.T * 2 + 1)


def test_what_hands_out_copies_is_kept_while_it_runs():
    class Image:
        """As PIL's: every look at the pixels is a new copy of them."""

        @property
        def __array_interface__(self):
            pixels = np.full((64, 64), 3, np.float32)
            return {"shape": (64, 64), "typestr": "<f4", "version": 3, "data": pixels.tobytes()}

    result = scaled(Image(), np.ones(64, np.float32))
    assert isinstance(result, ts.Tensor)
    np.testing.assert_array_equal(result.numpy(), np.full((64, 64), 7, np.float32))
    np.testing.assert_array_equal(scaled(Image(), np.ones(64, np.float32)).numpy(), result.numpy())


def test_written_parameters_must_be_contiguous_and_writable():
    x = np.ones(4, np.float32)
    locked = np.zeros(4, np.float32)
    locked.flags.writeable = False
    for y, said in ((np.zeros(8, np.float32)[::2], "ascontiguousarray"), (locked, "read-only"), (jnp.zeros(4), "JAX")):
        with pytest.raises(LaunchError, match=said) as caught:
            saxpy(x, y, 1.0)
        assert code_of(caught) == ["TS503"]


def test_an_array_that_became_read_only_is_noticed():
    x, y = np.ones(7, np.float32), np.zeros(7, np.float32)
    saxpy(x, y, 1.0)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="TS503"):
        saxpy(x, y, 1.0)
    np.testing.assert_array_equal(y, 1)


# Mistakes


def test_every_mistake_is_said_at_the_parameter_and_at_the_call():
    x, _ = arrays()
    with pytest.raises(LaunchError) as caught:
        scaled(x.astype(np.float64), [1, 2, 3])
    dtype, kind = caught.value.diagnostics
    assert (dtype.code, kind.code) == ("TS304", "TS501")
    assert "astype(np.float32)" in dtype.message
    assert "np.asarray(y, np.float32)" in kind.message
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    for d in (dtype, kind):
        assert d.span.file == __file__
        assert "def scaled" in source[d.span.line - 1]
        (called,) = [n.span for n in d.notes if n.message == "called here"]
        assert "scaled(x.astype" in source[called.line - 1][called.col - 1 :]


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (lambda x, y: (x, y[:2]), "TS208", "S is 3 (axis 1 of x) and 2 (axis 0 of y)"),
        (lambda x, y: (x[0], y), "TS209", "x has 1 axis"),
        (lambda x, y: (x, None), "TS501", "y must be an array"),
        (lambda x, y: (x, 3.0), "TS501", "3.0 (float)"),
        (lambda x, y: (x,), "TS105", "missing a required argument: 'y'"),
        (lambda x, y: (x, y, 2, 3), "TS105", "too many positional arguments"),
        (lambda x, y: (x.astype(object), y), "TS501", "Python object"),
        (lambda x, y: (x.astype(">f4"), y), "TS501", "newbyteorder"),
    ],
)
def test_mistakes_have_codes(make, code, said):
    with pytest.raises(LaunchError) as caught:
        scaled(*make(*arrays()))
    assert code_of(caught) == [code]
    assert said in str(caught.value)


def test_scalars_that_do_not_fit():
    x, y = np.ones(2, np.float32), np.ones(2, np.float32)
    for alpha, code in (("2", "TS501"), (1j, "TS304"), (x, "TS501"), (None, "TS501")):
        with pytest.raises(LaunchError) as caught:
            saxpy(x, y, alpha)
        assert code_of(caught) == [code]


def test_products_of_dims_are_checked_not_guessed():
    @ts.function
    def heads(q: ts.Tensor["B*H", "S", ts.f32], mask: ts.Tensor["B", "H", ts.f32]):
        return q * 2, mask

    q = np.ones((6, 2), np.float32)
    heads(q, np.ones((2, 3), np.float32))
    with pytest.raises(LaunchError, match=r"B\*H"):
        heads(q, np.ones((2, 2), np.float32))


def test_a_wrong_program_says_so_at_every_call_and_can_be_mended():
    @ts.function
    def wrong(x: ts.Tensor["n", "m", ts.f32]):
        return x @ x

    for _ in range(2):
        with pytest.raises(CompileError, match="TS203"):
            wrong(np.ones((2, 3), np.float32))
    assert wrong(np.ones((2, 2), np.float32)).shape == (2, 2)


def test_results_that_would_not_fit_are_refused_before_anything_is_allocated(monkeypatch):
    @ts.function
    def grow(x: ts.Tensor["n", ts.f32]):
        return x.reshape(x.shape[0], 1) + x.reshape(1, x.shape[0])

    monkeypatch.setattr(host_memory, "available", lambda: 1 << 28)
    with pytest.raises(LaunchError, match="TS505") as caught:
        grow(np.ones(20_000, np.float32))
    said = caught.value.diagnostics[0].message
    assert said == "grow: results and temporaries would take 1.49 GiB; 256 MiB are free on cpu."
    grow(np.ones(20, np.float32))


# Keys and caches


def test_one_compilation_per_signature():
    @ts.function
    def f(x: ts.Tensor["n", ts.f32]):
        return x + 1

    for n in (3, 4, 3, 4):
        f(np.ones(n, np.float32))
    assert compilations(f) == 2


def test_the_same_text_again_finds_the_code_in_memory():
    def define():
        @ts.function
        def again(x: ts.Tensor["n", ts.f32]):
            return x * 3 + 1

        return again

    x = np.ones(3, np.float32)
    first, second = define(), define()
    first(x), second(x)
    assert first.launcher.last.key == second.launcher.last.key
    assert second.launcher.last.origin == "hit"


def test_a_new_process_would_find_it_on_the_disk():
    @ts.function
    def stored(x: ts.Tensor["n", ts.f32]):
        return x * 5 + 1

    x = np.ones(3, np.float32)
    want = stored(x)
    assert stored.launcher.last.origin == "miss"
    build.forget()
    other = ts.function(stored.__wrapped__)
    np.testing.assert_array_equal(other(x), want)
    assert other.launcher.last.origin == "disk"
    assert other.launcher.last.lowered is None


def test_damaged_or_unusable_cache_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "file" / "below"))

    @ts.function
    def f(x: ts.Tensor["n", ts.f32]):
        return x * 7 + 2

    with pytest.warns(UserWarning, match="TS606"):
        np.testing.assert_array_equal(f(np.ones(2, np.float32)), [9, 9])


def test_the_target_can_be_changed_at_any_time(monkeypatch):
    @ts.function
    def f(x: ts.Tensor["n", ts.f32]):
        return x + 1

    x = np.ones(2, np.float32)
    for name in ("reference", "cpu", "reference"):
        monkeypatch.setenv("TESSERA_TARGET", name)
        f(x)
        assert f.launcher.last.artifact.target == name


# Threads, interrupts, fork


def test_threads_share_one_function():
    @ts.function
    def f(x: ts.Tensor["n", ts.f32]):
        return x * 2 + 1

    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for _ in range(20):
                x = np.full(n, n, np.float32)
                np.testing.assert_array_equal(f(x), 2 * x + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert compilations(f) == 3


def test_an_interrupt_while_compiling_leaves_everything_usable(monkeypatch):
    from tessera.compiler import pipeline

    @ts.function
    def f(x: ts.Tensor["n", ts.f32]):
        return x * 11 + 1

    def interrupted(*args):
        raise KeyboardInterrupt

    x = np.ones(2, np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "lower", interrupted)
        with pytest.raises(KeyboardInterrupt):
            f(x)
    np.testing.assert_array_equal(f(x), [12, 12])


def test_functions_may_be_called_while_others_compile():
    @ts.function
    def inner(x: ts.Tensor["n", ts.f32]):
        return x + 1

    ones = np.ones(3, np.float32)

    def table():
        return tuple(float(v) for v in inner(ones))

    @ts.function
    def outer(x: ts.Tensor["n", ts.f32]):
        return x * table()[0]

    np.testing.assert_array_equal(outer(ones), 2 * ones)


# Events


class Listener:
    def __init__(self, tiles: bool = False) -> None:
        self.tiles = tiles
        self.events: list = []

    def __enter__(self):
        self.token = runtime_events.subscribe(self.events.append, tiles=self.tiles)
        return self

    def __exit__(self, *_):
        runtime_events.unsubscribe(self.token)

    def of(self, kind):
        return [e for e in self.events if isinstance(e, kind)]


def test_launches_and_compilations_are_published():
    @ts.function
    def watched(x: ts.Tensor["n", ts.f32]):
        return ts.relu(x) * 2

    x = np.ones(1000, np.float32)
    with Listener() as heard:
        watched(x)
        watched(x)
    (compiled,) = heard.of(runtime_events.CompileEvent)
    assert (compiled.name, compiled.cache) == ("watched", "miss")
    assert compiled.duration > 0
    assert {"analyse", "target"} <= {stage for stage, _ in compiled.stages}
    first, second = heard.of(runtime_events.LaunchEvent)
    assert first.launch != second.launch
    assert first.duration > 0
    assert first.bytes == 8000
    assert first.flops >= 2000
    assert first.attributes["function"] == "watched"
    assert first.attributes["file"] == __file__
    assert first.attributes["call_file"] == __file__
    assert [size for _, size in first.attributes["reads"]] == [4000]
    assert [size for _, size in first.attributes["writes"]] == [4000]


def test_tiles_are_recorded_when_somebody_wants_them():
    x, y = arrays(64, 256)
    plain = scaled(x, y)
    with Listener(tiles=True) as heard:
        np.testing.assert_array_equal(scaled(x, y), plain)
    (launch,) = heard.of(runtime_events.LaunchEvent)
    tiles = [tile for batch in heard.of(runtime_events.TileBatch) for tile in batch]
    assert len({tile.tile for tile in tiles}) == launch.tiles
    assert {tile.launch for tile in tiles} == {launch.launch}
    assert all(launch.start <= tile.start and tile.end <= launch.start + launch.duration for tile in tiles)


def test_copies_are_said():
    x, y = arrays(8, 8)
    with Listener() as heard:
        scaled(x.T, y)
    (launch,) = heard.of(runtime_events.LaunchEvent)
    assert launch.attributes["copied"] == x.nbytes


def test_memory_of_results_is_followed():
    with Listener() as heard:
        t = ts.zeros((256, 256))
        del t
    taken, given = heard.of(runtime_events.MemoryEvent)
    assert taken.delta == -given.delta == 256 * 256 * 4
    assert taken.file == __file__
    assert given.total == taken.total - taken.delta


def test_nothing_is_published_without_listeners(monkeypatch):
    def fail(event):
        raise AssertionError(event)

    monkeypatch.setattr(runtime_events, "publish", fail)
    scaled(*arrays())
    scaled(*arrays())


def test_debug_mode_poisons_results(monkeypatch):
    monkeypatch.setenv("TESSERA_DEBUG", "1")

    @ts.kernel
    def half(x: ts.Tensor["n", ts.f32], out: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            out[i] = x[i]

    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    half(x, out)
    np.testing.assert_array_equal(out, x)
    assert half.launcher.sites


def test_partial_functions_over_tessera_functions():
    x, y = arrays()
    np.testing.assert_array_equal(partial(scaled, x)(y), x * 2 + y)


def test_integers_are_held_to_the_last_digit():
    @ts.kernel
    def filled(x: ts.Tensor["n", ts.int64], value: ts.int64):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = value

    x = np.zeros(3, np.int64)
    for value in (2**63 - 1, -(2**63)):
        filled(x, value)
        assert x.tolist() == [value] * 3
    for value in (2**63, -(2**63) - 1, 10**400, float("inf"), float("nan")):
        with pytest.raises(LaunchError) as error:
            filled(x, value)
        assert code_of(error) == ["TS304"]
    with pytest.raises(LaunchError) as error:
        saxpy(np.ones(2, np.float32), np.ones(2, np.float32), 10**400)
    assert code_of(error) == ["TS304"]


def test_a_default_that_changes_is_read_at_each_call():
    held, x = [np.arange(3, dtype=np.float32)], np.ones(3, np.float32)

    @ts.function
    def product(x: Tensor["N"], held: list[Tensor["N"]] = held):
        return x * held[0]

    assert product(x).tolist() == [0, 1, 2]
    held[0] = x
    assert product(x).tolist() == product(x=x).tolist() == [1, 1, 1]
