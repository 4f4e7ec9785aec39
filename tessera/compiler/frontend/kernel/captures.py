"""Arrays of closures and globals that a kernel reads: they become further arguments of it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel import names as kernel_names
from tessera.compiler.frontend.kernel.values import View
from tessera.compiler.frontend.values import MISSING
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes
from tessera.language.annotations import Unknown

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def is_array(value: Any) -> bool:
    if isinstance(value, type) or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return False
    return hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")


def capture(k: KernelState, name: str, value: Any, node: ast.AST) -> Any:
    """The view of a live array, made at its first use; a NumPy scalar is a number; anything else is MISSING."""
    if not is_array(value):
        return MISSING
    if not hasattr(value, "__setitem__") and hasattr(value, "item") and tuple(value.shape) == ():
        return value.item()
    for array, view in zip(k.captures, k.captured, strict=True):
        if array is value:
            return view
    dtype = dtypes.of(value.dtype)
    if dtype is None:
        return k.ev.error("TS301", f"an array of {value.dtype} cannot be used; no dtype corresponds to it", node)
    type = TensorType(tuple(map(int, value.shape)), dtype)
    found = kernel_names.parameter(k, _free_name(k, name or _name_of(node)), type, Unknown())
    assert isinstance(found, View)
    k.captures.append(value)
    k.captured.append(found)
    k.capture_nodes.append(node)
    return found


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "captured"


def _free_name(k: KernelState, name: str) -> str:
    taken = {p.name for p in k.arguments}
    return next(n for i in range(len(taken) + 1) if (n := f"{name}_{i}" if i else name) not in taken)
