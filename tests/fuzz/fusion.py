"""Random programs over all operators, compiled as one function against the same statements run one by one: bit for bit.

    python -m tests.fuzz fusion --count 10000 --seed 1

What a program means depends neither on what is fused nor on threads, so operators that run alone are an oracle that
needs no second implementation, for special values too: NaN, infinities, zeros of both signs, subnormal and extreme
numbers. That a lone operator is right is what the reference says of each statement, within rounding. Narrower vectors
(`--targets cpu,avx2,baseline`) give the same bits.
"""

from __future__ import annotations

import contextlib
import random
import string
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera import knobs
from tests.fuzz import levels, programs, seeded, values
from tests.fuzz.functions import Fault, flat, function, minimal, script, threads, words
from tests.fuzz.programs import SIZES, Program, array, viewed
from tests.fuzz.templates import PRODUCTS, SUMS, TEMPLATES
from tests.fuzz.values import INTEGERS, Kind, Unfit, largest

REFUSED = (ts.TesseraError, IndexError, OverflowError, TypeError, ValueError)
MOST = 20_000
"""the elements of the largest result"""
SPECIAL = (
    "[0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, 7.25, 0.3, -1.7, 1e-8, 1e-40, 5e-324, 65504.0, 3e38, np.inf, -np.inf, "
    "np.nan]"
)
ULPS = 64
"""by how much the reference and a target, both of which round, may differ: units in the last place of the largest"""
SUMMING = tuple({f"{template.split('(')[0]}(" for template in (*SUMS, *PRODUCTS) if template.startswith("ts.")})
"""how expressions begin whose rounding is that of their operands, since terms cancel"""
SMALL = {
    "fp8_e4m3": ("float8_e4m3fn", 4), "fp8_e5m2": ("float8_e5m2", 3), "fp6_e2m3": ("float6_e2m3fn", 4),
    "fp6_e3m2": ("float6_e3m2fn", 3), "fp4_e2m1": ("float4_e2m1fn", 2),
}  # fmt: skip
KINDS = values.KINDS | {n: Kind(n, getattr(ml_dtypes, h), np.float64, 2.0**-b) for n, (h, b) in SMALL.items()}
FLOATS = (*values.FLOATS, *SMALL)
HELD = {**programs.HELD, **{name: f"ml_dtypes.{held}" for name, (held, _) in SMALL.items()}}
HELD_AS = {np.dtype(kind.held): kind for kind in KINDS.values()}
Shape = tuple[int, ...]

OPERANDS: dict[str, Callable[[Any], bool]] = {
    "a": lambda t: True, "z": lambda t: True, "f": lambda t: kind_of(t).letter == "f",
    "i": lambda t: kind_of(t).letter in "iu", "k": lambda t: kind_of(t).letter in "iu" and t.ndim > 0,
    "v": lambda t: kind_of(t).letter in "iu" and t.ndim == 1,
    "m": lambda t: kind_of(t).letter == "b", "q": lambda t: kind_of(t).letter == "b",
}  # fmt: skip
LIKE = {"b": "a", "s": "a", "g": "f", "j": "i"}
DETAILS: dict[str, Callable[[random.Random, Shape], object]] = {
    "n": lambda r, s: r.choice([0, 1, 2, 3, -1, -2, 5]),
    "bounds": lambda r, s: r.choice(["-1, 2", "0, 3", "-2, 1", "0, 0"]),
    "axis": lambda r, s: r.randrange(-len(s), len(s)) if s else 0,
    "axes": lambda r, s: tuple(r.sample(range(len(s)), 2)) if len(s) > 1 else None,
    "order": lambda r, s: tuple(r.sample(range(len(s)), len(s))),
    "widths": lambda r, s: tuple((r.randint(0, 2), r.randint(0, 2)) for _ in s),
    "shape": lambda r, s: r.choice([(d := r.choice([1, 2, 3, 4, 5, 7, 8]), -1), (-1, d), (1, -1)]),
    "dtype": lambda r, s: r.choice(list(KINDS)),
    "integer": lambda r, s: r.choice(INTEGERS),
    "float": lambda r, s: r.choice(FLOATS),
}
"""what else a template may ask for, given the shape of its first operand"""


def kind_of(tensor: Any) -> Kind:
    return HELD_AS[np.asarray(tensor).dtype]


# Programs


