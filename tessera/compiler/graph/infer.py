"""The tools of a shape rule: axes, broadcasting, promotion, and rejections with counterexamples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from operator import index
from typing import Any, NoReturn, SupportsIndex, TypeVar, cast

from tessera.compiler.ir.core import Attr
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic, Fix, Note
from tessera.immutable import immutable, mutable
from tessera.language import dims, dtypes
from tessera.language.dims import Dim, Expr, Facts
from tessera.language.dtypes import DType
from tessera.language.policies import Policy, PolicyError
from tessera.language.scalars import ACCEPTED, Accepts, elements


@immutable
class Suggestion:
    """Append `suffix` to the text of operand number `operand`, e.g. ".T". Re-checked with the shapes at hand."""

    message: str
    operand: int
    suffix: str


class InferError(Exception):
    """An operator rejects its operands. Carries a diagnostic without a place, which the caller adds.

    `suggestions` become fixes where the text of the operands is known.
    """

    def __init__(
        self, diagnostic: Diagnostic, operand: int | None = None, suggestions: Sequence[Suggestion] = ()
    ) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic, self.operand, self.suggestions = diagnostic, operand, tuple(suggestions)


class Unsettled(InferError):
    """A size that the operator must know is still a symbol: it can be judged where the size is known."""


_T = TypeVar("_T")

LARGEST = 2**62
"""bound of integers that are known at compile time: sums of two of them still fit 64 bits"""


@mutable
class Infer:
    """The tools of a shape rule. `facts` are the asserts in force; `checks` collects launch-time checks."""

    operator: str
    """its name, for messages"""
    facts: Facts = field(default_factory=Facts)
    checks: list[LaunchCheck] = field(default_factory=list[LaunchCheck])
    attrs: dict[str, Attr] = field(default_factory=dict[str, Attr])
    """attributes in canonical form (axes non-negative and sorted), which replace the ones given"""
    casts: dict[int, DType] = field(default_factory=dict[int, DType])
    """operands (numbered with variadic ones spread out) that are converted before the operator sees them"""

    def fail(
        self,
        code: str,
        message: str,
        *notes: str,
        operand: int | None = None,
        fixes: tuple[Fix, ...] = (),
        label: str = "",
        suggestions: Sequence[Suggestion] = (),
    ) -> NoReturn:
        """Rejects. `operand` is the index of the operand to underline; without it the whole call is."""
        hints = (*notes, *(f"did you mean {s.message}?" for s in suggestions))
        said = Diagnostic(code, message, notes=tuple(Note(n) for n in hints), fixes=fixes, label=label)
        raise InferError(said, operand, suggestions)

    def canonical(self, **attrs: Attr) -> None:
        self.attrs.update(attrs)

    # attributes
    def integer(self, value: object, name: str, code: str = "TS213", most: int = LARGEST) -> int:
        """An integer known at compile time (any kind of int, but not a bool), from -most to most."""
        found = value
        if type(found) is not int:  # nearly always it is; asking a protocol takes microseconds
            try:
                found = None if isinstance(value, bool) else index(cast("SupportsIndex", value))
            except (TypeError, ValueError):  # an array of several elements has the protocol and refuses
                found = None
        if found is None:
            self.demand_known(value, code, f"{name} must be an integer known at compile time, not {shown(value)}")
        if not -most <= found <= most:
            power = most.bit_length() - 1
            self.fail(code, f"{name} lies between -2**{power} and 2**{power}, unlike {shown(value)}")
        return found

    def demand_known(self, value: object, code: str, message: str, operand: int | None = None) -> NoReturn:
        """Rejects what is no number that fits, or none yet."""
        if isinstance(value, Expr):
            raise Unsettled(Diagnostic(code, message))
        self.fail(code, message, operand=operand)

    def flag(self, value: object, name: str) -> bool:
        """A yes or no known at compile time."""
        if isinstance(value, (bool, int)):
            return bool(value)
        self.fail("TS213", f"{name} is True or False, not {shown(value)}")

    def number(self, value: object, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        """A real number known at compile time, between `least` and `most`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.demand_known(value, "TS213", f"{name} must be a number known at compile time, not {shown(value)}")
        if not least <= value <= most:
            self.fail("TS213", f"{name} lies between {least} and {most}, unlike {shown(value)}")
        if dtypes.number(value, dtypes.f64) is None:
            self.fail("TS213", f"{name} is an integer of more digits than any float has")
        return float(value)

    def fits(self, value: object, dtype: DType) -> None:
        """Refuses a complex number among reals, and an integer that the dtype cannot hold."""
        if isinstance(value, complex) and not dtype.is_complex:
            self.fail("TS301", f"{value} does not fit {dtype}")
        if isinstance(value, int) and dtypes.number(value, dtype) is None:
            self.fail("TS301", f"{shown(value)} does not fit {dtype}")

    def dim(self, value: object, name: str = "size") -> Dim:
        """A size: an integer or a symbolic dim."""
        return value if isinstance(value, Expr) else self.integer(value, name)

    def shape(self, value: object, name: str = "shape") -> Shape:
        """A shape given as one size or a sequence of sizes."""
        return tuple(self.dim(d, name) for d in items(value))

    def dtype(self, value: object) -> DType:
        """A dtype given in any spelling."""
        found = dtypes.of(value)
        if found is None:
            hint = "; a shape of several axes is a tuple: ts.ones((2, 3))" if isinstance(value, int) else ""
            self.fail("TS301", f"{shown(value)} is not a dtype{hint}")
        return found

    # dims
    def same(
        self,
        a: Dim,
        b: Dim,
        code: str,
        message: str | Callable[[], str],
        operand: int | None = None,
        suggestions: Sequence[Suggestion] | Callable[[], Sequence[Suggestion]] = (),
    ) -> None:
        """Demands a == b: rejects with a counterexample, or notes a launch-time check where it is unknown.

        What is costly to say may be given as a function, which is only called where it must be said.
        """
        answer = dims.compare(a, b, self.facts)
        if answer == "yes":
            return
        said = _value(message)
        if answer == "unknown":
            self.checks.append(LaunchCheck(a, b, f"{self.operator}: {said}"))
        else:
            self.fail(code, said, *counterexample(a, b, self.facts), operand=operand, suggestions=_value(suggestions))

    def axis(self, x: TensorType, axis: object, name: str = "axis", extra: int = 0) -> int:
        """`axis` counted from 0. `extra` = 1 for operators that insert an axis."""
        rank = x.rank + extra
        given = self.integer(axis, name, "TS204")
        if not -rank <= given < rank:
            count = f"{x.rank} ax{'i' if x.rank == 1 else 'e'}s"
            self.fail("TS204", f"{name}={given} is out of range for {shape_text(x.shape)}, which has {count}")
        return given % rank

    def axes(self, x: TensorType, axis: object, name: str = "axis", extra: int = 0) -> tuple[int, ...]:
        """`axis` as a sorted tuple; None means all axes."""
        if axis is None:
            return tuple(range(x.rank))
        found = [self.axis(x, a, name, extra) for a in items(axis)]
        if len(set(found)) != len(found):
            self.fail("TS204", f"{name}={axis} names an axis twice")
        return tuple(sorted(found))

    def broadcast(self, *shapes: Shape, code: str = "TS202", batch_of: str = "", whole: bool = False) -> Shape:
        """NumPy's rule: aligned at the right; a size of 1 stretches.

        `batch_of`: what the operands are called, where the shapes are all but their last two axes. `whole`: shape i is
        the whole shape of operand i.
        """
        if all(s is shapes[0] or s == shapes[0] for s in shapes):
            return shapes[0]
        rank = max(map(len, shapes))
        out: list[Dim] = []
        for i in range(rank):
            size: Dim = 1
            for s in shapes:
                d = s[i - rank + len(s)] if i >= rank - len(s) else 1
                if d is size or d == 1 or d == size:
                    continue
                if size == 1:
                    size = d
                    continue
                answer = dims.compare(size, d, self.facts)
                if answer == "no" and (one := next((v for v in (size, d) if self._at_most_one(v)), None)) is not None:
                    self.checks.append(LaunchCheck(one, 1, f"{self.operator}: broadcasting"))
                    size = d if one is size else size
                    continue
                if answer == "no":
                    both = f"{batch_of}: batches" if batch_of else " and ".join(shape_text(s) for s in shapes if s)
                    message = f"{both} do not broadcast: {size} meets {d} at axis {i - rank - 2 * bool(batch_of)}"
                    suggestions = lined_up(shapes, self.facts) if whole else ()
                    self.fail(code, message, *counterexample(size, d, self.facts), suggestions=suggestions)
                if answer == "unknown":
                    self.checks.append(LaunchCheck(size, d, f"{self.operator}: broadcasting"))
            out.append(size)
        return tuple(out)

    def _at_most_one(self, d: Dim) -> bool:
        """Whether a size is no more than 1, as min(3, S)//2 is: it stretches."""
        return not isinstance(d, int) and dims.bounds(self.facts.normal(d), self.facts)[1] == 1

    # dtypes
    def require(self, x: TensorType, accepts: Accepts, operand: int | None = None) -> None:
        """Demands a class of dtypes."""
        if not ACCEPTED[accepts](x.dtype):
            self.fail("TS301", f"{self.operator} takes {elements(accepts)}, not {x.dtype}", operand=operand)

    def promote(self, *types: TensorType, first: int = 0) -> DType:
        """The common dtype of the operands from number `first` on, to which they are then converted."""
        out = types[0].dtype
        for i, t in enumerate(types[1:], first + 1):
            if t.dtype is out:
                continue
            common = dtypes.promote(out, t.dtype)
            if common is None and out.is_float and t.dtype.is_float and self._computed_apart(types):
                common = dtypes.f32  # values that are stored in a narrow format are computed with in f32
            if common is None:
                message = f"{out} and {t.dtype} have no common dtype"
                converted = Suggestion(f"operand {i + 1} as {out}", i, f'.cast("{out}")')
                text = f"{message}; say which with cast(x, {out}) or cast(x, {t.dtype})"
                self.fail("TS302", text, suggestions=(converted,))
            out = common
        for i, t in enumerate(types, first):
            self.convert(i, t, out)
        return out

    def _computed_apart(self, types: Sequence[TensorType]) -> bool:
        """Whether the policy `compute` says in which dtype products are computed, whatever operands are kept in."""
        return any(t.policy is not None and t.policy.compute is not None for t in types)

    def convert(self, operand: int, x: TensorType, dtype: DType) -> TensorType:
        """Operand number `operand` is converted to `dtype` before the operator sees it; gives the type it then has."""
        if x.dtype is dtype and operand not in self.casts:
            return x
        if x.dtype != dtype or operand in self.casts:
            self.casts[operand] = dtype
        return x.with_dtype(dtype)

    def floating(self, operand: int, x: TensorType) -> TensorType:
        """Integers and bools are converted to f32, as every operator of mathematical analysis does."""
        return x if x.dtype.is_float or x.dtype.is_complex else self.convert(operand, x, dtypes.f32)

    def policy(self, operands: Sequence[TensorType]) -> Policy | None:
        """The merged numerics policy of the operands."""
        out: Policy | None = None
        for x in operands:
            if x.policy is None or x.policy.empty:
                continue
            try:
                out = x.policy if out is None else out.merge(x.policy)
            except PolicyError as e:
                self.fail("TS305", f"the operands of {self.operator} disagree: {e.reason}")
        return out


