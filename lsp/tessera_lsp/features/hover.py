"""What stands under the pointer: its type, its dims and where they were bound, the operator's documentation."""

from __future__ import annotations

import ast
import asyncio
import re
from dataclasses import replace
from typing import Any

from lsprotocol import types as lsp

from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import is_dict, is_tuple
from tessera.compiler.frontend.result import type_text
from tessera.compiler.ir.core import Op
from tessera.compiler.levels import NoIR, spills
from tessera.compiler.predict import refused
from tessera.compiler.schedule.refusals import Refusal
from tessera.editor import parameters, signatures
from tessera.editor.functions import Known, is_tensor, policy_of, where
from tessera.editor.kept import KeptValues, why
from tessera.editor.members import Objects, described
from tessera.editor.names import COORDINATE, bound_by, covers, definition_name, dim_at, is_local, word_at, word_span
from tessera.editor.signatures import CallSignature
from tessera.errors import Span
from tessera.language import dims
from tessera.language.dims import Expr
from tessera.language.dtypes import DType
from tessera_lsp import markup
from tessera_lsp.document import Document
from tessera_lsp.features import live_values
from tessera_lsp.index import Index, IndexedUnit
from tessera_lsp.server import TesseraServer
from tessera_lsp.uses import FUNCTIONS, own_name, places

PATIENCE = 2.0
"""seconds that a hover waits for what a process of its own finds; then the next hover over the name has it"""


def register(server: TesseraServer) -> None:
    kept_values: dict[str, KeptValues] = {}
    kept: dict[str, tuple[Any, Any, list[Refusal]]] = {}
    """of each text the function that was asked about last"""

    def apart(document: Document, known: Known, line: int, col: int) -> str:
        """Why the operator under the pointer does not share a kernel with those that it reads, or that read it."""
        word = word_at(known, line, col)
        if isinstance(word, ast.arg) or (isinstance(word, ast.Name) and is_local(known, word.id)):
            return ""
        settings = server.settings_for(document)
        op = known.analysis.op
        state = settings.target, dict(settings.dims), where(op) if op is not None else ()
        old = kept.get(document.uri)
        if old is None or old[0] is not op or old[1] != state:
            for closed in [uri for uri in kept if not server.is_open(uri)]:
                del kept[closed]
            kept[document.uri] = old = op, state, refused(known.analysis, settings.dims, settings.target)
        at = [r for r in old[2] if r.at.contains(line, col) or r.to.contains(line, col)]
        return "".join(f"{text}\n\n" for text in dict.fromkeys(map(str, at)))

    def why_kept(document: Document, known: Known, line: int, col: int) -> str:
        """Who needs a value in the backward pass, what it takes, and what it would take to compute it again."""
        settings = server.settings_for(document)
        for closed in [uri for uri in kept_values if not server.is_open(uri)]:
            del kept_values[closed]
        found = kept_values.setdefault(document.uri, KeptValues()).of(document.programs, settings.dims, settings.target)
        word = word_at(known, line, col)
        named = {word.id} if isinstance(word, ast.Name) else set[str]()
        at = [v for v in found if v.at.contains(line, col) or (v.name in named and v.at.line == line)]
        return "".join(f"{text}\n\n" for text in dict.fromkeys(why(v, settings.target) for v in at))

    def gradient(document: Document, known: Known, line: int, col: int) -> str:
        """What comes back to a value, or where its gradient is cut."""
        e = known.type_at(line, col)
        if e is None or not any(p.analysis.pulled for p in document.programs):
            return ""
        from tessera.editor import gradients  # slow: few files take gradients

        said = gradients.at(document.programs, e, server.settings_for(document).dims, document.file)
        return "".join(f"{text}\n\n" for text in said)

    spilled_values: dict[str, tuple[Op, Any, int, asyncio.Task[str]]] = {}
    """of each text the function that was asked about last, and its line then"""

    async def spilled(document: Document, known: Known) -> str:
        """At the name of a function whose sizes are known: its values that lie in memory for want of registers."""
        settings, op = server.settings_for(document), known.analysis.op
        if op is None or not known.analysis.ok or not set(known.analysis.dims) <= set(settings.dims):
            return ""
        state, old = (settings.target, dict(settings.dims)), spilled_values.get(document.uri)
        if old is None or old[0] is not op or old[1] != state:
            for gone in [uri for uri in spilled_values if uri == document.uri or not server.is_open(uri)]:
                spilled_values.pop(gone)[3].cancel()
            old = op, state, known.tree.lineno, asyncio.ensure_future(_spilled(known, *state))
            spilled_values[document.uri] = old
        done, _ = await asyncio.wait({old[3]}, timeout=PATIENCE)
        text = old[3].result() if done and not old[3].cancelled() else ""
        by = known.tree.lineno - old[2]  # lines above have come or gone since
        return re.sub(r"\bline (\d+)", lambda found: f"line {int(found[1]) + by}", text)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        document = await server.document(params.text_document)
        line, col = document.text.place(params.position)
        known = document.shown_at(line)
        unit = Index(server).of(document)
        inside = _with_axis(known, _hover(document, known, line, col), line, col) if known is not None else None
        found = inside or _of_module(document, unit, line, col) or _of_object(document, known, unit, line, col)
        live = await live_values.under(server, params)
        if found is None:
            return _said(live.head + live.text, live.range) if live is not None else None
        text, span = found
        if known is not None and inside:
            text += gradient(document, known, line, col)
            text += apart(document, known, line, col) + why_kept(document, known, line, col)
        if known is not None and not inside and covers(_name_of(document, known), line, col):
            text += await spilled(document, known)
        text += (live.text if live is not None else "") + await _sizes(server, params, text)
        return _said(text, document.text.span_range(span))


