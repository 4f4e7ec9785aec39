"""The operands and the value range of a value, in either dialect.

Ranges are bounds that the ops prove, in the arithmetic of the value's dtype: exp(x) is at least 0 and not more, since
it is rounded to 0 far below; a constant that is too small for its dtype is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, cast

from tessera.compiler.graph.operator import axes_of
from tessera.compiler.ir.core import Op, Value
from tessera.language import dtypes
from tessera.language.dims import Expr
from tessera.language.dtypes import DType

Range: TypeAlias = tuple[float, float]

ANY: Range = (-math.inf, math.inf)
DEEPEST = 24
"""how many ops a range looks back"""
FACTORS = 16
"""how many factors of a product are looked at"""
SOME = 1e-30
"""stands for what is above 0 for all sensible arguments"""

_SAME_ELEMENTS = frozenset({"cast", "broadcast", "broadcast_to", "reshape", "unsqueeze", "squeeze"})
_ANY_ELEMENTS = _SAME_ELEMENTS | {
    "slice",
    "transpose",
    "permute",
    "swapaxes",
    "matrix_transpose",
    "flip",
    "roll",
    "repeat",
    "take",
}
_PICKS = _ANY_ELEMENTS | {"max", "gather"}
_IMPURE = frozenset({"load_shared", "random_bits", "normal", "uniform", "bernoulli", "dropout"})


def name_of(op: Op) -> str:
    """An op's name without its dialect; a tile reduction is called by what it does: sum, max."""
    name = op.name.partition(".")[2]
    return str(op.attrs["op"]) if name == "reduce" else name


def behind(v: Value) -> Value:
    """The value behind conversions and broadcasts."""
    while v.op is not None and name_of(v.op) in _SAME_ELEMENTS and v.op.operands:
        v = v.op.operands[0]
    return v


def made_by(v: Value, *names: str) -> Op | None:
    """The op behind `v`, where it is one of these."""
    op = behind(v).op
    return op if op is not None and name_of(op) in names else None


def dtype_of(v: Value) -> DType:
    """The element type; an index is an integer."""
    return getattr(v.type, "dtype", dtypes.int64)


def constant(v: Value) -> float | None:
    """The number that `v` holds everywhere, as written."""
    op = behind(v).op
    if op is None:
        return None
    given = {"constant": op.attrs.get("value"), "full": op.attrs.get("value"), "zeros": 0, "ones": 1}.get(name_of(op))
    return None if given is None or isinstance(given, (Expr, complex, str)) else float(given)  # type: ignore[arg-type]


def same(a: Value, b: Value, depth: int = 6, places: bool = True) -> bool:
    """Whether two values are computed alike from the same, so that they are equal. Without `places`, what is loaded
    from one array counts as equal wherever it stands there."""
    a, b = behind(a), behind(b)
    if a is b:
        return True
    x, y = a.op, b.op
    if x is None or y is None or depth == 0 or x.name != y.name or x.regions or name_of(x) in _IMPURE:
        return False
    if not places and name_of(x) in ("load", "slice", "gather", "take"):
        return same(x.operands[0], y.operands[0], depth - 1, places)
    matched = x.attrs == y.attrs and len(x.operands) == len(y.operands)
    return matched and all(same(p, q, depth - 1, places) for p, q in zip(x.operands, y.operands, strict=True))


def alike(a: Value, b: Value) -> bool:
    """Whether two values are computed alike from the same arrays, perhaps from other parts of them."""
    return same(a, b, places=False)


def square_of(v: Value) -> Value | None:
    """x, where `v` is x * x in one of its spellings."""
    op = made_by(v, "mul", "square", "pow")
    if op is None:
        return None
    if name_of(op) == "mul":
        return op.operands[0] if same(op.operands[0], op.operands[1]) else None
    return op.operands[0] if name_of(op) == "square" or constant(op.operands[1]) == 2 else None


def _sign_of_squares(v: Value) -> int:
    """1 or -1 where `v` is a product of squares and numbers, as -0.5 * x * x is; 0 where it is not."""
    sign = 1
    alone: list[Value] = []
    queue = [v]
    for _ in range(FACTORS):
        if not queue:
            break
        x = behind(queue.pop())
        number = constant(x)
        if number is not None:
            sign *= (number > 0) - (number < 0)
        elif (op := made_by(x, "mul", "neg", "div")) is not None and _is_scaling(op):
            sign = -sign if name_of(op) == "neg" else sign
            queue += op.operands
        elif square_of(x) is None:
            pair = [y for y in alone if same(x, y)]
            alone = [y for y in alone if y not in pair] if pair else [*alone, x]
    return 0 if alone or queue else sign


