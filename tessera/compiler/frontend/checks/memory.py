"""A kernel's use of memory and tensor cores, as far as its text shows it before a target compiles it.

The compiler of a target knows more: how many stages it gives a copy, what else it keeps in shared memory. What is said
here holds for each of them, or for the one that is configured.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from tessera import knobs
from tessera.compiler.frontend.checks.finding import Finding, Look
from tessera.compiler.frontend.checks.ranges import constant, name_of
from tessera.compiler.frontend.fixes import CandidateFix
from tessera.compiler.frontend.kernel.values import Panel
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape, SharedType, TileType, ViewType, shape_text
from tessera.compiler.machines import (
    ANY_GPU,
    AUTO,
    MMA_COLUMNS,
    MMA_ROWS,
    SECTOR,
    SHARED_LIMITS,
    TENSOR_CORE_DTYPES,
    architecture_of,
    mma_depth,
)
from tessera.compiler.tile.passes.place_barriers import WRITES
from tessera.errors import Edit, Fix, Note
from tessera.language import dims
from tessera.language.dims import Dim

FEW = 16
"""elements of an access that is too small to matter"""


def shared_memory(ops: list[Op], look: Look) -> Iterator[Finding]:
    """Shared tiles that together exceed what a block of the configured target, or of any, has."""
    found = [(op, size) for op in ops if op.name == "tile.alloc_shared" and (size := _bytes(op)) is not None]
    total = sum(size for _, size in found)
    target = knobs.target()
    arch = architecture_of(target)
    if arch is None and target not in (AUTO, ANY_GPU):
        return  # a CPU keeps such tiles in memory
    limit = max(SHARED_LIMITS.values()) if arch is None else SHARED_LIMITS[arch]
    if total <= limit:
        return
    whose = "no GPU has more than" if arch is None else f"{target} has"
    largest, size = max(found, key=lambda f: f[1])
    message = (
        f"the shared tiles of this kernel need {total} bytes per block; {whose} {limit}.\n"
        f"This one takes {size} of them: make it smaller, or use elements of fewer bits."
    )
    notes = tuple(Note(f"{n} bytes: {op.result.type.pretty()}", op.span) for op, n in found)
    yield Finding("TS405", message, largest.span, notes=notes if len(found) > 1 else ())


def _bytes(op: Op) -> int | None:
    t = op.result.type
    if not isinstance(t, SharedType) or not all(isinstance(d, int) for d in t.shape):
        return None  # a size that is known at launch
    return math.prod(d for d in t.shape if isinstance(d, int)) * t.dtype.itemsize


def never_read(ops: list[Op], look: Look) -> Iterator[Finding]:
    """Copies into shared tiles, and panels loaded ahead, that nothing reads."""
    if not look.whole:
        return
    for op in ops:
        if op.name != "tile.alloc_shared" or not op.result.uses:
            continue
        copies = [u for u in op.result.users if u.name == "tile.copy_async"]
        if copies and all(u.name in WRITES for u in op.result.users):
            name = op.result.hint or "the shared tile"
            message = f"{name} is filled here and never read, so nothing waits for the copy either.\nLeave it out."
            fixes = look.without("Leave the copy out", copies[0].span) if len(copies) == 1 else []
            yield Finding("TS413", message, copies[0].span, fixes, (Note("allocated here", op.span),))
    for name, node in look.unread(Panel):
        message = f"{name} is loaded ahead and never read: no load_partition({name}, ...) follows.\nLeave it out."
        span = look.span(node)
        yield Finding("TS413", message, span, look.without("Leave the load out", span))


def strided(op: Op, look: Look) -> Finding | None:
    """A load, store or copy whose neighbouring elements lie apart in memory."""
    source = op.operands[1 if op.name == "tile.copy_async" else 0]
    view, moved = source.type, _moved(op)
    if not isinstance(view, ViewType) or moved is None or len(moved) != view.rank or op.span.file != look.file:
        return None
    steps = view.strides or _contiguous(view.shape)
    wide = [(d, s) for d, s in zip(moved, steps, strict=True) if d != 1]
    if not wide or any(s == 1 for _, s in wide) or _count(moved) < FEW:
        return None
    return _strided(op, wide[-1][1], view.dtype.itemsize, kept_transposed(look, source))


def strided_lanes(op: Op, look: Look) -> Finding | None:
    """A load or store at computed indices that run in steps: x[2 * i], x[i, 0]."""
    view, first = op.operands[0].type, 1 if op.name == "tile.gather" else 2
    if not isinstance(view, ViewType) or op.span.file != look.file:
        return None
    total: Dim = 0
    for index, stride in zip(op.operands[first:], view.strides or _contiguous(view.shape), strict=False):
        step = _step(index)
        if step is None:
            return None
        total = total + step * stride
    if total in (-1, 0, 1):
        return None
    return _strided(op, total, view.dtype.itemsize, kept_transposed(look, op.operands[0]))


def _step(v: Value, depth: int = 8) -> int | None:
    """By how much an index grows from one lane to the next, along the last axis; None where that is not the same."""
    op, rank = v.op, len(getattr(v.type, "shape", ()))
    if not rank:
        return 0
    if op is None or depth == 0:
        return None
    below = [_step(x, depth - 1) for x in op.operands]
    match name_of(op):
        case "iota":
            return int(op.attrs["axis"] == rank - 1)
        case "cast":
            return below[0]
        case "broadcast":
            return below[0] if op.attrs["axes"] and op.attrs["axes"][-1] == rank - 1 else 0  # type: ignore[index]
        case "add" | "sub":
            sign = 1 if name_of(op) == "add" else -1
            return None if None in below else below[0] + sign * below[1]  # type: ignore[operator]
        case "mul":
            for factor, step in zip(op.operands, reversed(below), strict=True):
                if (number := constant(factor)) is not None and step is not None:
                    return int(number) * step
            return None
        case _:
            return None


def _strided(op: Op, step: Dim, size: int, fixes: list[CandidateFix]) -> Finding | None:
    """The finding for neighbouring elements that lie `step` apart in memory."""
    used = max(size, SECTOR // abs(step)) if isinstance(step, int) and step else size
    if used >= SECTOR:
        return None
    what = "copied" if op.name == "tile.copy_async" else "read" if op.results else "written"
    message = (
        f"neighbouring elements that are {what} here lie {step} elements apart in memory, which moves {SECTOR} bytes "
        f"for {used} that are used.\nTake a block along the last axis as well, or keep the array transposed."
    )
    return Finding("TS412", message, op.span, fixes, severity="note")


def _moved(op: Op) -> Shape | None:
    """The shape of the block that an access moves."""
    if op.name == "tile.copy_async":
        return getattr(op.operands[0].type, "shape", None)
    value = op.result if op.name == "tile.load" else op.operands[1]
    return getattr(value.type, "shape", None)


def _contiguous(shape: Shape) -> tuple[Dim, ...]:
    return tuple(dims.prod(shape[i + 1 :]) for i in range(len(shape)))


def _count(shape: Shape) -> float:
    count = dims.prod(shape)
    return count if isinstance(count, int) else math.inf


def off_tensor_cores(op: Op, look: Look) -> Finding | None:
    """A product of narrow values that no architecture's instructions take."""
    a, acc = op.operands[0].type, op.result.type
    if not isinstance(a, (TileType, SharedType)) or not isinstance(acc, TileType) or a.dtype.bits > 16:
        return None
    if op.span.file != look.file:
        return None
    (m, n), k, depth = acc.shape[-2:], a.shape[-1], mma_depth(a.dtype)
    if a.dtype not in TENSOR_CORE_DTYPES:
        return None
    wanted = (("rows", m, MMA_ROWS), ("columns", n, MMA_COLUMNS), ("contracted elements", k, depth))
    wrong = [f"{least} {what}" for what, d, least in wanted if isinstance(d, int) and d % least]
    if not wrong:
        return None
    message = (
        f"no tensor core multiplies {shape_text((m, k))} by {shape_text((k, n))} of {a.dtype}: they take multiples of "
        f"{' and '.join(wrong)}. This product is a chain of multiply-adds.\nChoose tiles of such sizes."
    )
    leasts: dict[int, int] = {}
    for _, d, least in wanted:
        if isinstance(d, int):
            leasts[d] = math.lcm(least, leasts.get(d, 1))
    fixes = enlarged(look, {d: least for d, least in leasts.items() if d % least})
    return Finding("TS410", message, op.span, fixes, severity="note")


