"""One operator as a function of its own: `graph.func` with one op, compiled like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from tessera import knobs
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import shown
from tessera.compiler.graph.operator import BY_OP, InferError, Operator, attributes_of
from tessera.compiler.graph.passes.decompose import decompose
from tessera.compiler.ir.core import Block, Builder, Op, Region, Value, clone
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.types import TensorType
from tessera.compiler.machines import HOST
from tessera.compiler.structure import row
from tessera.compiler.targets import base as targets
from tessera.compiler.unit import Param, Unit
from tessera.errors import CompileError, Diagnostic, LaunchError, Span
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType, number
from tessera.runtime.arrays import devices
from tessera.runtime.arrays.adapter import Adapter, ArrayView
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.call import straight
from tessera.runtime.call.prepared import PreparedLaunch
from tessera.runtime.callsite import call_span
from tessera.runtime.code.build import Request, build
from tessera.runtime.eager.tensor import TENSOR

NUMBERS = (bool, int, float, complex)
CONSTANT_NUMBERS = frozenset({"pow"})
"""operators whose Python numbers are constants of the code, because x ** 2 is a multiplication and x ** y is not"""


@immutable
class EagerCall:
    """A prepared operator call: `run` takes the flat operands at `positions`."""

    run: Callable[..., Any]
    positions: tuple[int, ...]


def flat_operands(operands: Sequence[Any]) -> list[Any]:
    """Operands in one row, variadic ones spread out."""
    return [v for o in operands for v in (o if isinstance(o, (list, tuple)) else (o,))]


def prepare_call(operator: Operator, operands: Sequence[Any], attrs: dict[str, Any]) -> EagerCall:
    """Compiles an operator for operands like these. Raises CompileError where its rule rejects them, LaunchError."""
    span = call_span()
    flat = flat_operands(operands)
    adapters = {i: a for i, v in enumerate(flat) if (a := adapter_of(v)) is not None}
    views = _views(operator, flat, adapters, span)
    one = _OneOperator(operator, views, span)
    func = one.function(operands, attrs)
    library = library_of(list(adapters.values()))
    device = _device(operator, views, span)
    if device == HOST and len(views) == len(one.params) == 1 and _only_views(func):
        return EagerCall(_view(operator, func, library), tuple(one.positions))
    target = targets.get(devices.resolve(knobs.target(), device))
    request = _request(operator, func, one.params, target)
    copied = frozenset(k for k, i in enumerate(one.positions) if i in views and not views[i].contiguous)
    prepared = PreparedLaunch(
        build(request), [adapters.get(i) for i in one.positions], copied, library, device, {}, anywhere=True
    )
    prepared.profiled = lambda: build(replace(request, profile=True))
    values = [flat[i] for i in one.positions]
    return EagerCall(_fitting(operator, one.params, values, straight.ready(prepared)), tuple(one.positions))


def _views(operator: Operator, flat: Sequence[Any], adapters: dict[int, Adapter], span: Span) -> dict[int, ArrayView]:
    """How the arrays lie in memory. Raises LaunchError at the call for those that no kernel can read."""
    try:
        return {i: a.view(flat[i]) for i, a in adapters.items()}
    except LaunchError as error:
        found = [replace(d, span=span, function=operator.name) for d in error.diagnostics]
        raise LaunchError(found) from None


class _OneOperator:
    """The function in the making: its parameters, and where each stands among the flat operands."""

    def __init__(self, operator: Operator, views: dict[int, ArrayView], span: Span) -> None:
        self.operator, self.views = operator, views
        self.block = Block()
        self.span = span if span.line else Span(operator.name, 1, 1, 1, 1)
        self.params: list[Param] = []
        self.positions: list[int] = []
        self._index = -1
        self._common = beside_numbers([v.dtype for v in views.values()])

    def function(self, operands: Sequence[Any], attrs: dict[str, Any]) -> Op:
        g = GraphBuilder(Builder(self.block, span=self.span))
        try:
            values = [self._operand(i, o) for i, o in enumerate(operands)]
            result = g.emit(self.operator, values, attrs)
        except InferError as error:
            raise CompileError(replace(error.diagnostic, span=self.span, function=self.operator.name)) from None
        results: tuple[Value, ...] = result if isinstance(result, tuple) else (result,)
        g.builder.op("graph.return", results, ())
        names = tuple(p.name for p in self.params)
        about = {"sym_name": self.operator.name, "arg_names": names}
        return Op("graph.func", (), (), self.span, about, [Region([self.block])])

    def _operand(self, i: int, operand: Any) -> Any:
        beside = None if i in self.operator.apart_operands else self._common
        if isinstance(operand, (list, tuple)):
            return [self._value(v, beside) for v in cast("list[Any]", operand)]
        return self._value(operand, beside)

    def _value(self, operand: Any, beside: DType | None) -> Any:
        """Arrays and numbers, which adapt to the dtype `beside` them, become arguments; the rest stays what it is."""
        self._index += 1
        view = self.views.get(self._index)
        if view is not None:
            shape, dtype = view.shape, view.dtype
        elif isinstance(operand, NUMBERS) and self.operator.name not in CONSTANT_NUMBERS:
            shape, dtype = None, dtypes.weak(operand, beside)
            assert dtype is not None
            demand_fit(self.operator, operand, dtype)
        else:
            return operand
        name = f"x{len(self.params)}"
        self.params.append(Param(name, shape, dtype))
        self.positions.append(self._index)
        return self.block.add_arg(TensorType(shape or (), dtype), name)


def demand_fit(operator: Operator, value: Any, dtype: DType) -> None:
    """Python numbers adapt to the tensors beside them; one that does not fit is an error, not another number."""
    if (dtype.is_integer or isinstance(value, int)) and number(value, dtype) is None:
        message = f"{shown(value)} does not fit {dtype}"
        raise CompileError(Diagnostic("TS302", message, call_span(), function=operator.name))


def _fitting(
    operator: Operator, params: list[Param], values: Sequence[Any], run: Callable[..., Any]
) -> Callable[..., Any]:
    """`run`, with integers checked at every call where there are any: among floats, those that no float can hold."""
    numbers = [(i, p.dtype) for i, p in enumerate(params) if p.shape is None]
    limited = [(i, d) for i, d in numbers if d.is_integer or isinstance(values[i], int)]
    if not limited:
        return run

    def checked(*values: Any) -> Any:
        for i, dtype in limited:
            demand_fit(operator, values[i], dtype)
        return run(*values)

    return checked


def beside_numbers(found: Sequence[DType]) -> DType | None:
    """The dtype that Python numbers adapt to among operands of these."""
    return next((d for d in found if d.kind != "bool"), found[0] if found else None)


def library_of(adapters: Sequence[Adapter]) -> Adapter:
    """An array and a Tensor give a Tensor; else the first array's library, a Tensor where there is none."""
    return TENSOR if TENSOR in adapters or not adapters else adapters[0]


