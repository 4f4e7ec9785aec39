"""What lies outside of an array reads as 0 and is not stored, wherever an index comes from, on every target."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tests.conftest import require
from tests.fuzz.guard import Guarded
from tests.kernel_runner import check, program

TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80", "emulator:sm_90a"])


def run(kernel: Callable[..., Any], *args: Any, target: str, **config: Any) -> list[np.ndarray]:
    """The arrays behind a launch; around each lie pages that nothing may touch, at either end in turn."""
    if target.startswith("emulator"):
        require("g++")
    chosen, p = base.get(target), program(kernel, *args, **config)
    executable = chosen.load(generate(p, chosen))
    found: list[list[np.ndarray]] = []
    for at_end in (True, False):
        memory = [Guarded(a, at_end) for a in args]
        executable.run([m.address for m in memory], [], [])
        found.append([m.array.copy() for m in memory])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    return found[0]


def array(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def interleaved(y: Tensor["n", ts.f32]):
    for p in ts.tile.range(0, 2):
        for t in ts.tile.range(p, ts.tile.cdiv(n, 16), 2):
            y[t * 16 : t * 16 + 16] = ts.tile.ones((16,))


@TARGETS
@pytest.mark.parametrize("n", [1, 17, 31, 32, 33])
def test_steps_from_starts_of_several_kinds(n: int, target: str) -> None:
    (y,) = run(interleaved, np.zeros(n, np.float32), target=target)
    np.testing.assert_array_equal(y, 1)


def sums_of_ones_outside(x: Tensor["M", "N", ts.f32], rows: Tensor["n", ts.int32], y: Tensor[2, "n", ts.f32]):
    i = ts.tile.program_id() * 4 + ts.tile.arange(4)
    y[0, i] = ts.tile.sum(ts.tile.load(x[rows[i], 0:8], other=1), axis=1)
    y[1, i] = ts.tile.sum(ts.tile.load(x[ts.tile.program_id() * 4 + ts.tile.arange(4), 0:8], other=1), axis=1)


@TARGETS
def test_a_load_defines_the_elements_outside(target: str) -> None:
    x, rows = array(7, 5), np.array([3, 0, 6, 7, -1, 2, 2], np.int32)
    inside = np.vstack([np.pad(x, ((0, 0), (0, 3)), constant_values=1), np.ones((1, 8), np.float32)])
    y = run(sums_of_ones_outside, x, rows, np.zeros((2, 7), np.float32), target=target)[-1]
    np.testing.assert_array_equal(y, [inside[rows].sum(1), inside[:7].sum(1)])


def turned_blocks(x: Tensor["M", 8, ts.f32], y: Tensor["P", 8, 8, ts.f32]):
    for p in ts.tile.range(0, P):
        y[p, :, :] = x[p * 8 : p * 8 + 8, :].T


@TARGETS
@pytest.mark.parametrize("m", [1, 8, 11])
def test_transposed_blocks_that_lie_beyond_the_end(m: int, target: str) -> None:
    x, y = array(m, 8), np.full((5, 8, 8), 7, np.float32)
    rows = np.zeros((40, 8), np.float32)
    rows[:m] = x
    _, found = run(turned_blocks, x, y, target=target)
    np.testing.assert_array_equal(found, rows.reshape(5, 8, 8).transpose(0, 2, 1))


INDEX = np.array([1, 4, 5, -1, 2**31 - 1, -(2**31), 0], np.int32)
INSIDE = np.array([True, True, False, False, False, False, True])


def taken(x: Tensor["n", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        y[r] = x[i[r]] + 1


def rows(x: Tensor["n", "D", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", "D", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        y[r, :] = x[i[r], :] + 1


def parts_of_rows(x: Tensor["n", "D", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", "D", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        for k in ts.tile.range(0, D, 8):
            y[r, k : k + 8] = x[i[r], k : k + 8] + 1


@TARGETS
def test_rows_that_are_not_there_read_as_0(target: str) -> None:
    want = np.where(INSIDE, INDEX + 1, 0).astype(np.float32) + 1
    np.testing.assert_array_equal(run(taken, array(5), INDEX, np.zeros(7, np.float32), target=target)[2], want)
    for width in (4, 13):
        x = array(5, width)
        want = np.where(INSIDE[:, None], x[np.where(INSIDE, INDEX, 0)], 0) + 1
        for kernel in (rows, parts_of_rows):
            got = run(kernel, x, INDEX, np.zeros((7, width), np.float32), target=target)[2]
            np.testing.assert_array_equal(got, want)


def put(x: Tensor["n", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        x[i[r]] = y[r]


def put_rows(x: Tensor["n", "D", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", "D", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        x[i[r], 1:4] = y[r, 1:4]


@TARGETS
def test_rows_that_are_not_there_are_not_stored(target: str) -> None:
    x, y = array(5), -array(7)
    want = x.copy()
    want[INDEX[INSIDE]] = y[INSIDE]
    np.testing.assert_array_equal(run(put, x, INDEX, y, target=target)[0], want)
    x, y = array(5, 6), -array(7, 6)
    want = x.copy()
    want[INDEX[INSIDE], 1:4] = y[INSIDE, 1:4]
    np.testing.assert_array_equal(run(put_rows, x, INDEX, y, target=target)[0], want)


def shifted_by(x: Tensor["n", "D", ts.f32], y: Tensor["n", "D", ts.f32]):
    for r in ts.tile.range(0, n, 1):
        y[r, :] = x[r - 2, :]


@TARGETS
def test_rows_before_the_first_one(target: str) -> None:
    x = array(5, 6)
    want = np.concatenate([np.zeros((2, 6), np.float32), x[:3]])
    np.testing.assert_array_equal(run(shifted_by, x, np.zeros_like(x), target=target)[1], want)


def never_ends(x: Tensor["n", ts.f32], s: Tensor["m", ts.int32], y: Tensor["m", ts.f32]):
    for r in ts.tile.range(0, m, 1):
        total = ts.tile.zeros(())
        for t in ts.tile.range_k(0, n, s[r]):
            total += x[t]
        y[r] = total


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_80"])
def test_a_step_that_is_not_positive_counts_as_1(target: str) -> None:
    x, step = array(9), np.array([1, 2, 0, -3, 20], np.int32)
    want = [x[:: max(s, 1)].sum() for s in step]
    np.testing.assert_array_equal(run(never_ends, x, step, np.zeros(5, np.float32), target=target)[2], want)


def blocks_around(x: Tensor["n", ts.f32], y: Tensor["m", 6, ts.f32]):
    for p in ts.tile.range(0, m, 1):
        t = x[p * 4 - 6 : p * 4 + 2] - 100
        y[p, 0] = ts.tile.sum(t)
        y[p, 1] = ts.tile.max(t)
        y[p, 2] = ts.tile.max(ts.tile.cumsum(t))
        y[p, 3] = ts.tile.min(ts.tile.cumsum(t))
        y[p, 4] = ts.tile.sum(ts.tile.sort(t) * ts.tile.arange(8))
        y[p, 5] = ts.tile.mean(t * 2)


@TARGETS
def test_no_reduction_sees_what_stands_before_an_array(target: str) -> None:
    x = np.random.default_rng(1).integers(-9, 9, 13).astype(np.float32)
    got = run(blocks_around, x, np.zeros((5, 6), np.float32), target=target)[1]
    for p, row in enumerate(got):
        t = x[max(p * 4 - 6, 0) : max(p * 4 + 2, 0)] - 100
        sums = np.cumsum(t)
        want = [t.sum(), t.max(), sums.max(), sums.min(), (np.sort(t) * np.arange(len(t))).sum()]
        np.testing.assert_array_equal(row[:5], want)


def product_around(x: Tensor["M", "K", ts.f32], w: Tensor["K", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    total = ts.tile.zeros((16, 16))
    for k in ts.tile.range_k(0, K + 8, 16):
        total += x[0:16, k - 8 : k + 8] @ w[k - 8 : k + 8, 0:16]
    y[0:16, 0:16] = total


@TARGETS
@pytest.mark.parametrize("stages", [1, 3])
def test_products_of_blocks_that_start_before_an_array(target: str, stages: int) -> None:
    x, w = (np.random.default_rng(2).integers(-9, 9, shape).astype(np.float32) for shape in ((16, 40), (40, 16)))
    got = run(product_around, x, w, np.zeros((16, 16), np.float32), target=target, num_stages=stages)[2]
    np.testing.assert_array_equal(got, x @ w)


def rows_by_index(
    x: Tensor["n", "K", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", ts.f32], z: Tensor["m", ts.f32]
):
    for r in ts.tile.range(0, m, 4):
        rows = i[r : r + 4]
        most, sums = ts.tile.full((4,), -1000.0), ts.tile.zeros((4,))
        for k in ts.tile.range_k(0, K, 8):
            block = x[rows, k : k + 8] - 50
            most = ts.tile.maximum(most, ts.tile.row_max(block))
            sums = sums + ts.tile.row_sum(block)
        y[r : r + 4] = most
        z[r : r + 4] = sums


@TARGETS
def test_slices_beside_indices_are_ragged_as_blocks_are(target: str) -> None:
    x, i = array(5, 11), np.array([4, 0, 3, 3, 2, 1], np.int32)
    *_, most, sums = run(rows_by_index, x, i, *np.zeros((2, 6), np.float32), target=target)
    np.testing.assert_array_equal(most, x[i].max(1) - 50)
    np.testing.assert_array_equal(sums, (x[i] - 50).sum(1))


def put_by_index(x: Tensor["n", ts.f32], i: Tensor["m", ts.int32], y: Tensor["m", ts.f32], s: Tensor["one", ts.f32]):
    for _ in ts.tile.range(0, 1):
        total = ts.tile.zeros(())
        for r in ts.tile.range_k(0, m, 4):
            at = i[r : r + 4] - 1
            total += ts.tile.sum(x[at] + 1)
            x[at] = y[r : r + 4]
        s[0] = total


@TARGETS
def test_padded_indices_read_and_store_nothing(target: str) -> None:
    x, i, y = array(9), np.array([3, 9, 5, 8, 2, 6], np.int32), -array(6)
    want = x.copy()
    want[i - 1] = y
    got, _, _, total = run(put_by_index, x, i, y, np.zeros(1, np.float32), target=target)
    np.testing.assert_array_equal(got, want)
    assert total[0] == (x[i - 1] + 1).sum()


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_debug_mode_asks_nothing_of_what_is_padding(target: str) -> None:
    """Indices of padded rows and slices that reach past an end are not mistakes of the author's."""
    require("g++")
    chosen = base.get(target)
    x, i, y, z = array(5, 11), np.array([4, 0, 3, 3, 2, 1], np.int32), *np.zeros((2, 6), np.float32)
    p = program(rows_by_index, x, i, y, z)
    chosen.load(generate(p, chosen, debug=True)).run([a.ctypes.data for a in (x, i, y, z)], [], [])
    np.testing.assert_array_equal(y, x[i].max(1) - 50)
    x, i, y, z = array(9), np.array([3, 9, 5, 8, 2, 6], np.int32), -array(6), np.zeros(1, np.float32)
    p = program(put_by_index, x, i, y, z)
    chosen.load(generate(p, chosen, debug=True)).run([a.ctypes.data for a in (x, i, y, z)], [], [])