async def _sizes(server: TesseraServer, params: lsp.HoverParams, text: str) -> str:
    """In a notebook, what the dims of a text were at the last call of the function there."""
    cell = await live_values.cell_at(server, params.text_document) if server.settings.sizes else None
    call = live_values.call_at(cell, params.position.line) if cell is not None else None
    names = [n for n in call.sizes if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", text)] if call is not None else []
    return f"*{call.text(names)}*\n\n" if call is not None and names else ""


async def _spilled(known: Known, target: str, dims: dict[str, int]) -> str:
    try:
        name, found = await spills(known.analysis, known.analysis.definition.source, target, dims)
    except NoIR:  # there is no compiler or disassembler, or its text does not compile: diagnostics say so
        return ""
    if not found:
        return f"Static, on {name}: no value is spilled to memory.\n\n"
    return f"Static, on {name}, spilled to memory:\n\n" + "".join(f"- {markup.inline(v)}\n" for v in found) + "\n"


def _name_of(document: Document, known: Known) -> Span:
    """Its place in `def name`."""
    return definition_name(document.text.plain.split("\n"), known.tree)


def _said(text: str, range: lsp.Range) -> lsp.Hover:
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), range)


def _with_axis(known: Known, found: tuple[str, Span] | None, line: int, col: int) -> tuple[str, Span] | None:
    """Of an index of a kernel also the axis that it stands at, and the coordinates that move it."""
    indices = [e for e in known.expressions if e.kind == "index" and e.span.contains(line, col)]
    if not indices:
        return found
    at = max(indices, key=lambda e: (e.span.line, e.span.col))  # of x[table[i], :] that of table
    text, span = found or ("", at.span)
    return f"{text}Index: {at.type.pretty()}\n\n", span


def _hover(document: Document, known: Known, line: int, col: int) -> tuple[str, Span] | None:
    dim = dim_at(known, line, col)
    if dim is not None:
        walks = f"{COORDINATE}{dim.name.lower()}: the grid coordinate over {dim.name}"
        return _code(walks if dim.coordinate else f"dim {dim.name}") + _dims(document, known, [dim.name]), dim.span
    word = word_at(known, line, col)
    expression = known.type_at(line, col)
    if word is None:
        if expression is None or expression.kind == "param":
            return None
        return _type(document, known, "", expression.type), expression.span
    span = word_span(known, word)
    assert span is not None  # it was found by its span
    if isinstance(word, ast.Attribute):
        return _attribute(document, known, word, span)
    if isinstance(word, ast.Name):
        text = _documentation(document, known, word)
        if text:
            return text, span
    name = word.arg if isinstance(word, ast.arg) else word.id
    type = next((e.type for e in known.expressions if e.name == name and covers(span, e.span.line, e.span.col)), None)
    if type is None and expression is not None:
        type = expression.type
    return (_type(document, known, name, type), span) if type is not None else None


def _of_module(document: Document, unit: IndexedUnit, line: int, col: int) -> tuple[str, Span] | None:
    """The names of Tessera's functions in `def`, and what a script says of Tessera outside them."""
    for place in places(unit, rows=[line]):
        span = own_name(unit, place.node)
        if span is None or not covers(span, line, col):
            continue
        if isinstance(place.node, FUNCTIONS):
            known = next((k for k in document.shown if k.tree is place.node), None)
            return (_signature(_defined(known)), span) if known is not None else None
        dotted = ast.unparse(place.node)
        if document.shown_at(line) is not None or dotted.partition(".")[0] in place.hidden:
            return None
        value = signatures.resolve(document.scope, dotted)
        helper = isinstance(value, Closure) and not signatures.is_decorated(value)
        text = _described(document, value) if not helper else ""
        return (text, span) if text else None
    return None


