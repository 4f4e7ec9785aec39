"""Annotations: `Tensor["B", "S", bf16 @ accum(f32)]`, `Tile["M", "K", f16]`, `Const[H]`, `Int[bits=32]`.

There are two ways to read them, with the same rules (`annotation_types`). Python evaluates them to objects:
`Tensor[...]` is a `TensorAnn`. The compiler and editors read their syntax (`annotation_from_ast`), and run no code of
the program.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NoReturn, TypeAlias

from tessera.errors import NOWHERE, Edit, Fix, Span, TesseraError
from tessera.language import dims, dtypes, policies
from tessera.language.absent import instead
from tessera.language.annotation_types import (
    SCALARS,
    Annotation,
    AnnotationError,
    Bool,
    Const,
    ConstAnn,
    Float,
    Int,
    Item,
    LiteralAnn,
    NoSuchName,
    RecordAnn,
    ScalarAnn,
    SequenceAnn,
    Shape,
    TensorAnn,
    Tile,
    TileAnn,
    TupleAnn,
    UnknownAnn,
    apart,
    closest,
    const_items,
    dim_of,
    fail,
    holds_tensors,
    misheld,
    named_sizes,
    no_dims_of,
    part,
    scalar_items,
    tensor_items,
    tensor_spec,
    with_sizes,
)
from tessera.language.dims import Dim, DimError, Expr
from tessera.language.dtypes import DType
from tessera.language.policies import Policy, PolicyError, PolicyPart

__all__ = [
    "PYTHON_TYPES",
    "Annotation",
    "AnnotationError",
    "Bool",
    "Const",
    "ConstAnn",
    "Float",
    "Int",
    "LiteralAnn",
    "NoSuchName",
    "RecordAnn",
    "ScalarAnn",
    "SequenceAnn",
    "Shape",
    "TensorAnn",
    "Tile",
    "TileAnn",
    "TupleAnn",
    "UnknownAnn",
    "annotation_from_ast",
    "apart",
    "holds_tensors",
    "misheld",
    "part",
    "tensor_spec",
]

Resolve: TypeAlias = Callable[[str], object]
SpanOf: TypeAlias = Callable[[ast.AST], Span]
_HEADS = ("Tensor", "Tile", "Const", "Int", "Float", "Bool")
_KEYED = frozenset({"dict", "Dict", "Mapping"})
_SEVERAL = _KEYED | {"tuple", "Tuple", "list", "List", "Sequence", "Iterable"}
GENERIC = _SEVERAL | {"Optional", "Union", "Annotated", "Literal"}
"""Python's types of types, by their last name"""
_POLICY_FLAGS = {n: getattr(policies, n) for n in ("stochastic_round", "saturate", "deterministic")}
_POLICY_CALLS = ("accum", "compute", "loss_scale", "device", "NumericalPolicy")
PYTHON_TYPES = {int: dtypes.int64, float: dtypes.f32, bool: dtypes.bool_, complex: dtypes.complex64}


def annotation_from_ast(
    node: ast.expr,
    resolve: Resolve,
    span_of: SpanOf = lambda _: NOWHERE,
    type_parameters: Collection[str] = (),
) -> Annotation:
    """Reads an annotation from its syntax, without running the program. Raises AnnotationError (TS211).

    `resolve` returns the value of a (dotted) name: an integer, a string, a dtype, a policy, a Python type, an
    annotation object, an `ast.expr` (an alias in a text that is only read), `UnknownAnn()` if it is unknown,
    `NoSuchName()` if Tessera does not have it, or None if there is no such name (then Tessera's own names are assumed).
    Objects with `__tessera_builtin__` or `path` are identified by it: "tessera.Tensor". `type_parameters` are dims.
    """
    try:
        return _Reader(resolve, span_of, type_parameters).annotation(node)
    except RecursionError:
        fail("the annotation refers to itself, or is nested too deeply", span_of(node))
    except DimError as e:
        fail(str(e), span_of(node))


class _UnknowableError(Exception):
    """Some part of an annotation cannot be known, so nothing is said about the whole."""


