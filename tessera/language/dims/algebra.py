"""The dimension algebra: symbolic sizes in normal form.

A dim is an `int` or an `Expr`, a polynomial with integer coefficients over atoms. An atom is a named symbol (`"B"`),
or an opaque quotient, remainder, minimum or maximum of dims. The normal form is a sorted sum of monomials, so that
structurally equal expressions are equal and hash alike, and an expression without atoms is always an `int`.

The design follows jax.export's symbolic dimensions (shape_poly): a decision procedure by normal form, explicit
"inconclusive", never a guess.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import TypeAlias

from tessera.immutable import immutable


class DimError(ValueError):
    """A dim expression is malformed, or evaluating it divides by zero."""


class DimLimitError(DimError):
    """A dim expression grows beyond what programs are written with, and the algebra would take for ever over it."""


_SHOWN = 80
"""characters of a text that messages repeat"""
_FEW = 8
"""terms that a sum may have without being looked at"""
LARGEST = 1_000
"""names in a dim expression, each counted as often as it occurs"""
BITS = 10_000
"""bits of a coefficient"""


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """`op` is "sym" (args = (name,)), "//", "%", "min" or "max" (args = two dims)."""

    op: str
    args: tuple[object, ...]
    _hash: int = field(init=False, compare=False, repr=False)
    weight: int = field(init=False, compare=False, repr=False)
    """names in it"""

    def __post_init__(self) -> None:  # nested dims are hashed at each step of the algebra
        object.__setattr__(self, "_hash", hash((self.op, self.args)))
        object.__setattr__(self, "weight", sum(a.weight if isinstance(a, Expr) else 1 for a in self.args))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Atom], tuple[object, ...]]:
        return Atom, (self.op, self.args)  # another process hashes names differently

    def __str__(self) -> str:
        if self.op == "sym":
            return str(self.args[0])
        a, b = self.args
        if self.op in ("min", "max"):
            return f"{self.op}({a}, {b})"
        return f"{_wrap(a)}{self.op}{_wrap(b)}"


def _wrap(d: object) -> str:
    text = str(d)
    return text if text.replace("_", "").isalnum() else f"({text})"


Monomial: TypeAlias = tuple[Atom, ...]  # sorted, repeated for powers; () is the constant


@lru_cache(maxsize=8192)
def _key(m: Monomial) -> tuple[int, str]:
    return (-len(m), "*".join(map(str, m)))


@immutable
class Expr:
    """A polynomial: `terms` is sorted by degree, then by name; coefficients are nonzero. Never a plain constant."""

    terms: tuple[tuple[Monomial, int], ...]
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.terms))

    @property
    def weight(self) -> int:
        """Names in it, each counted as often as it occurs."""
        return sum(a.weight for m, _ in self.terms for a in m)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Expr], tuple[object, ...]]:
        return Expr, (self.terms,)

    def __add__(self, other: Dim) -> Dim:
        return _sum(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _build({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__


Dim: TypeAlias = int | Expr


def text_of(d: Dim) -> str:
    """As people are shown it: a counter, whose symbol is `?i`, is called what its loop calls it."""
    return str(d).replace("?", "")


# Sizes of one program are few and met again and again, so the algebra remembers what it has worked out.
@lru_cache(maxsize=8192)
def _text(d: Expr) -> str:
    parts: list[str] = []
    terms = sorted(d.terms, key=lambda t: t[1] < 0) if d.terms[0][1] < 0 else d.terms  # S-N, not -N+S
    for m, c in terms:
        factors = [f"({a})" if a.op in ("//", "%") and (len(m) > 1 or c != 1) else str(a) for a in m]
        if abs(c) != 1 or not m:
            factors.insert(0, str(abs(c)))
        parts.append(("-" if c < 0 else "+" if parts else "") + "*".join(factors))
    return "".join(parts)


@lru_cache(maxsize=8192, typed=True)
def _sum(a: Expr, b: Dim) -> Dim:
    found = _build(_merge(terms_of(a), terms_of(b)))
    return _within(found) if isinstance(found, Expr) and len(found.terms) > _FEW else found


@lru_cache(maxsize=8192, typed=True)
def _product(a: Expr, b: Dim) -> Dim:
    if b == 1:
        return a
    if isinstance(b, Expr) and len(a.terms) * len(b.terms) > LARGEST * 10:
        raise DimLimitError(f"a product of sizes has {len(a.terms)} times {len(b.terms)} terms")
    out: dict[Monomial, int] = {}
    for m1, c1 in a.terms:
        for m2, c2 in terms_of(b).items():
            m = tuple(sorted(m1 + m2, key=str)) if m1 and m2 else m1 + m2
            out[m] = out.get(m, 0) + c1 * c2
    return _within(_build(out))


def _within(d: Dim) -> Dim:
    """`d`, which has been made larger. Raises DimLimitError where that is too large."""
    if isinstance(d, Expr):
        if d.weight > LARGEST:
            raise DimLimitError(f"a size is made of more than {LARGEST} names; give a part of it a name of its own")
        if any(c.bit_length() > BITS for _, c in d.terms):
            raise DimLimitError("a size has too large a factor to be computed with")
    return d


def terms_of(d: Dim) -> dict[Monomial, int]:
    """The coefficient of each monomial: a new dict."""
    if isinstance(d, Expr):
        return dict(d.terms)
    return {(): d} if d else {}


def _merge(a: dict[Monomial, int], b: dict[Monomial, int]) -> dict[Monomial, int]:
    for m, c in b.items():
        a[m] = a.get(m, 0) + c
    return a


def _build(terms: dict[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1:
        return kept[()] if () in kept else Expr(tuple(kept.items()))
    return Expr(tuple(sorted(kept.items(), key=lambda t: _key(t[0]))))


def atom(op: str, *args: object) -> Expr:
    """The dim that is one atom, as it stands: see the functions below for what is simplified."""
    made = Expr((((Atom(op, args),), 1),))
    return made if op == "sym" else _within(made)  # type: ignore[return-value]


@lru_cache(maxsize=4096)
def symbol(name: str) -> Expr:
    """The dim called `name`. Symbols stand for sizes: integers >= 0."""
    return atom("sym", name)


def divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is a constant or a single monomial that divides every term of a."""
    divisor = terms_of(b)
    if len(divisor) != 1:
        return None
    dm, dc = next(iter(divisor.items()))
    out: dict[Monomial, int] = {}
    for m, c in terms_of(a).items():
        rest = list(m)
        for factor in dm:
            if factor not in rest:
                return None
            rest.remove(factor)
        if c % dc:
            return None
        out[tuple(rest)] = c // dc
    return _build(out)


