"""What is derived from operator definitions: names, stubs, documentation; and that the guide's operator works."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.compiler.graph.operator import FUNCTIONS, METHODS, PROPERTIES, REGISTRY, Operator
from tessera.compiler.ir.spec import SPECS
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.language import dims, dtypes
from tests.conftest import require
from tests.differential.operator_examples import function

ROOT = Path(__file__).parents[3]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )


def test_stubs_are_up_to_date() -> None:
    done = run("scripts/make_stubs.py", "--check")
    assert done.returncode == 0, done.stderr


def test_stubs_declare_every_public_name() -> None:
    tree = ast.parse((ROOT / "tessera/__init__.pyi").read_text(encoding="utf-8"))
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert set(FUNCTIONS) <= functions
    (tensor,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    methods = {n.name for n in tensor.body if isinstance(n, ast.FunctionDef)}
    inherited = set(
        re.findall(r"    def (\w+)\(", (ROOT / "tessera/runtime/eager/tensor.py").read_text(encoding="utf-8"))
    )
    assert set(METHODS) | set(PROPERTIES) <= methods | inherited


def test_stubs_import_what_is_there() -> None:
    """A type checker takes a name that it cannot import for anything."""
    tree = ast.parse((ROOT / "tessera/__init__.pyi").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            module = "tessera" + (f".{node.module}" if node.module else "") if node.level else node.module
            for alias in node.names:
                known = hasattr(importlib.import_module(module), alias.name)
                assert known or importlib.util.find_spec(f"{module}.{alias.name}"), alias.name


def test_numpy_and_pytorch_names_lead_to_the_same_operators() -> None:
    pairs = [
        ("concatenate", "cat"),
        ("arctan", "atan"),
        ("clip", "clamp"),
        ("multiply", "mul"),
        ("gemm", "matmul"),
    ]
    for a, b in pairs:
        assert FUNCTIONS[a] is FUNCTIONS[b]
    assert (
        METHODS["view"] is FUNCTIONS["reshape"]
        and METHODS["astype"] is FUNCTIONS["cast"]
        and PROPERTIES["T"] is FUNCTIONS["transpose"]
    )
    assert "tile" not in FUNCTIONS and "slice" not in FUNCTIONS  # a namespace, and Python's own


def test_names_are_taken_once() -> None:
    with pytest.raises(ValueError, match="softmax is taken"):
        type("Softmax", (Operator,), {"name": "softmax"})


def test_importing_the_graph_loads_no_numpy() -> None:
    done = run("-c", "import sys, tessera.compiler.graph; sys.exit('numpy' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_costs() -> None:
    m, k, n = map(dims.symbol, "MKN")
    matmul = REGISTRY["matmul"]
    cost = matmul.cost(
        [TensorType((m, k), dtypes.f32), TensorType((k, n), dtypes.f32)], [TensorType((m, n), dtypes.f32)]
    )
    assert cost.flops == 2 * m * n * k and cost.bytes == 4 * (m * k + k * n + m * n)
    moved = REGISTRY["transpose"].cost(
        [TensorType((m, k), dtypes.bf16)], [TensorType((k, m), dtypes.bf16)], perm=(1, 0)
    )
    assert moved.flops == 0 and moved.bytes == 4 * m * k


def test_the_guides_operator_works() -> None:
    torch = require("torch")
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/adding-an-operator.md").read_text(encoding="utf-8"), re.S)
    assert code is not None
    from tessera.compiler.graph.passes.decompose import decompose
    from tessera.compiler.graph.reference import evaluate

    names: dict[str, Any] = {"__name__": "guide"}
    exec(code[1], names)
    try:
        func = function([TensorType((dims.symbol("N"),), dtypes.f32)], lambda g, x: g.hardshrink(x, edge=1))
        verify(func)
        x = np.linspace(-2, 2, 9, dtype=np.float32)
        theirs = torch.nn.functional.hardshrink(torch.from_numpy(x), 1.0).numpy()
        np.testing.assert_array_equal(evaluate(func, [x])[0], theirs)
        decompose(func)
        np.testing.assert_array_equal(evaluate(func, [x])[0], theirs)
    finally:
        for table in (REGISTRY, FUNCTIONS, METHODS):
            table.pop("hardshrink", None)
        SPECS.pop("graph.hardshrink", None)


def test_the_operators_page_lists_every_public_operator() -> None:
    require("mkdocs")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from operator_pages import operators_page  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    page = operators_page()
    for operator in REGISTRY.values():
        if operator.function_names or operator.method_names:
            assert f"`{operator.signature}`" in page, operator.name
