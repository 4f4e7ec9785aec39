"""Types written as annotations, with the names that a file knows Tessera's by."""

from __future__ import annotations

from typing import Any

from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.values import Builtin, Namespace, is_dict, is_tuple
from tessera.compiler.ir.types import TensorType
from tessera.editor.functions import policy_of
from tessera.language import dtypes
from tessera.language.dtypes import DType


def annotation(scope: TextScope, type: Any) -> str | None:
    """`Tensor["B", "D//4", bf16]`; None for what has no spelling in this file."""
    if is_tuple(type):
        inner = [annotation(scope, t) for t in type]
        return f"tuple[{', '.join(map(str, inner))}]" if inner and None not in inner else None
    if is_dict(type):  # Python's dict has one type for all its values
        spelled = {annotation(scope, t) for t in type.values()}
        return f"dict[str, {spelled.pop()}]" if len(spelled) == 1 and None not in spelled else None
    head = own_name(scope, "Tensor", Builtin("tessera.Tensor"))
    if not isinstance(type, TensorType) or not type.shape or head is None:
        return None
    parts = [str(d) if isinstance(d, int) else f'"{d}"' for d in type.shape]
    policy = policy_of(type)
    if policy:
        parts.append(f'"{type.dtype} {policy}"')
    elif type.dtype is not dtypes.f32:
        parts.append(dtype_name(scope, type.dtype))
    return f"{head}[{', '.join(parts)}]"


def dtype_name(scope: TextScope, dtype: DType) -> str:
    """`bf16`, `ts.bf16`, or the name in quotes, which always is understood."""
    return own_name(scope, str(dtype), dtype) or f'"{dtype}"'


def own_name(scope: TextScope, name: str, value: Any) -> str | None:
    """What the file calls a member of Tessera's: `Tensor` where it imports that, else by the module, `ts.Tensor`."""
    if scope.lookup(name) == value:
        return name
    module = next((n for n in scope.names() if scope.lookup(n) == Namespace("tessera")), None)
    return f"{module}.{name}" if module is not None else None
