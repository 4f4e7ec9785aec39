"""JAX's programs (jaxprs), evaluated by NumPy: JAX would compile each of thousands of small programs for seconds.

What is not here runs as JAX runs it, operator by operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

SAME_NAMES = "sin cos tan tanh sinh cosh exp log log1p expm1 sqrt square floor abs sign"
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in SAME_NAMES.split()},
    "mul": np.multiply, "add": np.add, "add_any": np.add, "sub": np.subtract, "neg": np.negative, "max": np.maximum,
    "min": np.minimum, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal,
    "ne": np.not_equal, "or": np.logical_or, "atan2": np.arctan2, "atan": np.arctan, "pow": np.power,
    "logistic": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x), "rem": np.fmod, "copy": np.copy,
    "stop_gradient": lambda x: x, "is_finite": np.isfinite,
}  # fmt: skip
REDUCED = {"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod}
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
         "remat2": "jaxpr", "checkpoint": "jaxpr", "custom_vjp_call": "call_jaxpr"}  # fmt: skip
Values = Sequence[Any]


def evaluated(f: Callable[..., Any], *given: Any) -> list[np.ndarray]:
    """The leaves of what JAX says that the function gives, in f64."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        made = jax.make_jaxpr(f)(*given)
        return [np.asarray(v) for v in _run(made.jaxpr, made.consts, [np.asarray(v) for v in jax.tree.leaves(given)])]


def _run(jaxpr: Any, consts: Values, given: Values) -> list[Any]:
    held: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(np.asarray, consts), *given], strict=True))

    def value(v: Any) -> Any:
        return np.asarray(v.val, v.aval.dtype) if hasattr(v, "val") else held[v]

    for eqn in jaxpr.eqns:
        found = _equation(eqn, [value(v) for v in eqn.invars])
        for v, x in zip(eqn.outvars, found, strict=True):
            held[v] = np.asarray(x)
    return [value(v) for v in jaxpr.outvars]


def _equation(eqn: Any, xs: Values) -> Values:
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS:
        inner = params[CALLS[name]]
        return _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), xs)
    if name in ELEMENTWISE:
        return [ELEMENTWISE[name](*xs)]
    if name in REDUCED:
        return [REDUCED[name](xs[0], axis=tuple(params["axes"]))]
    if name in SHAPED:
        return [SHAPED[name](params, *xs)]
    if name == "split":
        return np.split(xs[0], np.cumsum(params["sizes"])[:-1], params["axis"])
    found = eqn.primitive.bind(*map(jax.numpy.asarray, xs), **params)
    return found if eqn.primitive.multiple_results else [found]


def _spread(params: Any, x: Any) -> Any:
    shape, at = params["shape"], params["broadcast_dimensions"]
    return np.broadcast_to(x.reshape([x.shape[at.index(i)] if i in at else 1 for i in range(len(shape))]), shape)


def _sliced(params: Any, x: Any) -> Any:
    steps = params["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _padded(params: Any, x: Any, fill: Any) -> Any:
    low, high, inner = zip(*params["padding_config"], strict=True) if x.ndim else ((), (), ())
    shape = [n + max(n - 1, 0) * k for n, k in zip(x.shape, inner, strict=True)]
    out = np.full(shape, fill, x.dtype)
    out[tuple(slice(None, None, k + 1) for k in inner)] = x
    out = np.pad(out, [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)], constant_values=fill)
    return out[tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(out.shape, low, high, strict=True))]


def _product(params: Any, a: Any, b: Any) -> Any:
    (ca, cb), (ba, bb) = params["dimension_numbers"]
    left, right = list(range(a.ndim)), [a.ndim + i for i in range(b.ndim)]
    for i, j in (*zip(ca, cb, strict=True), *zip(ba, bb, strict=True)):
        right[j] = left[i]
    kept = [left[i] for i in ba] + [i for i in left if i not in {left[j] for j in (*ca, *ba)}]
    return np.einsum(a, left, b, right, kept + [j for k, j in enumerate(right) if k not in (*cb, *bb)])


SHAPED: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _spread, "slice": _sliced, "pad": _padded, "dot_general": _product,
    "reshape": lambda p, x: np.reshape(x, p["new_sizes"]),
    "select_n": lambda p, which, *xs: np.where(which, xs[-1], xs[0]) if len(xs) == 2 else np.choose(which, xs),
    "iota": lambda p: np.broadcast_to(np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(
        [-1 if i == p["dimension"] else 1 for i in range(len(p["shape"]))]), p["shape"]),
    "concatenate": lambda p, *xs: np.concatenate(xs, p["dimension"]),
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    "integer_pow": lambda p, x: operator.pow(x, p["y"]),
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "squeeze": lambda p, x: np.squeeze(x, tuple(p["dimensions"])),
    "rev": lambda p, x: np.flip(x, tuple(p["dimensions"])),
}  # fmt: skip
