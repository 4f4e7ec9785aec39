"""Arrays that a text makes with NumPy, or draws, outside of programs: their shapes and dtypes, which programs are shown
and checked for. Their elements are not known.

Each stands for a tensor of zeros. What a call gives that is not in these tables is not known either.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.compiler.frontend.evaluate.calls import BUILTINS, NUMPY_ARRAYS
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.numbers import NumpyGenerator
from tessera.compiler.frontend.names.values import UNKNOWN, Builtin, OperatorRef, is_sequence
from tessera.language import dtypes
from tessera.language.dtypes import DType

Given = Mapping[str, Any]
"""the arguments of a call by the names of NumPy's parameters"""

_KINDS = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.f64}


def _array(ev: Evaluator, node: ast.AST, shape: Any, dtype: Any) -> Any:
    shape = tuple(shape) if is_sequence(shape) else (shape,)
    if isinstance(dtype, str):
        dtype = dtypes.f64 if dtype == "float" else dtypes.named(dtype)
    elif not isinstance(dtype, DType):
        dtype = next((found for kind, found in _KINDS.items() if dtype in (kind, Builtin(kind.__name__))), dtype)
    known = all(type(n) is int and n >= 0 for n in shape) and isinstance(dtype, DType)
    return ev.layer.call(node, OperatorRef("zeros"), [shape], {"dtype": dtype}) if known else UNKNOWN


def _nested(value: Any) -> tuple[tuple[int, ...], set[type]] | None:
    """Shape and kinds of numbers of nested lists; None where these are no array."""
    if type(value) in _KINDS:
        return (), {type(value)}
    if not is_sequence(value):
        return None
    parts = [_nested(v) for v in value]
    if not parts or None in parts or len({p[0] for p in parts if p}) != 1:
        return None
    return (len(parts), *parts[0][0]), set[type]().union(*(p[1] for p in parts if p))  # type: ignore[index]


def _of_items(ev: Evaluator, node: ast.AST, given: Given) -> Any:
    found = _nested(given.get("object"))
    if found is None:
        return UNKNOWN
    widest = next((k for k in (float, int) if k in found[1]), bool)
    dtype = given.get("dtype")
    return _array(ev, node, found[0], widest if dtype is None else dtype)


def _filled(ev: Evaluator, node: ast.AST, given: Given) -> Any:
    dtype = given.get("dtype")
    return _array(ev, node, given.get("shape"), type(given.get("fill_value")) if dtype is None else dtype)


def _square(ev: Evaluator, node: ast.AST, given: Given) -> Any:
    n = given.get("N")
    columns = given.get("M")
    return _array(ev, node, (n, n if columns is None else columns), given.get("dtype", dtypes.f64))


def _shaped(by: str, default: DType) -> Callable[[Evaluator, ast.AST, Given], Any]:
    """Of a function whose parameter `by` is the shape; without it, one number is drawn."""

    def made(ev: Evaluator, node: ast.AST, given: Given) -> Any:
        return _array(ev, node, given[by], given.get("dtype", default)) if given.get(by) is not None else UNKNOWN

    return made


_MADE = {
    "zeros": ("shape dtype", _shaped("shape", dtypes.f64)),
    "ones": ("shape dtype", _shaped("shape", dtypes.f64)),
    "empty": ("shape dtype", _shaped("shape", dtypes.f64)),
    "full": ("shape fill_value dtype", _filled),
    "eye": ("N M k dtype", _square),
    "array": ("object dtype", _of_items),
    "asarray": ("object dtype", _of_items),
}
_DRAWN = {
    "random": ("size dtype", _shaped("size", dtypes.f64)),
    "random_sample": ("size", _shaped("size", dtypes.f64)),
    "standard_normal": ("size dtype", _shaped("size", dtypes.f64)),
    "normal": ("loc scale size", _shaped("size", dtypes.f64)),
    "uniform": ("low high size", _shaped("size", dtypes.f64)),
    "randint": ("low high size dtype", _shaped("size", dtypes.int64)),
    "integers": ("low high size dtype", _shaped("size", dtypes.int64)),
}
"""of `np.random` and of what `np.random.default_rng()` gives: its parameters, and what makes the array of them"""


def _rule(parameters: str, make: Callable[[Evaluator, ast.AST, Given], Any]) -> Callable[..., Any]:
    names = parameters.split()

    def called(ev: Evaluator, node: ast.AST, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if len(args) > len(names) or not kwargs.keys() <= {*names}:
            return UNKNOWN
        return make(ev, node, {**dict(zip(names, args, strict=False)), **kwargs})

    return called


def _of_axes(default: DType) -> Callable[..., Any]:
    """`np.random.rand(2, 3)`, `ts.randn(2, 3)` and `ts.randn((2, 3))`."""

    def called(ev: Evaluator, node: ast.AST, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        shape = args[0] if len(args) == 1 else args
        return _array(ev, node, shape, kwargs.get("dtype", default)) if args else UNKNOWN

    return called


def _generator(ev: Evaluator, node: ast.AST, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NumpyGenerator:
    return NumpyGenerator()


NUMPY_ARRAYS.update({("numpy", name): _rule(*rule) for name, rule in _MADE.items()})
NUMPY_ARRAYS.update({("numpy.random", name): _rule(*rule) for name, rule in _DRAWN.items()})
NUMPY_ARRAYS["numpy.random", "default_rng"] = _generator
NUMPY_ARRAYS.update({("numpy.random", name): _of_axes(dtypes.f64) for name in ("rand", "randn")})
BUILTINS.update({f"tessera.{name}": _of_axes(dtypes.f32) for name in ("rand", "randn")})
