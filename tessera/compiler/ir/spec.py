"""What a dialect says about its ops: a documented, executable specification that the verifier runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn, TypeAlias

from tessera.compiler.ir.core import Op, Value
from tessera.immutable import immutable


class InvalidIR(Exception):
    """An op breaks its dialect's rules. This is a fault of a pass, never of the user."""

    def __init__(self, op: Op, message: str) -> None:
        super().__init__(f"{op.name} at {op.span}: {message}")
        self.op, self.message = op, message


Say: TypeAlias = Callable[[Value], str]
"""the name under which a reader sees a value"""


@immutable
class Reading:
    """How an op is shown to people (ir/readable.py). Without one it reads `results = name(operands, attributes)`.

    `defaults`: values of attributes that are not shown. `literal`: the attribute that stands for the result wherever
    that is used, such as a constant's value; the op has no line of its own. `operands`: the operands as their
    parameters take them, with lists and None. `head`: what is shown in place of `name(operands)`; attributes and the
    arguments of its blocks that `head` shows are in `covers` and `binds`. `between`: the word between two regions.
    `same`: the block's arguments are the operands, and have their names. `notes`: lines above the op, as comments.
    """

    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    literal: str = ""
    operands: Callable[[Op], Sequence[Any]] | None = None
    head: Callable[[Op, Say], str] | None = None
    covers: tuple[str, ...] = ()
    binds: bool = False
    between: str = ""
    same: bool = False
    notes: Callable[[Op], Sequence[str]] | None = None


CALL = Reading()


@immutable
class OpSpec:
    """`verify` raises InvalidIR. `effects`: it must not be removed, repeated or reordered although unused."""

    name: str
    doc: str
    verify: Callable[[Op], None]
    terminator: bool = False
    effects: bool = False
    reading: Reading = CALL


SPECS: dict[str, OpSpec] = {}


def invalid(op: Op, message: str) -> NoReturn:
    raise InvalidIR(op, message)


def demand(condition: object, op: Op, message: str) -> None:
    if not condition:
        raise InvalidIR(op, message)


def spec(
    name: str, doc: str, *, terminator: bool = False, effects: bool = False, reading: Reading = CALL
) -> Callable[[Callable[[Op], None]], Callable[[Op], None]]:
    """Registers the decorated function as the verifier of op `name`."""

    def add(verify: Callable[[Op], None]) -> Callable[[Op], None]:
        SPECS[name] = OpSpec(name, doc, verify, terminator, effects, reading)
        return verify

    return add


def _function(op: Op, say: Say) -> str:
    block = op.region.block
    given = ", ".join(f"{say(a)}: {a.type.pretty()}" for a in block.args)
    returned = [v.type.pretty() for v in block.terminator.operands] if block.ops else []
    arrow = f" -> {returned[0]}" if len(returned) == 1 else f" -> ({', '.join(returned)})" if returned else ""
    return f"func {op.attrs['sym_name']}({given}){arrow}"


def _while(op: Op, say: Say) -> str:
    carried = zip(op.regions[0].block.args, op.operands, strict=True)
    return "while " + ", ".join(f"{say(a)} = {say(v)}" for a, v in carried)


def _for(op: Op, say: Say) -> str:
    counter, *carried = op.regions[-1].block.args
    lower, upper, step, *initial = op.operands
    head = f"{op.name.partition('.')[2]} {say(counter)} in range({say(lower)}, {say(upper)}, {say(step)})"
    return head + "".join(f", {say(a)} = {say(v)}" for a, v in zip(carried, initial, strict=True))


FUNCTION = Reading({"num_warps": None}, head=_function, covers=("sym_name", "arg_names"), binds=True)
"""of an op with the attribute sym_name: `func name(arguments) -> results`"""
WHILE = Reading(head=_while, binds=True, between="do")
"""of an op whose regions both take its operands"""
FOR = Reading(head=_for, binds=True)
"""of an op whose operands are lower bound, upper bound, step and what it carries"""
BRANCH = Reading(between="else")
