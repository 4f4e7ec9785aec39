"""Applies operators: numbers and sizes become constants, rejections become findings with places, notes and fixes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tessera.compiler.frontend.evaluate import suggested_fixes
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.returns import bound_notes
from tessera.compiler.frontend.fixes import CandidateFix
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Builtin,
    Number,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    leaves,
    type_name,
)
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import Unsettled
from tessera.compiler.graph.operator import FUNCTIONS, REGISTRY, InferError, Operator, tensor
from tessera.compiler.graph.operators.indexing import subscript
from tessera.compiler.graph.stores import stored
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.errors import Span
from tessera.language import dtypes
from tessera.language.dims import DimError, Expr
from tessera.language.dtypes import DType

Places = Sequence["ast.AST | Span"]


class Emission:
    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self._g = GraphBuilder(ev.builder, ev.facts)
        self._g.checks = ev.checks
        self.memory: tuple[int, Span] | None = None
        """the most bytes that the program may hold at a time, and the place of that limit in the text"""
        self.named = set[Op]()
        """ops of derivatives whose values have been computed before"""
        self.rules: list[tuple[Definition, Any, Any]] = []
        """the functions whose rules are being evaluated, with the arguments and the result that the rules are given"""

    def limit(self, memory: int, span: Span) -> None:
        """Of several limits the lowest holds."""
        if self.memory is None or memory < self.memory[0]:
            self.memory = memory, span

    @property
    def g(self) -> GraphBuilder:
        """The graph builder, under the facts that hold at this point of the program."""
        self._g.facts = self.ev.facts
        return self._g

    def constant(self, value: Any, dtype: DType) -> Value:
        return self.g.size(value, dtype) if isinstance(value, Expr) else self.g.constant(value, dtype)

    def computed(self, value: Any, known: dict[int, Value | None] | None = None) -> Value | None:
        """A number that depends on sizes, as the program computes it when it runs: in f64, as Python does. `known`:
        what parts of it are already, by identity, for `y = y + 1 / y` has each part twice."""
        known = {} if known is None else known
        if id(value) not in known:
            known[id(value)] = self._computed(value, known)
        return known[id(value)]

    def _computed(self, value: Any, known: dict[int, Value | None]) -> Value | None:
        if isinstance(value, (int, float, Expr)):
            return self.constant(value, dtypes.f64)
        if not isinstance(value, Number) or not value.made:
            return None
        name, *operands = value.made
        found = [self.computed(o, known) for o in operands]
        return None if None in found else self.g.emit(REGISTRY[name], found, {})

    def emit(
        self, node: ast.AST, operator: Operator, operands: list[Any], attrs: dict[str, Any],
        places: Places | None = None,
    ) -> Any:  # fmt: skip
        """The operator's result, or UNKNOWN after a finding. `places` of the operands, where the node does not say."""
        if has_unknown(operands) or has_unknown(attrs):
            return UNKNOWN
        ready: list[Any] = []
        for i, o in enumerate(operands):
            found = o if isinstance(o, Value) else self._operand(node, operator, o, i, operands)
            if found is UNKNOWN:
                return UNKNOWN
            ready.append(found)
        if attrs:
            if (bad := _unsized(attrs)) is not None:
                self.ev.undecide(f"{bad} must be known", node)
                self.ev.harmless += 1
                attrs = {k: 1.0 if isinstance(v, Number) and v.type is float else v for k, v in attrs.items()}
                if _unsized(attrs) is not None:  # sizes depend on it
                    return UNKNOWN
            if attrs.get("dtype") is not None:
                attrs = {**attrs, "dtype": _dtype(attrs["dtype"])}
        try:
            if operator.name in ("full", "full_like") and isinstance(attrs.get("value"), Value):
                return self._filled(*ready, **attrs)
            return self.g.emit(operator, ready, attrs)
        except InferError as e:
            return self.reject(node, e, ready, _operand_nodes(node) if places is None else places)
        except (
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            KeyError,
            OverflowError,
            DimError,
            AssertionError,
        ) as e:
            return self.ev.error("TS105", f"{operator.signature} does not take these arguments ({e})", node)

    def _filled(
        self, like: Value | None = None, shape: Any = None, *, value: Value, dtype: DType | None = None
    ) -> Value:
        """A tensor of one value that the program computes."""
        own = tensor(value).dtype if like is None else tensor(like).dtype
        return self.g.broadcast_to(self.g.to(value, dtype or own), shape if like is None else tensor(like).shape)

    def _operand(self, node: ast.AST, operator: Operator, value: Any, i: int, operands: list[Any]) -> Any:
        """One operand: tensors, numbers and sizes as they are, lists item by item, live arrays captured."""
        if value is None or isinstance(value, (Value, bool, int, float, complex, Expr)):
            return value
        if isinstance(value, Number):
            like = next((v.type for v in leaves(operands) if isinstance(v, Value)), None)
            dtype = dtypes.weak(value.type(0), like.dtype if isinstance(like, TensorType) else None) or dtypes.f32
            if (found := self.computed(value)) is not None:
                return self.g.to(found, dtype)
            return self.ev.layer.open_number(value, TensorType((), dtype), self.ev.span(node))
        if is_sequence(value):
            items = [self._operand(node, operator, v, i, operands) for v in value]
            return UNKNOWN if any(isinstance(v, Unknown) for v in items) else items
        adopted = self.ev.layer.adopt("", value, node)
        if isinstance(adopted, (Value, bool, int, float, complex)):
            return adopted
        name = operator.parameters[min(i, len(operator.parameters) - 1)].name
        message = f"{name} of {operator.name} is a tensor, {type_name(value)} is given"
        if said := operator.says.get(""):
            message += f"; {said}"
        return self.ev.error("TS105", message, node)

    def subscript(self, node: ast.AST, value: Value, index: Any) -> Any:
        if any(isinstance(v, Number) for v in leaves(index)):
            return self.ev.undecide("the index must be known", node)
        try:
            return subscript(self.g, value, index)
        except InferError as e:
            place = node.value if isinstance(node, ast.Subscript) else node
            return self.reject(node, e, [value], [place])
        except (TypeError, ValueError, IndexError, DimError) as e:
            return self.ev.error("TS207", f"{value.type.pretty()} cannot be indexed by this ({e})", node)

    def copied(self, value: Value) -> Value:
        """A value of its own with the same elements, which costs nothing: what is stored to one is not the other."""
        return self.ev.builder.value("graph.cast", (value,), value.type, {"dtype": tensor(value).dtype}, value.hint)

    def stored(self, node: ast.AST, value: Value, index: Any, item: Any, places: Places) -> Any:
        """`value` after `value[index] = item`; `places`: the nodes of both."""
        if any(isinstance(v, Number) for v in leaves(index)):
            return self.ev.undecide("the index must be known", node)
        try:
            return stored(self.g, value, index, item)
        except InferError as e:
            return self.reject(node, e, [value, item], places)
        except (TypeError, ValueError, IndexError, DimError) as e:
            return self.ev.error("TS207", f"{value.type.pretty()} cannot be indexed by this ({e})", node)

    def reject(self, node: ast.AST, e: InferError, operands: list[Any], places: Places) -> Unknown:
        """The operator's own words, at the operand it names, with where the sizes in play were bound."""
        ev, d = self.ev, e.diagnostic
        if isinstance(e, Unsettled):
            return ev.undecide(d.message, node)
        named = e.operand is not None and e.operand < len(places)
        at = places[e.operand] if named and e.operand is not None else node
        values = [v for v in leaves(operands) if isinstance(v, Value)]
        said = suggested_fixes.without_turning_twice(ev, d.notes, places, e)
        notes = (*said, *bound_notes(ev, [v.type for v in values]))
        label = d.label
        if not label and d.code in ("TS202", "TS203", "TS204", "TS205", "TS213"):
            shown = [v.type.pretty() for v in values[:3]]
            label = " and ".join(shown) if not named else _type_of(operands, e.operand)
        before = len(ev.findings.items)
        ev.error(d.code, d.message, at, label=label, notes=notes, fixes=d.fixes)
        if len(ev.findings.items) > before:
            candidates: list[CandidateFix | None] = []
            candidates += suggested_fixes.keepdim(ev, values) if d.code == "TS202" else []
            candidates += [
                suggested_fixes.appended(ev, places[s.operand], s) for s in e.suggestions if s.operand < len(places)
            ]
            candidates += suggested_fixes.other_spellings(ev, node, d.code, values)
            ev.pending.append((before, [c for c in candidates if c is not None]))
        return UNKNOWN


def _operand_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes of an operator's operands, in the order of its parameters."""
    match node:
        case ast.BinOp():
            return [node.left, node.right]
        case ast.UnaryOp():
            return [node.operand]
        case ast.AugAssign():
            return [node.target, node.value]
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.Attribute() | ast.Subscript():
            return [node.value]
        case ast.Call():
            args = [e for a in node.args for e in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
            method = isinstance(node.func, ast.Attribute) and node.func.attr not in FUNCTIONS
            return [node.func.value, *args] if method and isinstance(node.func, ast.Attribute) else list(args)
        case _:
            return []


def _type_of(operands: list[Any], i: int | None) -> str:
    flat = list(leaves(operands))
    value = flat[i] if i is not None and i < len(flat) else None
    return value.type.pretty() if isinstance(value, Value) else ""


def _unsized(value: Any) -> str | None:
    """The text of a number among the attributes that depends on unknown sizes."""
    if isinstance(value, Number):
        return value.text
    for item in value.values() if is_dict(value) else value if is_sequence(value) else ():
        if (text := _unsized(item)) is not None:
            return text
    return None


def _dtype(value: Any) -> Any:
    if isinstance(value, Builtin):
        return dtypes.named(value.path) or value
    return dtypes.of(value) or value
