"""Operators behind the call of a kernel as the end of that kernel: what it computed never goes to memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.kernel.grid import PREFIX, Plan, plan
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value, clone
from tessera.compiler.ir.types import TensorType
from tessera.compiler.kernel_source.axes import Axes, Line, NoKernel, axes_of, named_as_in
from tessera.compiler.kernel_source.body import Body, Spelling, comments_of
from tessera.compiler.kernel_source.layout import KernelPlan, argument_place
from tessera.compiler.kernel_source.write import take_apart, typed
from tessera.editor import signatures
from tessera.editor.functions import Known
from tessera.editor.kinds import FUSE as KIND
from tessera.editor.names import parameters
from tessera.editor.open_file import OpenFile, Preferences
from tessera.editor.refactor import Offer, Selection, insertion, names_of
from tessera.editor.refactor.extract import ExtractedPart, free_name, part_of, selected
from tessera.editor.refactor.extract_kernel import refuse_errors, spelling_of, understood
from tessera.editor.refactor.fuse import TITLE, saved
from tessera.errors import Edit, Fix, Span
from tessera.language import dims
from tessera.language.annotations import TensorAnn
from tessera.language.dims import Dim, Expr


@dataclass(slots=True)
class _Epilogue:
    """`first` assigns what the `kernel` returns; `rest` is what is selected behind it."""

    document: OpenFile
    known: Known
    whole: ExtractedPart
    first: ast.Assign
    rest: ExtractedPart
    kernel: Known

    @property
    def name(self) -> str:
        """Of what the kernel returns."""
        target = self.first.targets[0]
        assert isinstance(target, ast.Name)
        return target.id

    @property
    def call(self) -> ast.Call:
        assert isinstance(self.first.value, ast.Call)
        return self.first.value

    @property
    def end(self) -> ast.Return:
        """The kernel's `return`. Raises NoKernel where there is not one, of one tile."""
        name, returns = self.kernel.analysis.name, [n for n in ast.walk(self.kernel.tree) if isinstance(n, ast.Return)]
        last = self.kernel.tree.body[-1]
        if len(returns) != 1 or not isinstance(last, ast.Return) or last.value is None:
            raise NoKernel(f"{name} does not end with its only return")
        stored = isinstance(last.value, ast.Name) and any(p.arg == last.value.id for p in parameters(self.kernel.tree))
        if stored or isinstance(last.value, ast.Tuple) or self.kernel.analysis.structure is not None:
            raise NoKernel(f"{name} stores to a parameter, or gives several results")
        return last


def offers(document: OpenFile, known: Known, selection: Selection, settings: Preferences) -> Iterator[Offer]:
    """None where no call of a kernel is selected together with what follows it."""
    found = _find_epilogue(document, known, selection) if known.analysis.definition.kind == "function" else None
    if found is None:
        return
    try:
        edits = _edits(found)
    except NoKernel as e:
        yield Offer(TITLE, KIND, disabled=str(e))
        return
    span = known.span(found.first.targets[0])
    type = next((e.type for e in known.expressions if e.kind == "assign" and e.span == span), None)
    total: Dim = dims.substitute(2 * _bytes(type), settings.dims)
    yield Offer(f"{TITLE} in {found.kernel.analysis.name}{saved(total, 1, settings)}", KIND, edits)


def _bytes(type: object) -> Dim:
    return dims.prod(type.shape) * type.dtype.itemsize if isinstance(type, TensorType) else 0


def _find_epilogue(document: OpenFile, known: Known, selection: Selection) -> _Epilogue | None:
    whole = selected(known, selection) if selection.start != selection.end else None
    if whole is None or len(whole.nodes) < 2:
        return None
    match whole.nodes[0]:
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=function)) as first:
            callee = signatures.resolve(document.scope, ast.unparse(function))
        case _:
            return None
    kernel = next((k for k in document.known if isinstance(callee, Closure) and k.tree is callee.node), None)
    rest = part_of(known, tuple(n for n in whole.nodes[1:]))
    if kernel is None or rest is None or kernel.analysis.definition.kind != "kernel":
        return None
    return _Epilogue(document, known, whole, first, rest, kernel)


