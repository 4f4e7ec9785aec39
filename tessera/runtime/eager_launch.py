"""One operator on live arrays: builds its one-operator function, compiles it once, runs it."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tessera import knobs
from tessera.compiler.frontend.analysis import Analysis
from tessera.compiler.frontend.definition import Definition
from tessera.compiler.graph.decompose import decompose
from tessera.compiler.graph.operator import REGISTRY, GraphBuilder, InferError, Operator, attributes_of
from tessera.compiler.ir.core import Block, Builder, Op, Region, Value, clone
from tessera.compiler.ir.types import TensorType
from tessera.compiler.targets import base as targets
from tessera.compiler.tile.program import Param
from tessera.errors import NOWHERE, CompileError, Diagnostic, LaunchError, Span
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.runtime import devices
from tessera.runtime.arrays import Adapter, View, adapter_of
from tessera.runtime.build import Request, build
from tessera.runtime.callsite import call_span
from tessera.runtime.prepared import Prepared
from tessera.runtime.signatures import content
from tessera.runtime.tensor import TENSOR

_NUMBERS = (bool, int, float, complex)
_CONSTANT_NUMBERS = frozenset({"pow"})
"""operators whose Python numbers are constants of the code, because x ** 2 is a multiplication and x ** y is not"""

_launches: dict[tuple[Any, ...], Callable[[list[Any]], Any]] = {}
LIMIT = 4096


def launch(operator: Operator, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Runs `operator`; what is compiled is kept by operand types, attributes and settings."""
    flat = [v for o in operands for v in (o if isinstance(o, (list, tuple)) else (o,))]
    arrays = [v for v in flat if adapter_of(v) is not None]
    if not arrays and flat and any(isinstance(v, _NUMBERS) for v in flat):
        first = next(i for i, v in enumerate(flat) if isinstance(v, _NUMBERS))
        return launch(operator, _with_tensor(operands, first), attrs)
    attrs = {k: _attribute(k, v) for k, v in attrs.items()}
    keys = tuple(_key(operator, v) for v in flat)
    structure = tuple(len(o) if isinstance(o, (list, tuple)) else -1 for o in operands)
    key = (
        operator.name,
        keys,
        structure,
        content(attrs),
        os.environ.get("TESSERA_TARGET"),
        os.environ.get("TESSERA_DEBUG"),
    )
    run = _launches.get(key)
    if run is None:
        run = _prepare(operator, operands, attrs, arrays)
        if len(_launches) >= LIMIT:
            _launches.pop(next(iter(_launches)), None)
        _launches[key] = run
    return run(flat)


def _with_tensor(operands: Sequence[Any], index: int) -> list[Any]:
    """Numbers alone: the first of them becomes a Tensor, so that there is something to compute with."""
    from tessera.runtime.tensor import Tensor

    out: list[Any] = []
    seen = 0
    for o in operands:
        inner = list(o) if isinstance(o, (list, tuple)) else [o]
        inner = [Tensor(v) if seen + i == index else v for i, v in enumerate(inner)]
        seen += len(inner)
        out.append(inner if isinstance(o, (list, tuple)) else inner[0])
    return out


def _attribute(name: str, value: Any) -> Any:
    """dtypes in any library's spelling, and integers held in arrays, as the operators want them."""
    if name == "dtype" and value is not None:
        return dtypes.of(value) or value
    if adapter_of(value) is not None and getattr(value, "shape", None) == ():
        return value.item()
    return value


def _key(operator: Operator, value: Any) -> Any:
    adapter = adapter_of(value)
    if adapter is not None:
        return type(value), adapter.key(value)
    if isinstance(value, _NUMBERS) and operator.name in _CONSTANT_NUMBERS:
        return type(value), repr(value)
    return type(value) if isinstance(value, (*_NUMBERS, type(None))) else (type(value), content(value))


def _prepare(
    operator: Operator, operands: Sequence[Any], attrs: dict[str, Any], arrays: list[Any]
) -> Callable[[list[Any]], Any]:
    span = call_span()
    views = [adapter_of(a).view(a) for a in arrays]  # type: ignore[union-attr]
    device = _one_device(operator, views, span)
    func, params, positions = _function(
        operator, operands, attrs, {id(a): v for a, v in zip(arrays, views, strict=True)}, span
    )
    libraries = [adapter_of(a) for a in arrays]
    library = TENSOR if TENSOR in libraries or not libraries else libraries[0]  # array + Tensor is a Tensor
    assert library is not None
    if device == "cpu" and len(arrays) == len(params) == 1 and _only_views(func):
        return _view_launch(operator, func, library, positions[0])
    target = targets.get(devices.resolve(knobs.target(), device))
    built = build(_request(operator, func, params, target, span))
    flat = [v for o in operands for v in (o if isinstance(o, (list, tuple)) else (o,))]
    used = [flat[i] for i in positions]
    adapters: list[Adapter | None] = [adapter_of(v) for v in used]
    by_array = {id(a): v for a, v in zip(arrays, views, strict=True)}
    copied = frozenset(i for i, v in enumerate(used) if adapters[i] is not None and not by_array[id(v)].contiguous)
    prepared = Prepared(built, adapters, copied, library, device, {})
    prepared.profiled = lambda: build(replace(_request(operator, func, params, target, span), profile=True))
    run = prepared.ready()
    limited = [(i, p.dtype) for i, p in zip(positions, params, strict=True) if p.shape is None and p.dtype.is_integer]

    def call(flat: list[Any]) -> Any:
        for i, dtype in limited:
            _demand_fit(operator, flat[i], dtype)
        return run(*[flat[i] for i in positions])

    return call