def _is_scaling(op: Op) -> bool:
    return name_of(op) != "div" or constant(op.operands[1]) is not None


def summed_in_loop(v: Value) -> Op | None:
    """The sum that each step of a loop adds to `v`, where `v` is what the loop ends with."""
    v = behind(v)
    if v.op is None or name_of(v.op) != "for" or v not in v.op.results:
        return None
    i, body = v.op.results.index(v), v.op.region.block
    total = made_by(body.terminator.operands[i], "add")
    if total is None or not any(behind(x) is body.args[i + 1] for x in total.operands):
        return None
    return next((s for x in total.operands if (s := made_by(x, "sum")) is not None), None)


def below_maximum(v: Value, depth: int = 8) -> bool:
    """Whether a maximum was subtracted, so that exp(v) does not exceed 1."""
    op = behind(v).op
    if op is None or depth == 0:
        return False
    match name_of(op):
        case "sub":
            return _is_maximum(op.operands[1], depth - 1)
        case "where":
            return below_maximum(op.operands[1], depth - 1) or below_maximum(op.operands[2], depth - 1)
        case "mul" | "add":
            return any(below_maximum(x, depth - 1) for x in op.operands)
        case "div":
            return below_maximum(op.operands[0], depth - 1)
        case _:
            return False


def _is_maximum(v: Value, depth: int) -> bool:
    """A maximum, also a running one; a value from outside may be one."""
    op = behind(v).op
    if op is None or depth == 0:
        return True
    name = name_of(op)
    if name in ("maximum", "where", "mul", "sub", "neg", "add"):
        return any(_is_maximum(x, depth - 1) for x in op.operands if constant(x) is None)
    return name in ("max", "logsumexp", "for", "while", "if", "load", "load_shared", "abs")


def _keeps_largest(v: Value) -> bool:
    """Whether `v` is where(p >= max(p), p, 0) of probabilities: the largest of them is not 0."""
    chosen = made_by(v, "where")
    if chosen is None or made_by(chosen.operands[1], "softmax", "sigmoid") is None:
        return False
    test = made_by(chosen.operands[0], "ge", "eq", "le")
    return test is not None and any(made_by(x, "max") is not None for x in test.operands)


def picked_from_softmax(v: Value, depth: int = 8) -> bool:
    """Whether every element was taken out of a softmax, or is a positive number: some are 0, hardly all of them."""
    op = behind(v).op
    if op is None or depth == 0:
        return False
    if (value := constant(v)) is not None:
        return value > 0
    name, given = name_of(op), op.operands
    if name in ("where", "stack", "concat", "maximum"):
        return all(picked_from_softmax(x, depth - 1) for x in given[1 if name == "where" else 0 :])
    return name == "softmax" or (name in _PICKS and picked_from_softmax(given[0], depth - 1))


class Ranges:
    """Bounds of values, kept for one look over a program."""

    def __init__(self) -> None:
        self._known: dict[Value, Range] = {}

    def of(self, v: Value, depth: int = DEEPEST) -> Range:
        if v in self._known:
            return self._known[v]
        dtype = dtype_of(v)
        found = self._computed(v.op, depth) if v.op is not None and depth else ANY
        if dtype.kind in ("bool", "uint"):
            found = max(found[0], 0.0), min(found[1], dtype.maximum)
        self._known[v] = found
        return found

    def _computed(self, op: Op, depth: int) -> Range:
        name = name_of(op)
        if not op.regions and (value := constant(op.results[0])) is not None:
            value = _held(value, dtype_of(op.results[0]))
            return value, value
        if name in _FIXED:
            return _FIXED[name]
        if name in ("full", "dim") and isinstance(op.attrs.get("value", op.attrs.get("dim")), Expr):
            return 1.0, math.inf  # a size
        if name in _ANY_ELEMENTS and op.operands:
            return self.of(op.operands[0], depth - 1)
        if name == "sub" and below_maximum(op.results[0]):
            return -math.inf, 0.0
        if name in ("mul", "neg", "div") and (sign := _sign_of_squares(op.results[0])):
            return (0.0, math.inf) if sign > 0 else (-math.inf, 0.0)
        if name == "pow" and (power := constant(op.operands[1])) is not None and power % 2 == 0:
            return 0.0, math.inf
        if name == "sum":
            return self._sum(op, depth)
        if name == "clip":
            return self._clip(op, depth)
        rule = _RULES.get(name)
        return ANY if rule is None else rule([self.of(x, depth - 1) for x in op.operands])

    def _sum(self, op: Op, depth: int) -> Range:
        terms = op.operands[0]
        if (e := made_by(terms, "exp", "exp2")) is not None and below_maximum(e.operands[0]):
            return 1.0, math.inf  # the maximum's own term
        axes = axes_of(op) or ()
        if (p := made_by(terms, "softmax")) is not None and axes_of(p) in (axes, *axes):
            return SOME, math.inf  # of whole rows of probabilities
        if _keeps_largest(terms):
            return SOME, math.inf
        low, high = self.of(terms, depth - 1)
        return (low if low >= 0 else -math.inf), (math.inf if high > 0 else high)

    def _clip(self, op: Op, depth: int) -> Range:
        (low, high), *bounds = (self.of(x, depth - 1) for x in op.operands)
        segments = cast("tuple[int, ...]", op.attrs.get("segments", (-1, -1, -1)))
        if segments[1] != -2:  # there is a lower one
            least = bounds.pop(0)
            low, high = max(low, least[0]), max(high, least[1])
        for most in bounds:
            low, high = min(low, most[0]), min(high, most[1])
        return low, high


