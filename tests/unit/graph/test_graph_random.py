"""Random numbers: Philox's published vectors, moments, independence of shape, the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, knobs
from tessera.compiler.frontend import fixes
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.graph.operators.random import hashed, philox
from tessera.compiler.graph.reference import evaluate
from tessera.language import dims, dtypes
from tests.differential.operator_examples import function


def run(body: Any) -> np.ndarray:
    (out,) = evaluate(function([], body), [])
    return out


# Random123's known answers (kat_vectors, philox4x32-10) with counter words 2 and 3 zero have only this line; the others
# were computed from the paper's definition with Python integers, below.
def test_philox_known_answer() -> None:
    assert int(philox(0, 0)) == 0xE169C58D_6627E8D5


def by_the_paper(counter: int, key: int) -> int:
    c, k, mask = [counter & 0xFFFFFFFF, counter >> 32, 0, 0], [key & 0xFFFFFFFF, key >> 32], 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0] | c[1] << 32


@pytest.mark.parametrize("key", [0, 1, 2**32, 2**64 - 1, 0x0123456789ABCDEF])
def test_philox_is_the_papers(key: int) -> None:
    counters = [0, 1, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1]
    assert [int(v) for v in philox(np.array(counters, np.uint64), np.uint64(key))] == [
        by_the_paper(c, key) for c in counters
    ]


def test_bits_depend_on_position_seed_and_offset_alone() -> None:
    flat = run(lambda g: g.random_bits(7, (12,)))
    np.testing.assert_array_equal(run(lambda g: g.random_bits(7, (3, 4))).ravel(), flat)
    np.testing.assert_array_equal(run(lambda g: g.random_bits(7, (8,), offset=4)), flat[4:])
    assert not (run(lambda g: g.random_bits(8, (12,))) == flat).any()
    assert run(lambda g: g.random_bits(-1, (1,)))[0] == by_the_paper(0, 2**64 - 1)


def hashed_by_hand(number: int, key: int) -> int:
    for product in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        key = (key ^ key >> 33) * product % 2**64
    key ^= key >> 33
    x = (number ^ key) % 2**32
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32 ^ key >> 32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_short_draws_are_a_hash_of_the_elements_number(target: str) -> None:
    """In rows, flat, and in another order."""

    @ts.function
    def drawn(x: ts.Tensor["M", "N", ts.f32], key: ts.int64):
        bits = ts.random_bits(key, x.shape, offset=3, dtype=ts.uint32)
        flat = ts.random_bits(key, (x.size,), dtype=ts.uint32)
        return bits, flat, (x * (bits >> 16).to(ts.f32)).T, ts.sum(x * (bits >> 16).to(ts.f32), axis=1)

    key, shape = 2**40 + 7, (5, 27)
    want = [hashed_by_hand(i, key) for i in range(3 + 5 * 27)]
    x = np.arange(5 * 27, dtype=np.float32).reshape(shape) % 3
    with knobs.target.override(target):
        bits, flat, turned, sums = map(np.asarray, drawn(x, key))
    rows = np.array(want[3:]).reshape(shape)
    np.testing.assert_array_equal(bits, rows)
    np.testing.assert_array_equal(flat, want[:-3])
    np.testing.assert_array_equal(turned, (x * (rows >> 16)).T)
    np.testing.assert_array_equal(sums, (x * (rows >> 16)).sum(1))


def test_short_draws_are_as_good_as_independent() -> None:
    """Under keys that are alike, for neighbours, and between the halves of one draw: each pair of 4-bit pieces falls
    on the 256 pairs as chance does (chi squared within six standard deviations of its mean, 255)."""
    n = 1 << 16
    at = np.arange(n, dtype=np.uint64)
    one, other = hashed(at, np.uint64(1)), hashed(at, np.uint64(2))
    halves = (one >> np.uint32(16), one & np.uint32(0xFFFF), (one ^ one >> np.uint32(16)) & np.uint32(0xFFFF))
    pairs = [(one >> np.uint32(16), other >> np.uint32(16)), (one[:-1], one[1:]), (one[: n // 2], one[n // 2 :])]
    pairs += [(halves[i], halves[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    over_keys = hashed(np.uint64(5), np.arange(n, dtype=np.uint64))
    pairs += [(over_keys[:-1], over_keys[1:])]
    for a, b in pairs:
        for shift in (0, 4, 8, 12):
            cells = ((a >> np.uint32(shift)) & np.uint32(15)) * np.uint32(16) + (
                (b >> np.uint32(shift)) & np.uint32(15)
            )
            counts = np.bincount(cells, minlength=256)
            chi = float(((counts - len(a) / 256) ** 2).sum() / (len(a) / 256))
            assert abs(chi - 255) < 6 * (2 * 255) ** 0.5, (shift, chi)


def test_moments() -> None:
    n = 40_000
    u = run(lambda g: g.uniform(3, (n,)))
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.005
    z = run(lambda g: g.normal(3, (n,), mean=1, std=2))
    assert np.isfinite(z).all() and abs(z.mean() - 1) < 0.05 and abs(z.std() - 2) < 0.05
    k = run(lambda g: g.randint(3, (n,), -2, 5))
    assert set(k.tolist()) == set(range(-2, 5)) and np.ptp(np.bincount(k + 2)) < n * 0.02
    assert abs(run(lambda g: g.bernoulli(3, (n,), p=0.2)).mean() - 0.2) < 0.01
    kept = run(lambda g: g.dropout(g.ones((n,)), 5, p=0.75))
    assert set(np.unique(kept).tolist()) == {0, 4} and abs(kept.mean() - 1) < 0.05


def test_a_seed_may_be_a_tensor_and_a_shape_symbolic() -> None:
    from tessera.compiler.ir.types import TensorType

    n = dims.symbol("N")
    types = [TensorType((), dtypes.uint64), TensorType((n,), dtypes.f32)]
    func = function(types, lambda g, seed, x: g.add(x, g.uniform(seed, (n,))))
    (out,) = evaluate(func, [np.uint64(2**64 - 1), np.zeros(5, np.float32)])
    np.testing.assert_array_equal(out, run(lambda g: g.uniform(-1, (5,))))


@pytest.mark.parametrize(
    ("signature", "wanted"),
    [
        ('x: Tensor["D"]', 'x: Tensor["D"], key: ts.int64'),
        ('x: Tensor["D"], training: bool = True', 'x: Tensor["D"], key: ts.int64, training: bool = True'),
        ('x: Tensor["D"], *, n: int', 'x: Tensor["D"], key: ts.int64, *, n: int'),
    ],
)
def test_the_fix_of_a_missing_key_adds_a_parameter(signature: str, wanted: str) -> None:
    lines = ["import tessera as ts", "from tessera import Tensor", "", "", "@ts.function"]
    text = "\n".join([*lines, f"def f({signature}):", "    return ts.dropout(x, p=0.5)", ""])
    file = FileAnalysis("model.py")
    file.update(text)
    (found,) = file.diagnostics
    mended = fixes.apply(text, found.fixes[0])
    assert f"def f({wanted}):\n    return ts.dropout(x, p=0.5, key=key)\n" in mended
    file.update(mended)
    assert not file.diagnostics


def test_one_key_one_draw_and_none_outside_of_training() -> None:
    @ts.function
    def f(x: Tensor["D"], key: ts.int64, training: bool = True):
        if training:
            x = ts.dropout(x, key, p=0.5)
        return x

    x = np.ones(64, np.float32)
    first, again, other = (f(x, k) for k in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert set(first.tolist()) == {0.0, 2.0}
    assert f(x, 1, False).tobytes() == x.tobytes()
    assert "argument key" not in str(ts.why_recompiled(f))  # it is passed, so that another needs no new code