def _one_device(operator: Operator, views: list[View], span: Span) -> str:
    found = list(dict.fromkeys(v.device for v in views))
    if len(found) > 1:
        message = f"{operator.name}: operands live on {' and '.join(found)}; move one of them."
        raise LaunchError(Diagnostic("TS504", message, span))
    return found[0] if found else "cpu"


def _function(
    operator: Operator, operands: Sequence[Any], attrs: dict[str, Any], views: dict[int, View], span: Span
) -> tuple[Op, tuple[Param, ...], list[int]]:
    """The one-operator `graph.func`, its parameters, and where each stands among the flat operands."""
    block = Block()
    g = GraphBuilder(Builder(block, span=span if span.line else Span(operator.name, 1, 1, 1, 1)))
    params: list[Param] = []
    positions: list[int] = []
    others = [v.dtype for v in views.values()]
    common = next((d for d in others if d.kind != "bool"), others[0] if others else None)
    index = -1

    def argument(value: Any) -> Any:
        nonlocal index
        index += 1
        if (view := views.get(id(value))) is not None:
            shape, dtype = view.shape, view.dtype
        elif isinstance(value, _NUMBERS) and operator.name not in _CONSTANT_NUMBERS:
            shape, dtype = None, dtypes.weak(value, common)
            assert dtype is not None
            _demand_fit(operator, value, dtype)
        else:
            return value
        name = f"x{len(params)}"
        params.append(Param(name, shape, dtype))
        positions.append(index)
        return block.add_arg(TensorType(shape or (), dtype), name)

    try:
        values = [[argument(v) for v in o] if isinstance(o, (list, tuple)) else argument(o) for o in operands]
        result = g.emit(operator, values, attrs)
    except InferError as error:
        raise CompileError(replace(error.diagnostic, span=span, function=operator.name)) from None
    results: tuple[Value, ...] = result if isinstance(result, tuple) else (result,)
    g.builder.op("graph.return", results, ())
    names = tuple(p.name for p in params)
    func = Op(
        "graph.func",
        (),
        (),
        g.builder.span or NOWHERE,
        {"sym_name": operator.name, "arg_names": names},
        [Region([block])],
    )
    return func, tuple(params), positions


def _demand_fit(operator: Operator, value: Any, dtype: DType) -> None:
    """Python numbers adapt to the tensors beside them; one that does not fit is an error, not another number."""
    low = -dtype.maximum - 1 if dtype.kind == "int" else 0
    if dtype.is_integer and not low <= value <= dtype.maximum:
        raise CompileError(Diagnostic("TS302", f"{value} does not fit {dtype}", call_span(), function=operator.name))


def _request(operator: Operator, func: Op, params: tuple[Param, ...], target: targets.Target, span: Span) -> Request:
    from tessera.compiler.ir.printer import print_op

    definition = Definition("function", operator.name, span.file, span.line, _NO_TREE, "", _NoScope())

    def analysis() -> Analysis:
        results = func.region.block.terminator.operands
        return Analysis(definition, func, params, tuple_result=len(results) > 1 or operator.multiple)

    return Request(operator.name, target, analysis, ("eager", print_op(func), repr(params)), debug=knobs.debug())


_NO_TREE = ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), [], [], lineno=1, col_offset=0)


class _NoScope:
    """An operator reads nothing from outside."""

    live = True

    def lookup(self, name: str) -> Any:
        raise KeyError(name)

    def names(self) -> tuple[str, ...]:
        return ()


def _only_views(func: Op) -> bool:
    """Whether the operator, taken apart, only re-indexes its operand."""
    parts = clone(func, {})
    decompose(parts)
    operators = [REGISTRY.get(op.name.removeprefix("graph.")) for op in parts.region.block.ops[:-1]]
    return all(o is not None and o.kind == "view" for o in operators)


def _view_launch(operator: Operator, func: Op, library: Adapter, position: int) -> Callable[[list[Any]], Any]:
    attrs = attributes_of(func.region.block.ops[0])

    def view(flat: list[Any]) -> Any:
        found = operator.reference(library.numpy(flat[position]), **attrs)
        return tuple(map(library.wrap, found)) if operator.multiple else library.wrap(found)

    return view
