"""Above functions and kernels: what they should cost, what they took when last profiled, and what can be shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lsprotocol import types as lsp

from tessera.compiler import levels
from tessera.compiler.frontend.called.arguments import AsCalled, called, content
from tessera.compiler.predict import (
    Measured,
    Prediction,
    digest,
    last,
    predict,
    predict_training,
    quantity,
    sizes_text,
)
from tessera.editor.functions import Known
from tessera.editor.names import definition_name
from tessera_lsp.background import in_turns
from tessera_lsp.document import Document
from tessera_lsp.notebook import NotebookCell
from tessera_lsp.server import TesseraServer

SHOW_IR, PROFILE, OPEN_PROFILE = "tessera.showIr", "tessera.profile", "tessera.openProfile"
TRY = "tessera.tryHints"


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    async def code_lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        """What takes time to find is left to the lenses that are looked at."""
        document = await server.document(params.text_document)
        if not server.settings.lenses:
            return []
        lines = document.text.plain.split("\n")
        measured = last(document.file)
        out: list[lsp.CodeLens] = []
        for known in (k for k in document.known if k.analysis.definition.owner is None):
            place = document.text.span_range(definition_name(lines, known.tree))
            name = known.analysis.name
            out.append(lsp.CodeLens(place, data={"uri": document.uri, "line": place.start.line}))
            if name in measured:
                title = _measured(measured[name], digest(document.text.plain))
                out.append(lsp.CodeLens(place, lsp.Command(title, OPEN_PROFILE, arguments=[document.uri, name])))
            if not isinstance(
                document, NotebookCell
            ):  # a notebook's functions run in its kernel: `%tessera profile f(x)`
                out.append(lsp.CodeLens(place, lsp.Command("Profile", PROFILE, arguments=[document.uri, name])))
                if name in measured:
                    out.append(lsp.CodeLens(place, lsp.Command("Try hints", TRY, arguments=[document.uri, name])))
            out.append(lsp.CodeLens(place, lsp.Command("Show IR", SHOW_IR, arguments=[document.uri, name])))
        for number, training in enumerate(document.trainings):
            place = document.text.span_range(document.source.span(training.call))
            out.append(lsp.CodeLens(place, data={"uri": document.uri, "training": number}))
        return out

    kept: dict[tuple[str, str], tuple[AsCalled, Any, Prediction]] = {}
    trained: dict[tuple[str, int], tuple[Any, Prediction]] = {}

    async def of_training(document: Document, number: int) -> lsp.Command:
        """A step of `ts.train`, lowered anew only where its loss, its model or its optimizer has changed."""
        settings, training, key = server.settings_for(document), document.trainings[number], (document.uri, number)
        step = training.step.analysis.op if training.step is not None else None
        state = settings.target, dict(settings.dims), training.problem, content(training.made), step
        if key not in trained or trained[key][0] != state:
            for closed in [k for k in trained if not server.is_open(k[0])]:
                del trained[closed]
            found = await in_turns(lambda: predict_training(training, settings.dims, settings.target))
            trained[key] = state, found
        return lsp.Command(f"a step: {trained[key][1].text}", "")

    async def predicted(document: Document, known: Known) -> lsp.Command:
        """Lowered anew only where the function or what it is predicted for has changed, not at each stroke."""
        settings, analysis = server.settings_for(document), known.analysis
        key, state = (document.uri, analysis.name), (settings.target, dict(settings.dims))
        old = kept.get(key)
        now = await in_turns(lambda: called(analysis, old[0] if old is not None else None))
        op = now.analysis.op
        if old is None or old[0].analysis.op is not op or old[1] != state or op is None:
            for closed in [k for k in kept if not server.is_open(k[0])]:
                del kept[closed]
            kept[key] = now, state, await in_turns(lambda: predict(analysis, settings.dims, settings.target, now))
        level = "schedule" if "schedule" in levels.of(analysis) else "tile"  # what is launched
        return lsp.Command(kept[key][2].text, SHOW_IR, arguments=[*key, level])

    @server.feature(lsp.CODE_LENS_RESOLVE)
    async def resolve(lens: lsp.CodeLens) -> lsp.CodeLens:
        data = lens.data
        if lens.command is None and isinstance(data, dict):
            document = await server.document(lsp.TextDocumentIdentifier(str(data["uri"])))
            if "training" in data:
                if int(data["training"]) < len(document.trainings):
                    lens.command = await of_training(document, int(data["training"]))
                return lens
            known = document.function_at(document.text.place(lsp.Position(int(data["line"]), 0))[0])
            if known is not None:
                lens.command = await predicted(document, known)
        return lens


def _measured(m: Measured, text: str) -> str:
    """`measured on cpu at B=8, S=1024: 5.1 ms in 3 launches, 2 h ago, before the last edits`"""
    launches = f"{m.launches} launch" + ("es" if m.launches != 1 else "")
    edited = "" if m.text == text else ", before the last edits"
    took = f"{quantity(m.ns * 1e-9, 's')} in {launches}"
    return f"measured on {m.target}{_at(m.sizes)}: {took}, {_age(time.time() - m.when)}{edited}"


def _at(sizes: Mapping[str, int | None]) -> str:
    return f" at {sizes_text(sizes)}" if sizes else ""


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"
