"""One function in every form of derivative that there is, each compared with what is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs


def check(
    f: Callable[..., Any], x: Any, *rest: Any, first: Any, second: Any = None, eager: bool = True, rtol: float = 1e-9
) -> None:
    """Compares derivatives of `f(x, *rest)` by the real array `x`.

    `first`: the gradient. `second`: the Hessian times `direction(x)`; None leaves the second order out. The gradient is
    taken outside of functions, inside of one, on the reference target, with one and two threads (equal bits), by
    `backward()` unless `eager` is False, and against forward mode; the Hessian by four combinations of the modes.
    """
    x = np.asarray(x, float)
    v = direction(x)

    def near(found: Any, wanted: Any) -> None:
        np.testing.assert_allclose(np.asarray(found).ravel(), np.asarray(wanted).ravel(), rtol=rtol, atol=1e-10)

    def one(x: Any) -> Any:
        return f(x, *rest)

    bits = []
    for threads in ("1", "2"):
        with knobs.num_threads.override(threads):
            found = np.asarray(ts.grad(one)(x))
            bits.append(found.tobytes())
    near(found, first)
    assert found.shape == x.shape and bits[0] == bits[1]
    assert np.asarray(ts.function(lambda x: ts.grad(one)(x))(x)).tobytes() == bits[0]
    with knobs.target.override("reference"):
        near(ts.grad(one)(x), first)
    if eager:
        leaf = ts.Tensor(x, requires_grad=True)
        one(leaf).backward()
        near(leaf.grad, first)
    near(ts.jvp(one, (x,), (v,))[1], np.sum(np.asarray(first) * v))
    if second is None:
        return
    near(ts.jvp(lambda x: ts.grad(one)(x), (x,), (v,))[1], second)
    near(ts.grad(lambda x: ts.sum(ts.grad(one)(x) * v))(x), second)
    near(ts.grad(lambda x: ts.jvp(one, (x,), (v,))[1])(x), second)
    near(np.asarray(ts.hessian(one)(x)).reshape(x.size, -1) @ v.ravel(), second)


def direction(x: Any) -> np.ndarray:
    """A direction without zeros, of the shape of `x`."""
    shape = np.shape(x)
    return np.cos(np.arange(float(np.prod(shape)))).reshape(shape)


def peer(jax: Any, f: Callable[[Any], Any], x: Any) -> dict[str, np.ndarray]:
    """`first` and `second` for `check`, by JAX."""
    x = np.asarray(x, float)
    with jax.enable_x64(True):
        first = jax.grad(f)(x)
        second = jax.jvp(jax.grad(f), (x,), (direction(x),))[1]
    return {"first": np.asarray(first), "second": np.asarray(second)}
