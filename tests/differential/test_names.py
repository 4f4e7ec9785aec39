"""No name that a user chooses matters: kernels under other names give the same bits."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.compiler.targets.cpu.llvm import jit
from tessera.compiler.targets.cuda import host_library
from tests.conftest import require
from tests.kernel_runner import compiled

INTERNAL = (
    "i", "n", "lane", "pid0", "pid1", "batch0", "batch1", "tile_0", "tile_m", "tile_n", "rows_M", "rows_N",
    "programs0", "index", "going", "register", "serial", "k", "acc", "stage", "dim_M", "dim_N", "dim_n",
    "shared", "leader", "copies", "faults", "records", "left", "right", "products", "Chunk", "Vec4", "ts_",
    "template", "auto", "nullptr", "this", "x_data", "program", "program_0", "x_tile", "add", "blockIdx", "main",
    "linux", "_", "__x", "v", "undef", "entry",
)  # fmt: skip
HEADER = "import tessera as ts\nfrom tessera import Tensor\n\n\n"

KERNELS = """
def lanes_in_rows(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    for row in ts.tile.range(0, M):
        column = ts.tile.linear_id()
        value = x[row, column] + 1
        y[row, column] = value * row

def lanes_and_programs(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    row = ts.tile.program_id(1)
    column = ts.tile.linear_id()
    inside = column < N
    if inside:
        y[row, column] = x[row, column] * 2

def shared_batches(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    for block in ts.tile.range(0, N, 4):
        part = x[:, block : block + 4]
        y[:, block : block + 4] = part + ts.tile.row_sum(part)

def nested(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    for outer in ts.tile.range(0, 2):
        for row in ts.tile.range(outer, M, 2):
            total = ts.tile.zeros(())
            for column in ts.tile.range_k(0, N, 4):
                part = x[row, column : column + 4]
                total += ts.tile.sum(part)
            for again in ts.tile.range_k(0, N, 8):
                y[row, again : again + 8] = x[row, again : again + 8] - total

def product(x: Tensor["M", "K", ts.f32], w: Tensor["K", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    total = ts.tile.zeros((4, 8))
    for first in ts.tile.range(0, M, 4):
        for second in ts.tile.range(0, N, 8):
            total = ts.tile.zeros((4, 8))
            for third in ts.tile.range_k(0, K, 8):
                total += x[first : first + 4, third : third + 8] @ w[third : third + 8, second : second + 8]
            y[first : first + 4, second : second + 8] = total

def leaves(x: Tensor["M", "N", ts.f32], y: Tensor["M", "N", ts.f32]):
    row = ts.tile.program_id()
    found = ts.tile.zeros(())
    for column in ts.tile.range_k(0, N):
        value = x[row, column]
        if value > 9:
            break
        found += value
    y[row, :] = ts.tile.zeros((N,)) + found
"""


def kernels() -> Iterator[ast.FunctionDef]:
    for node in ast.parse(KERNELS).body:
        assert isinstance(node, ast.FunctionDef)
        yield node


def chosen(tree: ast.FunctionDef) -> list[str]:
    """The names that the author chose: parameters, dims and variables."""
    names = [a.arg for a in tree.args.args]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.append(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
    return list(dict.fromkeys(names))


def renamed(tree: ast.FunctionDef, names: Mapping[str, str]) -> str:
    class Renamer(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.copy_location(ast.Name(names.get(node.id, node.id), node.ctx), node)

        def visit_arg(self, node: ast.arg) -> ast.AST:
            return ast.arg(names.get(node.arg, node.arg), self.visit(node.annotation))

        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            value = names.get(node.value, node.value) if isinstance(node.value, str) else node.value
            return ast.copy_location(ast.Constant(value), node)

    copy = ast.parse(ast.unparse(tree)).body[0]
    return ast.unparse(ast.fix_missing_locations(Renamer().visit(copy)))


def made(text: str, folder: Path, number: int) -> Any:
    path = folder / f"renamed{number}.py"
    path.write_text(HEADER + text + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(v for k, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == path.stem)


def arguments(tree: ast.FunctionDef) -> list[np.ndarray]:
    sizes = {"M": 5, "N": 11, "K": 9}
    rng = np.random.default_rng(0)
    arrays: list[np.ndarray] = []
    for a in tree.args.args:
        dims = [c.value for c in ast.walk(a.annotation) if isinstance(c, ast.Constant)]  # type: ignore[arg-type]
        arrays.append(rng.integers(-8, 12, [sizes[d] for d in dims]).astype(np.float32))
    arrays[-1][...] = 0
    return arrays


def ready(kernel: Any, tree: ast.FunctionDef, target: str) -> Callable[[], bytes]:
    """Compiles a kernel. What it gives is what the kernel computes."""
    arrays = arguments(tree)
    launch = compiled(kernel, *arrays, target=target, debug=False)

    def result() -> bytes:
        launch()
        return arrays[-1].tobytes()

    return result


def renamings(tree: ast.FunctionDef, draw: random.Random, many: int) -> Iterator[dict[str, str]]:
    """Each name by each of the compiler's, all at once by those, and all by each other's."""
    names = chosen(tree)
    single = [{old: new} for old, new in itertools.product(names, INTERNAL) if new not in names]
    draw.shuffle(single)
    yield from single[:many]
    for _ in range(many // 4):
        yield dict(zip(names, draw.sample(INTERNAL, len(names)), strict=True))
        yield dict(zip(names, draw.sample(names, len(names)), strict=True))


@pytest.mark.parametrize("target,many", [("cpu", 60), ("reference", 16), ("emulator:sm_80", 8)])
@pytest.mark.parametrize("tree", list(kernels()), ids=lambda t: t.name)
def test_kernels_under_other_names(
    tree: ast.FunctionDef, target: str, many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "_object", cache(jit._object))  # names seldom reach LLVM's text: the same code, then
    if target.startswith("emulator"):
        require("g++")
    texts = [ast.unparse(tree)]
    texts += [renamed(tree, names) for names in renamings(tree, random.Random(tree.name), many)]
    with host_library.together():
        results = [ready(made(text, tmp_path, number), tree, target) for number, text in enumerate(texts)]
    want = results[0]()
    for text, result in zip(texts, results, strict=True):
        assert result() == want, text
