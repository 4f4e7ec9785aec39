"""What a dialect says about its ops: a documented, executable specification that the verifier runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tessera.compiler.ir.core import Op


class InvalidIR(Exception):
    """An op breaks its dialect's rules. This is a fault of a pass, never of the user."""

    def __init__(self, op: Op, message: str) -> None:
        super().__init__(f"{op.name} at {op.span}: {message}")
        self.op, self.message = op, message


@dataclass(frozen=True, slots=True)
class OpSpec:
    """`verify` raises InvalidIR. `effects`: it must not be removed, repeated or reordered although unused."""

    name: str
    doc: str
    verify: Callable[[Op], None]
    terminator: bool = False
    effects: bool = False


SPECS: dict[str, OpSpec] = {}


def invalid(op: Op, message: str) -> NoReturn:
    raise InvalidIR(op, message)


def demand(condition: object, op: Op, message: str) -> None:
    if not condition:
        raise InvalidIR(op, message)


def spec(
    name: str, doc: str, *, terminator: bool = False, effects: bool = False
) -> Callable[[Callable[[Op], None]], Callable[[Op], None]]:
    """Registers the decorated function as the verifier of op `name`."""

    def add(verify: Callable[[Op], None]) -> Callable[[Op], None]:
        SPECS[name] = OpSpec(name, doc, verify, terminator, effects)
        return verify

    return add
