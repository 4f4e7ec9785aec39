"""A loop that calls one function for each element, as one call of `ts.vmap` of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tessera
from tessera.compiler.frontend.fixes import apply
from tessera.errors import Edit, Fix
from tessera.language.lazy import np
from tessera.profiler.trial.callers import Caller, caller_of
from tessera.profiler.trial.calls import NotTried, call_of, own_arguments
from tessera.profiler.trial.made import HintTrial, MadeChange, made_up, results_of
from tessera.profiler.trial.paired import timed
from tessera.profiler.trial.texts import own_name

MOST = 64
"""calls of the loop that are timed"""


@dataclass(frozen=True, slots=True)
class _Loop:
    """`[f(x, w) for x in xs]`, `for x in xs: out.append(f(x, w))` or `for i in range(n): out[i] = f(xs[i], w)`."""

    whole: ast.expr | ast.stmt
    target: str
    """x, or i"""
    iterated: ast.expr
    """xs, or range(n)"""
    into: Callable[[str], str]
    """the text that replaces it, of the text of the batched call"""


def one_batch(trial: HintTrial) -> MadeChange:
    """Raises NotTried."""
    last = trial.call()
    program = last.program
    if program.kind == "kernel":
        raise NotTried(f"{program.name} is a kernel, whose grid is its batch")
    caller = caller_of(trial.launches[-1], program)
    batched, said = _batched_call(caller, program)
    last.numpy_alone(batched)
    calls = [call_of(trial.recording, launch) for launch in _of_one_place(trial)]
    if len(calls) < 3:
        raise NotTried("the profile holds fewer than three calls of the loop")
    given = [own_arguments(call) for call in calls]
    fixed = {name: given[0][name] for name in given[0] if name not in batched}
    for name, value in fixed.items():
        if name not in last.made_up and any(not _same(value, each[name]) for each in given):
            raise NotTried(f"{name} differs from call to call, and is not what the loop goes through")
    rows = {name: [each[name] for each in given] for name in batched}
    if any(len({row.shape for row in each}) > 1 for each in rows.values()):
        raise NotTried(f"the shapes of {', '.join(rows)} differ from call to call")
    together = {name: np.stack(each) for name, each in rows.items()} if said.arrays else rows
    axes = tuple(0 if name in batched else None for name in given[0])

    def before() -> Any:
        return [program(**(fixed | {name: each[i] for name, each in rows.items()})) for i in range(len(calls))]

    def after() -> Any:
        values = [np.asarray(together[name]) if name in batched else fixed[name] for name in given[0]]
        return list(tessera.vmap(program, in_axes=axes)(*values))

    change = f"Call {program.name} once for the whole loop"
    results = results_of(before, after, change)
    notes = (*made_up(last.made_up), f"timed with {len(calls)} calls of the loop")
    text = apply(caller.source.text, Fix("", (said.edit,)))
    return MadeChange(timed(before), timed(after), caller.source.file, caller.source.text, text, results, notes, change)


def can(trial: HintTrial) -> bool:
    """Whether the calls stand in a loop that one call can replace."""
    try:
        last = trial.call()
        batched, _ = _batched_call(caller_of(trial.launches[-1], last.program), last.program)
        last.numpy_alone(batched)
        return last.program.kind != "kernel"
    except NotTried:
        return False


def _of_one_place(trial: HintTrial) -> Sequence[Any]:
    """The first launch of each of the newest calls from the line of the last one."""
    runs: dict[object, Any] = {}
    about = trial.launches[-1].attributes
    for launch in trial.launches:
        same = all(launch.attributes.get(k) == about.get(k) for k in ("call_file", "call_line", "function", "sizes"))
        if same and launch.attributes.get("run") is not None:
            runs.setdefault(launch.attributes["run"], launch)
    return list(runs.values())[-MOST:]


def _same(a: Any, b: Any) -> bool:
    if hasattr(a, "shape") and hasattr(b, "shape"):
        return a is b or (a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b)


@dataclass(frozen=True, slots=True)
class _Said:
    edit: Edit
    arrays: bool
    """whether what the loop goes through is known to be arrays; else it may be lists of them"""


def _batched_call(caller: Caller, program: Any) -> tuple[set[str], _Said]:
    """The parameters that differ from call to call, and the edit of the loop. Raises NotTried."""
    loop, call, text = _loop(caller), caller.call, caller.source
    if call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
        raise NotTried("the call names its arguments: ts.vmap takes them by their place")
    arguments = program.definition().tree.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    numbers = isinstance(loop.iterated, ast.Call) and getattr(loop.iterated.func, "id", "") == "range"
    batched, axes, given, arrays = set[str](), list[str](), list[str](), True
    for name, argument in zip(names, call.args, strict=False):
        source = _source(argument, loop, numbers)
        if source is None:
            if any(isinstance(n, ast.Name) and n.id == loop.target for n in ast.walk(argument)):
                raise NotTried(f"{ast.unparse(argument)} is computed anew for each call")
            axes.append("None")
            given.append(text.segment(text.span(argument)))
            continue
        known = isinstance(source, ast.Name) and hasattr(caller.value(source.id), "shape")
        said = text.segment(text.span(source))
        said = said if known else f"{caller.name_of('numpy')}.asarray({said})"
        batched.add(name)
        axes.append("0")
        given.append(f"{said}[{_rounds(loop.iterated)}]" if numbers and not _all_of(loop.iterated, source) else said)
        arrays = arrays and known
    if not batched:
        raise NotTried("no argument of the call is an element of what the loop goes through")
    which = f", in_axes=({', '.join(axes)})" if len(axes) > 1 else ""
    function = text.segment(text.span(call.func))
    made = loop.into(f"{own_name(program)}.vmap({function}{which})({', '.join(given)})")
    return batched, _Said(Edit(text.span(loop.whole), made), arrays)


def _source(argument: ast.expr, loop: _Loop, numbers: bool) -> ast.expr | None:
    """xs, where the argument is `x` of `for x in xs`, or `xs[i]` of `for i in range(n)`."""
    if not numbers:
        return loop.iterated if isinstance(argument, ast.Name) and argument.id == loop.target else None
    of_it = isinstance(argument, ast.Subscript) and isinstance(argument.slice, ast.Name)
    return argument.value if of_it and argument.slice.id == loop.target else None  # type: ignore[attr-defined]


def _rounds(iterated: ast.expr) -> str:
    """`:n` of `range(n)`. Raises NotTried for a range that begins elsewhere."""
    assert isinstance(iterated, ast.Call)
    if len(iterated.args) != 1 or iterated.keywords:
        raise NotTried(f"{ast.unparse(iterated)} does not begin at the first element")
    (count,) = iterated.args
    return f":{ast.unparse(count)}" if isinstance(count, (ast.Name, ast.Constant)) else f": {ast.unparse(count)}"


def _all_of(iterated: ast.expr, source: ast.expr) -> bool:
    """Whether it is `range(len(xs))`."""
    _rounds(iterated)
    (count,) = iterated.args  # type: ignore[attr-defined]
    named = isinstance(count, ast.Call) and getattr(count.func, "id", "") == "len" and len(count.args) == 1
    return named and ast.dump(count.args[0]) == ast.dump(source)


def _loop(caller: Caller) -> _Loop:
    """The loop whose one round is the call. Raises NotTried."""
    first, second, third, *_ = (*caller.around, None, None, None)
    found = None
    if isinstance(first, ast.ListComp):
        found = _list(first, caller)
    elif isinstance(first, ast.Assign):
        found = _stores(first, second, caller)
    elif isinstance(first, ast.Call) and isinstance(second, ast.Expr):
        found = _appends(first, second, third, caller)
    if found is None:
        raise NotTried("the calls are not all that a loop does: [f(x) for x in xs] is what ts.vmap replaces")
    return found


def _list(made: ast.ListComp, caller: Caller) -> _Loop | None:
    (g, *others) = made.generators
    if made.elt is not caller.call or others or g.ifs or not isinstance(g.target, ast.Name):
        return None
    return _Loop(made, g.target.id, g.iter, lambda batch: f"list({batch})")


def _stores(statement: ast.Assign, loop: ast.AST | None, caller: Caller) -> _Loop | None:
    (stored, *others), target = statement.targets, _target(loop, statement)
    if target is None or others or statement.value is not caller.call or not isinstance(stored, ast.Subscript):
        return None
    assert isinstance(loop, ast.For)
    if getattr(stored.slice, "id", "") != target or not isinstance(loop.iter, ast.Call):
        return None
    to = f"{caller.source.segment(caller.source.span(stored.value))}[{_rounds(loop.iter)}]"
    return _Loop(loop, target, loop.iter, lambda batch: f"{to} = {batch}")


def _appends(appended: ast.Call, statement: ast.Expr, loop: ast.AST | None, caller: Caller) -> _Loop | None:
    function, target = appended.func, _target(loop, statement)
    if target is None or not isinstance(function, ast.Attribute) or function.attr != "append":
        return None
    assert isinstance(loop, ast.For)
    to = caller.source.segment(caller.source.span(function.value))
    return _Loop(loop, target, loop.iter, lambda batch: f"{to}.extend({batch})")


def _target(loop: ast.AST | None, statement: ast.stmt) -> str | None:
    """The name that the loop counts with, where the statement is all that it does."""
    one = isinstance(loop, ast.For) and loop.body == [statement] and not loop.orelse
    return loop.target.id if one and isinstance(loop.target, ast.Name) else None  # type: ignore[union-attr]
