"""The function layer: whole tensors. Operators, methods and properties come from the operator definitions alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, cast

from tessera.compiler.autodiff.custom import inline_custom
from tessera.compiler.autodiff.recall import recall
from tessera.compiler.frontend.evaluate import returns, states, suggested_fixes
from tessera.compiler.frontend.evaluate.machine import Evaluator, Layer
from tessera.compiler.frontend.evaluate.parameters import facts_pairs
from tessera.compiler.frontend.function import custom_rules, gradients, loop_exits
from tessera.compiler.frontend.function.builtins import TENSOR_BUILTINS
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.function.results import as_results, fault, in_order
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.frame import Closure, Flow, Frame, Path
from tessera.compiler.frontend.names.layers import LONGEST, parts
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    Counting,
    Method,
    Number,
    OperatorRef,
    Unknown,
    has_unknown,
    is_dict,
    is_live_array,
    is_sequence,
    leaves,
    type_name,
)
from tessera.compiler.graph.operator import ALIASES, BY_OP, METHODS, PROPERTIES, REGISTRY, Operator
from tessera.compiler.ir.core import Op, Region, Value
from tessera.compiler.ir.types import TensorType, Type
from tessera.compiler.unit import Param
from tessera.errors import Fix, Span
from tessera.language import dims, dtypes
from tessera.language.annotations import Annotation, ScalarAnn, TensorAnn
from tessera.language.dims import Expr
from tessera.language.dtypes import DType
from tessera.language.policies import Policy
from tessera.language.scalars import BY_SYMBOL

COUNTER = TensorType((), dtypes.int64)
CONTIGUOUS = "contiguous"
COPIES = (CONTIGUOUS, "copy", "clone")
"""methods that return the tensor itself: it is a value, and where elements lie, the compiler decides"""


def _viewed(v: Value) -> Value:
    """What `v` is a view of in NumPy's sense, or itself."""
    while v.op is not None and (operator := BY_OP.get(v.op.name)) is not None and operator.kind == "view":
        v = v.op.operands[0]
    return v


