"""Launches in bands: the bits of one launch after the other, by any number of threads, and where there are none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.compiler.tile.lifetimes import peak, temporaries
from tessera.compiler.tile.program import Loop, Program
from tessera.runtime.code.plan import LaunchPlan

ROWS, COLUMNS = 1033, 1029
TARGET = CpuTarget()


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = ts.get_num_threads()
    yield
    ts.set_num_threads(before)


def around(x):
    return x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]


@ts.function
def fixed_edges(x: Tensor["N", "M", ts.f32]):
    for _ in range(3):
        middle = ts.concat([x[1:-1, :1], 0.6 * x[1:-1, 1:-1] + 0.1 * around(x), x[1:-1, -1:]], 1)
        x = ts.concat([x[:1], middle, x[-1:]], 0)
    return x


@ts.function
def waves(x: Tensor["N", "M", ts.f32], v: Tensor["N", "M", ts.f32], c: Tensor["M", ts.f32]):
    """Padded, with two results and an operand that all rows read."""
    for _ in range(3):
        v = v + c * (around(ts.pad(x, 1)) - 4 * x)
        x = x + 0.1 * v
    return x, v


@ts.function
def wrapped_columns(x: Tensor["N", "M", ts.f32]):
    for _ in range(3):
        x = x + 0.2 * (ts.roll(x, 1, 1) + ts.roll(x, -1, 1) - 2 * x)
    return x


@ts.function
def normed(x: Tensor["N", "M", ts.f32]):
    """Rows of reductions, then windows over rows."""
    y = ts.softmax(x, axis=1)
    z = ts.sqrt(y[1:] + y[:-1])
    return ts.softmax(z[1:] - z[:-1], axis=1)


@ts.function
def shifted_norms(x: Tensor["N", "M", ts.f32]):
    """Kernels of rows take half as many rows at a time as elementwise ones."""
    for _ in range(2):
        y = x * ts.rsqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)
        x = ts.concat([y[:, 1:], y[:, :1]], 1) + y
    return x


@ts.function
def wrapped(x: Tensor["N", "M", ts.f32]):
    """The first rows need the last ones of the step before."""
    for _ in range(3):
        x = x + 0.2 * (ts.roll(x, 1, 0) + ts.roll(x, -1, 0) - 2 * x)
    return x


@ts.function
def narrowed(x: Tensor["N", "M", ts.f32]):
    for _ in range(4):
        x = 0.6 * x[1:-1, 1:-1] + 0.1 * around(x)
    return x


@ts.function
def summed(x: Tensor["N", "M", ts.f32]):
    def loss(x):
        for _ in range(2):
            x = 0.6 * x * x + 0.1 * around(ts.pad(x, 1))
        return (x * x).sum()

    return ts.grad(loss)(x)


@ts.function
def rounds(x: Tensor["N", "M", ts.f32], times: ts.Int):
    for _ in ts.range(times):
        for _ in range(3):
            x = 0.6 * x + 0.1 * around(ts.pad(x, 1))
    return x


@ts.function
def by_slopes(x: Tensor["N", "M", ts.f32]):
    """The second launch reads columns of the first one's result."""
    y = ts.exp(x) + x
    z = (y[1:] - y[:-1]).T + 1
    return z[1:] * z[:-1]


def program(function, *, rows: int = ROWS, columns: int = COLUMNS, known: bool = True) -> Program:
    sizes = {"N": rows, "M": columns} if known else {}
    return lower(analyse(function.definition(), None, sizes).unit(), TARGET).program


def apart(made: Program) -> Program:
    return replace(made, bands=())


def results(made: Program, arrays, sizes=()) -> list[bytes]:
    code = TARGET.load(generate(made, TARGET))
    new = [b for b in made.buffers if b.role == "output"]
    outputs = [np.full(b.shape, np.nan, b.dtype.numpy) for b in new]
    code.run([a.ctypes.data for a in (*arrays, *outputs)], [], list(sizes))
    return [out.tobytes() for out in outputs]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


CASES = [
    (fixed_edges, lambda n, m: [normal(n, m)]),
    (waves, lambda n, m: [normal(n, m), normal(n, m), normal(m)]),
    (wrapped_columns, lambda n, m: [normal(n, m)]),
    (normed, lambda n, m: [normal(n, m)]),
    (wrapped, lambda n, m: [normal(n, m)]),
]


