"""Selected statements, an expression or the statement under the cursor as a kernel that is called in their place.

What is selected is first made a function of its own, whose graph then is written as a kernel (`kernel_text`).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tessera.compiler.frontend.evaluate.operators import PYTHON, SYMBOLS
from tessera.compiler.frontend.fixes import expression_at
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.values import Builtin, Namespace, OperatorRef
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.types import TensorType, Type
from tessera.compiler.kernel_source.axes import NoKernel, named_as_in
from tessera.compiler.kernel_source.body import Spelling, comments_of
from tessera.compiler.kernel_source.write import Written, kernel_text
from tessera.editor import signatures
from tessera.editor.annotations import annotation, dtype_name, own_name
from tessera.editor.functions import Known
from tessera.editor.names import parameters
from tessera.editor.open_file import OpenFile
from tessera.editor.refactor import Offer, Selection, names_of, spread, tried
from tessera.editor.refactor.extract import KERNEL_KIND as KIND
from tessera.editor.refactor.extract import ExtractedPart, analysed_alone, free_name, impossible, selected
from tessera.errors import Edit, Span
from tessera.language.dtypes import f32

TITLE = "Extract kernel"


def offers(
    document: OpenFile, known: Known, selection: Selection, sizes: Mapping[str, int] = MappingProxyType({})
) -> Iterator[Offer]:
    """`sizes`: of dims that the user has given."""
    if known.analysis.definition.kind != "function":
        return
    part = selected(known, selection)
    if part is None or part.empty:
        return
    try:
        edits = extracted(document, known, part, sizes)
    except NoKernel as e:
        yield Offer(TITLE, KIND, disabled=str(e))
    else:
        yield Offer(TITLE, KIND, edits)


def extracted(document: OpenFile, known: Known, part: ExtractedPart, sizes: Mapping[str, int]) -> tuple[Edit, ...]:
    """The kernel above the function, and its call. Raises NoKernel."""
    why = impossible(known, part)
    if why:
        raise NoKernel(why)
    own = [p.arg for p in parameters(known.tree)]  # in whose order it is given them; what the body assigns comes behind
    part = replace(part, given=tuple(sorted(part.given, key=lambda n: own.index(n) if n in own else len(own))))
    name = free_name(known, f"{known.analysis.name}_kernel", set(document.scope.names()))
    written = written_as_kernel(document, known, part, name, sizes)
    place = Span(part.where.file, known.first_line, 1, known.first_line, 1)
    edits = (Edit(place, f"{written.text}\n\n\n"), part.replaced(f"{name}({', '.join(written.arguments)})"))
    refuse_errors(document, known, edits, name)
    return edits


def refuse_errors(document: OpenFile, known: Known, edits: tuple[Edit, ...], name: str) -> None:
    """Tries a change of `known` and the users of `name`. Raises NoKernel if it would cause an error."""
    after = tried(known, edits)
    if errors := [*(after.found if after is not None else ()), *spread(document, known, edits, name)]:
        raise NoKernel(errors[0].message.partition("\n")[0])
    if after is None:
        raise NoKernel("less would be known of the function than before")
    if _returned(after.analysis) != _returned(known.analysis):
        raise NoKernel("the function would return something else")


def _returned(analysis: Analysis) -> list[Type]:
    op = analysis.op
    return [v.type for v in op.region.block.ops[-1].operands] if op is not None else []


def written_as_kernel(
    document: OpenFile, known: Known, part: ExtractedPart, name: str, sizes: Mapping[str, int]
) -> Written:
    """Raises NoKernel."""
    types = [known.type_of(n, part.where.line, part.where.col) for n in part.given]
    axes = {str(d) for t in types for d in getattr(t, "shape", ())}
    if lost := [d for d in part.dims if d not in axes]:
        raise NoKernel(f"it computes with the size {lost[0]}, which is not an axis of what the kernel reads")
    alone = understood(document, known, part, name)
    assert alone.op is not None
    spelling, comments = spelling_of(document, known, alone), comments_of(alone, alone.op)
    with named_as_in(alone.definition.text):
        return kernel_text(clone(alone.op, {}), name, spelling, comments, sizes)


def understood(document: OpenFile, known: Known, part: ExtractedPart, name: str) -> Analysis:
    """The part as a function of its own, with its graph. Raises NoKernel where there is none."""
    alone = analysed_alone(document, known, part, name)
    if alone is None:
        raise NoKernel("the selection is not a complete piece of program")
    if alone.op is None:
        found = [d for d in alone.diagnostics if d.severity == "error"] or list(alone.undecided)
        raise NoKernel(found[0].message.partition("\n")[0] if found else "its types are not all known")
    return alone


def spelling_of(document: OpenFile, known: Known, alone: Analysis) -> Spelling:
    """Raises NoKernel where the file has no name for what a kernel needs."""
    decorator = own_name(document.scope, "kernel", Builtin("tessera.kernel"))
    tile = own_name(document.scope, "tile", Namespace("tessera.tile"))
    if decorator is None or tile is None:
        raise NoKernel("the file has no name for Tessera's module: import tessera as ts")
    scope, bound = document.scope, names_of([known.tree], ast.Store) | {p.arg for p in parameters(known.tree)}
    return Spelling(
        tile, decorator, lambda t: annotation(scope, t), lambda d: dtype_name(scope, d),
        lambda op, number: _constant(scope, alone, bound, op, number), lambda t: _zeros(scope, t),
        _infinity(scope), {*scope.names()},
    )  # fmt: skip


def _zeros(scope: TextScope, t: TensorType) -> str:
    shape = f"({', '.join(ast.unparse(ast.parse(str(d))) for d in t.shape)}{',' if len(t.shape) == 1 else ''})"
    more = "" if t.dtype is f32 else f", {dtype_name(scope, t.dtype)}"
    if (zeros := own_name(scope, "zeros", OperatorRef("zeros"))) is None:
        raise NoKernel("the file has no name for Tessera's module: import tessera as ts")
    return f"{zeros}({shape}{more})"


def _infinity(scope: TextScope) -> str:
    return "math.inf" if signatures.resolve(scope, "math.inf") == math.inf else 'float("inf")'


def _constant(scope: TextScope, alone: Analysis, bound: set[str], op: Op, number: object) -> str | None:
    """How a number of an operator is written in the text: `EPS`, `math.sqrt(64)`, `1e-5`."""
    match expression_at(alone.definition, op.span):
        case ast.BinOp(left=a, right=b):
            parts = [a, b]
        case ast.Compare(left=a, comparators=[b]):
            parts = [a, b]
        case ast.Call(args=parts):
            pass
        case _:
            return None
    return next((ast.unparse(p) for p in parts if _number(scope, bound, p) == number), None)


def _number(scope: TextScope, bound: set[str], node: ast.expr) -> Any:
    """The number that an expression of the module's names is; None where it is none."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name() | ast.Attribute():
            text = ast.unparse(node)
            value = signatures.resolve(scope, text) if text.partition(".")[0] not in bound else None
            return value if isinstance(value, (bool, int, float)) else None
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = _number(scope, bound, inner)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right):
            return _result(PYTHON[SYMBOLS[type(op)]], _number(scope, bound, left), _number(scope, bound, right))
        case ast.Call(func=ast.Attribute(attr=name) as f, args=args, keywords=[]) if hasattr(math, name):
            known = signatures.resolve(scope, ast.unparse(f)) is getattr(math, name)
            return _result(getattr(math, name), *(_number(scope, bound, a) for a in args)) if known else None
        case _:
            return None


def _result(function: Any, *numbers: Any) -> Any:
    try:
        return None if None in numbers else function(*numbers)
    except (ArithmeticError, ValueError, TypeError):
        return None
