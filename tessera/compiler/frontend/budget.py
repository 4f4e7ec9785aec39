"""Limits of computations at compile time, and the points where they may be interrupted.

Shapes and constants are computed by ordinary Python: loops that run a million times, factorials, lists that double.
An editor meets them half typed. So steps are counted, and values are weighed before they are made; what is over ends
with TS111 at its line. The limits are the same in an editor and in the compiler, and none of them is a time: the same
program gives the same findings on every machine. What an editor has in addition is `interruptible`.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TypeGuard

from tessera.compiler.frontend.names.values import is_collection, is_dict, is_sequence, is_tuple

STEPS = 1_000_000
"""expressions and statements that one analysis of a function evaluates"""
CONSTANT_STEPS = 100_000
"""those of a constant of a module that is only read"""
ITERATIONS = 20_000
"""iterations of one loop at compile time"""
LOOP_OPS = 2_000
"""ops that a `while` at compile time emits: each costs as much as a hundred steps; such a loop is probably wrong"""
COPIES, COPIED_OPS = 8, 2_000
"""iterations of a loop at compile time, and the ops that they make together, which a warning is about: seconds"""
SHOWN = 16
"""calls of one function of which an editor is told what they compute"""
CALLS = 24
"""depth of inlined calls, and so of static recursion"""
ITEMS = 100_000
"""elements of a container with all that it holds, or characters of a text"""
BITS = 10_000
"""bits of an integer: 3,000 digits; Python writes up to 4,300"""
PAUSE = 256
"""steps between two moments at which an analysis may be interrupted"""

_here = threading.local()


class ExhaustedError(Exception):
    """The steps are used up, and the finding that says so is made: the analysis ends."""


@contextmanager
def interruptible(pause: Callable[[], None]) -> Generator[None]:
    """Analyses of this thread call `pause` every few hundred steps. It may wait, or raise what ends the analysis (no
    Exception, for these are findings)."""
    outer, _here.pause = getattr(_here, "pause", None), pause
    try:
        yield
    finally:
        _here.pause = outer


def pause() -> None:
    """A moment at which the analysis may be interrupted."""
    wait = getattr(_here, "pause", None)
    if wait is not None:
        wait()


def weight(value: Any) -> int:
    """How many elements a container has with all that it holds; of a text, its characters. No more than just above the
    limit is counted, so a container that holds itself is too large."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if not (is_collection(value) or is_dict(value)):
        return 1
    count, pending = 0, [value]
    while pending:
        held = pending.pop()
        count += len(held)
        if count > ITEMS:
            break
        inside = (*held, *held.values()) if is_dict(held) else held
        pending += [v for v in inside if is_collection(v) or is_dict(v)]
    return count


def too_large(value: Any) -> bool:
    """Whether a value is over the limit of its kind."""
    return value.bit_length() > BITS if isinstance(value, int) else weight(value) > ITEMS


def operation_explodes(symbol: str, left: Any, right: Any) -> bool:
    """Whether `left symbol right` would make a value over the limits, told before it is made."""
    if isinstance(left, int) and isinstance(right, int):
        if symbol == "**":
            return left.bit_length() * max(right, 0) > BITS and abs(left) > 1
        if symbol == "<<":
            return left != 0 and left.bit_length() + right > BITS
        return symbol == "*" and left.bit_length() + right.bit_length() > BITS
    if symbol == "*":
        pairs: tuple[tuple[Any, Any], ...] = ((left, right), (right, left))
        return any(_sized(a) and isinstance(n, int) and len(a) * n > ITEMS for a, n in pairs)
    if symbol == "%" and isinstance(left, (str, bytes)):
        return _pads(left, right if is_tuple(right) else (right,))
    return symbol == "+" and _sized(left) and _sized(right) and len(left) + len(right) > ITEMS


def _sized(value: Any) -> TypeGuard[Sized]:
    return is_sequence(value) or isinstance(value, (str, bytes))


_DIGITS = re.compile(r"\d{6,}")


def _pads(spec: str | bytes, args: Sequence[Any]) -> bool:
    """Whether a format asks for a field wider than the limit: in digits, or by a number that it is given."""
    text = spec.decode("latin-1") if isinstance(spec, bytes) else spec
    given = "*" in text or "{" in text.partition("{")[2].partition("}")[0]
    return _DIGITS.search(text) is not None or (given and any(isinstance(a, int) and abs(a) > ITEMS for a in args))


def format_explodes(spec: str) -> bool:
    """Whether `format(value, spec)` would be over the limits."""
    return _pads(spec, ())


def call_explodes(name: str, args: Sequence[Any]) -> bool:
    """Whether a function of Python with ordinary arguments would make too large a value, or take too long over it."""
    try:
        return _CALLS[name](*args) if name in _CALLS else False
    except (TypeError, ValueError, OverflowError, AttributeError):
        return False  # a mistake that the function itself reports


def _factorial(n: int) -> bool:
    return n > BITS or math.lgamma(n + 1) / math.log(2) > BITS


def _comb(n: int, k: int) -> bool:
    if not _perm(n, min(k, n - k)):
        return False
    return n > 1 << 64 or math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) > BITS * math.log(2)


def _perm(n: int, k: int | None = None) -> bool:
    return min(n if k is None else k, n) * n.bit_length() > BITS


def _bits(values: Any) -> bool:
    """Of a product or multiple: whether it may have too many."""
    total = 0
    for v in values:
        total += v.bit_length() if isinstance(v, int) else 0
        if total > BITS:
            return True
    return False


def _long(*args: Any) -> bool:
    """Over a range that is too long to walk through."""
    return any(isinstance(a, range) and len(a) > ITEMS for a in args)


def _prod(values: Any, **_: Any) -> bool:
    return _long(values) or _bits(values)


def _lcm(*values: Any) -> bool:
    return _bits(values)


def _round(x: Any, n: Any = 0) -> bool:
    return isinstance(x, int) and -n > BITS


def _pow(a: Any, b: Any, m: Any = None) -> bool:
    return m is None and operation_explodes("**", a, b)


_CALLS: Mapping[str, Callable[..., bool]] = {
    "factorial": _factorial, "comb": _comb, "perm": _perm, "prod": _prod, "lcm": _lcm, "round": _round, "pow": _pow,
    **dict.fromkeys(("sum", "max", "min", "sorted", "all", "any", "fsum"), _long),
}  # fmt: skip


def method_explodes(owner: Any, name: str, args: Sequence[Any]) -> bool:
    """Whether a method of a text, number or container would make a value over the limits."""
    try:
        if name in ("ljust", "rjust", "center", "zfill", "expandtabs", "to_bytes"):
            width = args[0] if args else 0
            return width * (owner.count("\t") if name == "expandtabs" else 1) > ITEMS
        if name in ("format", "format_map"):
            return _pads(owner, [*args, *(args[0].values() if name == "format_map" else ())])
        if name == "replace":
            return len(owner) + owner.count(args[0]) * len(args[1]) > ITEMS
        if name == "join":
            return sum(map(len, args[0])) + len(owner) * len(args[0]) > ITEMS
        if name == "translate":
            return len(owner) * max((len(v) for v in args[0].values() if isinstance(v, str)), default=1) > ITEMS
        if name in ("append", "insert", "add", "extend", "update"):
            return len(owner) + (len(args[0]) if name in ("extend", "update") else 1) > ITEMS
    except (TypeError, AttributeError, IndexError):
        pass  # a mistake that the method itself reports
    return False
