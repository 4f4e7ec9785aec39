"""Arguments of scalar parameters inside a program: of the dtype that is annotated, as they are at a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.parameters import rejected
from tessera.compiler.frontend.signature import Parameter, as_annotated, definition_signature, is_scalar
from tessera.compiler.frontend.values import MISSING, UNKNOWN, Closure, Unknown, type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, TileType
from tessera.language import dtypes
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    import ast

    from tessera.compiler.frontend.evaluator import Evaluator
    from tessera.compiler.frontend.frame import Frame

_KINDS = ("bool", "uint", "int", "float", "complex")
"""of numbers: each goes into those behind it"""


class Unfit(Exception):
    """The argument is no number that the dtype holds. `message` follows the parameter's name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def scalar(ev: Evaluator, value: Any, wanted: DType, at: ast.AST) -> Value:
    """A number, a size or a value of one element (in kernels of one for each lane) as one of `wanted`. Raises Unfit."""
    if isinstance(value, (bool, int, float, complex)):
        kept = dtypes.number(value, wanted)
        if kept is None:
            raise Unfit("TS304", f"a number of {wanted}, which cannot hold {value}")
        value = kept
    span = ev.span(at)
    given = ev.layer.number(value, wanted, span)
    if given is None:
        raise Unfit("TS105", f"a number of {wanted}, {type_name(value)} is given")
    assert isinstance(given.type, (TensorType, TileType))
    have = given.type.dtype
    if _KINDS.index(have.kind) > _KINDS.index(wanted.kind):
        raise Unfit("TS304", f"a number of {wanted}, one of {have} is given")
    if isinstance(value, Value) and wanted.is_integer and have.maximum > wanted.maximum:
        said = f"one of {have} is given, which may not fit; write .to({wanted}) if it does"
        raise Unfit("TS304", f"a number of {wanted}, {said}")
    return ev.layer.converted(given, wanted, span)


def _enter_static(ev: Evaluator, closure: Closure, frame: Frame, p: Parameter, at: ast.AST) -> bool:
    """A number that is known at compile time, as it is annotated. Sizes and tensors are another's business."""
    value = frame.names.get(p.name)
    kept = as_annotated(p, value) if isinstance(value, (bool, int, float, complex)) else value
    if kept is MISSING:
        said = f"{p.name} of {closure.name} is {p.annotation}, which cannot hold {value}"
        rejected(ev, "TS304", said, p.span, at)
        kept = UNKNOWN
    frame.names[p.name] = kept
    return kept is not UNKNOWN


def enter_scalars(ev: Evaluator, closure: Closure, frame: Frame, node: ast.AST, places: Mapping[str, ast.AST]) -> bool:
    """Converts the scalar arguments of an inlined program. False after a finding."""
    ok = True
    for p in definition_signature(closure.definition).parameters:
        value, at = frame.names.get(p.name), places.get(p.name, node)
        absent = value is None and (getattr(p.annotation, "optional", False) or p.default is not None)
        if isinstance(value, Unknown) or absent:
            continue
        if not is_scalar(p):
            ok &= _enter_static(ev, closure, frame, p, at)
            continue
        try:
            frame.names[p.name] = scalar(ev, value, p.annotation.dtype, at)  # type: ignore[union-attr]
        except Unfit as e:
            frame.names[p.name], ok = UNKNOWN, False
            rejected(ev, e.code, f"{p.name} of {closure.name} is {e.message}", p.span, at)
    return ok