# Tiles of other sizes: the numbers that a kernel writes its tiles with, and the change of all of them together.

_SHAPED = ("zeros", "full", "alloc_shared", "load")
_STEPPED = ("range", "range_k")


def enlarged(look: Look, wanted: Mapping[int, int]) -> list[CandidateFix]:
    """Each tile size that is not a multiple of what is wanted becomes the next one, wherever the kernel writes it: in
    slices, shapes and steps of loops, or as a constant of the module."""
    new = {size: math.ceil(size / least) * least for size, least in wanted.items()}
    edits: dict[tuple[int, int], Edit] = {}
    for node in _sizes(look.tree):
        found = look.number(node)
        if found is not None and found[0] in new:
            edits[found[1].line, found[1].col] = Edit(found[1], str(new[found[0]]))
    text = ", ".join(f"{old} -> {size}" for old, size in sorted(new.items()))
    return [CandidateFix(Fix(f"Change tile sizes: {text}", tuple(edits.values())))] if edits else []


def _sizes(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that stand where a tile's size is given."""
    for node in ast.walk(tree):
        match node:
            case ast.Slice(upper=ast.BinOp(op=ast.Add(), right=size)):
                yield size
            case ast.Slice(upper=ast.expr() as size):
                yield size
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                given = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "shape")]
                for shape in given if name in _SHAPED else ():
                    yield from shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else ()
                if name in _STEPPED and len(node.args) == 3:
                    yield node.args[2]
            case _:
                pass


