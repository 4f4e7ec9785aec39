"""Which layer of a row a shape error is about, where Python runs the layers: as the compiler says it of a function."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

from tessera.compiler.frontend.names.layers import layer_named
from tessera.errors import TesseraError, render_all
from tessera.runtime.callsite import is_program
from tessera.tracebacks import OWN

_MODULE = ("tessera.nn.module", "Module")


def tell_layer(error: TesseraError) -> None:
    """Names the innermost module whose method runs, if a variable of the program reaches it through a row of layers."""
    if getattr(error, "_layer_told", False):  # by an entrance further in
        return
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    outer, layer = list[FrameType](), None
    while frame is not None:
        if layer is None and frame.f_code.co_filename.startswith(OWN):
            layer = _module(frame)
        if is_program(frame.f_code.co_filename):
            outer.append(frame)
        frame = frame.f_back
    said = layer_named(layer, (f.f_locals for f in reversed(outer))) if layer is not None else ""
    first = error.diagnostics[0]
    if said:
        error._layer_told = True  # type: ignore[attr-defined]
        error.diagnostics = (replace(first, message=f"{said}: {first.message}"), *error.diagnostics[1:])
        error.args = (render_all(error.diagnostics),)


def _module(frame: FrameType) -> object:
    """The module whose method a frame is; None where it is another function."""
    found = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
    return (
        found
        if any(c.__module__ == "tessera.nn.module" and c.__name__ == "Module" for c in type(found).__mro__)
        else None
    )