def sums_of_columns_before(b: Tensor["M", "K", ts.f32], y: Tensor["P", "Q", ts.f32]):
    for p in ts.tile.range(0, P):
        y[p, 0:32] = ts.tile.row_sum(b[p * 2 : p * 2 + 32, p - 3 : p + 1])


@TARGETS
@pytest.mark.parametrize("K", [1, 40])
def test_sums_of_columns_that_are_not_there(target: str, K: int) -> None:
    b = array(40, K)
    got = run(sums_of_columns_before, b, np.zeros((3, 31), np.float32), target=target)[1]
    want = [b[p * 2 : p * 2 + 31, max(p - 3, 0) : p + 1].sum(1) for p in range(3)]
    np.testing.assert_array_equal(got, want)


def folded(x: ts.Tensor["N", ts.f32], y: ts.Tensor["P", ts.f32], least: ts.Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P, 1):
        block = ts.tile.exp(x[p * 8 : p * 8 + 8]).reshape(2, 4)
        y[p] = ts.tile.sum(block)
        least[p] = ts.tile.max(-block.reshape(4, 2))


def masked_turned(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", ts.f32], z: ts.Tensor["N", ts.f32]):
    rows, columns = ts.tile.arange(8), ts.tile.arange(8)
    some = ts.tile.load(x[0:8, 0:8], mask=(rows[:, None] < 3) & (columns[None, :] < N))
    y[0:8] = ts.tile.max(some.T, axis=1)
    stretched = ts.tile.load(x[0, columns], mask=columns < 3)[None, :] + ts.tile.zeros((4, 8))
    z[0:8] = ts.tile.max(stretched.reshape(32)) + ts.tile.zeros((8,))


def single(x: ts.Tensor["N", ts.f32], y: ts.Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P, 1):
        acc = ts.tile.zeros((1,))
        for t in ts.tile.range(0, 4, 1):
            acc = ts.tile.maximum(acc - 1, x[t * 3 : t * 3 + 1].reshape(1))
        y[p : p + 1] = acc


@TARGETS
def test_what_does_not_exist_is_in_no_result_under_another_shape(target: str) -> None:
    rng = np.random.default_rng(0)
    x = -rng.uniform(1, 2, 13).astype(np.float32)
    two, six = np.zeros(2, np.float32), np.zeros(6, np.float32)
    _, y, least = run(folded, x, two, two, target=target)
    np.testing.assert_allclose(y, [np.exp(x[:8]).sum(), np.exp(x[8:]).sum()], rtol=1e-6)
    np.testing.assert_allclose(least, [-np.exp(x[:8]).min(), -np.exp(x[8:]).min()], rtol=1e-6)

    m = -rng.uniform(1, 2, (5, 6)).astype(np.float32)
    _, y, z = run(masked_turned, m, six, six, target=target)
    np.testing.assert_array_equal(y, m[:3].max(axis=0))
    np.testing.assert_array_equal(z, np.full(6, m[0, :3].max()))

    _, y = run(single, x[:5], two, target=target)
    want = np.float32(0)
    for t in range(2):
        want = max(want - 1, x[t * 3])
    np.testing.assert_array_equal(y, [want, want])


def folded_product(x: ts.Tensor["N", ts.f32], w: ts.Tensor["K", "L", ts.f32], y: ts.Tensor["I", "L", ts.f32]):
    for j in ts.tile.range(0, L, 16):
        y[0:2, j : j + 16] = ts.tile.exp(x[0:8]).reshape(2, 4) @ w[0:4, j : j + 16]


def masked_product(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "L", ts.f32], y: ts.Tensor["M", "L", ts.f32]):
    some = ts.tile.load(x[0:8, 0:8], mask=ts.tile.arange(8)[None, :] + ts.tile.zeros((8, 8)) < 3)
    y[0:8, 0:8] = ts.tile.exp(some) @ w[0:8, 0:8]