def _of_object(
    document: Document, known: Known | None, unit: IndexedUnit, line: int, col: int
) -> tuple[str, Span] | None:
    """What a model or a layer consists of."""
    for place in places(unit, rows=[line]):
        span = own_name(unit, place.node)
        if span is None or not covers(span, line, col) or isinstance(place.node, FUNCTIONS):
            continue
        dotted = ast.unparse(place.node)
        held = Objects(document.scope, document.objects, known, line).at(dotted)
        if text := parameters.table(held):
            return _code(f"{dotted}: {described(held)}") + text, span
    return None


def _defined(known: Known) -> CallSignature:
    """With what it has been found to return, where it does not say so."""
    signature = signatures.of_definition(known.tree)
    found = {type_text(e.type) for e in known.expressions if e.kind == "return"}
    return replace(signature, returns=found.pop()) if len(found) == 1 and not signature.returns else signature


def _attribute(document: Document, known: Known, word: ast.Attribute, span: Span) -> tuple[str, Span] | None:
    """An operator by its module or as a method; else the type of what the attribute gives."""
    text = _documentation(document, known, word)
    place = known.span(word)
    at = [e for e in known.expressions if e.span == place]
    if not text and all(is_tensor(e.type) for e in at):
        method = signatures.of_method(word.attr)
        text = _signature(method) if method is not None else ""
    calls = [known.span(n) for n in ast.walk(known.tree) if isinstance(n, ast.Call) and n.func is word]
    given = [e for e in known.expressions if e.span in calls] or at
    if given:
        text += _type(document, known, "" if text else word.attr, given[-1].type)
    return (text, span) if text else None


def _documentation(document: Document, known: Known, word: ast.Name | ast.Attribute) -> str:
    """Of what the module knows by this dotted name: an operator, a function, a dtype, a constant."""
    dotted = ast.unparse(word)
    if is_local(known, dotted.partition(".")[0]):
        return ""
    value = signatures.resolve(document.scope, dotted)
    return _described(document, value) or (_code(f"{dotted} = {value!r}") if _is_short(value) else "")


def _is_short(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= 64
    return isinstance(value, float) or (isinstance(value, str) and len(value) <= 80)


def _described(document: Document, value: Any) -> str:
    if isinstance(value, DType):
        return _code(str(value)) + f"dtype, {value.bits} bits an element\n\n"
    known = next((k for k in document.shown if isinstance(value, Closure) and k.tree is value.node), None)
    function = _defined(known) if known is not None else signatures.of_value(value)
    return _signature(function) if function is not None else ""


def _signature(s: CallSignature) -> str:
    """Tessera's own documentation is Markdown; a docstring of the file is anybody's text."""
    doc = markup.block(s.doc) if s.written and s.doc else f"{s.doc}\n\n"
    return _code(s.text) + doc


def _type(document: Document, known: Known, name: str, type: Any) -> str:
    text = _code(f"{name}: {type_text(type)}" if name else type_text(type))
    policy = policy_of(type)
    text += f"Numerics: {markup.inline(policy)}\n\n" if policy else ""
    return text + _dims(document, known, [d for d in known.dims if d in _symbols(type)]) + _models(known, type)


def _models(known: Known, type: Any) -> str:
    """Of what calls tell: the models that these are given, and the sizes that differ between them."""
    inside = known.inside
    if inside is None or not inside.models:
        return ""
    out = ""
    for name, sizes in inside.varying.items():
        if f"?{name}" in _symbols(type):
            out += f"- `{name}`: {', '.join(f'{size} for {model}' if model else str(size) for size, model in sizes)}\n"
    return f"{out}\n*As called for {' and '.join(inside.models)}*\n\n"


def _symbols(type: Any) -> set[str]:
    if is_tuple(type):
        return {s for t in type for s in _symbols(t)}
    if is_dict(type):
        return {s for t in type.values() for s in _symbols(t)}
    sizes = type.shape if is_tensor(type) else (type,)
    return {s for d in sizes if isinstance(d, (int, Expr)) for s in dims.symbols(d)}


def _dims(document: Document, known: Known, names: list[str]) -> str:
    out: list[str] = []
    for name in names:
        axes, span = bound_by(known, name), known.dims.get(name)
        line = document.text.at(span.line, 1).line + 1 if span is not None else 0  # as its cell counts, in a notebook
        at = f" (line {line})" if line else ""
        out.append(f"- `{name}`: {' and '.join(axes) or 'bound'}{at}")
    return "\n".join(out) + "\n\n" if out else ""


def _code(text: str) -> str:
    return markup.block(text, "python")
