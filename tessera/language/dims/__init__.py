"""The dimension algebra: symbolic sizes, facts about them, and whether two of them are equal."""

from __future__ import annotations

from tessera.language.dims.algebra import (
    Atom,
    Dim,
    DimError,
    DimLimitError,
    Expr,
    Monomial,
    ceildiv,
    dim_max,
    dim_min,
    evaluate,
    floordiv,
    from_ast,
    is_symbol,
    mod,
    parse,
    prod,
    shortened,
    substitute,
    symbol,
    symbols,
    text_of,
)
from tessera.language.dims.equality import Answer, compare, equal
from tessera.language.dims.examples import counterexample, divisibility
from tessera.language.dims.facts import NO_FACTS, Facts
from tessera.language.dims.ranges import at_most, bounds
from tessera.language.dims.solving import Mismatch, solve

__all__ = [
    "NO_FACTS",
    "Answer",
    "Atom",
    "Dim",
    "DimError",
    "DimLimitError",
    "Expr",
    "Facts",
    "Mismatch",
    "Monomial",
    "at_most",
    "bounds",
    "ceildiv",
    "compare",
    "counterexample",
    "dim_max",
    "dim_min",
    "divisibility",
    "equal",
    "evaluate",
    "floordiv",
    "from_ast",
    "is_symbol",
    "mod",
    "parse",
    "prod",
    "shortened",
    "solve",
    "substitute",
    "symbol",
    "symbols",
    "text_of",
]
