"""The arguments of a call of `ts.grad(f)` and the like: the tensors to differentiate by, and their structure.

Each of these tensors is copied into a value of its own. So a derivative with respect to `x` leaves out other uses of
the same tensor, and nested derivatives stay separate.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from tessera.compiler.autodiff.rules import smooth
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.states import NUMBERS
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.function.trees import children
from tessera.compiler.frontend.names.values import Number, Record, has_unknown, is_dict, is_sequence, remade, type_name
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Value
from tessera.immutable import immutable, mutable
from tessera.language import dims
from tessera.language.dims import Expr

SIZES = (bool, int, Expr)
"""numbers that functions may need while they are compiled: they stay what they are where floats become tensors"""


class Refused(Exception):
    """A finding has been reported."""


@immutable(eq=False)
class Wanted:
    """One tensor to differentiate by. `place`: how it is called, "params['w']"; `buffer`: it is not trained."""

    place: str
    value: Value
    buffer: bool = False


@mutable
class Opened:
    """Arguments with a `Wanted` in place of each tensor to differentiate by, and these in a row."""

    ev: Evaluator
    emission: Emission
    node: ast.AST
    complex: bool = False
    """whether complex tensors may be differentiated by"""
    arguments: list[Any] = field(default_factory=list[Any])
    leaves: list[Wanted] = field(default_factory=list[Wanted])

    @property
    def values(self) -> list[Value]:
        return [leaf.value for leaf in self.leaves]

    def open(self, value: Any, place: str) -> Any:
        """The argument with values of their own. Raises Refused where nothing in it has a derivative (TS351, TS352)."""
        opened = self._opened(value, place)
        if not any(isinstance(v, Wanted) for v in parts(opened)) and not has_unknown(opened):
            message = f"{place} is {type_name(value)}: only floats have a gradient"
            raise self.refused("TS351", message + _instead_of_floats(value))
        self.arguments.append(opened)
        given = each(opened, lambda v: v.value if isinstance(v, Wanted) else v, outside=True)
        self.ev.keep_unchanged(given, copied=True)
        return given

    def _opened(self, value: Any, place: str, held: bool = False, buffer: bool = False) -> Any:
        """`held`: by a dataclass, whose numbers, functions and integers stay as they are."""
        if is_sequence(value):
            return remade(value, [self._opened(v, f"{place}[{i}]", held, buffer) for i, v in enumerate(value)])
        if is_dict(value):
            return {k: self._opened(v, f"{place}[{k!r}]", held, buffer) for k, v in value.items()}
        if isinstance(value, Record) and value.is_state:
            message = f"{place} is state, which effects change; differentiate by the tensors that it is made from"
            raise self.refused("TS351", message)
        if isinstance(value, Record):
            members = {k: self._opened(v, f"{place}.{k}", True, buffer or b) for k, v, b in children(value)}
            return Record(value.type_name, members, value.cls)
        if held and not (isinstance(value, Value) and smooth(value)):
            return value
        if isinstance(value, (float, Number)):
            value = self.ev.layer.lift(value, None, self.ev.span(self.node))
        if not isinstance(value, Value):
            if value is not None:
                raise self.refused("TS351", f"{place} is {type_name(value)}: only floats have a gradient")
            return value
        if not smooth(value):
            message = f"{place} is {type_name(value)}: only floats have a gradient"
            raise self.refused("TS351", f"{message}; pass it as an argument of its own that is not differentiated by")
        if tensor(value).dtype.is_complex and not self.complex:
            message = "derivatives by complex numbers are those of ts.grad, ts.jvp and ts.vjp"
            raise self.refused("TS352", f"{place} is {type_name(value)}; {message}")
        with self.ev.builder.at(self.ev.span(self.node)):
            leaf = Wanted(place, self.emission.g.cast(value, tensor(value).dtype), buffer)
        leaf.value.hint = value.hint
        self.leaves.append(leaf)
        return leaf

    def closed(self, found: list[Value], which: Any = None) -> Any:
        """The structure of the arguments, or of one of them, with these values in place of the tensors. None stands for
        integers in it; what is not a tensor stays."""
        of = {id(leaf): v for leaf, v in zip(self.leaves, found, strict=True)}
        whole = self.arguments if which is None else which
        return each(whole, lambda v: of.get(id(v)) if isinstance(v, (Wanted, Value)) else v)

    def refused(self, code: str, message: str) -> Refused:
        self.ev.error(code, message, self.node)
        return Refused()

    def fitting(self, like: Any, given: Any, what: str) -> list[tuple[Value, Value]]:
        """(tensor, tangent or cotangent) for each tensor of a structure that has one given. Raises Refused (TS357)."""
        if isinstance(like, Wanted):
            like = like.value
        if isinstance(like, Value):
            return [] if given is None or not smooth(like) else [(like, self._fitting(like, given, what))]
        if isinstance(like, Record) and isinstance(given, Record) and like.members.keys() == given.members.keys():
            like, given = like.members, given.members
        if is_sequence(like) and is_sequence(given) and len(like) == len(given):
            pairs = [(v, w, f"{what}[{i}]") for i, (v, w) in enumerate(zip(like, given, strict=True))]
        elif is_dict(like) and is_dict(given) and like.keys() == given.keys():
            pairs = [(v, given[k], f"{what}[{k!r}]") for k, v in like.items()]
        elif not any(isinstance(v, (Wanted, Value)) for v in parts(like)):
            return []
        else:
            raise self.refused("TS357", f"{what} has another structure than its value: {type_name(given)} is given")
        return [pair for v, w, said in pairs for pair in self.fitting(v, w, said)]

    def _fitting(self, like: Value, given: Any, what: str) -> Value:
        value = self.ev.layer.lift(given, like.type, self.ev.span(self.node))
        if value is None:
            value = self.ev.layer.adopt("", given, self.node)
        if not isinstance(value, Value):
            raise self.refused("TS357", f"{what} is a tensor {tensor(like).pretty()}, {type_name(given)} is given")
        have, want = tensor(value), tensor(like)
        fits = have.dtype == want.dtype and have.rank == want.rank
        if not fits or any(
            dims.compare(a, b, self.ev.facts) == "no" for a, b in zip(have.shape, want.shape, strict=True)
        ):
            raise self.refused("TS357", f"{what} must be {want.pretty()}, as its value; {have.pretty()} is given")
        return value


def each(value: Any, of: Callable[[Any], Any], outside: bool = False) -> Any:
    """The same structure with each part replaced. `outside`: its objects are those of a caller."""
    if is_sequence(value):
        return remade(value, [each(v, of, outside) for v in value])
    if is_dict(value):
        return {k: each(v, of, outside) for k, v in value.items()}
    if isinstance(value, Record):
        members = {k: each(v, of, outside) for k, v in value.members.items()}
        return Record(value.type_name, members, value.cls, outside)
    return of(value)


def parts(value: Any) -> Iterator[Any]:
    """What stands in a structure, in order."""
    if is_sequence(value):
        for v in value:
            yield from parts(v)
    elif is_dict(value):
        yield from parts(list(value.values()))
    elif isinstance(value, Record):
        yield from parts(value.members)
    else:
        yield value


def marked(value: Any, held: bool = False) -> Iterator[tuple[Any, bool]]:
    """What stands in a structure, in order, and whether a dataclass holds it."""
    if isinstance(value, Record):
        for v in value.members.values():
            yield from marked(v, True)
    elif is_sequence(value) or is_dict(value):
        for v in value.values() if is_dict(value) else value:
            yield from marked(v, held)
    else:
        yield value, held


def each_number(value: Any, of: Callable[[Any], Any]) -> Any:
    """The same structure with each number replaced. Those that a dataclass holds are configuration, and stay."""
    if is_sequence(value):
        return remade(value, [each_number(v, of) for v in value])
    if is_dict(value):
        return {k: each_number(v, of) for k, v in value.items()}
    return of(value) if isinstance(value, NUMBERS) else value


def _instead_of_floats(value: Any) -> str:
    """What an object holds that is no parameter."""
    if not isinstance(value, Record):
        return ""
    held = [
        f"{name} ({type_name(v) if isinstance(v, Value) else 'no array'})"
        for name, v, _ in children(value)
        if v is not None
    ]
    holds = f"holds only {', '.join(held[:3])}{' and more' if len(held) > 3 else ''}" if held else "holds nothing"
    return f", and it {holds}; a parameter is an array of floats, such as ts.zeros((4,))"
