"""Which layer of a model a shape error is about, where Python runs it: as the compiler says it of a function."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

from tessera.compiler.frontend.names.layers import layer_named
from tessera.errors import Note, TesseraError, render_all
from tessera.runtime.callsite import is_program
from tessera.tracebacks import OWN


def tell_layer(error: TesseraError) -> None:
    """Names the innermost module whose method runs, if a variable of the program reaches it: in front of what a layer
    of Tessera's says, and in a note where the line that is shown is one of a layer of the user's."""
    if getattr(error, "_layer_told", False):  # by an entrance further in
        return
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    outer, inner, layer = list[FrameType](), "", None
    while frame is not None:
        if layer is None:
            layer, inner = _module(frame), frame.f_code.co_filename
        if is_program(frame.f_code.co_filename):
            outer.append(frame)
        frame = frame.f_back
    said = layer_named(layer, (f.f_locals for f in reversed(outer))) if layer is not None else None
    own = inner.startswith(OWN)
    if said is None or not (own or said.inner):
        return
    error._layer_told = True  # type: ignore[attr-defined]
    first, *others = error.diagnostics
    notes = (*first.notes, *(() if own else (Note(f"in {said}"),)), *said.notes)
    message = f"{said}: {first.message}" if own else first.message
    error.diagnostics = (replace(first, message=message, notes=notes), *others)
    error.args = (render_all(error.diagnostics),)


def _module(frame: FrameType) -> object:
    """The module whose method a frame is; None where it is another function."""
    found = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
    return (
        found
        if any(c.__module__ == "tessera.nn.module" and c.__name__ == "Module" for c in type(found).__mro__)
        else None
    )