def _edits(e: _Epilogue) -> tuple[Edit, ...]:
    """Raises NoKernel."""
    kernel, end = e.kernel.analysis.name, e.end
    if e.name in e.whole.results:
        raise NoKernel(f"{e.name} is also needed after the selection, so it must be in memory")
    if e.name not in e.rest.given or not (e.rest.returns or len(e.rest.results) == 1):
        raise NoKernel(f"the rest of the function does not compute one result from {e.name}")
    alone = understood(e.document, e.known, e.rest, "what_follows")
    assert alone.op is not None
    func = clone(alone.op, {})
    said, spelling = take_apart(func), spelling_of(e.document, e.known, alone)
    with named_as_in(alone.definition.text):
        axes = _elementwise(e, func)
    args = [a for a in func.region.block.args if a.uses and a.hint != e.name]
    made = _layout(e, axes, func)
    passed = _rename(e, args, axes, made)
    tile = next(a for a in func.region.block.args if a.hint == e.name)
    tile_name, before = _returned_tile(e, end)
    local = {*names_of([e.kernel.tree], ast.Store), *names_of([e.kernel.tree], ast.Load)}
    inside = replace(spelling, taken={*spelling.taken, *local})
    body = Body(func, axes, made, inside, said, comments_of(alone, alone.op), lines=before, names={tile: tile_name})
    body.indent = " " * end.col_offset
    body.statements()
    new = [a for a in args if a.hint not in {p.arg for p in parameters(e.kernel.tree)}]
    edits = [*_header(e, new, axes, made, spelling, func), Edit(_span(e.kernel, end), "\n".join(body.lines).lstrip())]
    more = "".join(f", {a.hint}={passed[a]}" if e.call.keywords else f", {passed[a]}" for a in new)
    return _placed(e, edits, more, kernel)


def _elementwise(e: _Epilogue, func: Op) -> Axes:
    """Raises NoKernel unless what follows works element by element on what the kernel returns."""
    kernel = e.kernel.analysis.name
    axes = axes_of(func, apart=False)
    for op in (*axes.reduced, *axes.summed):
        raise NoKernel(f"{{}} needs more of {e.name} than one program of {kernel} has", op)
    if axes.parts or axes.joined or any(op.name == "graph.iota" for op in func.walk()):
        raise NoKernel(f"it takes parts or numbers elements: the text of {kernel} does not say where they are")
    tile = next((a for a in func.region.block.args if a.hint == e.name and a.uses), None)
    results = func.region.block.ops[-1].operands
    if len(results) != 1 or tile is None:
        raise NoKernel(f"the rest of the function does not compute one result from {e.name}")
    (result,) = results
    if result.op is None or axes.of_value(result) != argument_place(axes, tile):
        raise NoKernel(f"its result does not lie as {e.name} does, which is where {kernel} stores")
    return axes


def _rename(e: _Epilogue, args: list[Value], axes: Axes, made: KernelPlan) -> dict[Value, str]:
    """Arguments take names that the kernel has free, or that of the parameter of this shape they are passed for."""
    wanted = {p.name: p for p in definition_signature(e.kernel.analysis.definition).parameters}
    given = [*zip(wanted, e.call.args, strict=False), *((str(k.arg), k.value) for k in e.call.keywords)]
    own = {v.id: wanted[p] for p, v in given if isinstance(v, ast.Name) and p in wanted}
    taken = {*wanted, *names_of([e.kernel.tree], ast.Store), *names_of([e.kernel.tree], ast.Load)}
    passed = {a: a.hint for a in args}
    for a in args:
        same = own.get(a.hint)
        if same is not None and getattr(same.annotation, "shape", ()) == made.shape(argument_place(axes, a)):
            a.hint = same.name
        else:
            a.hint = free_name(e.kernel, a.hint, taken)
            taken.add(a.hint)
    return passed


def _returned_tile(e: _Epilogue, end: ast.Return) -> tuple[str, list[str]]:
    """The name of the tile that the kernel returned, and the statement that gives it one."""
    if isinstance(end.value, ast.Name):
        return end.value.id, []
    name = free_name(e.kernel, e.name, {p.arg for p in parameters(e.kernel.tree)})
    text = e.kernel.analysis.definition.text
    assert end.value is not None
    return name, [f"{' ' * end.col_offset}{name} = {text.segment(text.span(end.value))}"]


# how the kernel says where it is


def _layout(e: _Epilogue, axes: Axes, func: Op) -> KernelPlan:
    """With the coordinates, widths and dims that stand in the kernel's text. Raises NoKernel where they do not."""
    tile = next(a for a in func.region.block.args if a.hint == e.name)
    lead = [a for a in argument_place(axes, tile) if a is not None]
    made = KernelPlan(axes, lead, lead)
    returns = definition_signature(e.kernel.analysis.definition).returns
    shape = [d for d in (returns.shape or ()) if d != 1] if isinstance(returns, TensorAnn) else []
    for line, d in zip(reversed(lead), reversed(shape), strict=False):
        if d is ...:
            break
        made.names[line] = d
    written = plan(e.kernel.tree)
    made.linear = _lanes(e.kernel)
    for line, d in made.names.items():
        _coordinate(made, line, d, written)
    if not made.linear and not made.widths:
        made.plain = not any(isinstance(n, ast.For) for n in ast.walk(e.kernel.tree))
    row = lead[-1] if lead else None
    if row is not None and not made.linear and row not in made.widths:
        made.held.append(row)
    for op, i in axes.reads:
        if op.operands[i] is not tile and (place := axes.of(op, i)):
            _known(e, made, place, op.operands[i])
    return made


