"""Calls of transformed functions: the original function is evaluated in place, then its ops are differentiated.

Each argument to differentiate by is a value of its own, a copy of the one that is given: a derivative by `x` says
nothing of other uses of the same tensor, and derivatives inside of derivatives keep apart.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tessera.compiler.autodiff.control  # noqa: F401  # pyright: ignore[reportUnusedImport]: registers branches and loops
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.autodiff.rules import smooth
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.transforms import parameter_names
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Number,
    Record,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    is_tuple,
    remade,
    type_name,
)
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.errors import CompileError
from tessera.language.dims import Expr


def call(
    ev: Evaluator, emission: Emission, node: ast.AST, callee: TransformedRef, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The result of the transformed function; UNKNOWN after a finding."""
    if has_unknown(args) or has_unknown(kwargs):
        return UNKNOWN
    try:
        return TransformedCall(ev, emission, node, callee, args, kwargs).run()
    except _Refused:
        return UNKNOWN
    except CompileError as e:  # at the forward line
        for d in e.diagnostics:
            ev.error(d.code, d.message, d.span, notes=d.notes)
        return UNKNOWN


class _Refused(Exception):
    """A finding has been reported."""


@dataclass(slots=True)
class Wanted:
    """One tensor to differentiate by. `place`: how it is called, "params['w']"."""

    place: str
    value: Value


@dataclass(slots=True)
class TransformedCall:
    """One call of a transformed function."""

    ev: Evaluator
    emission: Emission
    node: ast.AST
    callee: TransformedRef
    args: list[Any]
    kwargs: dict[str, Any]
    leaves: list[Wanted] = field(default_factory=list[Wanted])
    opened: list[Any] = field(default_factory=list[Any])
    """the arguments to differentiate by, with a `Wanted` in place of each tensor"""

    def run(self) -> Any:
        match self.callee.transform.name:
            case "grad":
                _, aux, gradient = self.gradient()
                return (gradient, aux) if self.callee.transform.has_aux else gradient
            case _:
                value, aux, gradient = self.gradient()
                return ((value, aux), gradient) if self.callee.transform.has_aux else (value, gradient)

    # the forward part

    def open(self) -> None:
        """Puts values of their own in the place of the arguments to differentiate by."""
        names = parameter_names(self.callee.function)
        for wanted in self.callee.transform.wanted:
            at, name = self._found(wanted, names)
            given: Any = self.args if isinstance(at, int) else self.kwargs
            opened = self._opened(given[at], name)
            if not any(isinstance(v, Wanted) for v in _nested(opened)):
                raise self.refused("TS351", f"{name} is {type_name(given[at])}: only floats have a gradient")
            self.opened.append(opened)
            given[at] = _each(opened, lambda v: v.value if isinstance(v, Wanted) else v)

    def _found(self, wanted: int | str, names: list[str]) -> tuple[int | str, str]:
        """Where an argument to differentiate by is given: its position or keyword; and how it is called."""
        count = len(self.args)
        if isinstance(wanted, int):
            if -count <= wanted < count:
                return wanted, names[wanted] if -len(names) <= wanted < len(names) else f"argument {wanted}"
            if 0 <= wanted < len(names) and names[wanted] in self.kwargs:
                return names[wanted], names[wanted]
            said = f"argument {wanted}"
        else:
            if wanted in self.kwargs:
                return wanted, wanted
            if wanted in names[:count]:
                return names.index(wanted), wanted
            said = repr(wanted)
        raise self.refused("TS105", f"{self.callee.described} differentiates by {said}, which is not given")

    def _opened(self, value: Any, place: str) -> Any:
        if is_sequence(value):
            return remade(value, [self._opened(v, f"{place}[{i}]") for i, v in enumerate(value)])
        if is_dict(value):
            return {k: self._opened(v, f"{place}[{k!r}]") for k, v in value.items()}
        if isinstance(value, Record):
            members = {k: self._opened(v, f"{place}.{k}") for k, v in value.members.items()}
            return Record(value.type_name, members, value.cls)
        if isinstance(value, (float, Number)):
            value = self.ev.layer.lift(value, None, self.ev.span(self.node))
        if not isinstance(value, Value):
            if isinstance(value, (bool, int, Expr)):
                raise self.refused("TS351", f"{place} is {type_name(value)}: only floats have a gradient")
            return value
        if not smooth(value):
            said = f"{place} is {type_name(value)}: only floats have a gradient"
            raise self.refused("TS351", f"{said}; pass it as an argument of its own that is not differentiated by")
        if tensor(value).dtype.is_complex:
            raise self.refused(
                "TS352", f"{place} is {type_name(value)}; derivatives by complex numbers are not there yet"
            )
        with self.ev.builder.at(self.ev.span(self.node)):
            leaf = Wanted(place, self.emission.g.cast(value, tensor(value).dtype))
        leaf.value.hint = value.hint
        self.leaves.append(leaf)
        return leaf

    def forward(self) -> tuple[Any, list[Op]]:
        """The result of the original function, and the ops that it emitted."""
        self.open()
        block = self.ev.builder.block
        start = len(block.ops)
        result = self.ev.call(self.node, self.callee.function, self.args, self.kwargs)
        if has_unknown(result):
            raise _Refused
        return result, block.ops[start:]

    # the backward part

    def gradient(self) -> tuple[Any, Any, Any]:
        """The value, what is passed on beside it, and the gradient."""
        result, ops = self.forward()
        loss, aux = self._parted(result)
        if isinstance(loss, (float, Number)):
            loss = self.ev.layer.lift(loss, None, self.ev.span(self.node))
        loss = self._scalar(loss)
        with self._deriving():
            seed = self.emission.g.ones_like(loss)
            found = pull_back(self.emission.g, ops, [leaf.value for leaf in self.leaves], [(loss, seed)])
            return loss, aux, self.closed(found)

    def _parted(self, result: Any) -> tuple[Any, Any]:
        if not self.callee.transform.has_aux:
            return result, None
        if not is_tuple(result) or len(result) != 2:
            said = f"with has_aux the function gives (value, aux), not {_said(result)}"
            raise self.refused("TS352", said)
        return result

    def _scalar(self, loss: Any) -> Value:
        name = self.callee.transform.name
        if not isinstance(loss, Value):
            more = "; with has_aux=True it may give (value, aux)" if is_tuple(loss) and len(loss) == 2 else ""
            raise self.refused(
                "TS352", f"{name} differentiates one real number, and this function gives {_said(loss)}{more}"
            )
        dtype, rank = tensor(loss).dtype, tensor(loss).rank
        if dtype.is_complex:
            said = "which is complex; differentiate its real part, or its absolute value squared"
        elif not dtype.is_float:
            said = "which has no gradient; convert it with .to(ts.f32) where it is computed from floats"
        elif rank:
            said = "a number for each element; reduce it with .sum() or .mean()"
        else:
            return loss
        raise self.refused(
            "TS352", f"{name} differentiates one real number, and this function gives {type_name(loss)}, {said}"
        )

    def _deriving(self) -> _Deriving:
        return _Deriving(self.ev, self.ev.span(self.node))

    def closed(self, found: list[Value | None]) -> Any:
        """The gradients in the structure of the arguments."""
        of = {id(leaf): v for leaf, v in zip(self.leaves, found, strict=True)}
        for leaf in self.leaves:
            if of[id(leaf)] is None:
                self._unreached(leaf)
                of[id(leaf)] = self.emission.g.zeros_like(leaf.value)
        made = [_each(o, lambda v: of[id(v)] if isinstance(v, Wanted) else None) for o in self.opened]
        return tuple(made) if is_tuple(self.callee.transform.argnums) else made[0]

    def _unreached(self, leaf: Wanted) -> None:
        if self.ev.undecided:
            return
        said = f"the result does not depend on {leaf.place}: its gradient is 0"
        self.ev.error("TS354", said, self.node, severity="warning")

    def refused(self, code: str, message: str) -> _Refused:
        self.ev.error(code, message, self.node)
        return _Refused()