@dataclass
class Grower:
    """Grows a program statement by statement, each of which runs alone. `scope` holds what its names are."""

    r: random.Random
    program: Program
    scope: dict[str, Any]

    def statement(self) -> None:
        """Raises Unfit where the template drawn has no operands here, or is refused for those it has.

        Raises AssertionError, with the program as a file that runs, where it fails.
        """
        template = self.r.choices(list(TEMPLATES), list(TEMPLATES.values()))[0]
        name = f"v{len(self.program.blocks)}"
        line = f"    {name} = {self.filled(template)}\n"
        grown = replace(self.program, blocks=(*self.program.blocks, line), returns=(*self.program.returns, name))
        try:
            (found,) = alone([line], self.scope).values()
        except Exception as e:
            if isinstance(e, REFUSED) and not isinstance(e, AttributeError) and "TS900" not in str(e):
                raise Unfit("refused") from e
            fault = Fault("internal", knobs.target() or "cpu", f"{line.strip()}: {reason(e)}")
            raise AssertionError(script(grown, fault)) from e
        if found.size > MOST:
            raise Unfit("large")
        self.program, self.scope[name] = grown, found

    def filled(self, template: str) -> str:
        given: dict[str, Any] = {}
        shape: Shape = ()
        for _, name, _, _ in string.Formatter().parse(template):
            if name is None or name in given:
                continue
            if name in DETAILS:
                given[name] = DETAILS[name](self.r, shape)
                continue
            given[name] = self.operand(name, given)
            shape = shape if len(given) > 1 else self.scope[given[name]].shape
        return template.format(**given)

    def operand(self, name: str, given: dict[str, Any]) -> str:
        """A tensor that fits, rather a late one."""
        fits = OPERANDS.get(name)
        if fits is None:
            first = self.scope[given[LIKE[name]]]
            fits = lambda t: t.dtype == first.dtype and (name != "s" or t.shape == first.shape)  # noqa: E731
        found = [n for n, t in self.scope.items() if fits(t)]
        if not found:
            raise Unfit("no such value")
        return found[max(self.r.randrange(len(found)), self.r.randrange(len(found)))]


def alone(lines: Sequence[str], scope: dict[str, Any]) -> dict[str, Any]:
    """The tensors that statements give to names, each computed before the next one runs."""
    given = {"ts": ts, "__builtins__": {}, **scope}
    names = dict(given)
    for line in lines:
        exec(line.strip(), names)
    found = {n: v for n, v in names.items() if n not in given}
    if not all(isinstance(v, ts.Tensor) for v in found.values()):
        raise TypeError("no tensor")
    return found


def tensors(p: Program) -> dict[str, Any]:
    return {name: ts.tensor(value) for (name, _, _), value in zip(p.arguments, p.values(), strict=True)}


