"""Arguments made from annotations and sizes alone, for who wants to run a function and has no data at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.compiler.frontend.signature import Parameter, definition_signature
from tessera.compiler.frontend.sizes import is_number, parameter_shape
from tessera.errors import Diagnostic, LaunchError
from tessera.language import dims as algebra
from tessera.language import dtypes
from tessera.language.annotations import ConstAnn, ScalarAnn, TensorAnn, TileAnn
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime import memory

_INDICES = 128
"""that every integer type can hold"""


def example_arguments(fn: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arguments of the annotated types with these sizes, as NumPy arrays and numbers.

    Floats are standard normal; integers are indices, valid for every axis of an argument longer than 1; booleans
    are either; scalars are 1. `Tensor | None` is given, `...` is one axis. The same sizes give the same numbers.
    Parameters with a default keep it, but for tensors with dims and what `sizes` names. Raises LaunchError TS502 for an
    open size, TS501 for a parameter whose annotation does not say what it takes, TS505 for arrays that are too large.
    """
    parameters = definition_signature(fn.definition()).parameters
    shapes = {p.name: _shape(fn, p, sizes) for p in parameters}
    longer = [size for shape in shapes.values() for size in shape if size > 1]
    indices = min([*longer, _INDICES])
    out: dict[str, Any] = {}
    for seed, p in enumerate(parameters):
        annotation = p.annotation
        if isinstance(annotation, (TensorAnn, TileAnn)) and annotation.shape is not None:
            dtype = annotation.dtype or dtypes.f32
            memory.require(math.prod(shapes[p.name]) * max(dtype.itemsize, 4), p.name)
            out[p.name] = _array(shapes[p.name], dtype, seed, indices)
        elif isinstance(annotation, ConstAnn) and annotation.dim is not None:
            (out[p.name],) = shapes[p.name]
        elif p.name in sizes:
            out[p.name] = sizes[p.name]
        elif p.default is None and not p.variadic:
            out[p.name] = _number(fn, p)
    return out


def _number(fn: Any, p: Parameter) -> Any:
    if isinstance(p.annotation, ScalarAnn) and not (p.static and is_number(p)):
        return p.annotation.dtype.numpy.type(1).item()
    message = f"{p.name} has no default, and no value for it follows from sizes; annotate it, or pass it yourself"
    raise LaunchError(Diagnostic("TS501", message, p.span, function=fn.name))


def _shape(fn: Any, p: Parameter, sizes: Mapping[str, int]) -> tuple[int, ...]:
    dims = parameter_shape(p)
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
