"""Candidates for fixes: other ways to write an expression with a wrong shape or dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.fixes import TRIALS, CandidateFix, expression_at
from tessera.compiler.frontend.names.values import Namespace
from tessera.compiler.frontend.syntax.parse import Source
from tessera.compiler.graph.infer import InferError, Suggestion
from tessera.compiler.graph.operator import axes_of
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.errors import Edit, Fix, Note, Span
from tessera.language import dims, dtypes
from tessera.language.annotations import TensorAnn, TileAnn
from tessera.language.dtypes import DType


def keepdim(ev: Evaluator, values: Iterable[Value]) -> list[CandidateFix]:
    """`keepdim=True` at the reductions of this function that the values come from, nearest first; `keepdims=True`, as
    NumPy calls it, where the function says so elsewhere."""
    out: list[CandidateFix] = []
    named = {k.arg for k in ast.walk(ev.definition.tree) if isinstance(k, ast.keyword)}
    kept = "keepdims=True" if "keepdims" in named else "keepdim=True"
    for op in _reductions(values):
        call = _call_at(ev.definition.tree, ev.definition.text, op.span)
        if call is None or any(k.arg in ("keepdim", "keepdims") for k in call.keywords):
            continue
        end = op.span
        inside = Span(end.file, end.end_line, end.end_col - 1, end.end_line, end.end_col - 1)
        text = f", {kept}" if call.args or call.keywords else kept
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        message = f"Did you forget {kept} in the {name} operation?"
        out.append(CandidateFix(Fix(f"Add {kept} to {name}", (Edit(inside, text),)), message))
    return out[:TRIALS]


def _reductions(values: Iterable[Value]) -> list[Op]:
    """Reductions without keepdims that the values are computed from, by distance."""
    queue, seen, out = [v.op for v in values if v.op], set[int](), list[Op]()
    while queue and len(seen) < 200:
        op = queue.pop(0)
        if id(op) in seen:
            continue
        seen.add(id(op))
        if op.attrs.get("keepdims") is False and "axis" in op.attrs:
            out.append(op)
        queue += [v.op for v in op.operands if v.op]
    return out


def _call_at(tree: ast.AST, source: Source, span: Span) -> ast.Call | None:
    if span.file != source.file:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno == span.line and source.span(node) == span:
            return node
    return None


_TURNS = (".T", ".mT")


def turned_operand(place: Any) -> ast.expr | None:
    """`w` of `w.T` and `w.transpose(1, 0)`: what a transpose is of, which is written behind it."""
    match place:
        case ast.Attribute(value=value, attr="T" | "mT"):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="transpose" | "swapaxes" | "permute" | "t")):
            return value if not (isinstance(value, ast.Name) and value.id in ("ts", "tessera", "np")) else None
        case _:
            return None


def without_turning_twice(ev: Evaluator, notes: Sequence[Note], places: Sequence[Any], e: InferError) -> list[Note]:
    """An operator's notes; of an operand that is a transpose already, another one is not suggested, but none."""
    out = list(notes)
    for s in e.suggestions:
        turned = turned_operand(places[s.operand]) if s.suffix in _TURNS and s.operand < len(places) else None
        if turned is not None:
            whole, own = (ev.frame.source.segment(ev.span(n)) for n in (places[s.operand], turned))
            said = f"did you mean {own}, without {whole.removeprefix(own)}?"
            out = [Note(said) if n.message == f"did you mean {s.message}?" else n for n in out]
    return out


