"""`ts.fft` beside NumPy's and PyTorch's transforms: values, precision, gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tessera as ts
from tessera.compiler.graph.operators.spectral.factors import LARGEST, is_smooth, radices
from tessera.compiler.graph.operators.spectral.roots import roots
from tessera.compiler.lower.spectral import passes
from tessera.compiler.targets import base
from tessera.compiler.targets.cpu.llvm.isa import host
from tessera.compiler.targets.cpu.target import CpuTarget
from tessera.errors import CompileError, LaunchError
from tessera.fft import HOME
from tests.conftest import require

RNG = np.random.default_rng(5)


def real(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def complex_(*shape: int, dtype: Any = np.complex64) -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def error(found: Any, exact: np.ndarray) -> float:
    """The distance of all elements together, as a part of all of them."""
    found = np.asarray(found)
    assert found.shape == exact.shape
    return float(np.linalg.norm(found - exact) / max(float(np.linalg.norm(exact)), 1e-30))


def close(found: Any, exact: np.ndarray, narrow: float = 3e-7) -> None:
    single = np.asarray(found).dtype in (np.complex64, np.float32)
    assert error(found, exact) < (narrow if single else 1e-15)


LENGTHS = [(range(1, 21), True), (range(21, 41), False), ((48, 67, 101, 121, 128, 210), True)]


@pytest.mark.parametrize("lengths, reals", LENGTHS, ids=str)
def test_every_length(lengths: Any, reals: bool) -> None:
    """Passes of all radices, products and convolutions; even and odd lengths of real numbers."""

    @ts.function
    def transforms(*xs: Any):
        if not reals:
            return tuple((ts.fft.ifft(z, axis=1),) for n, z, x, h in xs)
        return tuple((ts.fft.fft(z, axis=1), ts.fft.rfft(x, axis=1), ts.fft.irfft(h, n, axis=1)) for n, z, x, h in xs)

    given = [(n, complex_(2, n, 3), real(2, n, 3), complex_(2, n // 2 + 1, 3)) for n in lengths]
    for (n, z, x, h), found in zip(given, transforms(*given), strict=True):
        if not reals:
            close(found[0], np.fft.ifft(wide(z), axis=1))
            continue
        close(found[0], np.fft.fft(wide(z), axis=1))
        close(found[1], np.fft.rfft(wide(x), axis=1))
        close(found[2], np.fft.irfft(wide(h), n, axis=1))


X, Z = real(3, 4, 6), complex_(3, 4, 6)
CALLS: list[tuple[str, np.ndarray, dict[str, Any]]] = [
    ("fft", Z, {}), ("fft", X, {"n": 9, "axis": 1, "norm": "ortho"}), ("ifft", Z, {"n": 3, "norm": None}),
    ("rfft", X, {}), ("rfft", X, {"n": 7, "axis": 0}), ("irfft", Z, {}), ("hfft", Z, {}),
    ("irfft", Z, {"n": 7, "axis": 0, "norm": "forward"}), ("hfft", Z, {"n": 5, "norm": "ortho"}),
    ("ihfft", X, {"axis": 1}), ("ihfft", X, {"n": 5, "norm": "forward"}),
    ("fft2", Z, {}), ("ifft2", Z, {"axes": (0, 1)}), ("rfft2", X, {"s": (3, 5)}), ("irfft2", Z, {}),
    ("fftn", Z, {}), ("fftn", Z, {"s": (3, -1), "axes": (2, 0)}), ("ifftn", Z, {"axes": (1,)}),
    ("rfftn", X, {"norm": "ortho"}), ("irfftn", Z, {"s": (4, 9), "axes": (0, 2)}), ("irfftn", Z, {"norm": "forward"}),
    ("fftshift", X, {}), ("ifftshift", X, {"axes": 1}), ("fftshift", Z, {"axes": (0, -1)}),
]  # fmt: skip


def test_parameters_are_numpys() -> None:
    @ts.function
    def inside(x: Any, z: Any):
        return tuple(getattr(ts.fft, name)(z if given is Z else x, **kwargs) for name, given, kwargs in CALLS)

    for (name, given, kwargs), found in zip(CALLS, inside(X, Z), strict=True):
        exact = getattr(np.fft, name)(wide(given), **kwargs)
        close(found, exact)
        eager = getattr(ts.fft, name)(given, **kwargs)
        assert isinstance(eager, np.ndarray)
        close(eager, exact)


def test_all_names_are_numpys() -> None:
    assert set(np.fft.__all__) == set(dir(ts.fft)) == set(HOME)
    with pytest.raises(AttributeError, match=r"no attribute 'dct'; it has fft, fft2"):
        _ = ts.fft.dct


@pytest.mark.parametrize("n", [1, 5, 6])
def test_frequencies(n: int) -> None:
    for found, exact in ((ts.fft.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5)), (ts.fft.rfftfreq(n), np.fft.rfftfreq(n))):
        assert found.dtype == ts.f32
        np.testing.assert_array_equal(np.asarray(found), exact.astype(np.float32))


def test_dtypes() -> None:
    """Whole numbers and narrow floats count as f32."""
    for given, narrow in ((np.arange(6), True), (real(6, dtype=np.float16), True), (real(6, dtype=np.float64), False)):
        found, half = ts.fft.fft(ts.asarray(given)), ts.fft.rfft(ts.asarray(given))
        assert found.dtype == half.dtype == (ts.complex64 if narrow else ts.complex128)
        close(found, np.fft.fft(wide(given)))
        assert ts.fft.irfft(half).dtype == (ts.f32 if narrow else ts.f64)


def test_views_are_read_where_they_lie() -> None:
    z = complex_(6, 8, 4)
    for view in (z.T, z[::2, 1:, ::-1], z[:, :1], np.broadcast_to(z[0, 0], (3, 4)), z[3:3]):
        for axis in range(view.ndim) if view.size else (1,):
            close(ts.fft.fft(view, axis=axis), np.fft.fft(wide(view), axis=axis))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_long_lines_have_roots_of_two_tables(dtype: Any) -> None:
    n = 3 * passes.LONG
    z = complex_(2, n, dtype=dtype)
    found = ts.fft.fft(z)
    close(found, np.fft.fft(wide(z)), 4e-7)
    close(ts.fft.ifft(found), z, 4e-7)


def test_on_a_gpus_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes with roots of one table and of two, transforms of real numbers, and an axis before others."""
    require("g++")
    monkeypatch.setattr(passes, "LONG", 16)
    monkeypatch.setattr(passes, "NEAR", 4)

    @ts.function
    def several(z: Any, x: Any):
        return ts.fft.fft(z), ts.fft.irfft(ts.fft.rfft(x)), ts.fft.ifft(z, n=10, axis=0)

    z, x = complex_(3, 156), real(3, 60)
    with ts.knobs.target.override("emulator:sm_80"):
        far, back, columns = several(z, x)
    close(far, np.fft.fft(wide(z)))
    close(back, x)
    close(columns, np.fft.ifft(wide(z), n=10, axis=0))
    np.testing.assert_array_equal(far, several(z, x)[0])  # the processor's code adds in the same order


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_with_narrower_vectors(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host(level).bits >= host().bits:
        pytest.skip("this machine has no wider vectors")
    target = CpuTarget(level)
    monkeypatch.setattr(base, "get", lambda name: target)

    @ts.function
    def several(z: ts.Tensor[5, 48, ts.complex64], x: ts.Tensor[3, 40, ts.f64]):
        return ts.fft.fft(z), ts.fft.irfft(ts.fft.rfft(x))

    z, x = complex_(5, 48), real(3, 40, dtype=np.float64)
    found, back = ts.compile(several, target="cpu")(z, x)
    close(found, np.fft.fft(wide(z)))
    close(back, x)


@pytest.mark.parametrize(
    "level, dtype, lengths",
    [
        (None, np.float32, (2, 4, 6, 10, 14, 16, 24, 48)),
        (None, np.float64, (3, 6, 8)),
        ("avx2", np.float32, (6, 10)),
        ("avx2", np.float64, (6,)),
        ("baseline", np.float32, (6, 10)),
    ],
)
def test_short_lines_one_behind_the_other(
    level: str | None, dtype: Any, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than a vector has lanes, and some that fill none; each has the bits that it has alone."""
    if level is not None and host(level).bits >= host().bits:
        pytest.skip("this machine has no wider vectors")
    target = CpuTarget(level)
    monkeypatch.setattr(base, "get", lambda name: target)

    @ts.function
    def transforms(*xs: Any):
        return tuple((ts.fft.ifft(z), ts.fft.rfft(x, norm="ortho")) for z, x in xs)

    narrow = np.complex64 if dtype == np.float32 else np.complex128
    given = [(complex_(37, n, dtype=narrow), real(37, n, dtype=dtype)) for n in lengths]
    exact = ts.compile(transforms, target="cpu", arguments=given) if level else transforms
    for (z, x), found in zip(given, exact(*given), strict=True):
        close(found[0], np.fft.ifft(wide(z)))
        close(found[1], np.fft.rfft(wide(x), norm="ortho"))
    if level is None:
        last = transforms(*((z[36:], x[36:]) for z, x in given))
        for whole, own in zip(exact(*given), last, strict=True):
            for a, b in zip(whole, own, strict=True):
                np.testing.assert_array_equal(np.asarray(a)[36:], np.asarray(b))


def test_short_lines_are_neither_gathered_nor_scattered() -> None:
    """16 bytes of each are read and stored at once."""

    @ts.function
    def several(x: ts.Tensor[512, 24, ts.f32], z: ts.Tensor[512, 12, ts.complex64]):
        return ts.fft.rfft(x), ts.fft.fft(z)

    compiled = ts.compile(several, target="cpu")
    assert len(compiled.lowered.program.launches) == 2
    assert "gather" not in compiled.source and "scatter" not in compiled.source


def test_rematerialized_and_in_loops() -> None:
    x = real(2, 12, dtype=np.float64)

    def turned(x: Any):
        return ts.fft.irfft(ts.fft.rfft(x) * (0.5 + 0.5j))

    def loss(x: Any, again: bool):
        for _ in range(2):
            x = ts.remat(turned)(x) if again else turned(x)
        return ts.sum(x * x * x)

    kept, again = (ts.grad(ts.function(lambda x, a=a: loss(x, a)))(x) for a in (False, True))
    np.testing.assert_array_equal(kept, again)

    @ts.function
    def rounds(x: Any, n: ts.int64):
        for _ in ts.range(n):
            x = ts.fft.irfft(0.5 * ts.fft.rfft(x), 12)
        return x

    np.testing.assert_allclose(rounds(x, 3), x / 8, rtol=1e-12)


def test_errors_are_no_larger_than_other_libraries() -> None:
    """Of 1000 elements, beside PyTorch's transform of the same numbers in the same precision."""
    for n in (256, 1000, 4096):
        z = complex_(8, n)
        exact = np.fft.fft(wide(z))
        assert error(ts.fft.fft(z), exact) < 1.5 * error(torch.fft.fft(torch.from_numpy(z)), exact)


def test_roots_are_off_by_a_rounding_at_most() -> None:
    for n in (1, 2, 3, 4, 7, 8, 360, 1 << 20):
        k = np.unique(np.append(RNG.integers(0, n, 200), [0, n // 8, n // 4, n // 2, n - 1]))
        angle = -2 * np.pi * k.astype(np.longdouble) / n + 2 * (np.pi - np.longdouble("3.14159265358979323846")) * k / n
        found = roots(k, n)
        for part, exact in ((found.real, np.cos(angle)), (found.imag, np.sin(angle))):
            assert np.all(np.abs(part - exact) <= 1.2e-16)
    assert roots([1, 2, 3, 4], 4).tolist() == [-1j, -1, 1j, 1]


def test_passes_multiply_to_the_length() -> None:
    for n in filter(is_smooth, range(2, 2000)):
        found = radices(n)
        assert np.prod(found) == n and max(found) <= LARGEST and list(found) == sorted(found, reverse=True)
    assert radices(1 << 20) == (16,) * 5 and not is_smooth(17)


GRADIENTS: list[tuple[str, np.ndarray, dict[str, Any]]] = [
    ("fft", complex_(3, 6, dtype=np.complex128), {"n": 5, "norm": "ortho"}), ("fft", real(3, 6, dtype=np.float64), {}),
    ("ifft", complex_(3, 6, dtype=np.complex128), {"n": 17}), ("rfft", real(3, 6, dtype=np.float64), {"n": 5}),
    ("rfftn", real(3, 6, dtype=np.float64), {}), ("irfftn", complex_(3, 4, dtype=np.complex128), {}),
    ("irfft", complex_(3, 4, dtype=np.complex128), {"n": 9}), ("hfft", complex_(3, 4, dtype=np.complex128), {"n": 4}),
    ("ihfft", real(3, 6, dtype=np.float64), {}),
]  # fmt: skip


@pytest.mark.parametrize("name, at, kwargs", GRADIENTS, ids=lambda v: v if isinstance(v, str) else "")
def test_derivatives(name: str, at: np.ndarray, kwargs: dict[str, Any]) -> None:
    """Reverse mode beside PyTorch, forward mode beside reverse mode."""

    def loss(x: Any):
        y = getattr(ts.fft, name)(x, **kwargs)
        return ts.sum(ts.sin(1.3 * ts.real(y)) + ts.cos(0.7 * ts.imag(y)))

    @ts.function
    def derivatives(x: Any, change: Any):
        return ts.grad(loss)(x), ts.jvp(loss, (x,), (change,))[1]

    change = RNG.normal(size=at.shape) + (1j * RNG.normal(size=at.shape) if np.iscomplexobj(at) else 0)
    found, along = derivatives(at, change)
    x = torch.tensor(at, requires_grad=True)
    y = getattr(torch.fft, name)(x, **kwargs)
    imaginary = y.imag if y.is_complex() else torch.zeros(())
    (torch.sin(1.3 * (y.real if y.is_complex() else y)) + torch.cos(0.7 * imaginary)).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(along, np.sum((np.conj(found) * change).real), rtol=1e-12)


def test_second_derivatives_and_vmap() -> None:
    x, along = real(2, 6, dtype=np.float64), real(2, 6, dtype=np.float64)

    def energy(x: Any):
        return ts.sum(ts.square(ts.abs(ts.fft.rfft(x))) ** 2)

    @ts.function
    def slope(x: Any):
        return ts.grad(energy)(x)

    @ts.function
    def twice(x: Any, along: Any):
        return ts.grad(lambda x: ts.sum(slope(x) * along))(x)

    step = 1e-6
    apart = (np.asarray(slope(x + step * along)) - np.asarray(slope(x - step * along))) / (2 * step)
    np.testing.assert_allclose(twice(x, along), apart, rtol=1e-5, atol=1e-5)

    @ts.function
    def mapped(x: Any):
        return ts.vmap(lambda row: ts.fft.irfft(ts.fft.rfft(row, axis=0), 6, axis=0))(x)

    np.testing.assert_allclose(mapped(x), x, rtol=1e-12)


def test_lengths_that_are_known_at_launch() -> None:
    @ts.function
    def both(x: ts.Tensor["B", "S", ts.f32]):
        y = ts.fft.rfft(x)
        return y, ts.fft.fft(y, axis=0), ts.fft.irfft(y, S), ts.fft.fft(x, 12, norm="ortho"), ts.fft.fftfreq(S)

    compiled = ts.compile(both, target="cpu")
    assert "-> ([B, S//2+1] complex64, [B, S//2+1] complex64, [B, S] f32, [B, 12] complex64, [S] f32)" in (
        compiled.ir("graph")
    )
    for x in (real(3, 7), real(5, 8)):
        y, z, back, fixed, places = compiled(x)
        close(y, np.fft.rfft(wide(x)))
        close(z, np.fft.fft(np.fft.rfft(wide(x)), axis=0), 1e-6)
        close(back, wide(x), 1e-6)
        close(fixed, np.fft.fft(wide(x), 12, norm="ortho"))
        np.testing.assert_allclose(places, np.fft.fftfreq(x.shape[1]), rtol=1e-6)


def test_a_pass_computes_its_results_together() -> None:
    """All stores stand in one loop: else each result would compute the whole transform again."""

    @ts.function
    def four(z: ts.Tensor[4, 64, ts.complex64]):
        return ts.fft.fft(z, axis=0)

    source = ts.compile(four, target="cpu").source
    assert source.count("fadd") + source.count("fsub") == 16


WRONG: list[tuple[Any, str, str]] = [
    (lambda x: ts.fft.rfft(x + 1j), "TS107", "rfft takes real numbers, not complex64; say which part of them"),
    (lambda x: ts.fft.fft(x, n=0), "TS107", "a transform has at least 1 element, not 0"),
    (lambda x: ts.fft.irfft(x, n=-3), "TS107", "a transform has at least 1 element, not -3"),
    (lambda x: ts.fft.fft(x, n=2.5), "TS105", "n is a whole number or None, not 2.5"),
    (lambda x: ts.fft.fft(x, norm="odd"), "TS107", "norm is 'backward', 'ortho' or 'forward', not 'odd'"),
    (lambda x: ts.fft.fftn(x, axes=(0, -2)), "TS107", "name one axis twice"),
    (lambda x: ts.fft.fftn(x, s=(2, 2), axes=(0,)), "TS107", "s has 2 lengths for 1 axes"),
    (lambda x: ts.fft.fftn(x, axes=(7,)), "TS107", "axis 7 of a tensor with 2 axes"),
    (lambda x: ts.fft.fft(x, axis=5), "TS204", "axis=5 is out of range"),
    (lambda x: ts.fft.irfft(x[:, :1]), "TS213", "a transform has at least 1 element, not 0"),
    (lambda x: np.fft.fft(x), "TS105", "numpy.fft cannot be called with .*; use ts.fft.fft"),
]


@pytest.mark.parametrize("program, code, message", WRONG, ids=[m for _, _, m in WRONG])
def test_what_is_refused(program: Any, code: str, message: str) -> None:
    with pytest.raises(CompileError, match=rf"(?s){code}.*\^.*{message}"):
        ts.function(program)(X[0])
    if "numpy" not in message:
        with pytest.raises((CompileError, LaunchError, TypeError, ValueError), match=message):
            program(X[0])
