"""Index arithmetic as ops: a Dim over sizes and coordinates becomes `tile.dim`, `tile.iadd`, ... where it is needed."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.compiler.frontend.kernel.values import MARK, marks
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.ir.types import INDEX
from tessera.language.dims import Atom, Dim, Expr, Monomial, substitute
from tessera.language.dims.algebra import OPERATIONS

_OPS = {"//": "idiv", "%": "imod", "min": "imin", "max": "imax"}


class UnboundIndexError(Exception):
    """An index is computed with before anything says what it is."""


class Indices:
    """Emits each index once per block that it is visible from. `values` binds coordinate symbols to IR values, `sizes`
    holds the sizes of dims that are known."""

    def __init__(self, builder: Builder, sizes: Mapping[str, int]) -> None:
        self.builder, self.sizes = builder, sizes
        self.values: dict[str, Value] = {}
        self.given: dict[Dim, Dim] = {}
        """sizes of whole expressions, such as B*H where neither B nor H is known"""
        self._known: dict[tuple[Block, Dim], Value] = {}

    def bind(self, symbol: Expr, value: Value) -> None:
        self.values[str(symbol)] = value

    def known(self, d: Dim) -> Dim:
        """`d` with the sizes that are known put in."""
        if isinstance(d, int):
            return d
        found = substitute(d, self.sizes)
        return self._with_given(found) if self.given else found

    def _with_given(self, d: Dim) -> Dim:
        """`d` with the sizes of whole expressions put in, also within products and quotients: ceil(B*H / 4)."""
        if isinstance(d, int) or d in self.given:
            return self.given.get(d, d)
        out: Dim = 0
        for monomial, coefficient in d.terms:
            term: Dim = coefficient
            rest = list(monomial)
            for whole, size in self.given.items():
                factors = _factors(whole)
                while factors and all(rest.count(a) >= factors.count(a) for a in factors):
                    term = term * size
                    for a in factors:
                        rest.remove(a)
            for a in rest:
                inner = [self._with_given(x) for x in a.args] if a.op != "sym" else []  # type: ignore[arg-type]
                term = term * (OPERATIONS[a.op](*inner) if inner else _product((a,)))
            out = out + term
        return out

    def emit(self, d: Dim) -> Value:
        """The index value of `d` at the builder's place."""
        d = self.known(d)
        if (found := self._visible(d)) is not None:
            return found
        value = self._build(d)
        self._known[self.builder.block, d] = value
        return value

    def _visible(self, d: Dim) -> Value | None:
        block: Block | None = self.builder.block
        while block is not None:
            if (value := self._known.get((block, d))) is not None:
                return value
            block = outer(block)
        return None

    def _build(self, d: Dim) -> Value:
        if isinstance(d, int) or not marks(d):
            return self._op("dim", (), dim=d)
        plain: Dim = 0
        sum_: Value | None = None
        for monomial, coefficient in d.terms:
            inner = [a for a in monomial if _is_marked(a)]
            scale = coefficient * _product(tuple(a for a in monomial if not _is_marked(a)))
            if not inner:
                plain = plain + scale
                continue
            value = self._atom(inner[0])
            for a in inner[1:]:
                value = self._op("imul", (value, self._atom(a)))
            if scale != 1:
                value = self._op("imul", (value, self.emit(scale)))
            sum_ = value if sum_ is None else self._op("iadd", (sum_, value))
        assert sum_ is not None
        return sum_ if plain == 0 else self._op("iadd", (sum_, self.emit(plain)))

    def _atom(self, a: Atom) -> Value:
        if a.op == "sym":
            name = str(a.args[0])
            if name not in self.values:
                raise UnboundIndexError(name)
            return self.values[name]
        x, y = a.args
        return self._op(_OPS[a.op], (self.emit(x), self.emit(y)))  # type: ignore[arg-type]

    def _op(self, name: str, operands: tuple[Value, ...], **attrs: Dim) -> Value:
        return self.builder.value(f"tile.{name}", operands, INDEX, dict(attrs))


def _factors(d: Dim) -> Monomial:
    """The factors of a product; none of anything else."""
    return d.terms[0][0] if isinstance(d, Expr) and len(d.terms) == 1 and d.terms[0][1] == 1 else ()


def _is_marked(a: Atom) -> bool:
    if a.op == "sym":
        return str(a.args[0]).startswith(MARK)
    return any(marks(x) for x in a.args)  # type: ignore[arg-type]


def _product(m: Monomial) -> Dim:
    return Expr(((m, 1),)) if m else 1


def outer(block: Block) -> Block | None:
    """The block that holds the op that holds `block`."""
    op: Op | None = block.region.op if block.region else None
    return op.block if op else None
