"""One kernel for several operators: what that saves, and why it is not so where it is not.

Inside `@ts.function` the compiler fuses what may be fused, so there an offer explains. Outside each operator is a
launch of its own, and the change that fuses them is the decorator.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names.values import Builtin, OperatorRef
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.frontend.syntax.parse import Source
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.launches import kernel_of
from tessera.compiler.kernel_source.axes import NoKernel
from tessera.compiler.kernel_source.spelling import all_written, written
from tessera.compiler.levels import NoIR, schedule
from tessera.compiler.machines import predicted_machine
from tessera.compiler.predict import quantity
from tessera.compiler.schedule.views import is_view, kind_of
from tessera.compiler.timing.launches import peaks_for
from tessera.editor import signatures
from tessera.editor.annotations import own_name
from tessera.editor.functions import Known
from tessera.editor.kinds import FUSE as KIND
from tessera.editor.open_file import OpenFile, Preferences
from tessera.editor.refactor import Offer, Selection, tried
from tessera.editor.refactor.extract import analysed_alone, selected
from tessera.editor.refactor.extract import selected as selected_part
from tessera.editor.refactor.extract_kernel import extracted
from tessera.errors import Edit, Fix, Span
from tessera.language.dims import Dim, prod

TITLE = "Fuse these operators"
KERNELS = ("schedule.group", "schedule.launch")


def explained(document: OpenFile, known: Known, selection: Selection, settings: Preferences) -> Iterator[Offer]:
    """Of operators in a function: that they are one kernel and what it saves, or what stands between them."""
    if known.analysis.definition.kind != "function" or selection.start == selection.end:
        return
    try:
        groups, several, source = _selected(document, known, selection, settings)
    except NoIR:
        return
    if not several:
        return
    if len(groups) == 1:
        inside = all_written(source, group_ops(groups[0]))
        reason = f"they are one kernel already ({inside}){_saving(groups[0], settings)}"
    else:
        pair = next(((a, b) for a in groups for b in groups if a is not b and _feeds(a, b)), None)
        in_a_kernel = _extracted(document, known, selection, settings, groups) if pair else None
        if in_a_kernel is not None:
            yield in_a_kernel
            return
        apart = "neither needs the other's result: there is nothing to keep out of memory"
        reason = between(source, *pair) if pair else apart
    yield Offer(TITLE, KIND, disabled=reason)


def _extracted(
    document: OpenFile, known: Known, selection: Selection, settings: Preferences, groups: list[Op]
) -> Offer | None:

    return offer(document, known, selection, settings, groups)


def _selected(
    document: OpenFile, known: Known, selection: Selection, settings: Preferences
) -> tuple[list[Op], bool, Source]:
    """The kernels that what is selected is part of, whether it is more than one operator, and the text of these.

    Operators of functions that are called stand elsewhere in the text: then the selection is looked at by itself.
    """
    func = schedule(known.analysis, settings.dims, predicted_machine(settings.target))
    source = known.analysis.definition.text
    groups = [g for g in func.walk() if g.name in KERNELS and any(selection.touches(o.span) for o in group_ops(g))]
    selected = [o for g in groups for o in group_ops(g) if selection.holds(o.span)]
    if len({(o.span.line, o.span.col, o.span.end_line, o.span.end_col) for o in selected}) > 1:
        return groups, True, source
    part = selected_part(known, selection)
    if part is None or not any(isinstance(n, ast.Call) for s in part.nodes for n in ast.walk(s)):
        return groups, False, source
    alone = analysed_alone(document, known, part, "selected_alone")
    if alone is None:
        return groups, False, source
    groups = [g for g in schedule(alone, settings.dims, predicted_machine(settings.target)).walk() if g.name in KERNELS]
    return groups, sum(len(group_ops(g)) for g in groups) > 1, alone.definition.text


def group_ops(group: Op) -> list[Op]:
    """What computes, without windows onto values and constants; a launch of a kernel is one."""
    if group.name == "schedule.launch":
        return [group]
    found = (op for op in group.region.block.ops if op.name.startswith("graph."))
    return [op for op in found if not is_view(op) and kind_of(op) != "generate"]


def _saving(group: Op, settings: Preferences) -> str:
    """What passes between operators of the text would cost in memory: a read by each of them, and a write unless it is
    written all the same. What such an operator is made of is no launch of its own."""
    ops = group_ops(group)
    total: Dim = 0
    for op in ops:
        for r in op.results:
            inside = _inner_uses(r)
            readers = {u.span for u in inside} - {op.span}
            total = total + size(r) * (len(readers) + (bool(readers) and len(inside) == len(r.users)))
    return saved(total, len({op.span for op in ops}) - 1, settings)


def saved(total: Dim, launches: int, settings: Preferences) -> str:
    """Bytes kept out of memory, and the time of that and of so many launches less, where a model knows it."""
    if total == 0:
        return ""
    peaks = peaks_for(settings.target)
    if not isinstance(total, int) or peaks is None:
        return f", which keeps {total} bytes out of memory"
    us = total / (peaks.gbytes * 1e3) + launches * peaks.launch_us
    return f", which keeps {total:,} bytes out of memory and saves {quantity(us * 1e-6, 's')} at most (modelled)"


def _inner_uses(v: Value) -> list[Op]:
    return [u for u in v.users if u.name.startswith("graph.")]


def size(v: Value) -> Dim:
    return prod(v.type.shape) * v.type.dtype.itemsize  # type: ignore[union-attr]


def _feeds(a: Op, b: Op) -> bool:
    """Whether `b` reads a result of `a`, perhaps through views."""
    reached, todo = set(a.results), list(a.results)
    while todo:
        for user in todo.pop().users:
            if user is b:
                return True
            if user.name.startswith("graph."):
                todo += [r for r in user.results if r not in reached]
                reached.update(user.results)
    return False


def between(source: Source, a: Op, b: Op) -> str:
    """Why the scheduler keeps two groups apart (schedule/graph_to_schedule.py), in words."""
    kernels = [str(kernel_of(g).attrs["sym_name"]) if g.name == "schedule.launch" else "" for g in (a, b)]
    match kernels:
        case ["", ""]:
            pass
        case [first, ""]:
            return f"{first} is a kernel, which has stored its results before what reads them begins"
        case ["", second]:
            return f"{second} is a kernel, which begins when what it reads is in memory"
        case [first, second]:
            return f"{first} and {second} are kernels: any program of {second} may read what any of {first} stores"
        case _:
            pass
    first, second = (_named(source, g) for g in (a, b))
    match a.attrs["kind"], b.attrs["kind"]:
        case _, "contract" if not _multiplies(a, b):
            return f"{second} is a product: what its blocks are combined with is in memory before it begins"
        case _, "contract":
            return f"{second} reads each result of {first} many times: a product's operands must be in memory first"
        case "contract", _:
            return f"{second} needs whole rows of the product {first}, which its blocks do not hold"
        case "chunks", _:
            return f"{second} needs the result of {first}, a long reduction that all programs compute together"
        case _, "chunks":
            return f"{second} reduces everything to one value, which programs of their own do in two stages"
        case "join", _:
            return f"{first} copies into windows, which is done before {second} reads them"
        case _, "join":
            return f"{second} copies into windows, and {first} is in memory before it begins"
        case _ if a.attrs["space"] != b.attrs["space"]:
            return f"{first} and {second} walk over different sizes{_view_between(source, a, b)}"
        case _ if a.attrs["inner"] != b.attrs["inner"]:
            return f"{first} and {second} reduce along different axes: one must be complete before the other begins"
        case _:
            return f"{first} and {second} together exceed what one kernel holds, or a path between them leads out"


def _multiplies(a: Op, b: Op) -> bool:
    """Whether the product in a group reads what another group gives."""
    products = [op for op in group_ops(b) if op.name == "graph.contract"]
    return any(_read(b, v)[0] in a.results for op in products for v in op.operands)


def _read(group: Op, v: Value) -> tuple[Value, list[Op]]:
    """The value outside of a group that one within it is, and the views on the way."""
    views, given = list[Op](), group.region.block.args
    while v in given or (v.op is not None and is_view(v.op)):
        if v.op is None:
            v, given = group.operands[given.index(v)], ()
        else:
            views.append(v.op)
            v = v.op.operands[0]
    return v, views


def _view_between(source: Source, a: Op, b: Op) -> str:
    """What turns or re-cuts what one group gives another, and what to do about it where that is simple."""
    reads = [_read(b, v) for op in group_ops(b) for v in op.operands]
    views = [op for v, found in reads if v in a.results for op in found if op.name != "graph.broadcast_to"]
    if not views:
        return ""
    message = f": {written(source, views[0])} stands between them"
    simple = b.attrs["kind"] == "map" and views[0].name != "graph.slice"
    return f"{message}; what works element by element may stand before it" if simple else message


def _named(source: Source, group: Op) -> str:
    text = all_written(source, group_ops(group))
    return f"the kernel of {text}" if ", " in text else text


def decorated(document: OpenFile, selection: Selection) -> Iterator[Offer]:
    """Of operators in a plain function, which are launched one by one: the decorator that fuses them."""
    for node in document.scope.tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            continue
        source = document.text.plain.split("\n")
        if not node.lineno <= selection.start[0] <= (node.end_lineno or 0):
            continue
        called = [n for n in ast.walk(node) if isinstance(n, ast.Call) and _operator(document, n)]
        name = own_name(document.scope, "function", Builtin("tessera.function"))
        if len(called) < 2 or name is None:
            continue
        indent = source[node.lineno - 1][: len(source[node.lineno - 1]) - len(source[node.lineno - 1].lstrip())]
        place = Span(document.file, node.lineno, 1, node.lineno, 1)
        edit = Edit(place, f"{indent}@{name}\n")
        title = f"Fuse the {len(called)} operators of {node.name}: @{name}"
        wrong = _wrong(document, node.name, edit)
        yield Offer(title, KIND, disabled=wrong) if wrong else Offer(title, KIND, (edit,))


def _operator(document: OpenFile, call: ast.Call) -> bool:
    return isinstance(signatures.resolve(document.scope, ast.unparse(call.func)), OperatorRef)


def _wrong(document: OpenFile, name: str, edit: Edit) -> str:
    """The first thing that is wrong with the function once it is one of Tessera's."""
    files = FileAnalysis(document.file)
    files.update(apply(document.text.plain, Fix("", (edit,))))
    found = [d for a in files.analyses if a.name == name for d in a.diagnostics if d.severity == "error"]
    return found[0].message.partition("\n")[0] if found else ""