def _shared(factors: Iterable[Atom], m: Monomial) -> list[Atom]:
    """Those of the factors that `m` has too, as often as it has them."""
    rest, out = list(m), list[Atom]()
    for f in factors:
        if f in rest:
            rest.remove(f)
            out.append(f)
    return out


def _cancelled(a: Dim, b: Dim) -> tuple[Dim, Dim, Dim]:
    """a and b without the number and the symbols that all their terms share, and this factor."""
    terms = [*terms_of(a), *terms_of(b)]
    number = gcd(*terms_of(a).values(), *terms_of(b).values())
    common = [s for s in terms[-1] if s.op == "sym"]
    for m in terms:
        common = _shared(common, m)
    if number == 1 and not common:
        return a, b, 1
    shared = number * prod(_build({(s,): 1}) for s in common)
    x, y = divide_exactly(a, shared), divide_exactly(b, shared)
    assert x is not None and y is not None
    return x, y, shared


def floordiv(a: Dim, b: Dim) -> Dim:
    if b == 0:
        raise DimError(f"division of {a} by zero")
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if (exact := divide_exactly(a, b)) is not None:
        return exact
    a, b, _ = _cancelled(a, b)
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b > 0:  # pull the divisible part out: (4*S + 3)//4 = S
        inside = {m: c for m, c in terms_of(a).items() if m and c % b == 0}
        rest = {m: c for m, c in terms_of(a).items() if not (m and c % b == 0)}
        if inside:
            return _build({m: c // b for m, c in inside.items()}) + floordiv(_build(rest), b)
    return atom("//", a, b)


def mod(a: Dim, b: Dim) -> Dim:
    if b == 0:
        raise DimError(f"remainder of {a} by zero")
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if divide_exactly(a, b) is not None:
        return 0
    a, b, shared = _cancelled(a, b)
    if shared != 1:
        return shared * mod(a, b)
    if isinstance(b, int) and b > 0:
        reduced = _build({m: c % b for m, c in terms_of(a).items()})
        if isinstance(reduced, int):
            return reduced % b
        a = reduced
    return atom("%", a, b)


def dim_min(a: Dim, b: Dim) -> Dim:
    if isinstance(d := a - b, int):
        return a if d <= 0 else b
    return atom("min", *sorted((a, b), key=str))


def dim_max(a: Dim, b: Dim) -> Dim:
    if isinstance(d := a - b, int):
        return a if d >= 0 else b
    return atom("max", *sorted((a, b), key=str))


def ceildiv(a: Dim, b: Dim) -> Dim:
    return floordiv(a + b - 1, b)


def prod(dims: Iterable[Dim]) -> Dim:
    out: Dim = 1
    for d in dims:
        out = out * d
    return out


OPERATIONS: dict[str, Callable[[Dim, Dim], Dim]] = {"//": floordiv, "%": mod, "min": dim_min, "max": dim_max}
"""what an opaque atom stands for"""


def symbols(d: Dim) -> frozenset[str]:
    """The names that occur in `d`."""
    return frozenset[str]() if isinstance(d, int) else _symbols(d)


@lru_cache(maxsize=8192)
def _symbols(d: Expr) -> frozenset[str]:
    out: set[str] = set()
    for m, _ in d.terms:
        for a in m:
            if a.op == "sym":
                out.add(str(a.args[0]))
            else:
                for arg in a.args:
                    out |= symbols(arg)  # type: ignore[arg-type]
    return frozenset(out)


def substitute(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """`d` with symbols replaced; symbols that are not in `env` stay."""
    if isinstance(d, int) or not env:
        return d
    if env.keys().isdisjoint(_symbols(d)):
        return d
    out: Dim = 0
    for m, c in d.terms:
        term: Dim = c
        for a in m:
            if a.op == "sym":
                name = str(a.args[0])
                term = term * env.get(name, symbol(name))
            else:
                x, y = (substitute(v, env) for v in a.args)  # type: ignore[arg-type]
                term = term * OPERATIONS[a.op](x, y)
        out = out + term
    return out


def evaluate(d: Dim, env: Mapping[str, int]) -> int:
    """The size of `d` when its symbols have the sizes in `env`. Raises DimError when one is missing."""
    value = substitute(d, env)
    if isinstance(value, int):
        return value
    raise DimError(f"{d} needs the size of {', '.join(sorted(symbols(value)))}")


def is_symbol(d: Dim) -> bool:
    """Whether `d` is a plain named dim, not an expression."""
    return isinstance(d, Expr) and len(d.terms) == 1 and d.terms[0][1] == 1 and [a.op for a in d.terms[0][0]] == ["sym"]


def opaque(d: Dim) -> bool:
    """Whether it has quotients, remainders, minima or maxima."""
    return isinstance(d, Expr) and any(a.op != "sym" for m, _ in d.terms for a in m)


@lru_cache(maxsize=4096)
def parse(text: str) -> Dim:
    """Reads `"B"`, `"B*H"`, `"D//H"`, `"2*S+1"`, `"min(S, 128)"`. Raises DimError on anything else; runs no code."""
    try:
        return from_ast(ast.parse(text.strip(), mode="eval").body, text)
    except (MemoryError, RecursionError):  # the parser's own words for brackets and signs without end
        raise DimError(f"{shortened(text)!r} is nested too deeply") from None
    except DimError:
        raise
    except (SyntaxError, ValueError) as e:
        named = "; any number of axes is `...`" if text.lstrip().startswith("*") else ""
        raise DimError(f"{shortened(text)!r} is not a dim expression{named}") from e


def shortened(text: str) -> str:
    """A text as messages repeat it: of a long one the beginning."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def from_ast(node: ast.expr, text: str = "") -> Dim:
    match node:
        case ast.Constant(value=int() as v) if not isinstance(v, bool):
            return v
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -from_ast(x, text)
        case ast.BinOp(left=x, op=op, right=y):
            a, b = from_ast(x, text), from_ast(y, text)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() | ast.Div():  # the seeds write D/H for an exact quotient
                    return floordiv(a, b)
                case ast.Mod():
                    return mod(a, b)
                case _:
                    pass
        case ast.Call(func=ast.Name(id="min" | "max" as f), args=[x, y], keywords=[]):
            return OPERATIONS[f](from_ast(x, text), from_ast(y, text))
        case _:
            pass
    raise DimError(f"{shortened(text or ast.unparse(node))!r} is not a dim expression")
