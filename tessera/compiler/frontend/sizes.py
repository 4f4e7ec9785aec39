"""The sizes that arguments of a function are made from: their names, and their values if none are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from tessera.compiler.frontend.names.signature import Parameter, Signature, definition_signature
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.types import TensorType
from tessera.language.annotations import Annotation, ConstAnn, RecordAnn, ScalarAnn, TensorAnn, TileAnn, TupleAnn
from tessera.language.dims import Dim, DimError, evaluate, is_symbol, prod, symbol, symbols

REST = "..."
"""the axis that stands for `...` in an annotation, as in editors"""
USUAL, LEAST = 1024, 16
ELEMENTS = 2**22
"""that no tensor of a function has more of, under the usual sizes"""


def declared_sizes(signature: Signature) -> dict[str, int | None]:
    """What arguments are made from, in the order of the parameters: named dims, `...`, whole numbers.

    Each with the default that a parameter gives it, None if the user has to choose one.
    """
    out: dict[str, int | None] = {}
    for p in signature.parameters:
        default = p.default.value if isinstance(p.default, ast.Constant) and type(p.default.value) is int else None
        for dim in (dim for shape in annotated_shapes(p.annotation) for dim in shape):
            out |= {name: None for name in sorted(symbols(dim)) if name not in out}
            if isinstance(p.annotation, ConstAnn) and is_symbol(dim):
                out[str(dim)] = default
        if is_number(p) and (p.default is None or default is not None):
            out[p.name] = default
    return out


def defaults(analysis: Analysis, given: Mapping[str, int]) -> dict[str, int]:
    """The sizes and numbers of a function that have the values which its parameters give them, and others by a call."""
    out: dict[str, int] = {}
    for p in definition_signature(analysis.definition).parameters:
        fixed = isinstance(p.annotation, ConstAnn) or is_number(p)
        if fixed and isinstance(p.default, ast.Constant) and type(p.default.value) is int:
            out[str(getattr(p.annotation, "dim", None) or p.name)] = p.default.value
    return {name: size for name, size in out.items() if name not in given}


def annotated_shapes(annotation: Annotation) -> list[tuple[Dim, ...]]:
    """The dims of all tensors that a parameter takes, and the one that a number is."""
    if isinstance(annotation, TupleAnn):
        return [s for item in annotation.items for s in annotated_shapes(item)]
    if isinstance(annotation, RecordAnn):
        return [s for _, field in annotation.fields for s in annotated_shapes(field)]
    if isinstance(annotation, (TensorAnn, TileAnn)):
        return [tuple(symbol(REST) if d is ... else d for d in annotation.shape or ())]  # type: ignore[misc]
    return [(annotation.dim,)] if isinstance(annotation, ConstAnn) and annotation.dim is not None else []


def is_number(p: Parameter) -> bool:
    """A whole number that the function is compiled for."""
    annotation = p.annotation
    if isinstance(annotation, ConstAnn):
        return annotation.dim is None and annotation.dtype is not None and annotation.dtype.is_integer
    return p.static and isinstance(annotation, ScalarAnn) and annotation.dtype.is_integer


def usual_sizes(analysis: Analysis, given: Mapping[str, int]) -> dict[str, int]:
    """A value for everything that is declared: that of `given`, else its default, else 1 for numbers and one size for
    all dims that are left.

    That is the largest power of two up to 1024 for which no tensor of the function has more than 2**22 elements; others
    where the function's asserts do not allow it: see `_allowed`.
    """
    signature = definition_signature(analysis.definition)
    numbers = {p.name for p in signature.parameters if is_number(p)}
    sizes = {n: 1 if d is None and n in numbers else d for n, d in (declared_sizes(signature) | dict(given)).items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    counts = [prod(shape) for shape in _shapes(analysis, signature)]
    size = USUAL
    while size > LEAST and any(_exceeds(count, dict.fromkeys(sizes, size) | known) for count in counts):
        size //= 2
    found = dict.fromkeys(sizes, size) | known
    defaults = declared_sizes(signature)
    return _allowed(found, [n for n in found if n not in given and defaults.get(n) is None], analysis)


def _allowed(sizes: dict[str, int], free: Sequence[str], analysis: Analysis) -> dict[str, int]:
    """These sizes with others for some of the `free` ones, where some break what the function asserts.

    One after the other is set to the roundest value that leaves the fewest asserts broken, and others than before.
    Where that does not end with none, they stay as they are, and a call says what is broken.
    """

    def broken(sizes: Mapping[str, int]) -> list[int]:
        return [i for i, c in enumerate(analysis.checks) if _differ(c.left, c.right, sizes)]

    found, left, seen = sizes, broken(sizes), list[list[int]]()
    while left and free and left not in seen:
        seen.append(left)
        tried = ({**found, name: value} for name in free for value in _ROUND)
        found = min(tried, key=lambda sizes: (len(now := broken(sizes)), now in seen))
        left = broken(found)
    return sizes if left else found


_ROUND = sorted((*range(1, USUAL + 1), 2 * USUAL, 4 * USUAL), key=lambda n: (n > USUAL, -(n & -n), -n))
"""sizes, those that a high power of two divides first"""


def _differ(left: Dim, right: Dim, sizes: Mapping[str, int]) -> bool:
    try:
        return evaluate(left, sizes) != evaluate(right, sizes)
    except (DimError, ZeroDivisionError):  # it is known when the function runs
        return False


def _exceeds(count: Dim, sizes: Mapping[str, int]) -> bool:
    try:
        return evaluate(count, sizes) > ELEMENTS
    except DimError:  # it is known when the function runs
        return False


def _shapes(analysis: Analysis, signature: Signature) -> Iterator[tuple[Dim, ...]]:
    for p in signature.parameters:
        yield from annotated_shapes(p.annotation)
    for op in analysis.op.walk() if analysis.op is not None else ():
        for value in op.results:
            if isinstance(value.type, TensorType):
                yield value.type.shape
