"""`ts.check_grad`: tests the derivatives of a function against differences and against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from tessera.language.lazy import np
from tessera.language.transforms import Argnums, Transform, called, transformed
from tessera.tracebacks import outward


@outward
def check_grad(
    function: Callable[..., Any], *args: Any, argnums: Argnums | None = None, order: int = 1,
    step: float | None = None, rtol: float | None = None,
) -> None:  # fmt: skip
    """Compares forward mode with central differences, and reverse mode with forward mode: <J v, w> = <v, J' w>.

    `args` are arguments of the function; `argnums` the positions of those to differentiate by, by default all that
    contain only floats. With `order` 2, the gradient of a function whose result is one number is checked too. `step`
    and `rtol` depend on the dtype: f64 is checked to about six digits, f32 to two. Raises AssertionError with the
    differences.
    """
    at = _positions(args) if argnums is None else tuple(argnums) if isinstance(argnums, list | tuple) else (argnums,)
    if not at or any(not isinstance(i, int) or not -len(args) <= i < len(args) for i in at):
        raise AssertionError(f"check_grad differentiates by positions of arguments, not {argnums!r}")
    where = cast("tuple[int, ...]", at)
    checked = transformed(function, Transform("grad", where)) if order == 2 else function
    _check(checked, args, where, step, rtol)


def _check(
    function: Callable[..., Any], args: tuple[Any, ...], at: tuple[int, ...], step: float | None, rtol: float | None
) -> None:
    rng = np.random.default_rng(0)
    primals = tuple(args[i] for i in at)
    wide = all(np.asarray(v).dtype == np.float64 for v in _parts(primals))
    step = step or (1e-5 if wide else 1e-2)
    rtol = rtol or (1e-6 if wide else 2e-2)
    moves = tuple(_each(p, lambda v: rng.standard_normal(np.shape(v)).astype(np.asarray(v).dtype)) for p in primals)
    result, ahead = transformed(function, Transform("jvp", at))(args, moves)
    ends: list[Any] = []
    for sign in (1, -1):
        moved = list(args)
        for i, p, m in zip(at, primals, moves, strict=True):
            moved[i] = _both(p, m, lambda v, d, sign=sign: v + sign * step * d)
        ends.append(called(function, tuple(moved)))
    weights = _each(result, lambda v: rng.standard_normal(np.shape(v)).astype(np.asarray(v).dtype))
    behind = transformed(function, Transform("pullback", at))(args, weights)
    forward = _dot(ahead, weights)
    slope = (_dot(ends[0], weights) - _dot(ends[1], weights)) / (2 * step)
    backward = sum(_dot(b, m) for b, m in zip(behind, moves, strict=True))
    scale = max(1.0, _size(ahead) * _size(weights))
    for name, a, b in (("differences", slope, forward), ("reverse mode", backward, forward)):
        if not abs(a - b) <= rtol * scale:
            raise AssertionError(f"{name} and forward mode differ: {a:.9g} and {b:.9g}, more than {rtol * scale:.2g}")


def _positions(args: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(i for i, a in enumerate(args) if _floats(a))


def _floats(value: Any) -> bool:
    found = list(_parts(value))
    return bool(found) and all(np.asarray(v).dtype.kind == "f" for v in found)


def _each(value: Any, of: Callable[[Any], Any]) -> Any:
    return _both(value, value, lambda v, _: of(v))


def _both(value: Any, other: Any, of: Callable[[Any, Any], Any]) -> Any:
    """The same structure of what `of` gives for the parts of two values of one structure."""
    if isinstance(value, (tuple, list)):
        return tuple(_both(v, w, of) for v, w in zip(cast("list[Any]", value), other, strict=True))
    if isinstance(value, dict):
        return {k: _both(v, other[k], of) for k, v in cast("dict[Any, Any]", value).items()}
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value)]
        return replace(value, **{n: _both(getattr(value, n), getattr(other, n), of) for n in names})
    return of(np.asarray(value), np.asarray(other))


def _parts(value: Any) -> Iterator[Any]:
    out: list[Any] = []
    _each(value, out.append)
    yield from out


def _dot(a: Any, b: Any) -> float:
    return float(sum(np.sum(v * w) for v, w in zip(_parts(a), _parts(b), strict=True)))


def _size(value: Any) -> float:
    return float(np.sqrt(sum(np.sum(v.astype(np.float64) ** 2) for v in _parts(value))))
