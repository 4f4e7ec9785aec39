"""The names of random programs (`peers`), as Tessera reads them."""

from __future__ import annotations

import tessera as ts

NAMES = """
sin cos tanh exp sqrt log log1p log2 sigmoid relu abs erf atan acos expm1 rsqrt square clip reciprocal sinh
where floor sign maximum minimum atan2 pow hypot logaddexp xlogy lerp copysign remainder sum mean amax amin prod
logsumexp flip permute reshape concat stack roll tril triu diff argsort outer einsum silu softplus gelu elu
leaky_relu logsigmoid conv1d cumsum cumprod softmax log_softmax
"""
for _name in NAMES.split():
    globals()[_name] = getattr(ts, _name)


def var1(x, axis, keepdims=False):
    return ts.var(x, axis=axis, correction=1, keepdims=keepdims)


def std1(x, axis, keepdims=False):
    return ts.std(x, axis=axis, correction=1, keepdims=keepdims)


def norm2(x, axis, keepdims=False):
    return ts.norm(x, axis=axis, keepdims=keepdims)


def normed(x, axis):
    return ts.layer_norm(x, axis=axis, eps=0.1)


def repeated(x, count, axis):
    return ts.repeat(x, count, axis=axis)


def padded(x, low, high, axis):
    return ts.pad(x, [(low, high) if i == axis else (0, 0) for i in range(len(x.shape))])


def counted(shape, _like):
    count = 1
    for n in shape:
        count = count * n
    return ts.reshape(ts.arange(count), shape).to(ts.f64) * 0.1 - 0.2


def fit(x, shape):
    count = 1
    for n in shape:
        count = count * n
    flat = ts.reshape(x, (-1,))
    many = ts.concat([flat] * -(-count // flat.shape[0]))[:count]
    return ts.reshape(many * (0.9 + 0.07 * ts.arange(count).to(ts.f64)), shape)


def ids(x, shape, bound):
    return ts.clip(ts.floor(ts.abs(ts.sin(7.0 * fit(x, shape))) * bound), 0, bound - 1).to(ts.int64)


def noise(key, shape):
    return ts.normal(key, shape, dtype=ts.f64)


def taken(x, ids, axis):
    return ts.take(x, ids, axis=axis)


def along(x, ids, axis):
    return ts.take_along_axis(x, ids, axis=axis)


def scattered(x, ids, updates, axis):
    return ts.scatter_add(x, ids, updates, axis=axis)


def segments(x, ids, count, axis):
    return ts.segment_sum(x, ids, count, axis=axis)


def sorted(x, axis, descending):
    return ts.sort(x, axis=axis, descending=descending)


def top(x, k, axis):
    return ts.topk(x, k, axis=axis)[0]


def stored(x, at, update, axis):
    return ts.put(x, at, update, axis=axis)


def slope(f, x):
    return ts.grad(f)(x)


def mapped(f, x):
    return ts.vmap(f)(x)


def scanned(f, init, xs):
    return ts.scan(f, init, xs)[1]


def through_f32(x):
    return ts.sin(x.to(ts.f32)).to(ts.f64)
