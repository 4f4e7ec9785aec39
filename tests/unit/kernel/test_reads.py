"""Which parts of its operands a program reads: they enclose every element that the interpreter sees it read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler.tile.interpret.memory import WatchedView
from tessera.compiler.tile.reads import program as number
from tessera.compiler.tile.reads import reads
from tessera.language import dims
from tests.kernel_runner import program, run


def rows(x: Tensor["M", "K"], w: Tensor["K", "N"]) -> Tensor["M", "N"]:
    return x[tile_m : tile_m + 16, :] @ w[:, tile_n : tile_n + 24]


def steps(x: Tensor["M", "K"], w: Tensor["K", "N"], out: Tensor["M", "N"]) -> Tensor["M", "N"]:
    for i in ts.tile.range(0, M, 16):
        for j in ts.tile.range(0, N, 16):
            total = ts.tile.zeros((16, 16), ts.f32)
            for k in ts.tile.range(0, K, 8):
                total += ts.tile.mma(x[i : i + 16, k : k + 8], w[k : k + 8, j : j + 16])
            out[i : i + 16, j : j + 16] = total
    return out


def below(x: Tensor["M", "K"], out: Tensor["M", "K"]) -> Tensor["M", "K"]:
    """Blocks of rows up to the program's own, as under a causal mask."""
    for i in ts.tile.range(0, M, 16):
        total = ts.tile.zeros((16, K), ts.f32)
        for j in ts.tile.range(0, min(M, i + 16), 16):
            total += x[j : j + 16, :]
        out[i : i + 16, :] = total
    return out


def neighbours(x: Tensor["n"], y: Tensor["n"]) -> Tensor["n"]:
    i = ts.tile.linear_id()
    if i > 0 and i < n - 1:
        y[i] = x[i - 1] + x[i + 1]
    return y


def groups(x: Tensor["H", "n"], k: Tensor["G", "n"], y: Tensor["H", "n"]) -> Tensor["H", "n"]:
    """Heads share keys: the number of a program is divided."""
    ts.tile.grid(H)
    h = ts.tile.program_id(0)
    y[h, :] = x[h, :] * k[h // (H // G), :] + x[h % 2, :]
    return y


def a(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize(
    ("kernel", "args", "exact"),
    [
        (rows, (a(50, 12), a(12, 60)), "x w"),
        (steps, (a(40, 24), a(24, 33), a(40, 33)), "x w"),
        (below, (a(40, 12), a(40, 12)), "x"),
        (groups, (a(6, 10), a(3, 10), a(6, 10)), "k"),
        (neighbours, (a(3000), a(3000)), ""),
    ],
)
def test_programs_read_nothing_else(
    kernel: Callable[..., Any], args: tuple[Any, ...], exact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`exact`: the operands of which each program reads all that is said."""
    seen = recorded(monkeypatch)
    run(kernel, *args)
    op = program(kernel, *args).launches[0].kernel
    grid = tuple(dims.evaluate(extent, {}) for extent in op.attrs["grid"])
    shapes = {arg.hint: arg.type.shape for arg in op.region.block.args}
    said = {op.region.block.args[r.argument].hint: r.parts for r in reads(op)}
    assert seen and {name for name, _ in seen} <= set(said)
    for (name, index), touched in seen.items():
        place = {number(axis): int(at) for axis, at in enumerate(np.unravel_index(index, grid))}
        inside = np.zeros(shapes[name], bool)
        parts = [tuple(dims.evaluate(end, place) for end in part) for part in said[name]]
        inside[tuple(slice(max(low, 0), high) for low, high in parts)] = True
        told = set(np.flatnonzero(inside).tolist())
        assert touched <= told, (name, index)
        if name in exact.split():
            assert touched == told, (name, index, parts)


def recorded(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], set[int]]:
    """(argument, program) -> the elements that it read, as they lie in memory; filled while kernels run."""
    seen: dict[tuple[str, int], set[int]] = defaultdict(set)
    read = WatchedView.read

    def note(self: WatchedView, op: Any, index: Any, own: int, used: Any = None) -> Any:
        root = self.data
        while isinstance(root.base, np.ndarray):
            root = root.base
        first = (self.data.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // self.data.itemsize
        places = first + sum(
            at * (step // self.data.itemsize)
            for at, step in zip(np.indices(self.data.shape, sparse=True), self.data.strides, strict=True)
        )
        touched = np.broadcast_to(places, self.data.shape)[index]
        chosen = touched if used is None else touched[np.broadcast_to(used, touched.shape)]
        seen[self.name, own] |= set(np.ravel(chosen).tolist())
        return read(self, op, index, own, used)

    monkeypatch.setattr(WatchedView, "read", note)
    return seen


def test_what_is_computed_from_data_is_not_known() -> None:
    def looked_up(x: Tensor["n"], at: Tensor["m", ts.int64], y: Tensor["m"]) -> Tensor["m"]:
        i = ts.tile.linear_id()
        if i < m:
            y[i] = x[at[i]]
        return y

    op = program(looked_up, a(64), np.arange(32), a(32)).launches[0].kernel
    known = {op.region.block.args[r.argument].hint: r.parts for r in reads(op)}
    assert known["x"] == (None,) and known["at"][0] is not None