class _Deriving:
    """Notes what is emitted meanwhile as derived."""

    def __init__(self, ev: Evaluator, span: Any) -> None:
        self.ev, self.at = ev, ev.builder.at(span)

    def __enter__(self) -> None:
        self.at.__enter__()
        self.block = self.ev.builder.block
        self.start = len(self.block.ops)

    def __exit__(self, *exception: Any) -> None:
        self.ev.derived |= set(self.block.ops[self.start :])
        self.at.__exit__(*exception)


def _each(value: Any, of: Callable[[Any], Any]) -> Any:
    """The same structure with each leaf replaced."""
    if is_sequence(value):
        return remade(value, [_each(v, of) for v in value])
    if is_dict(value):
        return {k: _each(v, of) for k, v in value.items()}
    if isinstance(value, Record):
        return Record(value.type_name, {k: _each(v, of) for k, v in value.members.items()}, value.cls)
    return of(value)


def _nested(value: Any) -> Iterator[Any]:
    if is_sequence(value):
        for v in value:
            yield from _nested(v)
    elif is_dict(value):
        yield from _nested(list(value.values()))
    elif isinstance(value, Record):
        yield from _nested(value.members)
    else:
        yield value


def _said(value: Any) -> str:
    if isinstance(value, Unknown) or not is_sequence(value):
        return type_name(value)
    return f"{len(value)} results"