def _lanes(kernel: Known) -> str:
    """The name of `ts.tile.linear_id()`."""
    for s in ast.walk(kernel.tree):
        match s:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="linear_id"))):
                return name
            case _:
                pass
    return ""


def _coordinate(made: KernelPlan, line: Line, d: Dim, written: Plan) -> None:
    name = f"{PREFIX}{d}".lower()
    cut = written.widths.get(name)
    if cut is None or not isinstance(d, Expr):
        return
    match cut.upper:
        case ast.BinOp(left=ast.Name(id=start), op=ast.Add(), right=width) if start == name:
            made.widths[line] = ast.unparse(width)
        case _:
            pass


def _known(e: _Epilogue, made: KernelPlan, place: tuple[Line | None, ...], v: Value) -> None:
    """Raises NoKernel where the kernel's text does not say how to read an argument."""
    kernel = e.kernel.analysis.name
    full = [a for a in place if a is not None]
    fits = not made.plain or (None not in place and full in (made.lead, made.lead[-1:]))
    if any(a not in made.names for a in full) or made.hides_batches(place) or not fits:
        raise NoKernel(f"the text of {kernel} does not say where its programs would read {v.hint}")
    if not made.plain and not made.linear and not made.widths:
        raise NoKernel(f"the text of {kernel} does not say where its programs would read {v.hint}")


# the change


def _span(known: Known, node: ast.AST) -> Span:
    return known.analysis.definition.text.span(node)


def _header(
    e: _Epilogue, new: list[Value], axes: Axes, made: KernelPlan, spelling: Spelling, func: Op
) -> Iterator[Edit]:
    """New parameters, and the annotation of what is returned now. Raises NoKernel."""
    tree, kernel = e.kernel.tree, e.kernel.analysis.name
    a: ast.arguments = tree.args
    if a.defaults or a.kwonlyargs or a.vararg or a.kwarg or not a.args or tree.returns is None:
        raise NoKernel(f"{kernel} has optional parameters, or does not say what it returns")
    texts = [f", {v.hint}: {typed(spelling, v, made.shape(argument_place(axes, v)))}" for v in new]
    yield insertion(_span(e.kernel, a.args[-1]), True, "".join(texts))
    (result,) = func.region.block.ops[-1].operands
    returns = definition_signature(e.kernel.analysis.definition).returns
    tile = next(v for v in func.region.block.args if v.hint == e.name)
    if tensor(tile).dtype != tensor(result).dtype:
        if len(made.names) < len(made.lead):
            raise NoKernel(f"{kernel} returns {returns}, whose dtype would change")
        yield Edit(_span(e.kernel, tree.returns), typed(spelling, result, made.shape(axes.of_value(result))))


def _placed(e: _Epilogue, edits: list[Edit], more: str, kernel: str) -> tuple[Edit, ...]:
    """The kernel changed, or a changed copy above the function where others call it too. Raises NoKernel."""
    text = e.known.analysis.definition.text
    written = text.segment(text.span(e.call))
    name, module = kernel, e.document.scope.tree
    called = [n for n in ast.walk(module) if isinstance(n, ast.Name) and n.id == kernel]
    if len(called) > 1:
        name = free_name(e.known, f"{kernel}_{e.known.analysis.name}", set(e.document.scope.names()))
        lines = text.lines
        copied = apply("\n".join(lines), Fix("", tuple(edits))).split("\n")
        last = len(copied) - (len(lines) - e.kernel.last_line)
        own = "\n".join(copied[e.kernel.first_line - 1 : last])
        own = own.replace(f"def {kernel}", f"def {name}", 1)
        place = Span(e.known.analysis.definition.file, e.known.first_line, 1, e.known.first_line, 1)
        edits = [Edit(place, f"{own}\n\n\n")]
    call = name + written[len(ast.unparse(e.call.func)) : -1] + f"{more})"
    result = f"return {call}" if e.rest.returns else f"{e.rest.results[0]} = {call}"
    made = (*edits, Edit(e.whole.where, result))
    refuse_errors(e.document, e.known, made, name)
    return made
