"""The names of random programs (`transforms`), as JAX reads them: control flow is written out, randomness looked up."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import tessera as ts

NAMES = """
sin cos tanh exp sqrt log log1p log2 abs expm1 square clip reciprocal sinh where floor sign maximum minimum hypot
logaddexp copysign remainder amax amin prod flip reshape concatenate stack roll tril triu diff outer einsum cumsum
cumprod mean
"""
for _name in NAMES.split():
    globals()[_name] = getattr(jnp, _name)
OF_NETWORKS = "sigmoid relu silu softplus elu leaky_relu softmax log_softmax logsumexp"
for _name in OF_NETWORKS.split():
    globals()[_name] = getattr(jax.nn, _name)
TRANSFORMS = "grad value_and_grad jvp vjp linearize jacfwd jacrev hessian vmap"
for _name in TRANSFORMS.split():
    globals()[_name] = getattr(jax, _name)
for _name in ("erf", "rsqrt"):
    globals()[_name] = getattr(jax.lax, _name)
xlogy, sum, pow, permute = jax.scipy.special.xlogy, jnp.sum, jnp.power, jnp.transpose
atan, atan2, acos, concat = jnp.arctan, jnp.arctan2, jnp.arccos, jnp.concatenate
stop_gradient, gelu, logsigmoid = (
    jax.lax.stop_gradient,
    functools.partial(jax.nn.gelu, approximate=False),
    jax.nn.log_sigmoid,
)
jacobian, remat, KEYS = jax.jacrev, jax.checkpoint, 6


def hvp(f, primals, tangents):
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jax.jvp(jax.grad(f, argnums), primals, tangents)[1]


def lerp(a, b, t):
    return a + (b - a) * t


def var1(x, axis, keepdims=False):
    return jnp.var(x, axis, ddof=1, keepdims=keepdims)


def std1(x, axis, keepdims=False):
    return jnp.std(x, axis, ddof=1, keepdims=keepdims)


def norm2(x, axis, keepdims=False):
    return jnp.sqrt(jnp.sum(x * x, axis, keepdims=keepdims))


def normed(x, axis):
    far = x - x.mean(axis, keepdims=True)
    return far / jnp.sqrt((far * far).mean(axis, keepdims=True) + 0.1)


def argsort(x, axis):
    return jnp.argsort(stop_gradient(x), axis=axis, stable=True)


def repeated(x, count, axis):
    return jnp.repeat(x, count, axis=axis)


def padded(x, low, high, axis):
    return jnp.pad(x, [(low, high) if i == axis else (0, 0) for i in range(x.ndim)])


def counted(shape, _like):
    return jnp.arange(int(np.prod(shape)), dtype=jnp.float64).reshape(shape) * 0.1 - 0.2


def fit(x, shape):
    count, flat = int(np.prod(shape)), jnp.reshape(x, (-1,))
    many = jnp.concatenate([flat] * -(-count // flat.shape[0]))[:count]
    return jnp.reshape(many * (0.9 + 0.07 * jnp.arange(count, dtype=jnp.float64)), shape)


def ids(x, shape, bound):
    return jnp.clip(jnp.floor(jnp.abs(jnp.sin(7.0 * fit(x, shape))) * bound), 0, bound - 1).astype(jnp.int64)


def taken(x, ids, axis):
    return jnp.take(x, ids, axis=axis)


def along(x, ids, axis):
    return jnp.take_along_axis(x, ids, axis=axis)


def _places(ids, axis):
    at = list(jnp.meshgrid(*(jnp.arange(n) for n in ids.shape), indexing="ij"))
    at[axis] = ids
    return tuple(at)


def scattered(x, ids, updates, axis):
    return x.at[_places(ids, axis)].add(updates)


def segments(x, ids, count, axis):
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return jnp.zeros(shape, x.dtype).at[(slice(None),) * axis + (ids,)].add(x)


def sorted(x, axis, descending):
    return -jnp.sort(-x, axis=axis) if descending else jnp.sort(x, axis=axis)


def top(x, k, axis):
    return jax.lax.slice_in_dim(sorted(x, axis, True), 0, k, axis=axis)


def stored(x, at, update, axis):
    return x.at[(slice(None),) * axis + (at,)].set(update)


def conv1d(x, w, padding):
    return jax.lax.conv_general_dilated(x, w, (1,), [(padding, padding)], dimension_numbers=("NCH", "OIH", "NCH"))


def noise(key, shape):
    return jnp.take(_drawn(shape), key, axis=0)


@functools.cache
def _drawn(shape):
    return np.stack([np.asarray(ts.normal(key, shape, dtype=ts.f64)) for key in range(KEYS)])


def choose(condition, yes, no):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes(), no())


def scaled(f, by):
    """`f` with `by` times its derivatives."""
    return lambda *xs: jax.tree.map(lambda v: by * v - (by - 1) * stop_gradient(v), f(*xs))


def scan(f, init, xs, reverse=False):
    count, out = len(jax.tree.leaves(xs)[0]), []
    for i in reversed(range(count)) if reverse else range(count):
        init, y = f(init, jax.tree.map(lambda v, i=i: v[i], xs))
        out.append(y)
    return init, jax.tree.map(lambda *v: jnp.stack(v[::-1] if reverse else v), *out)
