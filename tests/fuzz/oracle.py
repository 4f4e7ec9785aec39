"""`ts` on NumPy: the same program text, run as plain Python, gives what Tessera's results are held against.

A value is a NumPy array with a dtype of the language and a bound on how far a right result may be from it. Arithmetic
is predicted to the bit (computed wide, rounded once as the language says), so that the bound is 0 until a function
such as `exp`, or a sum whose order would show, comes in. What has a bound may not decide anything: comparisons,
branches, indices and casts to integers of it raise Unfit, as does whatever a program had better not do (a division by
zero ...).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.values import (
    KINDS,
    Operand,
    Unfit,
    Wanted,
    bounded,
    cast,
    largest,
    numbers,
    ordered,
    pair,
    rounded,
    settled,
    spread,
    total_is_exact,
)


def arithmetic(symbol: str, of: Callable[[Any, Any], Any], slope: Callable[[Any, Any], tuple[float, float]]) -> Any:
    """An operator that is rounded once; `slope` bounds its derivatives."""

    def operator(a: Operand, b: Operand) -> Wanted:
        if symbol not in "+*":
            numbers(a, b)
        a, b = spread(a, b)
        if a.kind.letter == "b":
            return Wanted(a.value | b.value if symbol == "+" else a.value & b.value, a.kind)
        with np.errstate(all="ignore"):
            value = of(a.value, b.value)
        if a.kind.letter in "iu":
            return Wanted(value.astype(a.kind.held), a.kind)
        error = 0.0
        if a.error or b.error:
            da, db = slope(a.value, b.value)
            error = da * a.error + db * b.error + a.error * b.error
        twice = a.kind.letter == "c" and symbol == "*" and not (is_grid(a.value) and is_grid(b.value))
        return settled(value, a.kind, error, 4 if twice else 0)

    return operator


def is_grid(x: Any) -> bool:
    return bool(np.all(x * 16 == np.round(x * 16))) and largest(x) < 2**6


add = arithmetic("+", np.add, lambda a, b: (1, 1))
sub = arithmetic("-", np.subtract, lambda a, b: (1, 1))
mul = arithmetic("*", np.multiply, lambda a, b: (largest(b), largest(a)))


def div(a: Operand, b: Operand) -> Wanted:
    numbers(a, b)
    a, b = spread(a, b)
    if a.kind.letter in "iub":
        a, b = cast(a, "f32"), cast(b, "f32")
    least = float(np.abs(b.value).min(initial=math.inf)) - b.error
    if not least > 1e-3:
        raise Unfit("a division by what may be zero")
    with np.errstate(all="ignore"):
        value = a.value / b.value
    error = a.error / least + largest(a.value) * b.error / least**2
    return settled(value, a.kind, error, 4 if a.kind.letter == "c" else 0)


def whole(of: Callable[[Any, Any], Any]) -> Any:
    """Integer operators; `//` and `%` need a divisor."""

    def operator(a: Operand, b: Operand) -> Wanted:
        a, b = spread(a, b)
        if a.kind.letter not in "iu" and not (of in BITS and a.kind.letter == "b"):
            raise Unfit("integers only")
        if of not in BITS and (not np.all(b.value) or bool(np.any((b.value == np.array(-1)) & (a.kind.letter == "i")))):
            raise Unfit("a division by zero, or one that overflows")
        return Wanted(of(a.value, b.value).astype(a.kind.held), a.kind)

    return operator


BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def compare(of: Callable[[Any, Any], Any], order: bool = True) -> Any:
    def operator(a: Operand, b: Operand) -> Wanted:
        if order:
            ordered(a, b)
        a, b = spread(a, b)
        return Wanted(of(a.exact, b.exact), KINDS["bool_"])

    return operator


def logical(of: Callable[[Any, Any], Any]) -> Any:
    def operator(a: Operand, b: Operand) -> Wanted:
        a, b = spread(a, b)
        return Wanted(of(a.exact != 0, b.exact != 0), KINDS["bool_"])

    return operator


def chosen(of: Callable[[Any, Any], Any]) -> Any:
    def operator(a: Operand, b: Operand) -> Wanted:
        ordered(a, b)
        a, b = spread(a, b)
        with np.errstate(all="ignore"):
            return Wanted(of(a.value, b.value), a.kind, max(a.error, b.error))

    return operator


maximum, minimum = chosen(np.maximum), chosen(np.minimum)
logical_and, logical_or = logical(np.logical_and), logical(np.logical_or)


def where(c: Wanted, a: Operand, b: Operand) -> Wanted:
    a, b = spread(a, b)
    return Wanted(np.where(c.exact != 0, a.value, b.value), a.kind, max(a.error, b.error))


def masked_fill(x: Wanted, mask: Wanted, value: Any) -> Wanted:
    if mask.kind.letter != "b":
        raise Unfit("no mask")
    return where(mask, value, x)


def clip(x: Wanted, low: Any, high: Any) -> Wanted:
    return minimum(maximum(x, low), high)


def neg(x: Wanted) -> Wanted:
    if x.kind.letter == "b":
        raise Unfit("no bools")
    return x.like(-x.value)


def abs_(x: Wanted) -> Wanted:
    if x.kind.letter == "b":
        raise Unfit("no bools")
    if x.kind.letter == "c":
        return settled(np.abs(x.value), KINDS["f32" if x.kind.bits == 64 else "f64"], x.error, 3)
    return x.like(np.abs(x.value))


def sign(x: Wanted) -> Wanted:
    if x.kind.letter in "bc":
        raise Unfit("real numbers only")
    return Wanted(np.sign(x.exact), x.kind)


def whole_part(of: Callable[[Any], Any]) -> Any:
    def operator(x: Wanted) -> Wanted:
        if x.kind.letter != "f":
            raise Unfit("floats only")
        return Wanted(of(x.exact), x.kind)

    return operator


def smooth(of: Callable[[Any], Any], slope: Callable[[Any], float], low: float = -6.0, high: float = 6.0) -> Any:
    """A function of floats, taken where it is smooth; integers count as f32."""

    def operator(x: Wanted) -> Wanted:
        if x.kind.letter == "c":
            raise Unfit("real numbers only")
        if x.kind.letter in "iub":
            x = cast(x, "f32")
        a = x.value[np.isfinite(x.value)]
        if a.size and not (low <= a.min() - x.error and a.max() + x.error <= high):
            raise Unfit("out of the function's range")
        with np.errstate(all="ignore"):
            return settled(of(x.value), x.kind, x.error * slope(a) if a.size else 0, 8)

    return operator


def square(x: Wanted) -> Wanted:
    return mul(x, x)


def relu(x: Wanted) -> Wanted:
    return maximum(x, 0)


# shapes


def moved(of: Callable[..., Any]) -> Any:
    return lambda x, *a, **k: x.like(of(x.value, *a, **k))


def joined(of: Callable[..., Any]) -> Any:
    def operator(xs: Sequence[Wanted], axis: int = 0) -> Wanted:
        if any(x.kind is not xs[0].kind for x in xs):
            raise Unfit("one dtype")
        return Wanted(of([x.value for x in xs], axis), xs[0].kind, max(x.error for x in xs))

    return operator


def pad(x: Wanted, width: Any, value: Any = 0) -> Wanted:
    return x.like(np.pad(x.value, width, constant_values=value) if x.value.ndim else x.value)


def split(x: Wanted, sections: Any, axis: int = 0) -> list[Wanted]:
    return [x.like(v) for v in np.split(x.value, sections, axis)]


def at(indices: Wanted) -> Any:
    if indices.kind.letter not in "iu":
        raise Unfit("no index")
    return indices.exact.astype(np.int64)


def take(x: Wanted, indices: Wanted, axis: int | None = None) -> Wanted:
    """Negative indices count from the end; what lies outside reads as 0."""
    bounded(x.value.size * indices.value.size)
    value, axis = (x.value.ravel(), 0) if axis is None else (x.value, axis % x.value.ndim)
    i, n = at(indices), value.shape[axis]
    inside = (i >= -n) & (i < n)
    found = np.take(value, np.where(inside, i, 0), axis)
    rest = (1,) * (value.ndim - axis - 1)
    return x.like(np.where(inside.reshape(inside.shape + rest), found, np.zeros((), value.dtype)))


def take_along_axis(x: Wanted, indices: Wanted, axis: int = -1) -> Wanted:
    if x.value.ndim != indices.value.ndim:
        raise Unfit("ranks differ")
    axis %= x.value.ndim
    rest = np.broadcast_shapes(*((*v.shape[:axis], 1, *v.shape[axis + 1 :]) for v in (x.value, indices.value)))
    a, i = (np.broadcast_to(v, (*rest[:axis], v.shape[axis], *rest[axis + 1 :])) for v in (x.value, at(indices)))
    return x.like(np.take_along_axis(a, i, axis))


def embedding(indices: Wanted, weight: Wanted) -> Wanted:
    if weight.value.ndim != 2:
        raise Unfit("a matrix")
    return take(weight, indices, 0)


def one_hot(indices: Wanted, depth: int, dtype: str = "f32") -> Wanted:
    return cast(Wanted(at(indices)[..., None] == np.arange(depth), KINDS["bool_"]), dtype)


def iota(shape: Any, axis: int = 0, dtype: str = "int64") -> Wanted:
    shape = (shape,) if isinstance(shape, int) else shape
    line = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return cast(Wanted(np.broadcast_to(line, shape), KINDS["int64"]), dtype)


def full(shape: Any, value: Any, dtype: str = "f32") -> Wanted:
    return Wanted(np.full(shape, rounded(value, KINDS[dtype])), KINDS[dtype])


# folds


def terms(x: Wanted, axis: Any) -> int:
    axes = range(x.value.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return math.prod(x.shape[a] for a in axes)


def folded(x: Wanted, value: Any, n: int, ulps: float = 0) -> Wanted:
    """A sum of n elements."""
    if x.kind.letter in "iub":
        return Wanted(value, KINDS["uint64" if x.kind.letter == "u" else "int64"])
    if not x.error and not ulps and total_is_exact(x.value, x.kind.sums):
        return settled(value, x.kind, 0, 0)
    most = largest(x.value) * n
    return settled(value, x.kind, x.error * n + (8 + 2 * math.sqrt(n)) * x.kind.sums * most, ulps)


def wide(x: Wanted) -> Any:
    """What sums start from: 64-bit integers for integers and bools."""
    return x.value if x.kind.letter in "fc" else x.value.astype(np.uint64 if x.kind.letter == "u" else np.int64)


def sum_(x: Wanted, axis: Any = None, keepdims: bool = False) -> Wanted:
    with np.errstate(all="ignore"):
        return folded(x, np.sum(wide(x), axis=axis, keepdims=keepdims), terms(x, axis))


def cumsum(x: Wanted, axis: int | None = None) -> Wanted:
    with np.errstate(all="ignore"):
        return folded(x, np.cumsum(wide(x), axis=axis), terms(x, axis))


def prod(x: Wanted, axis: Any = None, keepdims: bool = False) -> Wanted:
    if x.error:
        raise Unfit("inexact")
    with np.errstate(all="ignore"):
        value = np.prod(wide(x), axis=axis, keepdims=keepdims)
    if x.kind.letter in "iub":
        return folded(x, value, 0)
    if x.value.size and largest(np.cumprod(np.maximum(np.abs(x.value), 1).ravel())[-1:]) > 1e4:
        raise Unfit("out of range")
    return settled(value, x.kind, 0, 2 * terms(x, axis))


def mean(x: Wanted, axis: Any = None, keepdims: bool = False) -> Wanted:
    x = cast(x, "f32") if x.kind.letter in "iub" else x
    n = terms(x, axis)
    if not n:
        raise Unfit("of nothing")
    with np.errstate(all="ignore"):
        value = np.mean(x.value, axis=axis, keepdims=keepdims)
    return settled(value, x.kind, x.error + (8 + 2 * math.sqrt(n)) * x.kind.sums * largest(x.value), 2)


def var(x: Wanted, axis: Any = None, keepdims: bool = False) -> Wanted:
    if x.kind.letter in "cb":
        raise Unfit("real numbers only")
    x = cast(x, "f32") if x.kind.letter in "iu" else x
    n, most = terms(x, axis), largest(x.value)
    if not n:
        raise Unfit("of nothing")
    with np.errstate(all="ignore"):
        value = np.var(x.value, axis=axis, keepdims=keepdims)
    return settled(value, x.kind, 4 * most * x.error + (16 + 4 * math.sqrt(n)) * x.kind.sums * most**2, 4)


def extreme(of: Callable[..., Any]) -> Any:
    def operator(x: Wanted, axis: Any = None, keepdims: bool = False) -> Wanted:
        ordered(x)
        if not terms(x, axis):
            raise Unfit("of nothing")
        return x.like(of(x.value, axis=axis, keepdims=keepdims))

    return operator


def where_extreme(of: Callable[..., Any]) -> Any:
    def operator(x: Wanted, axis: int | None = None, keepdims: bool = False) -> Wanted:
        ordered(x)
        if not terms(x, axis):
            raise Unfit("of nothing")
        return Wanted(of(x.exact, axis=axis, keepdims=keepdims), KINDS["int64"])

    return operator


def truth(of: Callable[..., Any]) -> Any:
    return lambda x, axis=None, keepdims=False: Wanted(of(x.exact != 0, axis=axis, keepdims=keepdims), KINDS["bool_"])


def softmax(x: Wanted, axis: int = -1) -> Wanted:
    y = log_softmax(x, axis)
    with np.errstate(all="ignore"):
        return settled(np.exp(y.value), y.kind, min(2 * y.error, 1.0), 8)


def log_softmax(x: Wanted, axis: int = -1) -> Wanted:
    if x.kind.letter != "f" or not np.all(np.isfinite(x.value)) or not x.shape[axis]:
        raise Unfit("finite floats only")
    top = x.value.max(axis=axis, keepdims=True)
    total = np.log(np.sum(np.exp(x.value - top), axis=axis, keepdims=True)) + top
    return settled(x.value - total, x.kind, 2 * x.error + 16 * x.kind.sums * (8 + largest(x.value)), 8)


def logsumexp(x: Wanted, axis: int = -1, keepdims: bool = False) -> Wanted:
    y = log_softmax(x, axis)
    total = (x.value - y.value).max(axis=axis, keepdims=keepdims)
    return Wanted(total, x.kind, y.error + 4 * x.kind.eps * (8 + largest(x.value)))


def product(of: Callable[[Any, Any], Any], a: Wanted, b: Wanted) -> Wanted:
    """A sum of products: `of` computes it from two arrays."""
    a, b = pair(a, b)
    if a.kind.letter == "b":
        raise Unfit("no products of bools")
    with np.errstate(all="ignore"):
        value = of(a.value, b.value)
        if a.kind.letter in "iu":
            return Wanted(value.astype(a.kind.held), a.kind)
        if not (np.all(np.isfinite(a.value)) and np.all(np.isfinite(b.value))):
            raise Unfit("finite numbers only")
        sizes = of(np.abs(a.value), np.abs(b.value))
    grid = is_grid(a.value) and is_grid(b.value) and largest(sizes) * 2**8 * a.kind.sums < 0.25
    if grid and not a.error and not b.error:
        return settled(value, a.kind, 0, 0)
    n = max([*a.shape, *b.shape, 1])
    ones = of(np.ones(a.shape), np.abs(b.value)), of(np.abs(a.value), np.ones(b.shape))
    error = a.error * largest(ones[0]) + b.error * largest(ones[1])
    return settled(value, a.kind, error + (8 + 2 * math.sqrt(n)) * a.kind.sums * largest(sizes), 2)


def matmul(a: Wanted, b: Wanted) -> Wanted:
    return product(np.matmul, a, b)


def einsum(equation: str, a: Wanted, b: Wanted) -> Wanted:
    if "k->kij" in equation:
        bounded(a.value.size * b.value.size)
    return product(lambda x, y: np.einsum(equation, x, y), a, b)


def outer(a: Wanted, b: Wanted) -> Wanted:
    bounded(a.value.size * b.value.size)
    return product(np.outer, a, b)


def isnan(x: Wanted) -> Wanted:
    if x.kind.letter != "f":
        raise Unfit("floats only")
    return Wanted(np.isnan(x.value), KINDS["bool_"])


_UNARY = {
    "exp": smooth(np.exp, lambda a: math.exp(a.max()), -20, 6), "log": smooth(np.log, lambda a: 1 / a.min(), 0.05, 1e6),
    "sqrt": smooth(np.sqrt, lambda a: 0.5 / math.sqrt(a.min()), 0.05, 1e6), "tanh": smooth(np.tanh, lambda a: 1),
    "sin": smooth(np.sin, lambda a: 1), "cos": smooth(np.cos, lambda a: 1), "atan": smooth(np.arctan, lambda a: 1),
    "sigmoid": smooth(lambda x: 1 / (1 + np.exp(-x)), lambda a: 1, -20, 20),
    "softplus": smooth(lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0), lambda a: 1, -20, 20),
    "silu": smooth(lambda x: x / (1 + np.exp(-x)), lambda a: 2, -20, 20),
    "expm1": smooth(np.expm1, lambda a: math.exp(a.max())),
    "log1p": smooth(np.log1p, lambda a: 1 / (1 + a.min()), -0.9, 1e6),
    "rsqrt": smooth(lambda x: 1 / np.sqrt(x), lambda a: a.min() ** -1.5, 0.05, 1e6),
    "floor": whole_part(np.floor), "ceil": whole_part(np.ceil), "round": whole_part(np.round),
    "trunc": whole_part(np.trunc),
    "neg": neg, "abs": abs_, "sign": sign, "square": square, "relu": relu,
    "logical_not": lambda x: Wanted(x.exact == 0, KINDS["bool_"]),
    "isnan": isnan,
}  # fmt: skip


def loop(*bounds: int) -> Iterator[Wanted]:
    """The counters of a loop that stays one."""
    for i in range(*bounds):
        yield Wanted(np.int64(i), KINDS["int64"])


floordiv, mod = whole(np.floor_divide), whole(np.mod)
bit_and, bit_or, bit_xor = map(whole, BITS)
eq, ne = compare(np.equal, order=False), compare(np.not_equal, order=False)
lt, le, gt, ge = map(compare, (np.less, np.less_equal, np.greater, np.greater_equal))

MEANING = SimpleNamespace(
    **{name: name for name in KINDS}, **_UNARY,
    add=add, sub=sub, mul=mul, div=div, floordiv=floordiv, mod=mod, bit_and=bit_and, bit_or=bit_or, bit_xor=bit_xor,
    eq=eq, ne=ne, lt=lt, le=le, gt=gt, ge=ge, logical_and=logical_and, logical_or=logical_or,
    maximum=maximum, minimum=minimum, where=where, masked_fill=masked_fill, clip=clip, cast=cast, range=loop,
    transpose=moved(np.transpose), flip=moved(np.flip), roll=moved(np.roll), broadcast_to=moved(np.broadcast_to),
    squeeze=moved(np.squeeze), unsqueeze=moved(np.expand_dims), swapaxes=moved(np.swapaxes), repeat=moved(np.repeat),
    tril=moved(np.tril), triu=moved(np.triu), flatten=moved(np.ravel), concat=joined(np.concatenate),
    stack=joined(np.stack), pad=pad, split=split, take=take, take_along_axis=take_along_axis, embedding=embedding,
    one_hot=one_hot, iota=iota, full=full, sum=sum_, prod=prod, mean=mean, var=var, cumsum=cumsum, max=extreme(np.max),
    min=extreme(np.min), argmax=where_extreme(np.argmax), argmin=where_extreme(np.argmin), any=truth(np.any),
    all=truth(np.all), softmax=softmax, log_softmax=log_softmax, logsumexp=logsumexp, matmul=matmul, einsum=einsum,
    outer=outer,
)  # fmt: skip
"""what stands for `ts` when a program runs on NumPy"""


def _operator(name: str, of: Callable[..., Any]) -> None:
    setattr(Wanted, f"__{name}__", lambda a, b: of(a, b))
    if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Wanted, f"__r{name}__", lambda a, b: of(b, a))


def power(x: Wanted, n: int) -> Wanted:
    if n == 2:
        return mul(x, x)
    if n == 3 and x.kind.letter in "iu":
        return mul(mul(x, x), x)
    raise Unfit("squares, and cubes of integers")


def invert(x: Wanted) -> Wanted:
    if x.kind.letter not in "iub":
        raise Unfit("integers only")
    return Wanted(np.invert(x.value), x.kind)


for _name, _of in {
    "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floordiv, "mod": mod, "and": bit_and, "or": bit_or,
    "xor": bit_xor, "matmul": matmul, "lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne,
}.items():  # fmt: skip
    _operator(_name, _of)
for _name, _of in {"neg": neg, "invert": invert, "pow": power}.items():
    setattr(Wanted, f"__{_name}__", _of)