def lined_up(shapes: Sequence[Shape], facts: Facts) -> list[Suggestion]:
    """New axes in the operand of fewer axes, or its transpose, where the sizes then meet their equals."""
    given = [(i, s) for i, s in enumerate(shapes) if s]
    if len(given) != 2:
        return []
    (i, short), (_, long) = sorted(given, key=lambda g: len(g[1]))
    place = ("first", "second", "third")[i]
    if len(short) == len(long):
        (i, _), place = given[1], ("first", "second", "third")[given[1][0]]
        if len(short) == 1:
            column = [(1, "second"), (0, "first")]
            return [Suggestion(f"the {which} operand as a column, [:, None]", k, "[:, None]") for k, which in column]
        suffix = ".T" if len(short) == 2 else ".mT"
        swapped = len(short) > 1 and (*short[:-2], short[-1], short[-2]) == long
        return [Suggestion(f"the transpose of the {place} operand ({suffix})", i, suffix)] if swapped else []
    suffixes = dict.fromkeys(_new_axes(short, long, facts, step) for step in (1, -1))
    return [Suggestion(f"the {place} operand with a new axis, {suffix}", i, suffix) for suffix in suffixes if suffix]


def _new_axes(short: Shape, long: Shape, facts: Facts, step: int) -> str:
    """The subscript that aligns the axes of `short` with the first (step 1) or last (-1) equal axes of `long`."""
    rest, entries = list(short[::step]), list[str]()
    for d in long[::step]:
        equal = bool(rest) and dims.equal(rest[0], d, facts)
        entries.append(":" if equal else "None")
        rest = rest[1:] if equal else rest
    entries = entries[::step]
    entries = entries[entries.index(":") :] if ":" in entries else []
    if rest or "None" not in entries:
        return ""
    while entries[-1] == ":":
        entries.pop()
    first = entries.index("None")
    entries = ["...", *entries[first:]] if ":" not in entries[first:] and first == len(short) else entries
    return f"[{', '.join(entries)}]"


