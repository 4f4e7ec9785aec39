"""What sub-commands share: finding a definition in a file, sizes on the command line, lowering without running."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import typer

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.incremental import analyse_file
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.signature import as_annotated, definition_signature, is_scalar
from tessera.compiler.frontend.names.values import MISSING, Static
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.frontend.sizes import REST, declared_sizes
from tessera.compiler.ir.types import TensorType
from tessera.compiler.phases import phase
from tessera.compiler.pipeline import Lowered, lower
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Target
from tessera.errors import CompileError, Note
from tessera.language.annotations import Annotation, TensorAnn, holds_tensors
from tessera.language.dims import substitute
from tessera.runtime.arrays import devices


def sizes(text: str | None) -> dict[str, int]:
    """`B=8,S=4096` as a mapping."""
    out: dict[str, int] = {}
    for part in (text or "").replace(" ", "").split(","):
        if not part:
            continue
        name, equals, value = part.partition("=")
        if not equals or not (name.isidentifier() or name == REST) or not value.isdigit():
            raise typer.BadParameter(f"{part!r} is not NAME=SIZE, as in B=8,S=4096")
        out[name] = int(value)
    return out


def values(given: list[str] | None, analysis: Analysis, running: bool = False) -> dict[str, Any]:
    """`H=8` and `causal=True` as Python values, for parameters that are not tensors; `running`: also of those that are
    passed at each call. What fits no such parameter is the command line's fault."""
    parameters = {p.name: p for p in definition_signature(analysis.definition).parameters}
    taken = [n for n, p in parameters.items() if not holds_tensors(p.annotation)]
    out: dict[str, Any] = {}
    for each in given or []:
        name, equals, text = each.partition("=")
        if not equals or name not in taken:
            has = f"it has {', '.join(taken)}" if taken else "it has none"
            raise typer.BadParameter(f"{each!r} gives no value to a number or Const of {analysis.name}; {has}")
        parameter = parameters[name]
        if is_scalar(parameter) and not running:
            raise typer.BadParameter(f"{name} is passed at each call: no IR depends on its value")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text  # a string without quotes, as a shell leaves it
        number = isinstance(value, (bool, int, float, complex))
        out[name] = as_annotated(parameter, value) if number or not is_scalar(parameter) else MISSING
        if out[name] is MISSING:
            raise typer.BadParameter(f"{name} is {parameter.annotation}, not {text}")
    return out


def find(
    where: str, dims: Mapping[str, int] | None = None, text: str | None = None, given: list[str] | None = None
) -> Analysis:
    """The analysis of FILE:NAME, or of what FILE:LINE stands in, under the given sizes and values. Raises CompileError.

    From the text alone: the file's, or `text` where that is newer.
    """
    found = named(where, text)
    check_sizes(dims or {}, found)
    arguments: dict[str, Any] = ranked(found.definition, dims or {}) or {}
    arguments |= {name: Static(value) for name, value in values(given, found).items()}
    one = analyse(found.definition, arguments or None, dims) if dims or arguments else found
    if one.op is None:
        errors = [d for d in one.diagnostics if d.severity == "error"]
        raise CompileError(errors or [d.with_notes(*_advice(found.definition, dims or {})) for d in one.undecided])
    return one


def check_sizes(given: Mapping[str, int], analysis: Analysis) -> None:
    """A size that the function has not is the command line's fault."""
    has = {**declared_sizes(definition_signature(analysis.definition)), **analysis.dims}
    if unknown := [n for n in given if n not in has]:
        known = f"it has {', '.join(has)}" if has else "it has none"
        raise typer.BadParameter(f"{analysis.name} has no size {unknown[0]!r}; {known}")


def ranked(definition: Definition, dims: Mapping[str, int]) -> dict[str, TensorType] | None:
    """Where the sizes give one for `...`, the parameters that have it, with one axis of that size in its place."""
    if REST not in dims:
        return None
    return {
        p.name: TensorType(
            tuple(dims[REST] if d is ... else substitute(d, dims) for d in p.annotation.shape), p.annotation.dtype
        )
        for p in definition_signature(definition).parameters
        if _is_open(p.annotation) and p.annotation.dtype is not None
    }


def _is_open(annotation: Annotation) -> TypeGuard[TensorAnn]:
    return isinstance(annotation, TensorAnn) and annotation.shape is not None and ... in annotation.shape


def _advice(definition: Definition, dims: Mapping[str, int]) -> list[Note]:
    if REST in dims or not any(_is_open(p.annotation) for p in definition_signature(definition).parameters):
        return []
    return [Note("--dims ...=8 compiles it for one axis of 8 elements in the place of `...`")]


def named(where: str, text: str | None = None) -> Analysis:
    """The analysis of FILE:NAME, or of what FILE:LINE stands in, whatever was found in it."""
    file, colon, name = where.rpartition(":")
    if not colon or not (name.isidentifier() or name.isdecimal()):
        raise typer.BadParameter(f"{where!r} is not FILE:NAME, as in model.py:attention")
    found = [a for a in read(file, text) if a.definition.owner is None]
    has = f"it has {', '.join(a.name for a in found)}" if found else "it has none"
    if name.isdecimal():
        holding = [a for a in found if a.definition.line <= int(name) <= (a.definition.tree.end_lineno or 0)]
        if not holding:
            raise typer.BadParameter(f"line {name} of {file} is in no function or kernel; {has}")
        return holding[-1]  # the innermost
    analyses = {a.name: a for a in found}
    if name not in analyses:
        close = difflib.get_close_matches(name, analyses, n=1)
        raise typer.BadParameter(
            f"{file} has no function or kernel {name!r}; {f'did you mean {close[0]!r}?' if close else has}"
        )
    return analyses[name]


def read(file: str, text: str | None = None) -> list[Analysis]:
    """All analyses of a file; a file that cannot be read is the command line's fault."""
    if text is None and not Path(file).is_file():
        raise typer.BadParameter(f"there is no file {file}")
    return analyse_file(file, text)


def lowered(
    where: str, target: str, dims: Mapping[str, int], text: str | None = None, given: list[str] | None = None
) -> tuple[Lowered, Target]:
    """FILE:NAME as a program for `target`."""
    with phase("front end"):
        unit = find(where, dims, text, given).unit()
    chosen = targets.get(devices.resolve(target))
    return lower(unit, chosen), chosen