class _Reader:
    def __init__(self, resolve: Resolve, span_of: SpanOf, type_parameters: Collection[str]) -> None:
        self.resolve, self.span_of, self.type_parameters = resolve, span_of, type_parameters

    def annotation(self, node: ast.expr) -> Annotation:
        match node:
            case ast.Constant(value=str() as text):
                return self.quoted(node, text)
            case ast.BinOp(op=ast.BitOr()):
                return self.union([node.left, node.right])
            case ast.BinOp(op=ast.MatMult(), left=left, right=right) if self.head(left) == "Tensor":
                return TensorAnn(*tensor_items([Item("...", self.span_of(left)), self.item(right)]))
            case ast.Subscript(value=head, slice=inner):
                try:
                    return self.subscript(node, head, inner)
                except _UnknowableError:
                    return UnknownAnn(ast.unparse(node))
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case _:
                return UnknownAnn(ast.unparse(node))

    def quoted(self, node: ast.expr, text: str) -> Annotation:
        """A forward reference: the text inside has no positions that editors could use."""
        try:
            inner = ast.parse(text.strip(), mode="eval").body
        except (MemoryError, RecursionError):
            fail(f"{dims.shortened(text)!r} is nested too deeply", self.span_of(node))
        except (SyntaxError, ValueError):
            fail(f"{dims.shortened(text)!r} is not an annotation", self.span_of(node))
        span = self.span_of(node)
        return _Reader(self.resolve, lambda _: span, self.type_parameters).annotation(inner)

    def union(self, parts: Sequence[ast.expr]) -> Annotation:
        present: list[ast.expr] = []
        for p in parts:
            if isinstance(p, ast.BinOp) and isinstance(p.op, ast.BitOr):
                present += [p.left, p.right]
            else:
                present.append(p)
        some = [p for p in present if not (isinstance(p, ast.Constant) and p.value is None)]
        if len(some) != 1:
            return UnknownAnn(" | ".join(map(ast.unparse, present)))
        found = self.annotation(some[0])
        return replace(found, optional=True) if len(some) < len(present) else found

    def subscript(self, node: ast.expr, head: ast.expr, inner: ast.expr) -> Annotation:
        name = self.head(head)
        if name in ("Tensor", "Tile"):
            return (TensorAnn if name == "Tensor" else TileAnn)(*tensor_items(self.items(inner)))
        if name == "Const":
            return const_items(self.items(inner))
        if name in SCALARS:
            return scalar_items(name, self.items(inner))
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if name == "Optional":
            return replace(self.annotation(inner), optional=True)
        if name == "Union":
            return self.union(parts)
        if name == "Annotated":
            return self.annotation(parts[0])
        if name == "Literal" and all(isinstance(p, ast.Constant) for p in parts):
            return LiteralAnn(ast.unparse(node), values=tuple(p.value for p in parts))  # type: ignore[union-attr]
        if name in ("tuple", "Tuple") and not any(isinstance(p, ast.Constant) and p.value is ... for p in parts):
            return TupleAnn(tuple(self.annotation(p) for p in parts))
        if name in _SEVERAL:
            keyed = name in _KEYED
            item = self.annotation(parts[min(int(keyed), len(parts) - 1)])
            if holds_tensors(item) or isinstance(item, (TensorAnn, TileAnn)):
                return SequenceAnn(item, keyed)
        found = self.annotation(head) if isinstance(head, ast.Subscript) else self.resolve(dotted_name(head) or "?")
        if isinstance(found, RecordAnn):
            return self.sized(found, node, inner)
        if why := no_dims_of(dtypes.named(name) if found is None else found):
            fail(why, self.span_of(node), *self.as_tensor(node, dotted_name(head), inner))
        return UnknownAnn(ast.unparse(node))

    def as_tensor(self, node: ast.expr, dtype: str, inner: ast.expr) -> list[Fix]:
        """`ts.Tensor["B", ts.f32]` in place of `ts.f32["B"]`."""
        owner, _, last = dtype.rpartition(".")
        if not owner or dtypes.named(last) is None:
            return []
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        text = f"{owner}.Tensor[{', '.join([*map(ast.unparse, parts), dtype])}]"
        return [Fix(f"Write {text}", (Edit(self.span_of(node), text),))]

    def sized(self, found: RecordAnn, node: ast.expr, inner: ast.expr) -> Annotation:
        """`Linear["D", "H"]`: a dataclass with these sizes, in the order in which its fields name them."""
        names, items = named_sizes(found), self.items(inner)
        if len(items) != len(names):
            wanted = ", ".join(names) or "none"
            fail(f"{found.name} names {len(names)} sizes ({wanted}), not {len(items)}", self.span_of(node))
        sizes: dict[str, Dim] = {}
        for name, item in zip(names, items, strict=True):
            value = dims.parse(item.value) if isinstance(item.value, str) else item.value
            if not isinstance(value, (int, Expr)) or isinstance(value, bool):
                fail(f"{ast.unparse(node)}: {item.value!r} is not a size", item.span)
            sizes[name] = value
        return replace(with_sizes(found, sizes), given=True)

    def head(self, node: ast.expr) -> str:
        """The name of Tessera's annotation at `node`: "Tensor" for `ts.Tensor` under any import; "" for others."""
        dotted = dotted_name(node)
        if not dotted:
            return ""
        last = dotted.rpartition(".")[2]
        value = self.known(node, dotted)
        if value is not None:
            return _builtin(value) or (last if last in GENERIC else "")
        near = None if last in _HEADS else closest(last, _HEADS)
        if near and "." not in dotted:
            span = self.span_of(node)
            fail(f"{dotted} is not defined. Did you mean {near}?", span, Fix(f"Change to {near}", (Edit(span, near),)))
        return last

    def name(self, node: ast.expr) -> Annotation:
        dotted = dotted_name(node)
        last = dotted.rpartition(".")[2]
        value = self.known(node, dotted) if dotted else None
        head = (_builtin(value) or "") if value is not None else last
        if head in ("Tensor", "Tile", "Const"):
            return {"Tensor": TensorAnn, "Tile": TileAnn, "Const": ConstAnn}[head]()
        if head in SCALARS:
            return ScalarAnn(SCALARS[head])
        if value is None and (dtype := dtypes.named(last)) is not None:
            return ScalarAnn(dtype, python=last in ("int", "float", "bool"))
        if isinstance(value, DType):
            return ScalarAnn(value)
        if isinstance(value, Policy) and value.dtype:
            return ScalarAnn(value.dtype)
        if isinstance(value, type) and value in PYTHON_TYPES:
            return ScalarAnn(PYTHON_TYPES[value], python=True)
        if isinstance(value, (TensorAnn, TileAnn, ConstAnn, ScalarAnn, TupleAnn, RecordAnn)):
            return value
        if isinstance(value, ast.expr):
            span = self.span_of(node)
            return _Reader(self.resolve, lambda _: span, self.type_parameters).annotation(value)
        return UnknownAnn(dotted)

    # between the brackets

    def items(self, inner: ast.expr) -> list[Item]:
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        return [self.item(p) for p in parts]

    def item(self, node: ast.expr) -> Item:
        span = self.span_of(node)
        if isinstance(node, ast.Slice):  # `dtype=bf16`, as the dialect's rewrite leaves it
            match node.lower:
                case ast.Name(id=keyword) | ast.Constant(value=str() as keyword) if node.upper and not node.step:
                    return Item(self.value(node.upper), span, keyword)
                case _:
                    fail("a slice is not a dim", span)
        return Item(self.value(node), span)

    def value(self, node: ast.expr) -> object:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=[]):
                return ()
            case ast.Name() | ast.Attribute():
                return self.named_value(node)
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return self.under_policy(node, self.value(left), self.value(right))
            case ast.BinOp() | ast.UnaryOp():
                return self.arithmetic(node)
            case ast.Call():
                return self.call(node)
            case _:
                fail(f"{ast.unparse(node)} is neither a dim nor a dtype nor a policy", self.span_of(node))

    def named_value(self, node: ast.expr) -> object:
        dotted = dotted_name(node)
        if not dotted:
            fail(f"{ast.unparse(node)} is neither a dim nor a dtype nor a policy", self.span_of(node))
        if dotted in self.type_parameters:
            return dims.symbol(dotted)
        value = self.known(node, dotted)
        if isinstance(value, UnknownAnn):
            raise _UnknowableError
        if isinstance(value, ast.expr):
            return self.value(value)
        if value is not None:
            return dtypes.of(value) if isinstance(value, type) else value
        last = dotted.rpartition(".")[2]
        if (dtype := dtypes.named(last)) is not None:
            return dtype
        if last in _POLICY_FLAGS:
            return _POLICY_FLAGS[last]
        self.undefined(node, dotted)

    def known(self, node: ast.expr, dotted: str) -> object:
        """What a name stands for. Raises AnnotationError where it is none of Tessera's."""
        value = self.resolve(dotted)
        if not isinstance(value, NoSuchName):
            return value
        owner, _, last = dotted.rpartition(".")
        span = self.span_of(node)
        near = closest(last, [*_HEADS, *dtypes.BY_NAME, *dtypes.ALIASES, *_POLICY_FLAGS])
        other = instead(last, value.module)
        hint, fixes = f"; {other}" if other else "", list[Fix]()
        if near and not other:
            hint = f". Did you mean {owner}.{near}?"
            fixes.append(Fix(f"Change to {owner}.{near}", (Edit(span, f"{owner}.{near}"),)))
        fail(f"{value.module} has no {last!r}{hint}", span, *fixes)

    def undefined(self, node: ast.expr, dotted: str) -> NoReturn:
        """The error for an undefined name: most often a dim without quotes, or a misspelt dtype."""
        span = self.span_of(node)
        fixes: list[Fix] = []
        near = closest(dotted, [*dtypes.BY_NAME, *_POLICY_FLAGS])
        if near:
            fixes.append(Fix(f"Change to {near}", (Edit(span, near),)))
        if dotted.isidentifier():
            fixes.append(Fix(f'Write "{dotted}"', (Edit(span, f'"{dotted}"'),)))
        spelled = f'A dim is written in quotes: "{dotted}", or declared: def f[{dotted}](...).'
        hint = f"Did you mean {near}?" if near else spelled
        fail(f"{dotted} is not defined. {hint}", span, *fixes)

    def arithmetic(self, node: ast.expr) -> object:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self.size(inner)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self.size(left), self.size(right)
                try:
                    match op:
                        case ast.Add():
                            return a + b
                        case ast.Sub():
                            return a - b
                        case ast.Mult():
                            return a * b
                        case ast.FloorDiv() | ast.Div():
                            return dims.floordiv(a, b)
                        case ast.Mod():
                            return dims.mod(a, b)
                        case _:
                            pass
                except DimError as e:
                    fail(str(e), self.span_of(node))
            case _:
                pass
        fail(f"{ast.unparse(node)} is not a dim expression; dims know + - * // %", self.span_of(node))

    def size(self, node: ast.expr) -> Dim:
        value = self.value(node)
        if isinstance(value, int) and not isinstance(value, bool):
            return value  # only the size as a whole must not be negative
        found = dim_of(Item(value, self.span_of(node)))
        if found is ...:
            fail("`...` cannot be computed with", self.span_of(node))
        return found

    def under_policy(self, node: ast.expr, left: object, right: object) -> Policy:
        base = dtypes.of(left) if isinstance(left, (DType, str)) else left
        first = Policy(base) if isinstance(base, DType) else base
        if isinstance(first, PolicyPart):
            first = Policy().merge(first)
        if not isinstance(first, Policy) or not isinstance(right, (Policy, PolicyPart)):
            fail(f"{ast.unparse(node)} is not a dtype @ policy", self.span_of(node))
        try:
            return first.merge(right)
        except PolicyError as e:
            fail(e.reason, self.span_of(node))

    def call(self, node: ast.Call) -> object:
        """`accum(f32)`, `NumericalPolicy(accumulation=f32)`, `min(S, 128)`: recognised by name; no other call runs."""
        name = dotted_name(node.func).rpartition(".")[2]
        span = self.span_of(node)
        args = [self.value(a) for a in node.args]
        if name in ("min", "max") and len(args) == 2 and not node.keywords:
            a, b = self.size(node.args[0]), self.size(node.args[1])
            return dims.dim_min(a, b) if name == "min" else dims.dim_max(a, b)
        if name in _POLICY_FLAGS and not args and not node.keywords:
            return _POLICY_FLAGS[name]
        if name not in _POLICY_CALLS:
            near = closest(name, [*_POLICY_CALLS, *_POLICY_FLAGS])
            fail(f"{name or ast.unparse(node)} is not a policy" + (f". Did you mean {near}?" if near else ""), span)
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        try:
            return getattr(policies, name)(*args, **keywords)
        except TesseraError as e:
            fail(e.diagnostics[0].message, span)
        except TypeError as e:
            fail(str(e), span)


def dotted_name(node: ast.expr) -> str:
    """`a.b.c` as text; "" for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=attr):
            outer = dotted_name(inner)
            return f"{outer}.{attr}" if outer else ""
        case _:
            return ""


def _builtin(value: object) -> str | None:
    """Which of Tessera's annotations `value` stands for."""
    path = getattr(value, "__tessera_builtin__", None) or getattr(value, "path", None)
    if isinstance(path, str) and path.startswith("tessera.") and (last := path.rpartition(".")[2]) in _HEADS:
        return last
    return None