# A matrix that a kernel is given the other way round: its annotation, and each place where it is read or
# written.


def kept_transposed(look: Look, view: Value) -> list[CandidateFix]:
    """The change for a parameter that is only ever subscripted with two indices. Who calls the kernel has to keep the
    array that way too, so there is none where the file has other lines with the kernel's name."""
    tree = look.tree
    while view.op is not None and view.op.name == "tile.subview":
        view = view.op.operands[0]
    if view.op is not None or not isinstance(tree, ast.FunctionDef) or _named_elsewhere(look, tree):
        return []
    parameter = next((a for a in tree.args.args if a.arg == view.hint), None)
    axes = _axes(parameter.annotation) if parameter is not None else None
    pairs = _as_pairs(tree).get(view.hint)
    if axes is None or not pairs:
        return []
    changes = [(n, look.text(m)) for a, b in (axes, *pairs) for n, m in ((a, b), (b, a))]
    return [look.replaced(f"Keep {view.hint} transposed, here and where it is made", *changes)]


@by_node
def _as_pairs(tree: ast.FunctionDef) -> dict[str, list[tuple[ast.expr, ast.expr]]]:
    """By name: the two indices of each place where it stands. Names that also stand otherwise are left out."""
    within = [n for s in tree.body for n in ast.walk(s)]
    uses = Counter(n.id for n in within if isinstance(n, ast.Name))
    found: dict[str, list[tuple[ast.expr, ast.expr]]] = {}
    for n in within:
        if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and (pair := _pair(n.slice)) is not None:
            found.setdefault(n.value.id, []).append(pair)
    return {name: pairs for name, pairs in found.items() if len(pairs) == uses[name]}


def _named_elsewhere(look: Look, tree: ast.FunctionDef) -> bool:
    lines = look.definition.text.lines
    own = range(look.definition.line - 1, tree.end_lineno or 0)
    return any(re.search(rf"\b{re.escape(tree.name)}\b", line) for i, line in enumerate(lines) if i not in own)


def _axes(annotation: ast.expr | None) -> tuple[ast.expr, ast.expr] | None:
    """The two axes of `Tensor["M", "N", f32]`."""
    match annotation:
        case ast.Subscript(slice=ast.Tuple(elts=[a, b])):
            return a, b
        case ast.Subscript(slice=ast.Tuple(elts=[a, b, ast.Name() | ast.Attribute()])):
            return a, b
        case _:
            return None


def _pair(index: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    match index:
        case ast.Tuple(elts=[a, b]) if not _special(a) and not _special(b):
            return a, b
        case _:
            return None


def _special(e: ast.expr) -> bool:
    """`...`, None and spread-out indices are not an index of one axis."""
    return isinstance(e, ast.Starred) or (isinstance(e, ast.Constant) and not isinstance(e.value, int))
