"""Narrower numbers: for the operands of products, or in memory. Results are compared with those of the wide ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from tessera.compiler.frontend.fixes import apply
from tessera.errors import Edit, Fix
from tessera.language import dtypes
from tessera.profiler.quantity import format_bytes
from tessera.profiler.trial.calls import Again, NotTried, on_host
from tessera.profiler.trial.made import HintTrial, MadeChange, made_up, results_of, sides
from tessera.profiler.trial.paired import timed
from tessera.profiler.trial.texts import around, before_body, own_name, redefined, with_keyword

PRODUCTS = frozenset({"mma", "matmul", "dot"})
"""calls whose first two arguments are the operands of a product, as those of `@` are"""
NARROW = (dtypes.bf16, dtypes.f16)
"""those that are tried, in this order: the second is finer, and has less range"""


def narrower_products(trial: HintTrial, tolerance: float) -> MadeChange:
    """Products round their operands to bf16: by the policy of a function, by casts in a kernel. Raises NotTried."""
    again = trial.call()
    program, definition = again.program, again.program.definition()
    text = apply(definition.source, Fix("", tuple(_for_products(program))))
    change = f"Round the operands of products in {program.name} to bf16"
    before, after = sides(again, redefined(program, text))
    results = results_of(before, after, change, tolerance)
    notes = made_up(again.made_up)
    return MadeChange(timed(before), timed(after), definition.file, definition.source, text, results, notes, change)


def products_can(program: Any) -> bool:
    """Whether its text has a place for it."""
    try:
        return bool(_for_products(program))
    except NotTried:
        return False


def arrays_can(program: Any, names: Sequence[str]) -> bool:
    """The same for arrays of f32."""
    try:
        return bool(list(_narrow(program, names, NARROW[0])))
    except NotTried:
        return False


def _for_products(program: Any) -> list[Edit]:
    if program.kind != "kernel":
        return [with_keyword(program, "function", "numerics", '"@compute(bf16)"')]
    edits = list(_operands(program))
    if not edits:
        raise NotTried(f"{program.name} has no product whose operands stand in its text")
    return edits


def _operands(program: Any) -> Iterator[Edit]:
    ours, source = own_name(program), program.definition().text
    for node in (n for s in program.definition().tree.body for n in ast.walk(s)):
        pair: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            pair = [node.left, node.right]
        elif isinstance(node, ast.Call) and _name(node.func) in PRODUCTS:
            pair = node.args[:2]
        for operand in pair:
            if not any(isinstance(n, ast.Call) or _is_product(n) for n in ast.walk(operand)):
                yield from around(source, operand, f"{ours}.tile.cast(", f", {ours}.bf16)")


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def narrower_arrays(trial: HintTrial, tolerance: float) -> MadeChange:
    """Parameters are read in half as many bytes, and widened where they are read. Raises NotTried."""
    again = trial.call()
    program, definition, found = again.program, again.program.definition(), None
    for dtype in NARROW:
        edits = tuple(_narrow(program, trial.parameters, dtype))
        text = apply(definition.source, Fix("", edits))
        change = f"Keep {', '.join(trial.parameters)} of {program.name} in {dtype}"
        narrow = {name: _narrowed(again, name, dtype) for name in trial.parameters}
        before, after = sides(again, redefined(program, text), narrow)
        results = results_of(before, after, change, tolerance)
        size = sum(array.nbytes for array in narrow.values())
        notes = (*made_up(again.made_up), _for_callers(again, trial.parameters, dtype, size))
        found = MadeChange(
            timed(before), timed(after), definition.file, definition.source, text, results, notes, change
        )
        if not found.differs:
            break
    assert found is not None
    return found


def _for_callers(again: Again, names: Sequence[str], dtype: dtypes.DType, size: int) -> str:
    said = f"x.astype({'ml_dtypes' if dtype is dtypes.bf16 else 'np'}.{dtype.numpy})"
    if again.libraries.get(names[0]) == "torch":
        said = f"x.to(torch.{dtype.numpy})"
    return f"callers convert {', '.join(names)} once, where they are made: {said}, {format_bytes(size)} together"


def _narrowed(again: Again, name: str, dtype: dtypes.DType) -> Any:
    return on_host(again.arguments[name]).astype(dtype.numpy)


def _narrow(program: Any, names: Sequence[str], dtype: dtypes.DType) -> Iterator[Edit]:
    tree = program.definition().tree
    ours, source = own_name(program), program.definition().text
    wanted = set(names)
    for parameter in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
        if parameter.arg in wanted:
            yield _annotated(source, parameter, f"{ours}.{dtype}")
    if program.kind != "kernel":
        said = [f"{ours}.cast({name}, {ours}.f32)" for name in names]
        yield before_body(source, tree, f"{', '.join(names)} = {', '.join(said)}")
        return
    read = [n for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Subscript)]
    reads = [n for n in read if isinstance(n.value, ast.Name) and n.value.id in wanted]
    used = [n for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in wanted]
    if len(reads) != len(used) or any(not isinstance(n.ctx, ast.Load) for n in reads):
        raise NotTried(f"{program.name} does more with {', '.join(names)} than reading parts of it")
    for node in reads:
        yield from around(source, node, f"{ours}.tile.cast(", f", {ours}.f32)")


def _annotated(source: Any, parameter: ast.arg, dtype: str) -> Edit:
    """The dtype in its annotation, instead of f32 or added. Raises NotTried."""
    found = parameter.annotation
    if not isinstance(found, ast.Subscript):
        raise NotTried(f"{parameter.arg} has no annotation with its axes")
    elements = found.slice.elts if isinstance(found.slice, ast.Tuple) else [found.slice]
    for element in elements:
        if _name(element) in ("f32", "float32"):
            return Edit(source.span(element), dtype)
    if any(not isinstance(e, ast.Constant) or (isinstance(e.value, str) and "@" in e.value) for e in elements):
        raise NotTried(f"the annotation of {parameter.arg} says more than its axes")
    span = source.span(elements[-1])
    return Edit(span, f"{source.segment(span)}, {dtype}")