# Operators that the compiler keeps apart, as one kernel: it may walk what no group of operators can.
#
# A product's operands in a group are in memory before it begins, and its rows are never whole. A kernel
# computes both where it needs them: norms before a product, softmax between two.


def offer(
    document: OpenFile, known: Known, selection: Selection, settings: Preferences, groups: Sequence[Op]
) -> Offer | None:
    """`groups`: the kernels that what is selected is part of. None where a kernel of its own launches no fewer."""
    part = selected(known, selection)
    if part is None or part.empty:
        return None
    try:
        edits = extracted(document, known, part, settings.dims)
        after = tried(known, edits)
        fewer = _launches(known.analysis, settings) - _launches(after.analysis, settings) if after is not None else 0
    except (NoKernel, NoIR):
        return None
    if fewer < 1:
        return None
    kernels = f"{fewer + 1} kernels become one"
    return Offer(f"{TITLE} in a kernel: {kernels}{saved(_kept(groups), fewer, settings)}", KIND, edits)


def _launches(analysis: Analysis, settings: Preferences) -> int:
    func = schedule(analysis, settings.dims, predicted_machine(settings.target))
    return sum(op.name in KERNELS for op in func.walk())


def _kept(groups: Sequence[Op]) -> Dim:
    """The bytes of what one of the groups writes and others read."""
    total: Dim = 0
    for r in (r for g in groups for r in g.results):
        readers = _readers(r)
        inside = [u for u in readers if u in groups]
        total = total + size(r) * (len(inside) + (0 < len(inside) == len(readers)))
    return total


def _readers(v: Value) -> list[Op]:
    """Who reads a value, perhaps through views of it."""
    return [
        reader
        for user in v.users
        for reader in (
            [o for r in user.results for o in _readers(r)]
            if user.name.startswith("graph.") and user.results
            else [user]
        )
    ]
