"""Runs kernels on the reference target, from NumPy arrays to NumPy arrays, without the runtime; derived backwards."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.names.values import Static
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import generate, lower
from tessera.compiler.targets import base
from tessera.compiler.tile.program import Program
from tessera.errors import CompileError
from tessera.language import dtypes


def check(kernel: Callable[..., Any], *args: Any, **config: Any) -> Analysis:
    """The analysis of a plain Python function as a kernel; without `args`, by its annotations."""
    function = getattr(kernel, "__wrapped__", kernel)
    options = {**getattr(kernel, "options", {})}
    options["config"] = {**options.get("config", {}), **config}
    definition = live_definition(function, "kernel", options)
    if not args:
        return analyse(definition)
    assert isinstance(definition.tree, ast.FunctionDef)
    names = [a.arg for a in definition.tree.args.args]
    return analyse(definition, {n: _argument(a) for n, a in zip(names, args, strict=False)})


def _argument(a: Any) -> Any:
    if isinstance(a, np.ndarray):
        dtype = dtypes.of(a.dtype)
        assert dtype is not None
        return TensorType(a.shape, dtype)
    return Static(a) if isinstance(a, (bool, int, str)) else TensorType((), dtypes.f32)


def program(kernel: Callable[..., Any], *args: Any, **config: Any) -> Program:
    """The Program for these arguments, verified behind each pass. Raises CompileError."""
    analysis = check(kernel, *args, **config)
    if analysis.op is None:
        raise CompileError(list(analysis.diagnostics) or list(analysis.undecided))
    verify(analysis.op)
    return lower(analysis.unit(), base.get("reference"), lambda _, op: verify(op)).program


def compiled(
    kernel: Callable[..., Any], *args: Any, target: str = "reference", debug: bool = True, **config: Any
) -> Callable[[], Any]:
    """Compiles a kernel for these arguments. What it gives runs it on them; arrays that it stores to are changed in
    place. Gives what the kernel returns. Raises DebugCheckError."""
    p = program(kernel, *args, **config)
    chosen = base.get(target)
    artifact = generate(p, chosen, debug=debug)

    def launch() -> Any:
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        scalars = [a for a in args if isinstance(a, float)]
        given = iter(arrays)
        memory = {b.id: next(given) if b.param is not None else np.empty(b.shape, b.dtype.numpy)
                  for b in p.buffers if b.role != "temp"}  # fmt: skip
        chosen.load(artifact).run([m.ctypes.data for m in memory.values()], scalars, [])
        results = [memory[o] for o in p.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    return launch


def run(kernel: Callable[..., Any], *args: Any, target: str = "reference", debug: bool = True, **config: Any) -> Any:
    """Compiles a kernel and runs it."""
    return compiled(kernel, *args, target=target, debug=debug, **config)()


def codes(kernel: Callable[..., Any], *args: Any, **config: Any) -> list[str]:
    """The codes of all errors, in order."""
    return [d.code for d in check(kernel, *args, **config).diagnostics if d.severity == "error"]


def backward_refusal(kernel: Any) -> str:
    """Why a kernel's backward is not derived, with the line, counted from that of its decorator."""
    try:
        kernel.backward()
    except CompileError as e:
        (found,) = e.diagnostics
        assert found.code == "TS355" and f"@{kernel.name}.vjp" in found.message
        return f"{found.span.line - kernel.__wrapped__.__code__.co_firstlineno}: {found.message}"
    raise AssertionError(f"the backward of {kernel.name} is derived")


def check_backward(
    kernel: Any, operators: Any, args: list[Any], target: str, moved: int | Sequence[int] | None = None
) -> None:
    """The derived backward of a kernel agrees with the gradient of operators, by the first `moved` arguments (None: by
    all of them), or by those with these numbers."""
    kernel.vjp(kernel.backward())
    shape = np.shape(ts.function(operators)(*args))
    weights = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    numbered = tuple(range(len(args)) if moved is None else range(moved) if isinstance(moved, int) else moved)
    wanted = ts.grad(lambda *a: ts.sum(operators(*a) * weights), argnums=numbered)(*args)
    with knobs.target.override(target):
        found = ts.grad(lambda *a: ts.sum(kernel(*a) * weights), argnums=numbered)(*args)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
