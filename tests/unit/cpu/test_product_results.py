"""Products that store their results: the bits of those that go through scratch memory, and nothing beside them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets.cpu.kernel import products
from tessera.compiler.targets.cpu.llvm import isa
from tessera.compiler.targets.cpu.target import CpuTarget
from tests.fuzz.guard import Guarded

BF16 = ml_dtypes.bfloat16
SIZES = [(64, 64, 64), (257, 600, 97), (70, 4200, 130), (129, 3, 7), (33, 1027, 40)]
DTYPES = [np.float32, np.float64, np.float16, BF16, np.int8, np.uint8]
EPS = {"float32": 2**-23, "float64": 2**-52, "float16": 2**-10, "bfloat16": 2**-7}
masked = pytest.mark.skipif(not isa.host().masks, reason="products store their results with AVX-512")


def plain(a: Any, b: Any) -> Any:
    return a @ b


def left_turned(a: Any, b: Any) -> Any:
    return a.T @ b


def right_turned(a: Any, b: Any) -> Any:
    return a @ b.T


def of_bytes(a: Any, b: Any) -> Any:
    return a.to(ts.int32) @ b.to(ts.int32)


def left_turned_bytes(a: Any, b: Any) -> Any:
    return a.to(ts.int32).T @ b.to(ts.int32)


def right_turned_bytes(a: Any, b: Any) -> Any:
    return a.to(ts.int32) @ b.to(ts.int32).T


def rounded(a: Any, b: Any) -> Any:
    return (a @ b).to(ts.bf16)


# pyright: reportUndefinedVariable=false
@ts.function
def of_open_sizes(a: ts.Tensor["M", "K", ts.bf16], b: ts.Tensor["K", "N", ts.bf16]):
    return a @ b


def operands(size: tuple[int, int, int], dtype: Any) -> tuple[Any, Any]:
    (m, k, n), rng = size, np.random.default_rng(7)
    if np.issubdtype(dtype, np.integer):
        ends = np.iinfo(dtype)
        lowest, highest = int(ends.min), int(ends.max)
        left, right = (rng.integers(lowest, highest + 1, s).astype(dtype) for s in ((m, k), (k, n)))
        return left, right
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def nowhere(*_: Any) -> None:
    return None


def stored_and_copied(
    function: Any, arguments: tuple[Any, ...], result: Any, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, str]]:
    """The results, and the code, of a program and of the same one without stores by products. Pages that nothing may
    touch stand before or behind each array."""
    program, found = (
        ts.compile(ts.function(function), target="cpu", arguments=arguments).lowered.program,
        list[tuple[Any, str]](),
    )
    for copied in (False, True):
        with monkeypatch.context() as patched:
            if copied:
                patched.setattr(products, "destination", nowhere)
            artifact = generate(program, CpuTarget())
        code = CpuTarget().load(artifact)
        for at_end in (True, False):
            memory = [Guarded(v, at_end) for v in (*arguments, np.full_like(result, 7))]
            code.run([m.address for m in memory], [], [])
            found.append((memory[-1].array.copy(), artifact.source))
    return found


@masked
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bits_are_those_of_scratch_memory(size: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(size, dtype)
    whole = np.issubdtype(dtype, np.integer)
    ways = (of_bytes, left_turned_bytes, right_turned_bytes) if whole else (plain, left_turned, right_turned)
    exact = a.astype(np.int32) @ b.astype(np.int32) if whole else a.astype(np.longdouble) @ b.astype(np.longdouble)
    result = np.empty(exact.shape, np.int32 if whole else dtype)
    for function, x, y in zip(ways, (a, a.T, a), (b, b, b.T), strict=True):
        arguments = np.ascontiguousarray(x), np.ascontiguousarray(y)
        found = [bits for bits, _ in stored_and_copied(function, arguments, result, monkeypatch)]
        assert len({bits.tobytes() for bits in found}) == 1
        if whole:
            np.testing.assert_array_equal(found[0], exact)
        else:
            bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
            assert np.all(np.abs(found[0].astype(np.longdouble) - exact) <= 4 * EPS[np.dtype(dtype).name] * bound)


@masked
@pytest.mark.parametrize(
    ("function", "dtype", "result", "how"),
    [
        (plain, np.float32, np.float32, "_exact("),
        (right_turned, np.float64, np.float64, "_copied_exact("),
        (rounded, np.float32, BF16, None),
        (plain, BF16, BF16, "_to_bf16("),
        (plain, np.float16, np.float16, "_to_f16("),
        (of_bytes, np.int8, np.int32, "_to_int32("),
    ],
)
def test_results_are_not_copied(
    function: Any, dtype: Any, result: Any, how: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except where a product that needs no panels would have to round."""
    a, b = operands((200, 200, 200), dtype)
    (_, text), *_, (_, other) = stored_and_copied(function, (a, b), np.empty((200, 200), result), monkeypatch)
    assert how not in other if how else "_exact(" not in text and "_to_" not in text
    assert how is None or how in text