@TARGETS
def test_what_does_not_exist_is_in_no_product(target: str) -> None:
    x = -np.arange(1, 6, dtype=np.float32)
    w, y = np.ones((4, 16), np.float32), np.zeros((2, 16), np.float32)
    *_, y = run(folded_product, x, w, y, target=target)
    want = np.array([np.exp(x[:4]).sum(), np.exp(x[4])])
    np.testing.assert_allclose(y, np.broadcast_to(want[:, None], (2, 16)), rtol=1e-5)
    m, w = array(8, 8) / 64, array(8, 8)
    *_, y = run(masked_product, m, w, np.zeros((8, 8), np.float32), target=target)
    np.testing.assert_allclose(y, np.exp(m[:, :3]) @ w[:3], rtol=1e-5)


def left_early(b: Tensor["M", "K", ts.f32], y: Tensor["P", ts.f32]):
    for p in ts.tile.range(0, P):
        block, best = b[0, p : p + 4].reshape(4), ts.tile.full((), 1.0)
        for t in ts.tile.range(0, 3, P):
            best = ts.tile.maximum(best, ts.tile.sum(block))
            block = b[t, t * 2 : t * 2 + 4].reshape(4)
            if p > 25:
                break
        y[p] = best


def test_no_load_stands_in_front_of_the_test_for_another_step() -> None:
    """LLVM's optimisation may hide one that does: it runs without. One that leaves its array ends the process."""
    text = (
        "import numpy as np\nfrom tests.differential.test_outside_of_arrays import left_early, run\n"
        "from tests.fuzz.indices import quickly\n"
        "with quickly(True):\n"
        "    b, y = run(left_early, np.ones((1, 33), np.float32), np.zeros(4, np.float32), target='cpu')\n"
        "assert (y == 4).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def part(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    return x[tile_m : tile_m + 16, 0:16] * 2


def every_other(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    for i in ts.tile.range(0, M, 32):
        out = x[i : i + 16, :] * 2
    return out


def from_8(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    for i in ts.tile.range(8, M, 8):
        out = x[i : i + 8, :] * 2
    return out


def numbered_apart(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    p = ts.tile.program_id()
    return x[p * 32 : p * 32 + 16, :] * 2


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (part, "has 16 elements along axis 1 of result, which has N elements; the others would be undefined"),
        (every_other, "tiles of 16 elements every 32 leave out a part of axis 0 of result"),
        (from_8, "the tiles start at 8 of axis 0 of result"),
        (numbered_apart, "tiles of 16 elements every 32 leave out a part of axis 0 of result"),
    ],
)
def test_results_have_no_part_that_nothing_stores(kernel: Callable[..., Any], says: str) -> None:
    found = check(kernel, np.ones((40, 40), np.float32)).diagnostics
    assert [(d.code, says in d.message) for d in found if d.severity == "error"] == [("TS403", True)]


def test_a_launch_asks_whether_a_result_is_stored_whole() -> None:
    assert not check(part, np.ones((40, 16), np.float32)).diagnostics
    double = ts.compile(ts.kernel(part))
    assert (double(np.ones((40, 16), np.float32)) == 2).all()
    with pytest.raises(ts.LaunchError, match="TS209") as raised:
        double(np.ones((40, 40), np.float32))
    assert "the tile that is returned has 16 elements along axis 1 of result" in str(raised.value)