def program(seed: int) -> Program:
    """The program of that seed. Raises AssertionError where a statement does not even run alone."""
    r = random.Random(seed)
    sizes = [r.choice(SIZES[: r.choice([5, 9, len(SIZES)])]) for _ in range(2)]
    kinds = [*r.sample(list(KINDS), 2), r.choice(FLOATS)]
    special = r.random() < 0.5
    arguments: list[tuple[str, str, str]] = []
    for name in ("x", "y", "z", "w")[: r.randint(2, 4)]:
        shape = tuple(r.choice(sizes) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3])))
        if r.random() < 0.03 and shape:
            shape = (0, *shape[1:])
        arguments.append((name, numbers(r, shape, r.choice(kinds), special), ""))
    arguments.append(("i", array(r, (r.choice(sizes),), r.choice(INTEGERS)), ""))
    arguments.append(("m", array(r, tuple(sizes[: r.randint(1, 2)]), "bool_"), ""))
    start = Program(seed, tuple(arguments), (), ())
    grower = Grower(r, start, tensors(start))
    length = r.randint(3, 10)
    for _ in range(length * 10):
        if len(grower.program.blocks) < length:
            with contextlib.suppress(Unfit):
                grower.statement()
    p = grower.program
    kept = r.sample(p.returns, len(p.returns) // r.choice([1, 3]))
    return replace(p, returns=tuple(n for n in p.returns if n in kept or n == p.returns[-1]))


def numbers(r: random.Random, shape: Shape, kind: str, special: bool) -> str:
    """The text of an array whose sums are rounded; special values are some of its numbers, if asked for."""
    letter, held = KINDS[kind].letter, HELD[kind]

    def made(shape: Shape) -> str:
        g = f"np.random.default_rng({r.randrange(1000)})"
        if letter in "fc" and special:
            real, imag = (f"np.random.default_rng({r.randrange(1000)}).choice({SPECIAL}, {shape})" for _ in range(2))
            return f"{real}.astype({held})" if letter == "f" else f"({real} + {imag} * 1j).astype({held})"
        if letter in "iu":
            low, high = np.iinfo(KINDS[kind].held).min, np.iinfo(KINDS[kind].held).max
            return f"{g}.choice(np.array([{low}, {low + 1}, 2, 3, 5, 9, {high - 1}, {high}], {held}), {shape})"
        return f"({g}.standard_normal({shape}) * {'(2 - 1.5j)' if letter == 'c' else 2}).astype({held})"

    text = array(r, shape, kind) if letter == "b" or (letter in "iu" and not special) else viewed(r, shape, made)
    return text if shape else f"np.asarray({text})"  # NumPy's numbers are weak, as Python's are


# Comparison


def difference(found: np.ndarray, wanted: np.ndarray, agree: Callable[[Any, Any, Kind], Any]) -> str:
    """What tells two results apart; empty where they agree."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}"
    kind = kind_of(wanted)
    right = np.atleast_1d(agree(found.astype(kind.wide), wanted.astype(kind.wide), kind))
    if np.all(right):
        return ""
    place = tuple(int(i[0]) for i in np.nonzero(~right)) if found.shape else ()
    return f"{found[place]!r} at {place}, not {wanted[place]!r}"


def equal(a: Any, b: Any, kind: Kind) -> Any:
    """To the bit: zeros have signs, and NaN is NaN, whose bits say nothing."""
    if kind.letter == "c":
        return equal(a.real, b.real, KINDS["f64"]) & equal(a.imag, b.imag, KINDS["f64"])
    if kind.letter == "f":
        return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return a == b


def close(scale: float) -> Callable[[Any, Any, Kind], Any]:
    """Within the rounding of numbers as large as the largest result, or `scale`."""

    def agree(a: Any, b: Any, kind: Kind) -> Any:
        if kind.letter not in "fc":
            return a == b
        near = np.abs(a - b) <= 2 * ULPS * kind.eps * max(largest(b), scale)
        lost = ~np.isfinite(a) & ~np.isfinite(b) if kind.letter == "c" else np.isnan(a) & np.isnan(b)
        return (a == b) | near | lost  # which parts of a complex number overflow depends on the order of factors

    return agree


def faults(p: Program, targets: Sequence[str]) -> Iterator[Fault]:
    """The program fused against its statements alone on each target, and these against the reference if it is one."""
    results: dict[str, Any] = {}
    for target in targets:
        with knobs.target.override(target):
            if target == "reference":
                yield from misread(p, results)
                continue
            found = {**tensors(p), **alone(p.blocks, tensors(p))}
            if target in levels.NARROWER:
                yield from narrower(found, results, target)
            results = results or found
            if not {*p.returns} <= {*results}:  # what a smaller program returns it also computes
                raise Unfit("no such result")
            try:
                yield from fused(p, results, target)
            except Exception as e:  # what runs alone also runs together
                yield Fault("internal", target, reason(e))


def reason(e: Exception) -> str:
    """An error's code or type, and what it says."""
    diagnostics = getattr(e, "diagnostics", None)
    return f"{diagnostics[0].code if diagnostics else type(e).__name__}: {e}"


def fused(p: Program, results: dict[str, Any], target: str) -> Iterator[Fault]:
    f = function(p)
    for count in (1, 2):
        with threads(count):
            found = flat(f(*p.values()))
        for name, value in zip(p.returns, found, strict=True):
            if said := difference(value, np.asarray(results[name]), equal):
                yield Fault("fused", target, f"{name} is {said}, with {count} threads")


def narrower(found: dict[str, Any], results: dict[str, Any], target: str) -> Iterator[Fault]:
    for name, value in results.items():
        if said := difference(np.asarray(found[name]), np.asarray(value), equal):
            yield Fault("narrower", target, f"{name} is {said}")


def misread(p: Program, results: dict[str, Any]) -> Iterator[Fault]:
    """Statements that the reference, given the same operands, computes otherwise."""
    for line in p.blocks:
        name, expression = line.strip().split(" = ", 1)
        operands = {n: results[n] for n in words(expression) if n in results}
        try:
            (value,) = alone([line], operands).values()
        except Exception as e:
            yield Fault("internal", "reference", f"{name}: {reason(e)}")
            continue
        sums = expression.startswith(SUMMING) or "@" in expression
        scale = max(largest(np.asarray(t)) for t in operands.values()) if sums else 0
        if said := difference(np.asarray(results[name]), np.asarray(value), close(scale)):
            yield Fault("wrong", "reference", f"{name} on the target is {said}")


# Runs


def again(fault: Fault, p: Program, targets: tuple[str, ...]) -> list[Fault]:
    """The faults of a program that are of one kind with another's, and of the same result."""
    of = (fault.kind, fault.target, fault.said.split()[0])
    return [f for f in faults(p, targets) if (f.kind, f.target, f.said.split()[0]) == of]


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """Raises AssertionError, with a smaller program as a file that runs, where something differs."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.RecompilationWarning)  # operators that run alone meet many sizes
        with knobs.target.override(targets[0]):
            p = program(seed)
        fault = next(faults(p, targets), None)
        if fault is not None:
            least = minimal(p, lambda q: bool(again(fault, q, targets)))
            raise AssertionError(script(least, (again(fault, least, targets) or [fault])[0]))
    return []


def main(arguments: list[str]) -> int:
    return seeded.command("fusion", __doc__, check, arguments)
