"""The request to compile code for a call, as text for the disk cache and for people."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import tessera
from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.evaluate import launches
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.targets.base import Target
from tessera.compiler.tile.program import Program
from tessera.compiler.unit import Unit
from tessera.deferred import deferred
from tessera.errors import CompilationWarning, CompileError, RecompilationWarning, TrainingWarning
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.call.arguments import Bound, Parameters
from tessera.runtime.callsite import call_span
from tessera.runtime.code import why_recompiled
from tessera.runtime.code.build import Built, Request, build
from tessera.runtime.code.reads import Read, function_content, is_function, python_function
from tessera.runtime.code.watch import Watch
from tessera.tracebacks import OWN

_APART = ("autotune", "constant", "distributed")
"""options that are not part of what is compiled"""
_WARNED: dict[Any, Any] = {}
"""what `warnings` has said"""
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(tessera.__file__)), "kernels") + os.sep


def compile_call(
    fn: Any, parameters: Parameters, bound: Bound, target: Target, watch: Watch, *,
    dims: Mapping[str, int] | None = None, profile: bool = False, debug: bool | None = None,
    screen: Callable[[Program], None] | None = None, recorded: bool = True,
    seen: Callable[[Unit], None] | None = None,
) -> Built:  # fmt: skip
    """Code for a function or kernel with arguments of these types, from wherever it is quickest to have.

    `screen` sees the program before its code is generated and may raise, `seen` what the front end has made;
    `recorded`: `why_recompiled` tells of it.
    """
    arguments, shown = bound.arguments, bound.fields
    return compile_with(
        fn, parameters, arguments, shown, target, watch, dims or {}, profile, debug, screen, recorded, bound.constant,
        seen,
    )  # fmt: skip


def compile_with(
    fn: Any, parameters: Parameters, arguments: Mapping[str, Any] | None, shown: Mapping[str, Any], target: Target,
    watch: Watch, dims: Mapping[str, int], profile: bool = False, debug: bool | None = None,
    screen: Callable[[Program], None] | None = None, recorded: bool = True, constant: Set[str] | None = None,
    seen: Callable[[Unit], None] | None = None,
) -> Built:  # fmt: skip
    """As `compile_call`; `arguments` None compiles for the annotations alone. `constant`: the names of arrays
    that never change; None: of none may anything be kept, as the code will meet others."""
    debug = knobs.debug() if debug is None else debug
    definition = parameters.definition

    tuned = [r for r in watch.reads if is_function(r.value) and "autotune" in (getattr(r.value, "options", None) or {})]

    def unit() -> Unit:
        return analysed() if constant is None else _with_constants(analysed(), constant)

    def analysed() -> Unit:
        if not tuned:
            return analyse(definition, arguments, dims).unit()
        choice = deferred("runtime.autotune.choose").choice
        token = launches.tuned.set(lambda kernel, types: choice(kernel, target, {}, types).config)
        try:
            return analyse(definition, arguments, dims).unit()
        finally:
            launches.tuned.reset(token)

    fixed = constant is not None and any(map(_never_changes, watch.reads))
    source = definition.text.segment(definition.text.span(definition.tree))
    fields: dict[str, Any] = {
        "source": function_content(python_function(fn)),
        **{name: fingerprint(value) for name, value in fn.options.items() if name not in _APART},
        **shown,
        **{f"dim {name}": str(size) for name, size in dims.items()},
        **watch.fields(),
        **({"arrays from outside": "constant"} if fixed else {}),
        **{f"timings of {read.path}": _timings(read.value, target) for read in tuned},
        "target": target.fingerprint,
        "debug": str(debug),
    }
    place = f"{definition.file}:{definition.line}"
    front = (definition.kind, place, source, *(f"{name}: {value}" for name, value in fields.items()))
    try:
        built = build(
            Request(definition.name, target, unit, front, watch.path_of, watch.value_of, debug, profile, screen, seen)
        )
    except CompileError as e:
        raise _at_the_call(e, definition) from None
    if recorded and not profile:
        _warn(built)
        compilation = why_recompiled.Compilation(definition.name, fields, built.origin, built.duration)
        why_recompiled.record(why_recompiled.identity_of(fn), compilation)
        plain = {p.name for p in parameters.signature.parameters if not p.annotated}
        if not definition.file.startswith(OWN) and (said := why_recompiled.warned(fn, plain)):
            place = call_span()
            warnings.warn_explicit(said, RecompilationWarning, place.file, place.line, registry=_WARNED)
    return built


def _never_changes(read: Read) -> bool:
    adapter = adapter_of(read.value)
    return adapter is not None and adapter.constant


def _with_constants(unit: Unit, names: Set[str]) -> Unit:
    """The unit, whose parameters of these names, and captured arrays of libraries whose arrays never change, are
    constant."""
    first = len(unit.params) - len(unit.captures)
    held = {i for i, a in enumerate(unit.captures, first) if (found := adapter_of(a)) is not None and found.constant}
    if not names and not held:
        return unit
    params = (replace(p, constant=p.name in names or i in held) for i, p in enumerate(unit.params))
    return replace(unit, params=tuple(params))


def _warn(built: Built) -> None:
    """Tells of the warnings of a compilation, each once. Those about the library's own text are not the user's."""
    for text, file, line, code in built.warnings:
        if not file.startswith(OWN):
            category = TrainingWarning if code.startswith("TS3") else CompilationWarning
            warnings.warn_explicit(text, category, file, line, registry=_WARNED)


def _at_the_call(error: CompileError, definition: Definition) -> CompileError:
    """A kernel of the library is right: what is wrong with it is what it was given, at the user's line."""
    call = call_span()
    if not call.line:
        return error
    if not definition.file.startswith(_LIBRARY):
        return CompileError([d if d.span.line else replace(d, span=call) for d in error.diagnostics])
    where = f"{definition.name} with these arguments: "
    checked = [d for d in error.diagnostics if d.code == "TS106"]  # the library's own asserts say it all
    found = (
        replace(d, span=call, message=where + d.message, label="", notes=(), fixes=())
        for d in checked or error.diagnostics
    )
    return CompileError(list({d.message: d for d in found}.values()))


def _timings(kernel: Any, target: Target) -> str:
    """What a function that calls a tuned kernel depends on besides its text."""
    if knobs.autotune() == "0":
        return "off"
    store = deferred("runtime.autotune.store").store_at(kernel.options["autotune"]["cache"])
    return store.state(kernel.name, target.name)
