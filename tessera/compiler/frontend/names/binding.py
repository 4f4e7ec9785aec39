"""Named sizes from actual ones: what `Tensor["B", "S"]` binds when an argument's shape is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.immutable import immutable
from tessera.language import dims
from tessera.language.annotations import Annotation, TensorAnn, TileAnn
from tessera.language.dims import Dim, Expr, Facts


@immutable
class Equation:
    """Axis `axis` of parameter `name` (None: its value) is annotated `want` and is `have`."""

    name: str
    axis: int | None
    want: Dim
    have: Dim

    @property
    def place(self) -> str:
        return f"axis {self.axis} of {self.name}" if self.axis is not None else self.name


@immutable
class Conflict:
    """An equation that does not hold: the annotated size in terms of what is bound, and the equation that bound it."""

    equation: Equation
    expected: Dim
    first: Equation | None


def equations(name: str, annotation: Annotation, shape: Sequence[Dim]) -> list[Equation] | None:
    """One equation per axis whose size has a name or a number; None where the rank does not fit."""
    wanted = annotation.shape if isinstance(annotation, (TensorAnn, TileAnn)) else None
    if wanted is None:
        return []
    if ... in wanted:
        i = wanted.index(...)
        tail = len(wanted) - i - 1
        if len(shape) < len(wanted) - 1:
            return None
        pairs = [*enumerate(wanted[:i]), *((len(shape) - tail + k, d) for k, d in enumerate(wanted[i + 1 :]))]
    elif len(wanted) != len(shape):
        return None
    else:
        pairs = list(enumerate(wanted))
    said = [(axis, want) for axis, want in pairs if isinstance(want, (int, Expr))]
    nameless = {want for _, want in said if any(n.startswith("?") for n in dims.symbols(want))}  # of a class's own dims
    return [Equation(name, axis, want, shape[axis]) for axis, want in said if want not in nameless]


def value_equation(name: str, dim: Dim | None, value: Any) -> list[Equation]:
    """`num_heads: Const["H"]` binds H to the argument itself."""
    return [Equation(name, None, dim, value)] if dim is not None and isinstance(value, (int, Expr)) else []


def solve(
    given: Sequence[Equation], fixed: Mapping[str, Dim], facts: Facts
) -> tuple[dict[str, Dim], list[Conflict], list[tuple[Dim, Dim, str]]]:
    """Binds plain names first, then names that one linear equation determines; then every equation is checked.

    Returns the sizes by name, the equations that fail, and those that are open until launch.
    """
    env: dict[str, Dim] = dict(fixed)
    origin: dict[str, Equation] = {}
    for e in given:
        if dims.is_symbol(e.want) and str(e.want) not in env:
            env[str(e.want)] = e.have
            origin[str(e.want)] = e
    _solve_rest(given, env, origin)
    conflicts: list[Conflict] = []
    open_: list[tuple[Dim, Dim, str]] = []
    for e in given:
        want = dims.substitute(e.want, env)
        first = next((origin[n] for n in sorted(dims.symbols(e.want)) if n in origin and origin[n] is not e), None)
        unknown = dims.symbols(e.want) - env.keys()
        if unknown:
            if len(unknown) == 1 and isinstance(e.have, int) and _is_linear(want, next(iter(unknown))):
                conflicts.append(Conflict(e, want, first))  # no size of it makes 8*B 65
            continue
        answer = dims.compare(want, e.have, facts)
        if answer == "no":
            conflicts.append(Conflict(e, want, first))
        elif answer == "unknown":
            open_.append((want, e.have, e.place))
    return env, conflicts, open_


def _solve_rest(given: Sequence[Equation], env: dict[str, Dim], origin: dict[str, Equation]) -> None:
    progress = True
    while progress:
        progress = False
        for e in given:
            unknown = dims.symbols(e.want) - env.keys()
            if len(unknown) != 1:
                continue
            (name,) = unknown
            value = _solve_one(dims.substitute(e.want, env), name, e.have)
            if value is not None:
                env[name], origin[name], progress = value, e, True


def _solve_one(want: Dim, name: str, have: Dim) -> Dim | None:
    """The value of `name` for which `want` is `have`, where it occurs once and linearly (and exactly)."""
    if isinstance(have, int) and dims.symbols(want) == frozenset((name,)):
        found, bad = dims.solve([(None, want, have)])
        return None if bad else found.get(name)
    if not _is_linear(want, name):
        return None
    constant = dims.substitute(want, {name: 0})
    slope = dims.substitute(want, {name: 1}) - constant
    rest = have - constant
    return dims.floordiv(rest, slope) if dims.mod(rest, slope) == 0 else None


def _is_linear(want: Dim, name: str) -> bool:
    try:
        constant = dims.substitute(want, {name: 0})
    except dims.DimError:  # it divides by it
        return False
    slope = dims.substitute(want, {name: 1}) - constant
    return slope != 0 and want == slope * dims.symbol(name) + constant


def describe(c: Conflict) -> str:
    """`B is 3 (axis 0 of x) and 4 (axis 0 of y)`."""
    e = c.equation
    if c.first is not None and dims.is_symbol(e.want):
        return f"{e.want} is {c.first.have} ({c.first.place}) and {e.have} ({e.place})"
    return (
        f"{e.place} is {e.have}, but {e.want}" + (f" = {c.expected}" if c.expected != e.want else "") + " is expected"
    )
