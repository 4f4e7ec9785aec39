"""Sizes of named dims from the sizes of arrays."""

from __future__ import annotations

from collections.abc import Iterable

from tessera.immutable import immutable
from tessera.language.dims.algebra import Dim, DimError, Expr, evaluate, is_symbol, opaque, substitute, symbols


@immutable
class Mismatch:
    """Equation `where`: `dim` should have been `actual` but is `expected` (None: cannot be solved)."""

    where: object
    dim: Dim
    expected: int | None
    actual: int


def solve(equations: Iterable[tuple[object, Dim, int]]) -> tuple[dict[str, int], list[Mismatch]]:
    """Binds symbols from sizes: `equations` holds (where, dim, actual size).

    Plain symbols bind first; then equations with one unknown symbol that occurs linearly are solved exactly
    (B*H = 64 with H = 8 gives B = 8; 65 is a mismatch, not a guess); at last every equation is checked.
    Never raises: an equation that divides by 0, or that leaves a symbol open, is a mismatch with no expected size.
    """
    pending, env = list(equations), dict[str, int]()
    bad: list[Mismatch] = []
    for _, d, actual in pending:
        if is_symbol(d):
            env.setdefault(str(d), actual)
    progress = True
    while progress:
        progress = False
        for _, d, actual in pending:
            try:
                rest = substitute(d, env)
            except DimError:  # divides by a size of 0; the check below says so
                continue
            unknown = symbols(rest)
            if len(unknown) == 1 and (value := solve_linear(rest, actual)) is not None:
                env[next(iter(unknown))] = value
                progress = True
    for where, d, actual in pending:
        try:
            expected = evaluate(d, env)
        except DimError:
            bad.append(Mismatch(where, d, None, actual))
            continue
        if expected != actual:
            bad.append(Mismatch(where, d, expected, actual))
    return env, bad


def solve_linear(d: Dim, actual: int) -> int | None:
    """The size >= 0 of the only symbol of `d` for which `d` is `actual`; None where `d` is not linear or none fits."""
    if opaque(d) or not isinstance(d, Expr):
        return None
    constant, slope = 0, 0
    for m, c in d.terms:
        if not m:
            constant = c
        elif len(m) == 1:
            slope += c
        else:
            return None
    if not slope or (actual - constant) % slope:
        return None
    value = (actual - constant) // slope
    return value if value >= 0 else None