def appended(ev: Evaluator, place: Any, suggestion: Any) -> CandidateFix | None:
    """An operator's own suggestion: `.T` behind the text of an operand, in brackets where it is an expression."""
    if isinstance(place, Span) or ev.frame.source.file != ev.definition.file:
        return None
    span = ev.span(place)
    if suggestion.suffix in _TURNS and (turned := turned_operand(place)) is not None:
        owner = ev.span(turned)
        start = Span(span.file, owner.end_line, owner.end_col, span.end_line, span.end_col)
        return CandidateFix(Fix(f"Leave {ev.frame.source.segment(start)} out", (Edit(start, ""),)))
    atomic = isinstance(place, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    start = Span(span.file, span.line, span.col, span.line, span.col)
    end = Span(span.file, span.end_line, span.end_col, span.end_line, span.end_col)
    edits = (Edit(end, suggestion.suffix),) if atomic else (Edit(start, "("), Edit(end, ")" + suggestion.suffix))
    return CandidateFix(Fix(f"Use {suggestion.message}", edits))


def rewritten(ev: Evaluator, places: Sequence[Any], message: str, suffixes: Mapping[int, str]) -> CandidateFix | None:
    """One change of several operands: `[:, None]` behind the first, `[None, :]` behind the second."""
    if any(i >= len(places) for i in suffixes):
        return None
    parts = [appended(ev, places[i], Suggestion(message, i, suffix)) for i, suffix in suffixes.items()]
    fixes = [c.fix for c in parts if c is not None]
    if len(fixes) < len(parts):
        return None
    said = fixes[0].message if len(fixes) == 1 else f"Use {message}"
    return CandidateFix(Fix(said, tuple(e for f in fixes for e in f.edits)))


def around_index(ev: Evaluator, node: ast.Subscript, message: str, before: str, behind: str) -> CandidateFix:
    """Further indices before and behind those of a subscript."""
    at = ev.span(node.slice)
    if isinstance(node.slice, ast.Tuple) and node.slice.elts:  # which may stand in brackets of its own
        at = ev.span(node.slice.elts[0]).to(ev.span(node.slice.elts[-1]))
    start = Span(at.file, at.line, at.col, at.line, at.col)
    end = Span(at.file, at.end_line, at.end_col, at.end_line, at.end_col)
    edits = [Edit(place, text) for place, text in ((start, before), (end, behind)) if text]
    return CandidateFix(Fix(message, tuple(edits)))


def with_key(ev: Evaluator, node: ast.AST, name: str) -> list[Fix]:
    """A parameter `name` of the function for a call that lacks it: the caller chooses which numbers are drawn."""
    tree, alias = ev.definition.tree, own_alias(ev)
    if not isinstance(tree, ast.FunctionDef) or not isinstance(node, ast.Call) or not node.args or not alias:
        return []
    positional = [*tree.args.posonlyargs, *tree.args.args]
    taken = {p.arg for p in (*positional, *tree.args.kwonlyargs)}
    if ev.frame.depth or ev.frame.source is not ev.definition.text or not positional or name in taken:
        return []
    first = len(positional) - len(tree.args.defaults)  # a parameter without a default stands before those with one
    if first < len(positional):
        at = ev.span(positional[first])
        said = Edit(replace(at, end_line=at.line, end_col=at.col), f"{name}: {alias}.int64, ")
    else:
        said = Edit(_after(ev.span(positional[-1])), f", {name}: {alias}.int64")
    given = ev.span(node.keywords[-1].value if node.keywords else node.args[-1])
    return [Fix(f"Add a parameter {name}", (said, Edit(_after(given), f", {name}={name}")))]


def _after(span: Span) -> Span:
    return replace(span, line=span.end_line, col=span.end_col)


def own_alias(ev: Evaluator) -> str:
    """What the file calls Tessera's module: `ts`; empty where it has no name for it."""
    known = {n: ev.frame.scope.lookup(n) for n in ev.frame.scope.names()}
    return min((n for n, v in known.items() if isinstance(v, Namespace) and v.path == "tessera"), key=len, default="")


def keyword_span(ev: Evaluator, node: ast.AST, name: str) -> Span:
    """The place of a keyword's name in a call; the whole call where it is not written there."""
    found = [k for k in getattr(node, "keywords", ()) if k.arg == name]
    whole = ev.span(found[0] if found else node)
    return replace(whole, end_line=whole.line, end_col=whole.col + len(name)) if found else whole


def other_spellings(ev: Evaluator, node: ast.AST, code: str, operands: Sequence[Value]) -> list[CandidateFix]:
    """What a call that was rejected with `code` may have meant."""
    if not isinstance(node, ast.Call) or ev.frame.source is not ev.definition.text:
        return []
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    shapes = [getattr(v.type, "shape", ()) for v in operands]
    if code == "TS210" and node.args:
        return list(_equations(ev, node.args[0], shapes))
    if code == "TS213" and name == "chunk":
        return [_renamed(ev, node.func, name, "split")]
    if code == "TS204" and name == "permute":
        return _exchange(ev, node)
    if code == "TS206" and name in ("concat", "concatenate", "cat"):
        return _axis(ev, node, shapes)
    return []


def _equations(ev: Evaluator, node: ast.expr, shapes: Sequence[Shape]) -> Iterator[CandidateFix]:
    """The einsum equation with two letters of one operand exchanged, where every letter then has one size."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or "..." in node.value:
        return
    left, arrow, right = node.value.partition("->")
    terms = left.split(",")
    if [len(t.strip()) for t in terms] != [len(s) for s in shapes]:
        return
    quote = ev.frame.source.segment(ev.span(node))[:1]
    for i, term in enumerate(terms):
        for a, b in combinations(sorted(set(term.strip())), 2):
            swapped = [*terms[:i], term.translate({ord(a): b, ord(b): a}), *terms[i + 1 :]]
            if _consistent(ev, swapped, shapes):
                text = ",".join(swapped) + arrow + right
                yield CandidateFix(Fix(f"Use {text!r}", (Edit(ev.span(node), quote + text + quote),)))


def _consistent(ev: Evaluator, terms: Sequence[str], shapes: Sequence[Shape]) -> bool:
    size: dict[str, Any] = {}
    pairs = [(c, d) for t, s in zip(terms, shapes, strict=True) for c, d in zip(t.strip(), s, strict=True)]
    return all(dims.equal(size.setdefault(c, d), d, ev.facts) for c, d in pairs)


def _renamed(ev: Evaluator, function: ast.expr, old: str, name: str, *further: Edit) -> CandidateFix:
    span = ev.span(function)
    start = span.end_col - len(old)
    edit = Edit(Span(span.file, span.end_line, start, span.end_line, span.end_col), name)
    return CandidateFix(Fix(f"Use {name}", (edit, *further)))


def _exchange(ev: Evaluator, node: ast.Call) -> list[CandidateFix]:
    """`transpose(0, 1)` for a permute that names two axes of more, also as a tuple."""
    if not node.args or node.keywords:
        return []
    last = node.args[-1]
    pair = last.elts if isinstance(last, (ast.Tuple, ast.List)) else []
    text = ", ".join(ev.frame.source.segment(ev.span(e)) for e in pair)
    return [_renamed(ev, node.func, "permute", "transpose", *([Edit(ev.span(last), text)] if pair else []))]


def _axis(ev: Evaluator, node: ast.Call, shapes: Sequence[Shape]) -> list[CandidateFix]:
    """The one axis along which the operands differ."""
    if len({len(s) for s in shapes}) != 1:
        return []
    differ = [a for a in range(len(shapes[0])) if any(not dims.equal(s[a], shapes[0][a], ev.facts) for s in shapes)]
    given = next(
        (k.value for k in node.keywords if k.arg in ("axis", "dim")), node.args[1] if len(node.args) > 1 else None
    )
    if len(differ) != 1:
        return []
    if given is not None:
        return [CandidateFix(Fix(f"Join along axis {differ[0]}", (Edit(ev.span(given), str(differ[0])),)))]
    end = ev.span(node)
    inside = Span(end.file, end.end_line, end.end_col - 1, end.end_line, end.end_col - 1)
    return [CandidateFix(Fix(f"Join along axis {differ[0]}", (Edit(inside, f", axis={differ[0]}"),)))]


def cast_to(ev: Evaluator, where: Span, dtype: DType) -> list[CandidateFix]:
    """The expression converted to `dtype`, in the annotation's own words for it."""
    node = expression_at(ev.definition, where)
    annotation = getattr(ev.definition.tree, "returns", None)
    words = (
        [ast.unparse(n) for n in ast.walk(annotation) if isinstance(n, (ast.Name, ast.Attribute))] if annotation else []
    )
    spelled = next((w for w in words if dtypes.named(w.rpartition(".")[2]) == dtype), repr(dtype.name))
    return _suffixed(ev, node, f"a cast to {dtype}", f".cast({spelled})")


def argument_cast(ev: Evaluator, node: ast.AST, dtype: DType) -> list[Fix]:
    """An argument converted to `dtype`, which the file may call `ts.f16`."""
    alias = own_alias(ev)
    spelled = f"{alias}.{dtype.name}" if alias else repr(dtype.name)
    found = _suffixed(ev, node if isinstance(node, ast.expr) else None, f"a cast to {dtype}", f".cast({spelled})")
    return [c.fix for c in found]


def reshaped(ev: Evaluator, where: Span, type: Any, annotation: TensorAnn | TileAnn) -> list[CandidateFix]:
    """The expression with an axis of size 1 more or less, with the last two exchanged, or with axes merged."""
    have, want = type.shape, annotation.shape
    if want is None or ... in want:
        return []
    suffix = _between(ev, have, tuple(want))
    return _suffixed(ev, expression_at(ev.definition, where), suffix, suffix) if suffix else []


def other_axis(ev: Evaluator, value: Value, annotation: TensorAnn | TileAnn) -> list[CandidateFix]:
    """The reduction that the value is, over the other axis under which its shape is the annotated one."""
    op, want = value.op, annotation.shape
    if op is None or want is None or "keepdims" not in op.attrs:
        return []
    axes, call = axes_of(op), expression_at(ev.definition, op.span)
    shape: Shape = getattr(op.operands[0].type, "shape", ())
    if axes is None or len(axes) != 1 or not isinstance(call, ast.Call):
        return []
    given = _number(call, axes[0], len(shape))
    out: list[CandidateFix] = []
    for a in range(len(shape)):
        left = tuple(1 if i == a else d for i, d in enumerate(shape) if op.attrs["keepdims"] or i != a)
        if given is not None and a != axes[0] and _equal(ev, left, tuple(want)):
            number = a - len(shape) if a == len(shape) - 1 else a
            out.append(CandidateFix(Fix(f"Reduce over axis {number}", (Edit(ev.span(given), str(number)),))))
    return out


def _number(call: ast.Call, axis: int, rank: int) -> ast.expr | None:
    """The one argument that gives this axis as a number."""
    given = [k.value for k in call.keywords if k.arg in ("axis", "dim")] or call.args
    texts = {str(axis), str(axis - rank)}
    found = [e for e in given if ast.unparse(e) in texts]
    return found[0] if len(found) == 1 else None


def unless_none(ev: Evaluator, node: ast.AST) -> list[Fix]:
    """`x if y is None else x + y` for `x + y`, where one of the two may be absent."""
    if not isinstance(node, ast.BinOp) or ev.frame.source is not ev.definition.text:
        return []
    out: list[Fix] = []
    for absent, other in ((node.right, node.left), (node.left, node.right)):
        if isinstance(absent, ast.Name):
            whole, kept = (ev.frame.source.segment(ev.span(n)) for n in (node, other))
            text = f"({kept} if {absent.id} is None else {whole})"
            out.append(Fix(f"Leave {absent.id} out where it is None", (Edit(ev.span(node), text),)))
    return out


def reduced(ev: Evaluator, node: ast.AST) -> list[Fix]:
    """`(x > 0).any()` and `(x > 0).all()` for a condition with a value for each element."""
    ways = [s for name in ("any", "all") for s in _suffixed(ev, _expression(node), f".{name}()", f".{name}()")]
    return [way.fix for way in ways]


def _expression(node: ast.AST) -> ast.expr | None:
    return node if isinstance(node, ast.expr) else getattr(node, "test", None)


def counted_by_tessera(ev: Evaluator, node: ast.expr) -> list[Fix]:
    """`ts.range(n)` for `range(n)`."""
    alias = own_alias(ev)
    if not alias or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    return [Fix(f"Use {alias}.range", (Edit(ev.span(node.func), f"{alias}.range"),))]


def _equal(ev: Evaluator, a: Shape, b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and ... not in b and all(dims.equal(x, y, ev.facts) for x, y in zip(a, b, strict=True))


def _between(ev: Evaluator, have: Shape, want: tuple[Any, ...]) -> str:
    if len(have) == len(want) > 1 and _equal(ev, (*have[:-2], have[-1], have[-2]), want):
        return ".T" if len(have) == 2 else ".mT"
    for i in range(max(len(have), len(want))):
        if i < len(have) and have[i] == 1 and _equal(ev, have[:i] + have[i + 1 :], want):
            return f".squeeze({i if i < len(have) - 1 else -1})"
        if i < len(want) and want[i] == 1 and _equal(ev, have, want[:i] + want[i + 1 :]):
            return f".unsqueeze({i if i < len(want) - 1 else -1})"
    for i, size in enumerate(want):
        merged = len(have) - len(want) + 1
        if (
            merged > 1
            and _equal(ev, (*have[:i], dims.prod(have[i : i + merged]), *have[i + merged :]), want)
            and size != 1
        ):
            return f".reshape({', '.join(map(str, want))})"
    return ""


def _suffixed(ev: Evaluator, node: ast.expr | None, said: str, suffix: str) -> list[CandidateFix]:
    found = appended(ev, node, Suggestion(said, 0, suffix)) if node is not None else None
    return [found] if found is not None else []
