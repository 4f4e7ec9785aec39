"""Arrays that lie in memory as a program reads them: made contiguous once, or kept transposed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import tessera
from tessera.compiler.frontend.fixes import apply
from tessera.errors import Edit, Fix
from tessera.language.lazy import np
from tessera.profiler.quantity import format_bytes
from tessera.profiler.trial.callers import Caller, caller_of
from tessera.profiler.trial.calls import Again, NotTried, line_before, on_host
from tessera.profiler.trial.made import HintTrial, MadeChange, made_up, results_of, sides
from tessera.profiler.trial.paired import timed
from tessera.profiler.trial.texts import before_body, redefined


def contiguous_arrays(trial: HintTrial) -> MadeChange:
    """Arguments that are copied at each call are copied once, in front of the loop; where there is none, the function
    transposes them itself, without a copy. Raises NotTried."""
    again, names = trial.call(), trial.parameters
    caller = caller_of(trial.launches[-1], again.program)
    try:
        edits = [edit for name in names for edit in _moved_out(caller, again, name)]
    except NotTried as why:
        return _transposed_inside(trial, again, caller, str(why))
    text = apply(caller.source.text, Fix("", tuple(edits)))
    change = f"Copy {', '.join(names)} of {again.program.name} once, in front of the loop"
    copies = {name: np.ascontiguousarray(on_host(again.arguments[name])) for name in names}
    before, after = sides(again, again.program, copies)
    results = results_of(before, after, change)
    size = format_bytes(sum(array.nbytes for array in copies.values()))
    notes = (
        *made_up(again.made_up),
        f"the copy takes {size}, and does not see what is stored to the array in the loop",
    )
    file, old = caller.source.file, caller.source.text
    return MadeChange(timed(before), timed(after), file, old, text, results, notes, change)


def frozen_arrays(trial: HintTrial) -> MadeChange:
    """Weights that products pack at each call are frozen in front of the loop, and packed once. Raises NotTried."""
    again, names = trial.call(), trial.parameters
    caller = caller_of(trial.launches[-1], again.program)
    ours = caller.name_of("tessera")
    edits = [e for name in names for e in _made_before(caller, again, name, f"{name}_frozen", f"{ours}.frozen({{}})")]
    text = apply(caller.source.text, Fix("", tuple(edits)))
    change = f"Freeze {', '.join(names)} of {again.program.name} in front of the loop"
    kept_arrays = {name: tessera.frozen(on_host(again.arguments[name])) for name in names}
    before, after = sides(again, again.program, kept_arrays)
    results = results_of(before, after, change)
    size = sum(array.nbytes + array.packed_bytes for array in kept_arrays.values())
    stale = f"frozen arrays take {format_bytes(size)}, and do not see what is stored to the originals"
    file, old = caller.source.file, caller.source.text
    notes = (*made_up(again.made_up), stale)
    return MadeChange(timed(before), timed(after), file, old, text, results, notes, change)


def _moved_out(caller: Caller, again: Again, name: str, behind: str = "") -> Iterator[Edit]:
    """A contiguous copy of an argument in front of the loop, and its name in the call. Raises NotTried."""
    again.numpy_alone([name])
    copy = f"{caller.name_of('numpy')}.ascontiguousarray({{}}{behind})"
    return _made_before(caller, again, name, f"{name}_kept", copy)


def _made_before(caller: Caller, again: Again, name: str, kept: str, made: str) -> Iterator[Edit]:
    """What is made of an argument, under a name of its own, in front of the loop. Raises NotTried."""
    given = caller.argument(again.program, name)
    statement, kept = caller.before_loops(given), caller.fresh(kept)
    said = caller.source.segment(caller.source.span(given))
    yield line_before(caller.source, statement, f"{kept} = {made.replace('{}', said)}")
    yield Edit(caller.source.span(given), kept)


def _transposed_inside(trial: HintTrial, again: Again, caller: Caller, why: str) -> MadeChange:
    """`f(x, w.T)` as `f(x, w)`, with `w = w.T` in the function: the same values, and no copy."""
    program, definition, names = again.program, again.program.definition(), trial.parameters
    said = f"{why}: keep a contiguous copy of it where it is made"
    if program.kind == "kernel" or definition.source != caller.source.text:
        raise NotTried(said)
    edits: list[Edit] = []
    for name in names:
        given, held = caller.argument(program, name), again.arguments[name]
        if not (isinstance(given, ast.Attribute) and given.attr == "T" and on_host(held).ndim == 2):
            raise NotTried(said)
        edits += [_swapped(definition, name), Edit(caller.source.span(given), caller.source.segment(
            caller.source.span(given.value)))]  # fmt: skip
    edits.append(before_body(definition.text, definition.tree, _together(names)))
    text = apply(definition.source, Fix("", tuple(edits)))
    change = f"Transpose {', '.join(names)} in {program.name}"
    turned = {name: np.ascontiguousarray(on_host(again.arguments[name]).T) for name in names}
    before, after = sides(again, redefined(program, text), turned)
    results = results_of(before, after, change)
    notes = (*made_up(again.made_up), f"other calls of {program.name} have to give {', '.join(names)} without .T, too")
    return MadeChange(
        timed(before), timed(after), definition.file, definition.source, text, results, notes, change, False
    )


def _together(names: Sequence[str]) -> str:
    return f"{', '.join(names)} = {', '.join(f'{name}.T' for name in names)}"


def turned_arrays(trial: HintTrial) -> MadeChange:
    """A parameter that the function transposes is given transposed, made once by its callers. Raises NotTried."""
    again, names = trial.call(), trial.parameters
    program, definition = again.program, again.program.definition()
    edits = [edit for name in names for edit in _untransposed(program, name)]
    after_text = apply(definition.source, Fix("", tuple(edits)))
    change = f"Keep {', '.join(names)} of {program.name} transposed"
    turned = {name: np.ascontiguousarray(on_host(again.arguments[name]).T) for name in names}
    before, after = sides(again, redefined(program, after_text), turned)
    results = results_of(before, after, change)
    said = "; ".join(f"np.ascontiguousarray({name}.T)" for name in names)
    notes = (*made_up(again.made_up), f"all callers of {program.name} give {said} instead, made once")
    try:
        caller = caller_of(trial.launches[-1], program)
        if caller.source.text == definition.source:
            edits += [edit for name in names for edit in _moved_out(caller, again, name, ".T")]
    except NotTried:
        pass  # the note says what callers do
    text = apply(definition.source, Fix("", tuple(edits)))
    return MadeChange(
        timed(before), timed(after), definition.file, definition.source, text, results, notes, change, False
    )


def turned_can(program: Any, names: Sequence[str]) -> bool:
    """Whether all that the program does with these parameters is to transpose them."""
    try:
        return all(list(_untransposed(program, name)) for name in names)
    except NotTried:
        return False


def _untransposed(program: Any, name: str) -> Iterator[Edit]:
    definition = program.definition()
    nodes = [n for s in definition.tree.body for n in ast.walk(s)]
    turned = [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == "T" and getattr(n.value, "id", "") == name]
    if len(turned) != sum(isinstance(n, ast.Name) and n.id == name for n in nodes):
        raise NotTried(f"{program.name} reads {name} as it is, too")
    yield _swapped(definition, name)
    for node in turned:
        yield Edit(definition.text.span(node), name)


def _swapped(definition: Any, name: str) -> Edit:
    """The annotation of a parameter with its two axes exchanged. Raises NotTried."""
    arguments = definition.tree.args
    found = next(
        a.annotation for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg == name
    )
    if not isinstance(found, ast.Subscript) or not isinstance(found.slice, ast.Tuple):
        raise NotTried(f"{name} has no annotation with two axes")
    first, second, *others = found.slice.elts
    axes = [e for e in (first, second) if isinstance(e, ast.Constant)]
    if len(axes) < 2 or any(isinstance(e, ast.Constant) for e in others):
        raise NotTried(f"{name} has no annotation with two axes")
    whole, text = definition.text.span(found.slice), definition.text
    left, right = (text.segment(text.span(e)) for e in axes)
    more = "".join(f", {text.segment(text.span(e))}" for e in others)
    return Edit(whole, f"{right}, {left}{more}")