class FunctionLayer(Layer):
    """Tensors are `ir.core.Value`s of `TensorType`. Operators go through `Emission`, which reports rejections."""

    prefix = "graph"
    builtins = TENSOR_BUILTINS

    def __init__(self, ev: Evaluator) -> None:
        super().__init__(ev)
        self.emission = Emission(ev)
        self.arguments: list[Param] = []
        self._captured: dict[int, Value] = {}
        self.capture_nodes: list[ast.AST] = []

    # parameters and result
    def parameter(self, name: str, type: TensorType, annotation: Annotation, span: Span) -> Value:
        scalar = type.rank == 0 and not isinstance(annotation, TensorAnn)
        optional = bool(getattr(annotation, "optional", False))
        self.arguments.append(Param(name, None if scalar else type.shape, type.dtype, optional=optional))
        return self.ev.block.add_arg(type, name)

    def params(self) -> Sequence[Param]:
        return self.arguments

    def returned(self, value: Any, span: Span, annotation: Annotation | None) -> Any:
        value = self.ev.whole(self.ev.definition.tree, as_results(value))
        if value is None and (self.ev.states or states.effect_of(self.ev)):
            return None
        nothing = f"{self.ev.definition.name} returns nothing; what a function computes is what it returns"
        if wrong := nothing if value is None else fault(value):
            self.ev.error("TS102", wrong, span)
            return UNKNOWN
        returns.check(self.ev, value, annotation, self.ev.signature.returns_span, span, "the return annotation")
        if isinstance(annotation, ScalarAnn) and isinstance(value, (bool, int, float)):
            return self.emission.constant(value, annotation.dtype)
        return value

    def finish(self, value: Any) -> Op | None:
        ev = self.ev
        states.show(ev)
        span = ev.frame.return_span or ev.definition.span
        results = [self.lift(v, None, span) for v in in_order(value)]
        changed: list[int] = []
        for state, argument, now in states.results(ev) if not ev.undecided else ():
            now = self.lift(now, argument.type, span)
            if now is not None and now.op is not None and now.op.block is not ev.block:
                message = f"{state.place} is changed by a function that a transform runs; return what it is to hold"
                ev.error("TS102", message, span)
                return None
            changed.append(argument.index)
            results.append(now)
        if any(r is None for r in results) or ev.undecided:
            return None
        names = tuple(p.name for p in self.arguments)
        for value_, name in self._capture_args(names):
            ev.block.args.append(value_)
            value_.index = len(ev.block.args) - 1
            names = (*names, name)
            type = cast("TensorType", value_.type)
            self.arguments.append(Param(name, type.shape, type.dtype))
        ev.block.append(Op("graph.return", [r for r in results if r is not None], (), span))
        inline_custom([ev.block])
        recall(ev.block, self.emission.named)
        attrs: dict[str, Any] = {"sym_name": ev.definition.name, "arg_names": names, **facts_pairs(ev.facts)}
        attrs |= self._schedule() | ({"states": tuple(changed)} if changed else {})
        if self.emission.memory is not None:
            most, span = self.emission.memory
            attrs |= {"memory": most, "memory_at": astuple(span)}
        return Op("graph.func", (), (), ev.definition.span, attrs, [Region([ev.block])])

    def _schedule(self) -> dict[str, Any]:
        """What a configuration says of a whole-tensor function: the block, as (rows, columns), and its scheduler."""
        config: dict[str, Any] = dict(self.ev.definition.options.get("config") or {})
        given: Any = config.pop("block", ())
        scheduler = config.pop("scheduler", "")
        block = tuple(cast("list[Any]", given)) if isinstance(given, (tuple, list)) else (given,)
        if config:
            message = f"a function's schedule has a block and a scheduler, so there is no {', '.join(config)} to set"
            self.ev.error("TS105", f"{message}; write a kernel to choose more", self.ev.definition.span)
        if len(block) > 3 or not all(type(size) is int and size > 0 for size in block):
            message = f"a function's block is one to three sizes of at least 1, not {given!r}"
            self.ev.error("TS404", message, self.ev.definition.span)
            return {}
        if not isinstance(scheduler, str):
            message = f"a function's scheduler is the name that one was registered under, not {scheduler!r}"
            self.ev.error("TS404", message, self.ev.definition.span)
            return {}
        attrs: dict[str, Any] = {"block": (block[0], block[min(1, len(block) - 1)])} if block else {}
        return attrs | ({"scheduler": scheduler} if scheduler else {})

    def _capture_args(self, taken: tuple[str, ...]) -> list[tuple[Value, str]]:
        out: list[tuple[Value, str]] = []
        for value in self._captured.values():
            name, i = value.hint or "captured", 1
            while name in taken or any(name == n for _, n in out):
                name, i = f"{value.hint or 'captured'}_{i}", i + 1
            out.append((value, name))
        return out

    def capture_names(self) -> Sequence[str]:
        return [ast.unparse(n) if isinstance(n, (ast.Name, ast.Attribute)) else "" for n in self.capture_nodes]

    # values
    def owns(self, value: Any) -> bool:
        return isinstance(value, Value)

    def adopt(self, name: str, value: Any, node: ast.AST) -> Any:
        """A live array becomes a further argument of the op, passed at each launch; a NumPy scalar is a number."""
        if not is_live_array(value):
            return MISSING
        if (
            not hasattr(value, "__setitem__")
            and hasattr(value, "item")
            and tuple(value.shape) == ()
            and not hasattr(value, "device_buffer")
        ):
            return value.item()
        if id(value) in self._captured:
            return self._captured[id(value)]
        dtype = dtypes.of(value.dtype)
        if dtype is None:
            return self.ev.error("TS301", f"an array of {value.dtype} cannot be used; Tessera has no such dtype", node)
        shape = tuple(int(n) for n in value.shape)
        captured = Value(TensorType(shape, dtype), self.ev.block, len(self.captures), name or _name_of(node))
        self._captured[id(value)] = captured
        self.captures.append(value)
        self.capture_nodes.append(node)
        return captured

    def lift(self, value: Any, like: Type | None, span: Span) -> Value | None:
        if isinstance(value, Value) or value is None or isinstance(value, Unknown):
            return value if isinstance(value, Value) else None
        wanted = like if isinstance(like, TensorType) else None
        if not isinstance(value, (bool, int, float, complex, Expr, Number)):
            return None
        like_python = 0 if isinstance(value, Expr) else value.type(0) if isinstance(value, Number) else value
        dtype = dtypes.weak(like_python, wanted.dtype if wanted else None) or dtypes.f32
        with self.ev.builder.at(span):
            if isinstance(value, Number):
                if (found := self.emission.computed(value)) is None:
                    return self.open_number(value, wanted or TensorType((), dtype), span)
                scalar = self.emission.g.to(found, dtype)
            else:
                scalar = self.emission.constant(value, dtype)
            return scalar if wanted is None or not wanted.rank else self.emission.g.broadcast_to(scalar, wanted.shape)

    def number(self, value: Any, dtype: DType, span: Span) -> Value | None:
        given = self.lift(value, TensorType((), dtype), span)
        return given if given is not None and isinstance(given.type, TensorType) and not given.type.rank else None

    def converted(self, value: Value, dtype: DType, span: Span) -> Value:
        with self.ev.builder.at(span):
            return self.emission.g.to(value, dtype)

    def under(self, value: Value, policy: Policy, span: Span) -> Value:
        with self.ev.builder.at(span):
            return self.emission.g.under(value, policy)

    # operators
    def binary(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        name = "matmul" if symbol == "@" else BY_SYMBOL.get((symbol, 2))
        if name is None:
            return self.ev.error("TS102", f"tensors have no operator {symbol}", node)
        for value in (left, right):
            if not isinstance(value, (Value, bool, int, float, complex, Expr, Number)):
                return self._no_operand(node, symbol, value)
        return self.emission.emit(node, REGISTRY[name], [left, right], {})

    def _no_operand(self, node: ast.AST, symbol: str, value: Any) -> Any:
        if symbol in ("==", "!="):
            return symbol == "!="
        hint = "; it is None on this path, so check `is not None` first" if value is None else ""
        candidates = suggested_fixes.unless_none(self.ev, node) if value is None else ()
        message = f"{symbol} does not take a tensor and {type_name(value)}{hint}"
        return self.ev.error("TS105", message, node, fixes=candidates)

    def unary(self, node: ast.AST, symbol: str, operand: Any) -> Any:
        if symbol == "+":
            return operand
        name = {"-": "neg", "~": "logical_not" if operand.type.dtype.kind == "bool" else "bit_not"}[symbol]
        return self.emission.emit(node, REGISTRY[name], [operand], {})

    def logical(self, node: ast.AST, symbol: str, values: list[Any]) -> Any:
        tests = [self.condition(node, v) if isinstance(v, Value) else v for v in values]
        if any(t is None for t in tests):
            return UNKNOWN
        name = {"and": "logical_and", "or": "logical_or", "not": "logical_not"}[symbol]
        out = tests[0]
        if symbol == "not":
            return self.emission.emit(node, REGISTRY[name], [out], {}, [node])
        for t in tests[1:]:
            out = self.emission.emit(node, REGISTRY[name], [out, t], {}, [node, node])
        return out

    def leave(self, paths: list[Path]) -> bool:
        return loop_exits.leave(self.ev, paths)

    def loop(self, node: ast.For, counting: Counting) -> Flow:
        return (
            loop_exits.counted(self.ev, node, counting)
            if loop_exits.can_be_left(node)
            else super().loop(node, counting)
        )

    def repeat(self, node: ast.While, condition: Any) -> Flow:
        return loop_exits.repeat(self.ev, node) if loop_exits.can_be_left(node) else super().repeat(node, condition)

    def condition(self, node: ast.AST, value: Any) -> Value | None:
        type: TensorType = value.type
        if type.rank:
            message = f"the truth of a tensor {type.pretty()} is not one value"
            fixes = suggested_fixes.reduced(self.ev, node)
            self.ev.error(
                "TS213", f"{message}; reduce it with .any() or .all(), or choose with where(...)", node, fixes=fixes
            )
            return None
        if type.dtype == dtypes.bool_:
            return value
        tested = self.emission.emit(node, REGISTRY["ne"], [value, 0], {}, [node])
        return tested if isinstance(tested, Value) else None

    def subscript(self, node: ast.AST, value: Any, index: Any) -> Any:
        return self.emission.subscript(node, value, index)

    def store(self, node: ast.AST, value: Any, index: Any, item: Any) -> None:
        """`x[1:-1] = y`: tensors are values, so the name stands for a new one from here on."""
        place = node.target if isinstance(node, ast.AugAssign) else node
        held = getattr(place, "value", node)
        inside = not isinstance(held, ast.Name) or held.id in self.ev.frame.names
        if not inside or not isinstance(held, (ast.Name, ast.Subscript, ast.Attribute)):
            message = "elements are stored to a tensor that has a name; give it one before"
            if not inside:
                what = ast.unparse(held)
                message = f"{what} belongs to what is around this function: pass it, store to it here, and return it"
            self.ev.error("TS102", message, node)
            return
        if isinstance(held, ast.Attribute) and self.owns(self.ev.eval(held.value)):
            shown = ast.unparse(held)
            message = f"{shown} is a value of its own, and a store to it would not change {ast.unparse(held.value)}"
            self.ev.error("TS102", f"{message}; give it a name before", node)
            return
        given = self.builtins["tessera.array"](self.ev, node, [item], {}) if is_sequence(item) else item
        given = given if (held_outside := self.adopt("", given, node)) is MISSING else held_outside
        if isinstance(given, Unknown):
            return
        given = self.lift(given, TensorType((), value.type.dtype), self.ev.span(node))
        if given is None:
            self.ev.error("TS105", f"a tensor or a number is stored, not {type_name(item)}", node)
            return
        found = self.emission.stored(
            node, value, index, given, [held, node.value if isinstance(node, ast.AugAssign) else node]
        )
        if not isinstance(found, Unknown):
            self.ev.assign(held, found)
            if isinstance(held, ast.Name):
                self.ev.frame.parted[held.id] = found, node
            self._note_views(ast.unparse(held), value, node)

    def _note_views(self, name: str, value: Value, node: ast.AST) -> None:
        """Other names of what is stored to, and of views of it, which NumPy would change as well; in lists and dicts
        too."""
        waiting = list(self.ev.frame.names.items())
        for other, held in waiting:  # grows meanwhile
            if (is_sequence(held) or is_dict(held)) and len(held) <= LONGEST:
                waiting += ((f"{other}{step}", v) for step, v in parts(held))
            elif other != name and isinstance(held, Value) and _viewed(held) is _viewed(value):
                self.ev.frame.views[node, other] = name, held, len(held.uses)

    def ended(self, frame: Frame, tree: ast.FunctionDef | ast.Lambda, value: Any) -> None:
        """Refuses stores to parameters that nothing reads: in NumPy the caller's array would change."""
        given = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
        returned = [*leaves(value)]
        if self.ev.undecided or any(isinstance(v, Unknown) for v in returned):
            return
        for (node, other), (name, held, uses) in frame.views.items():
            if len(held.uses) > uses or any(v is held for v in returned):
                message = f"{other} keeps the elements that it had: NumPy's store to {name} would change them too"
                fix = f"read {other} before, or write {other} = ... .copy() if that is meant"
                self.ev.error("TS102", f"{message}; {fix}", node, severity="warning")
        for name, (last, node) in frame.parted.items():
            if name in given and not last.uses and not any(v is last for v in returned):
                message = (
                    f"what is stored to {name} is lost: tensors are values, and the caller's array does not change"
                )
                self.ev.error("TS102", f"{message}; return {name}", node)

    def iterate(self, node: ast.AST, value: Any) -> list[Any] | None:
        type: TensorType = value.type
        if not type.rank:
            self.ev.error("TS105", f"{type_name(value)} has no axis to iterate over", node)
            return None
        if not isinstance(type.shape[0], int):
            self.ev.undecide(f"the size {type.shape[0]} must be known to iterate over it", node)
            return None
        return [self.subscript(node, value, i) for i in range(type.shape[0])]

    # attributes and calls
    def attribute(self, node: ast.AST, value: Any, name: str) -> Any:
        type: TensorType = value.type
        if name == "shape":
            return type.shape
        if name == "dtype":
            return type.dtype
        if name == "ndim":
            return type.rank
        if name == "size":
            return dims.prod(type.shape)
        if name in PROPERTIES:
            return self.emission.emit(node, PROPERTIES[name], *PROPERTIES[name].bind([value], {}))
        return Method(value, name) if name in METHODS or name in COPIES else MISSING

    def attributes(self, value: Any) -> Sequence[str]:
        return ["shape", "dtype", "ndim", "size", *COPIES, *PROPERTIES, *METHODS, *sorted(vocabulary.made_methods())]

    def method(self, node: ast.Call, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if method.name in COPIES and not args and not kwargs:
            return self.emission.copied(method.owner) if method.name != CONTIGUOUS else method.owner
        return self.apply(node, METHODS[method.name], [method.owner, *args], kwargs)

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(callee, OperatorRef):
            return self.apply(node, REGISTRY[callee.name], args, kwargs)
        if isinstance(callee, Builtin) and callee.path.startswith("tessera.tile."):
            return self.ev.error(
                "TS401", f"ts.tile.{callee.name} belongs in a @ts.kernel; this is a @ts.function", node
            )
        return super().call(node, callee, args, kwargs)

    def transformed(self, node: ast.AST, callee: TransformedRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return gradients.call(self.ev, self.emission, node, callee, args, kwargs)

    def ruled(self, node: ast.AST, closure: Closure, args: list[Any], kwargs: dict[str, Any], run: Any) -> Any:
        return custom_rules.call(self.ev, self.emission, node, closure, args, kwargs, run)

    def apply(self, node: ast.AST, operator: Operator, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls an operator as a function or method."""
        if has_unknown(args) or has_unknown(kwargs):
            return UNKNOWN
        try:
            operands, attrs = operator.bind(args, kwargs)
        except TypeError as e:
            hint, fixes = self._close_parameter(node, operator, kwargs)
            return self.ev.error("TS105", f"{e}{hint}", node, fixes=fixes)
        return self.emission.emit(node, operator, operands, attrs)

    def _close_parameter(
        self, node: ast.AST, operator: Operator, kwargs: dict[str, Any]
    ) -> tuple[str, tuple[Fix, ...]]:
        """The parameter that a keyword of another name is close to."""
        known = (*operator.parameter_names, *(k for k, v in ALIASES.items() if v in operator.parameter_names))
        wrong = next((k for k in kwargs if k not in known), None)
        if wrong is None:
            missing = [n for n in operator.says if n in operator.parameter_names and n not in kwargs]
            return "", tuple(f for n in missing for f in suggested_fixes.with_key(self.ev, node, n))
        if wrong in operator.says:
            return "", ()
        return self.ev.suggest(wrong, known, suggested_fixes.keyword_span(self.ev, node, wrong))

    def counter(self) -> Type:
        return COUNTER


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "captured"