@pytest.mark.parametrize(("function", "arrays"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_bits_are_those_of_one_launch_after_the_other(function, arrays) -> None:
    made = program(function)
    given = arrays(ROWS, COLUMNS)
    assert made.bands
    ts.set_num_threads(1)
    want = results(apart(made), given)
    for threads in (1, 2, 3):
        ts.set_num_threads(threads)
        for step in (made.bands[0].step, 1):
            smaller = replace(made, bands=tuple(replace(b, step=step) for b in made.bands))
            assert results(smaller, given) == want, (threads, step)


@pytest.mark.parametrize("rows", [1033, 1034, 1041])
def test_units_of_several_programs(rows: int) -> None:
    """The last unit has fewer where rows are no multiple."""
    made = program(shifted_norms, rows=rows, columns=1024)
    (bands,) = made.bands
    assert {m.programs for m in bands.launches} == {1, 2}
    x = normal(rows, 1024)
    want = results(apart(made), [x])
    for threads in (1, 2):
        ts.set_num_threads(threads)
        assert results(made, [x]) == want


@ts.function
def spectra(x: Tensor["N", "M", ts.f32]):
    return ts.fft.rfft(x)


@ts.function
def two_spectra(x: Tensor["N", "M", ts.f32], y: Tensor["N", "M", ts.f32]):
    """Launches of equal code."""
    return ts.fft.rfft(x), ts.fft.rfft(y)


@pytest.mark.parametrize(("function", "count"), [(spectra, 1), (two_spectra, 2)])
def test_temporaries_of_a_band(function, count: int) -> None:
    """All launches of a transform are in bands, that with a reversed operand too. Bands use the same memory again."""
    made = program(function, rows=2051, columns=1024)
    x = [normal(2051, 1024) + i for i in range(count)]
    assert len(made.bands) == count
    assert sum(len(bands.launches) for bands in made.bands) == len(made.launches)
    assert {b for bands in made.bands for b, _ in bands.local} == {t.buffer for t in temporaries(made)}
    want = results(apart(made), x)
    for threads in (1, 2, 3):
        ts.set_num_threads(threads)
        for step in (1, 3):
            wider = tuple(replace(bands, step=step) for bands in made.bands)
            assert results(replace(made, bands=wider), x) == want, (threads, step)


def test_no_temporaries_of_a_band() -> None:
    """Rows beside the band's own are read, and a backward pass reads what the forward pass has kept."""
    assert not any(b.local for function in (fixed_edges, wrapped, summed) for b in program(function).bands)


def test_a_stencil_is_what_numpy_computes() -> None:
    x = normal(ROWS, COLUMNS)
    want = x.astype(np.float64)
    for _ in range(3):
        new = want.copy()
        new[1:-1, 1:-1] = 0.6 * want[1:-1, 1:-1] + 0.1 * around(want)
        want = new
    np.testing.assert_allclose(fixed_edges(x), want, rtol=1e-4, atol=1e-5)
    assert "launches 1 to 15 take turns" in str(fixed_edges.explain())


def test_many_stretches() -> None:
    """Long arrays of short rows: several stretches for each thread, and what is left between them."""
    made = program(fixed_edges, rows=40_001, columns=67)
    x = normal(40_001, 67)
    (bands,) = made.bands
    assert bands.launches[0].units > 150
    want = results(apart(made), [x])
    ts.set_num_threads(3)
    assert results(made, [x]) == want


def test_temporaries_share_memory() -> None:
    """No more than launches one after the other need: two arrays beside argument and result."""
    made = program(fixed_edges)
    size = ROWS * COLUMNS * 4
    assert len(temporaries(made)) == 2
    assert peak(made) <= 4 * (size + 64) + 2 * 4096  # large temporaries begin at other places of a page
    assert peak(made) <= peak(apart(made))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (narrowed, "arrays of several sizes cannot share memory"),
        (by_slopes, "rows of one launch are columns of another"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_there_are_none(function, why) -> None:
    assert program(function, columns=2000).bands == (), why


def test_none_without_sizes_and_none_for_small_arrays() -> None:
    assert program(fixed_edges, known=False).bands == ()
    assert program(fixed_edges, rows=500, columns=500).bands == ()


def test_gradients() -> None:
    """What the forward pass keeps stays until the backward pass reads it."""
    made = program(summed)
    x = normal(ROWS, COLUMNS)
    assert results(made, [x]) == results(apart(made), [x])


def test_a_loop_whose_rounds_run_in_bands() -> None:
    made = program(rounds)
    (loop,) = (s for s in made.steps if isinstance(s, Loop))
    (bands,) = made.bands
    launches = made.launches
    assert all(launch in loop.body for launch in launches[bands.first : bands.last + 1])
    x = normal(ROWS, COLUMNS)
    ts.set_num_threads(2)
    for times in (0, 1, 2):
        assert results(made, [x], [times]) == results(apart(made), [x], [times])


def test_a_profile_runs_one_launch_after_the_other() -> None:
    """So that each launch has a time of its own."""
    made = program(fixed_edges)
    x, seen = normal(ROWS, COLUMNS), []

    class Recorder:
        def record(self, columns) -> None:
            seen.append(columns)

    code = TARGET.load(generate(made, TARGET, profile=True))
    out = np.full_like(x, np.nan)
    ts.set_num_threads(2)
    code.run([x.ctypes.data, out.ctypes.data], [], [], record=Recorder())
    assert [out.tobytes()] == results(apart(made), [x])
    launch, start, duration = (np.concatenate([c[name] for c in seen]) for name in ("launch", "start", "duration"))
    of_each = [launch == i for i in range(len(made.launches))]
    assert [at.sum() for at in of_each] == [np.prod(k.kernel.attrs["grid"], dtype=int) for k in made.launches]
    spans = [(start[at].min(), (start + duration)[at].max()) for at in of_each]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_the_plan_knows_bands() -> None:
    plan = LaunchPlan.of(program(fixed_edges))
    assert plan.bands == ((0, 14, 4),)
    assert LaunchPlan.from_json(plan.to_json()) == plan