def _value(what: _T | Callable[[], _T]) -> _T:
    return cast("Callable[[], _T]", what)() if callable(what) else what


def shown(value: object) -> str:
    """A value in a message: as Python writes it where that is short, else what it is."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = ""
    return text if 0 < len(text) <= 60 and "\n" not in text else f"a value of type {type(value).__name__}"


def several(value: object) -> bool:
    """Whether it is a tuple or list."""
    return isinstance(value, (tuple, list))


def items(value: object) -> list[Any]:
    """The items of a tuple or list; anything else alone."""
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, (tuple, list)) else [value]


def counterexample(a: Dim, b: Dim, facts: Facts) -> tuple[str, ...]:
    """A note with sizes that the facts allow and for which the two dims differ; nothing where both are numbers."""
    example = dims.counterexample(a, b, facts)
    if not example:
        return ()
    sizes = ", ".join(f"{n}={v}" for n, v in example.items())
    differ = f"for example {sizes}: {dims.evaluate(a, example)} is not {dims.evaluate(b, example)}"
    condition = dims.divisibility(a, b)
    return (f"assert {condition} before, and they are equal; {differ}",) if condition else (differ,)


def at_least_zero(d: Dim) -> Dim:
    """max(d, 0), which is d itself where its form shows that it is no difference: symbols are sizes."""
    return d if _not_negative(d) else dims.dim_max(d, 0)


def _not_negative(d: object) -> bool:
    if not isinstance(d, Expr):
        return isinstance(d, int) and d >= 0
    atoms = [a for m, _ in d.terms for a in m]
    return all(c >= 0 for _, c in d.terms) and all(a.op == "sym" or all(map(_not_negative, a.args)) for a in atoms)
