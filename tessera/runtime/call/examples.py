"""Example arguments, made from annotations and sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.names.signature import Parameter, definition_signature, item_of
from tessera.compiler.frontend.sizes import annotated_shapes, is_number
from tessera.errors import Diagnostic, LaunchError
from tessera.immutable import mutable
from tessera.language import dims as algebra
from tessera.language import dtypes
from tessera.language.annotations import (
    Annotation,
    ConstAnn,
    RecordAnn,
    ScalarAnn,
    TensorAnn,
    TileAnn,
    TupleAnn,
    UnknownAnn,
    holds_tensors,
)
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime.arrays import host_memory

_INDICES = 128
"""that every integer type can hold"""
_KEPT = object()


def example_arguments(fn: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arguments of the annotated types with these sizes, as NumPy arrays and numbers.

    Floats are standard normal; integers are indices, valid for every axis of an argument longer than 1; booleans
    are either; scalars are 1. `Tensor | None` is given, `...` is one axis. Dataclasses are made by calling them; their
    fields with a default that hold no tensors keep it. The same sizes give the same numbers. Parameters with a default
    keep it, but for tensors with dims and what `sizes` names. Raises LaunchError TS502 for an open size, TS501 for a
    parameter or field whose annotation does not say what it takes, TS505 for arrays that are too large.
    """
    parameters = definition_signature(fn.definition()).parameters
    shapes = [_shape(fn, p, dims, sizes) for p in parameters for dims in annotated_shapes(p.annotation)]
    longer = [size for shape in shapes for size in shape if size > 1]
    made = _Maker(fn, sizes, min([*longer, _INDICES]))
    return {p.name: value for p in parameters if (value := made.argument(p)) is not _KEPT}


@mutable
class _Maker:
    """`fn`'s arguments for these sizes; integers are indices below `indices`."""

    fn: Any
    sizes: Mapping[str, int]
    indices: int
    seed: int = -1
    """of the last argument or item"""

    def argument(self, p: Parameter) -> Any:
        """_KEPT: it keeps its default."""
        self.seed += 1
        annotation = p.annotation
        if isinstance(annotation, (TensorAnn, TileAnn)) and annotation.shape is not None:
            (dims,) = annotated_shapes(annotation)
            shape, dtype = _shape(self.fn, p, dims, self.sizes), annotation.dtype or dtypes.f32
            host_memory.require(math.prod(shape) * max(dtype.itemsize, 4), p.name)
            return _array(shape, dtype, self.seed, self.indices)
        if isinstance(annotation, TupleAnn) and holds_tensors(annotation):
            return tuple(self.items(p, annotation.items))
        if isinstance(annotation, RecordAnn) and dataclasses.is_dataclass(annotation.type):
            return self.record(p, annotation)
        if isinstance(annotation, RecordAnn) and annotation.named_tuple:
            return annotation.type(*self.items(p, [field for _, field in annotation.fields]))
        if isinstance(annotation, ConstAnn) and annotation.dim is not None:
            return _shape(self.fn, p, (annotation.dim,), self.sizes)[0]
        if p.name in self.sizes:
            return self.sizes[p.name]
        return _number(self.fn, p) if p.default is None and not p.variadic else _KEPT

    def record(self, p: Parameter, annotation: RecordAnn) -> Any:
        """Raises LaunchError TS501 for a field that is no tensor and has no default."""
        kind: Any = annotation.type
        said, given = dict(annotation.fields), dict[str, Any]()
        for field in dataclasses.fields(kind):
            default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            item = replace(
                p, name=f"{p.name}.{field.name}", annotation=said.get(field.name, UnknownAnn()), default=None
            )
            if field.init and (holds_tensors(item.annotation) or not default):
                given[field.name] = self.argument(item)
        return kind(**given)

    def items(self, p: Parameter, annotations: Sequence[Annotation]) -> list[Any]:
        return [self.argument(replace(item_of(p, i), annotation=a)) for i, a in enumerate(annotations)]


def _number(fn: Any, p: Parameter) -> Any:
    if isinstance(p.annotation, ScalarAnn) and not (p.static and is_number(p)):
        return p.annotation.dtype.numpy.type(1).item()
    message = f"{p.name} has no default, and no value for it follows from sizes; annotate it, or pass it yourself"
    raise LaunchError(Diagnostic("TS501", message, p.span, function=fn.name))


def _shape(fn: Any, p: Parameter, dims: tuple[Dim, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    try:
        return tuple(algebra.evaluate(d, sizes) for d in dims)
    except algebra.DimError:
        missing = dict.fromkeys(n for d in dims for n in sorted(algebra.symbols(d)) if n not in sizes)
        message = f"the size of {', '.join(missing)} is needed to make {p.name} [{p.annotation}]"
        raise LaunchError(Diagnostic("TS502", message, p.span, function=fn.name)) from None


def _array(shape: tuple[int, ...], dtype: DType, seed: int, indices: int) -> Any:
    random = np.random.Generator(np.random.Philox(seed))
    if dtype.is_float or dtype.is_complex:
        return random.standard_normal(shape, np.float32).astype(dtype.numpy)
    return random.integers(0, indices if dtype.is_integer else 2, shape).astype(dtype.numpy)