def _device(operator: Operator, views: dict[int, ArrayView], span: Span) -> str:
    found = list(dict.fromkeys(v.device for v in views.values()))
    if len(found) > 1:
        message = f"{operator.name}: operands live on {' and '.join(found)}; move one of them."
        raise LaunchError(Diagnostic("TS504", message, span))
    return found[0] if found else HOST


def _only_views(func: Op) -> bool:
    """Whether the operator, taken apart, only re-indexes its operand."""
    parts = clone(func, {})
    decompose(parts)
    operators = [BY_OP.get(op.name) for op in parts.region.block.ops[:-1]]
    return all(o is not None and o.kind == "view" for o in operators)


def _view(operator: Operator, func: Op, library: Adapter) -> Callable[[Any], Any]:
    op = func.region.block.ops[0]
    attrs, listed = attributes_of(op), "segments" in op.attrs

    def view(array: Any) -> Any:
        given = library.numpy(array)
        found = operator.reference([given] if listed else given, **attrs)
        return tuple(map(library.wrap, found)) if operator.multiple else library.wrap(found)

    return view


def _request(operator: Operator, func: Op, params: list[Param], target: targets.Target) -> Request:
    results = func.region.block.terminator.operands
    several = len(results) > 1 or operator.multiple
    unit = Unit(func, tuple(params), structure=row(len(results)) if several else None)
    return Request(operator.name, target, lambda: unit, ("eager", print_op(func), repr(params)), debug=knobs.debug())