def smallest(dtype: DType) -> float:
    """The smallest positive number of a float format."""
    return 2.0 ** (2 - 2 ** (dtype.exponent - 1) - dtype.mantissa) if dtype.exponent else 0.0


def _held(value: float, dtype: DType) -> float:
    """What is left of a constant in its dtype, as far as it matters here: 0 where it is too small."""
    return 0.0 if dtype.is_float and abs(value) <= smallest(dtype) / 2 else value


_FIXED: dict[str, Range] = {
    "sigmoid": (SOME, 1.0), "softplus": (SOME, math.inf), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0), "sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "cosh": (1.0, math.inf),
    "log_softmax": (-math.inf, 0.0), "one_hot": (0.0, 1.0),
    **dict.fromkeys(("norm", "std", "var", "square", "mse", "cross_entropy", "iota"), (0.0, math.inf)),
}  # fmt: skip


def _product(rs: list[Range]) -> Range:
    (a, b), (c, d) = rs
    if a >= 0 and c >= 0:
        return a * c if a and c else 0.0, math.inf if math.inf in (b, d) else b * d
    if -math.inf in (a, c) or math.inf in (b, d):
        return ANY
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _quotient(rs: list[Range]) -> Range:
    (a, b), (c, d) = rs
    if c <= 0:
        return ANY
    if a >= 0:
        return (0.0 if math.isinf(d) or not a else a / d), (math.inf if math.isinf(b) else b / c)
    return (-math.inf if math.isinf(a) else a / c), (0.0 if b <= 0 else math.inf if math.isinf(b) else b / c)


def _power(base: float) -> Callable[[list[Range]], Range]:
    def bounds(rs: list[Range]) -> Range:
        low, high = rs[0]
        limit = 88.0 / math.log(base)
        return (base**low if -limit < low < limit else 0.0 if low < 0 else math.inf), (
            base**high if high < limit else math.inf
        )

    return bounds


def _extended(low: float, high: float) -> Range:
    return (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)


def _root(rs: list[Range]) -> Range:
    low, high = max(rs[0][0], 0.0), max(rs[0][1], 0.0)
    return math.sqrt(low), math.sqrt(high)


_RULES: dict[str, Callable[[list[Range]], Range]] = {
    "add": lambda r: _extended(r[0][0] + r[1][0], r[0][1] + r[1][1]),
    "sub": lambda r: _extended(r[0][0] - r[1][1], r[0][1] - r[1][0]),
    "neg": lambda r: (-r[0][1], -r[0][0]),
    "mul": _product,
    "div": _quotient,
    "exp": _power(math.e),
    "exp2": _power(2.0),
    "sqrt": _root,
    "rsqrt": lambda r: (0.0, math.inf),
    "abs": lambda r: (max(r[0][0], -r[0][1], 0.0), max(-r[0][0], r[0][1])),
    "relu": lambda r: (max(r[0][0], 0.0), max(r[0][1], 0.0)),
    "maximum": lambda r: (max(r[0][0], r[1][0]), max(r[0][1], r[1][1])),
    "minimum": lambda r: (min(r[0][0], r[1][0]), min(r[0][1], r[1][1])),
    "where": lambda r: (min(r[1][0], r[2][0]), max(r[1][1], r[2][1])),
    "concat": lambda r: (min(x[0] for x in r), max(x[1] for x in r)),
    "max": lambda r: r[0],
    "min": lambda r: r[0],
    "mean": lambda r: r[0],
}