def at_least(a: Any, b: Any) -> Any:
    return ts.maximum((a @ b).to(ts.f32), -1e9)


@masked
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.int8], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("size", [(45, 70, 72), (45, 600, 72), (45, 2100, 104)], ids=str)
def test_last_rows_and_columns_have_code_of_their_own(size: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as from whole blocks that are filled up, where results are stored and where they are used."""
    a, b = operands(size, dtype)
    ways = [(of_bytes, np.int32)] if dtype == np.int8 else [(plain, dtype), (at_least, np.float32)]
    for function, result in ways:
        program = ts.compile(ts.function(function), target="cpu", arguments=(a, b)).lowered.program
        found = list[Any]()
        for much in (1, 1 << 62):
            monkeypatch.setattr(products, "MUCH", much)
            artifact = generate(program, CpuTarget())
            assert ("_last" in artifact.source or "_narrow" in artifact.source) == (much == 1)
            memory = [Guarded(v, True) for v in (a, b, np.full((size[0], size[2]), 7, result))]
            CpuTarget().load(artifact).run([m.address for m in memory], [], [])
            found.append(memory[-1].array.copy())
        assert found[0].tobytes() == found[1].tobytes()


@masked
@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=lambda d: np.dtype(d).name)
def test_bytes_times_few_and_many_columns(dtype: Any) -> None:
    """Rows are copied as they are for few columns, and transposed for many."""
    for columns, lines in ((64, True), (1200, False)):
        a, b = operands((130, 1100, columns), dtype)
        compiled = ts.compile(ts.function(of_bytes), target="cpu", arguments=(a, b))
        assert ("_lines_" in compiled.source) == lines
        np.testing.assert_array_equal(np.asarray(compiled(a, b)), a.astype(np.int32) @ b.astype(np.int32))


@masked
def test_sums_round_to_nearest_bf16_and_keep_infinities_and_nan() -> None:
    """Sums half way between two numbers, too large ones, NaN, infinities and zeros of either sign."""
    x = np.array([1, -1, 1.0078125, -3.984375, 2.0**100, -(2.0**-100), 3.3895e38, -0.0, 0.0, np.inf, -np.inf, np.nan])
    y = np.array([0, 2.0**-8, -(2.0**-8), 2.0**-9, 2.0**-7, 3 * 2.0**-8, 0.75 * 2.0**-7])
    finite = np.where(np.isfinite(x), x, 0)
    a = np.stack([np.repeat(x, len(y)), np.outer(finite, y).reshape(-1)], 1).astype(BF16)
    for columns in (64, 40, 7):
        b = np.ones((2, columns), BF16)
        with np.errstate(over="ignore"):
            want = a.astype(np.float32).sum(1, dtype=np.float32).astype(BF16)
        found = np.asarray(ts.function(plain)(a, b))
        number = ~np.isnan(want)
        assert np.isnan(found[~number]).all()
        for column in found[number].T:
            assert column.tobytes() == want[number].tobytes()


@masked
def test_what_is_used_again_stays_in_scratch_memory() -> None:
    def twice(a: Any, b: Any) -> Any:
        c = a @ b
        return c, c * 2

    def shifted(a: Any, b: Any) -> Any:
        return a @ b + 1

    a, b = operands((150, 70, 90), np.float32)
    for function in (twice, shifted):
        assert "_exact" not in ts.compile(ts.function(function), target="cpu", arguments=(a, b)).source
    once, doubled = ts.function(twice)(a, b)
    np.testing.assert_array_equal(np.asarray(once), np.asarray(ts.function(plain)(a, b)))
    np.testing.assert_array_equal(np.asarray(doubled), 2 * np.asarray(once))


@masked
def test_threads_and_open_sizes_do_not_change_a_bit() -> None:
    a, b = operands((700, 300, 333), BF16)
    function = ts.function(plain)
    want, threads = np.asarray(function(a, b)).tobytes(), ts.get_num_threads()
    try:
        for n in (1, 2):
            ts.set_num_threads(n)
            assert np.asarray(function(a, b)).tobytes() == want
    finally:
        ts.set_num_threads(threads)
    assert np.asarray(ts.compile(of_open_sizes, target="cpu")(a, b)).tobytes() == want


@masked
@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("size", [(1, 33, 40, 50), (5, 64, 64, 64), (3, 20, 300, 70)], ids=str)
def test_each_matrix_of_a_batch_is_stored_at_its_place(size: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count, m, k, n = size
    pairs = [operands((m, k, n), dtype) for _ in range(count)]
    a, b = (np.stack([(i + 1) * pair[side] for i, pair in enumerate(pairs)]).astype(dtype) for side in range(2))
    found = stored_and_copied(plain, (a, b), np.empty((count, m, n), dtype), monkeypatch)
    assert len({bits.tobytes() for bits, _ in found}) == 1
    for i in range(count):
        np.testing.assert_array_equal(found[0][0][i], np.asarray(ts.function(plain)(a[i], b[i])))
