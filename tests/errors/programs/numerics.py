"""What overflows, cancels or divides by 0, and how it is mended. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor, bf16, exp, f16, f32, f64, fp8_e4m3, fp8_e5m2


@ts.function
def softmax(x: Tensor["B", "D", f16]):
    return ts.exp(x) / ts.exp(x).sum(axis=-1, keepdim=True)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # says: exp of more than 11.09 is infinite in f16
    # fix: return ts.softmax(x, axis=-1)


@ts.function
def softmax_in_steps(q: Tensor["S", "D", bf16], k: Tensor["S", "D", bf16], v: Tensor["S", "D", bf16]):
    scores = q @ k.T
    e = ts.exp(scores)
    weights = e / ts.sum(e, axis=-1, keepdim=True)
    #         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # says: exp of more than 88.72 is infinite in bf16
    # says: the exponentials are taken here
    return weights @ v


@ts.function
def softmax_of_all(x: Tensor["B", "D"]):
    e = x.exp()
    return e / e.sum()
    #      ^^^^^^^^^^^ TS312
    # fix of the line above: e = (x - x.max()).exp()


@ts.function
def attention_divided_late(q: Tensor["S", "D"], k: Tensor["S", "D"], v: Tensor["S", "D"]):
    e = exp(q @ k.T)
    return (e @ v) / e.sum(-1, keepdim=True)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # says: Subtract the maximum first


@ts.function
def divided_by_a_product(x: Tensor["B", "D"]):
    e = ts.exp(x)
    total = e.sum(-1, keepdim=True)
    return e * (1 / total), e * ts.reciprocal(total)
    #      ^^^^^^^^^^^^^^^ TS312
    #                       ^^^^^^^^^^^^^^^^^^^^^^^^ TS312


@ts.function
def with_an_eps_that_does_not_help(x: Tensor["B", "D"]):
    e = ts.exp(x / 0.1)
    return e / (e.sum(-1, keepdim=True) + 1e-9)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # fix of the line above: e = ts.exp((x / 0.1) - ts.max(x / 0.1, axis=-1, keepdim=True))


@ts.function
def activations_by_hand(x: Tensor["B", "D"]):
    a = ts.exp(x) / (1 + ts.exp(x))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # says: exp of more than 88.72 is infinite in f32, and infinity divided by infinity is NaN
    # fix: a = ts.sigmoid(x)
    b = (ts.exp(x) - ts.exp(-x)) / (ts.exp(-x) + ts.exp(x))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    # fix: b = ts.tanh(x)
    return a, b


@ts.function
def activations_that_are_right(x: Tensor["B", "D"]):
    e = ts.exp(-ts.abs(x))
    quiet = ts.exp(ts.minimum(x, 0.0)) / (1 + ts.exp(ts.minimum(x, 0.0)).sum(-1, keepdim=True))
    return 1 / (1 + ts.exp(-x)), e / (1 + e), x / (1 + ts.exp(-x)), quiet, ts.exp(x) / (2 + ts.exp(-x))


@ts.function
def online_softmax(x: Tensor["N", "D"]):
    top, total, kept = ts.full((D,), -1e30), ts.zeros((D,)), ts.zeros((D,))
    for i in ts.range(N):
        new = ts.maximum(top, x[i])
        total = total * ts.exp(top - new) + ts.exp(x[i] - new)
        kept = kept + ts.exp(x[i] - new) * x[i]
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS311
        # says: this sum is not rescaled
        # says: the maximum grows here
        top = new
    return kept / total


@ts.function
def softmax_safe(x: Tensor["B", "D", f16]):
    e = ts.exp(x - ts.max(x, axis=-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


@ts.function
def softmax_masked(x: Tensor["B", "D"], mask: Tensor["B", "D", "bool"]):
    far = x - x.max(-1, keepdim=True)
    e = ts.where(mask, ts.exp(far * 0.5), 0.0)
    return e / (e.sum(-1, keepdim=True) + 1e-9)


@ts.function
def of_bounded_scores(x: Tensor["B", "D"]):
    e = ts.exp(ts.tanh(x) * 30.0)
    return e / e.sum(-1, keepdim=True)


@ts.function
def gaussian_weights(distance: Tensor["N", "M"]):
    w = ts.exp(-distance * distance)
    return w @ ts.ones((M, 1))


@ts.function
def double_precision(x: Tensor["B", "D", f64]):
    e = ts.exp(x)
    return e / e.sum(-1, keepdim=True)


@ts.function
def quantised(x: Tensor["B", "D"], w: Tensor["D", "D"]):
    a = ts.cast(x @ w, fp8_e4m3)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^ TS313
    # says: fp8_e4m3 holds magnitudes from 0.002 to 448
    b = ts.cast(x, fp8_e5m2)
    #   ^^^^^^^^^^^^^^^^^^^^ TS313
    return a, b


@ts.function
def quantised_with_a_scale(x: Tensor["B", "D"], scale: Tensor[()]):
    a = ts.cast(x * scale, fp8_e4m3)
    top = ts.maximum(x.abs().max(), 1e-12)
    b = ts.cast(ts.clip(x / (top / 448.0), -448.0, 448.0), fp8_e4m3)
    c = ts.cast(ts.sigmoid(x), fp8_e4m3)
    return a, b, c


@ts.function
def small_differences(x: Tensor["B", "D"], y: Tensor["B", "D"]):
    a = ts.exp(x) - 1
    #   ^^^^^^^^^^^^^ TS314
    # says: exp(x) - 1 is wrong near x = 0
    # fix: a = ts.expm1(x)
    b = 1 - ts.cos(x + y)
    #   ^^^^^^^^^^^^^^^^^ TS314
    # fix: b = 2 * ts.sin((x + y) / 2) ** 2
    c = ts.log(1.0 + y)
    #   ^^^^^^^^^^^^^^^ TS314
    # fix: c = ts.log1p(y)
    d = (x.exp() - 1.0) * y
    #    ^^^^^^^^^^^^^ TS314
    # fix: d = (x.expm1()) * y
    e = (x * y + 1).log()
    #   ^^^^^^^^^^^^^^^^^ TS314
    # fix: e = (x * y).log1p()
    return a, b, c, d, e


@ts.function
def differences_that_are_right(x: Tensor["B", "D"], n: Tensor["B", "int64"]):
    return ts.exp(x) - x, 1 - x, ts.cos(x) - 0.5, ts.log(1 + n), ts.log(2 + x * x), ts.log1p(x), ts.expm1(x) - 1


@ts.function
def variance(x: Tensor["B", "D"]):
    return (x * x).mean(axis=-1, keepdim=True) - x.mean(axis=-1, keepdim=True) ** 2
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS314
    # says: the result may even be negative
    # fix: return x.var(axis=-1, keepdim=True)


@ts.function
def variance_of_all(x: Tensor["B", "D"]):
    mean = ts.mean(x)
    return ts.mean(ts.square(x)) - mean * mean
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS314
    # fix: return ts.var(x)


@ts.function
def variance_by_sums(x: Tensor["B", "D"]):
    return ts.sum(x * x, -1) / D - (ts.sum(x, -1) / D) ** 2
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS314


@ts.function
def variance_that_is_right(x: Tensor["B", "D"], y: Tensor["B", "D"]):
    m = x.mean(-1, keepdim=True)
    two_passes = ts.square(x - m).mean(-1)
    covariance = (x * y).mean(-1) - x.mean(-1) * y.mean(-1)
    return two_passes, covariance, x.var(-1)


@ts.function
def probabilities(x: Tensor["B", "D"]):
    a = ts.log(ts.softmax(x, axis=-1))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS314
    # fix: a = ts.log_softmax(x, axis=-1)
    b = ts.log(ts.sigmoid(x))
    #   ^^^^^^^^^^^^^^^^^^^^^ TS314
    # fix: b = -ts.softplus(-x)
    b2 = ts.log(1 - ts.sigmoid(x + 1))
    #    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS314
    # says: log(1 - sigmoid(x)) is -inf where sigmoid(x) is rounded to 1
    # fix: b2 = -ts.softplus(x + 1)
    c = ts.log(1 + ts.exp(x))
    #   ^^^^^^^^^^^^^^^^^^^^^ TS314
    # fix: c = ts.softplus(x)
    d = ts.log(ts.sum(ts.exp(x), axis=1))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS315
    # says: Use logsumexp(x)
    # fix: d = ts.logsumexp(x, axis=1)
    return a, b, b2, c, d


@ts.function
def lengths(x: Tensor["N", f16], y: Tensor["N", f16], z: Tensor["N"]):
    a = ts.sqrt(x * x + y * y)
    #   ^^^^^^^^^^^^^^^^^^^^^^ TS318
    # says: the squares overflow for elements beyond 256
    # fix: a = ts.hypot(x, y)
    b = ts.sqrt(z**2 + ts.square(z + 1))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS318
    # fix: b = ts.hypot(z, z + 1)
    return a, b, ts.hypot(x, y), ts.sqrt(x * x + 1)


@ts.function
def logarithms(x: Tensor["B", "D"]):
    counts = ts.relu(x).sum(-1)
    a = ts.log(counts)
    #   ^^^^^^^^^^^^^^ TS315
    # says: this sum is 0 where all its terms are 0
    # fix: a = ts.log(counts + 1e-12)
    b = ts.log(ts.sum(x, axis=-1))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^ TS315
    # says: where its terms cancel out
    return a, b


@ts.function
def logarithms_that_are_right(x: Tensor["B", "D"]):
    a = ts.log(ts.relu(x).sum(-1) + 1e-6)
    b = ts.log(ts.softmax(x, axis=-1).sum(axis=-1))
    c = ts.log(ts.maximum(x.sum(-1), 1e-30))
    d = ts.log(ts.sum(ts.exp(x - x.max(-1, keepdim=True)), axis=-1))
    e = ts.log(ts.sum(1 + x * x, axis=-1))
    f = ts.log(x)
    return a, b, c, d, e, f


@ts.function
def normalised(x: Tensor["B", "D"], mask: Tensor["B", "D", "bool"]):
    a = x / ts.norm(x, axis=-1, keepdim=True)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # says: this norm is 0 where all elements are 0
    # fix: a = x / (ts.norm(x, axis=-1, keepdim=True) + 1e-12)
    b = x / ts.sqrt((x * x).sum(-1, keepdim=True))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # fix: b = x / ts.sqrt((x * x).sum(-1, keepdim=True) + 1e-12)
    c = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # says: where all elements are equal
    # fix: c = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)
    d = x * ts.rsqrt(x.var(-1, keepdim=True))
    #       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # fix: d = x * ts.rsqrt(x.var(-1, keepdim=True) + 1e-5)
    seen = mask.sum(-1, keepdim=True)
    e = (x * mask).sum(-1, keepdim=True) / seen
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # says: the sum is taken here
    # fix: e = (x * mask).sum(-1, keepdim=True) / (seen + 1e-12)
    f = x / ts.sqrt((x ** 2).sum(-1, keepdim=True))
    #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # says: where all its terms are 0
    # fix: f = x / ts.sqrt((x ** 2).sum(-1, keepdim=True) + 1e-12)
    g = x / x.abs().max()
    #   ^^^^^^^^^^^^^^^^^ TS316
    scale = x.abs().max(axis=-1, keepdim=True) / 127.0
    h = ts.round(x / scale)
    #            ^^^^^^^^^ TS316
    # says: this max is 0 where all elements are 0
    return a, b, c, d, e, f, g, h


@ts.function
def with_a_vanishing_eps(x: Tensor["B", "D", f16]):
    return x / (ts.norm(x, axis=-1, keepdim=True) + 1e-8)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS316
    # says: The 1e-08 that is added to it is 0 in f16
    # fix: return x / (ts.norm(x, axis=-1, keepdim=True) + 1e-6)


@ts.function
def normalised_with_care(x: Tensor["B", "D"], mask: Tensor["B", "D", "bool"], w: Tensor["B", "D"]):
    a = (x - x.mean(-1, keepdim=True)) / ts.sqrt(x.var(-1, keepdim=True) + 1e-5)
    b = x * ts.rsqrt(ts.mean(x * x, axis=-1, keepdim=True) + 1e-6)
    c = (x * mask).sum(-1) / ts.maximum(mask.sum(-1), 1)
    total = ts.relu(w).sum(-1, keepdim=True)
    d = x / ts.where(total == 0, 1.0, total)
    e = ts.where(total > 0, x / total, 0.0)
    f = x / w
    g = x.sum(-1) / D
    p = ts.sigmoid(w)
    h = p / p.sum(-1, keepdim=True)
    i = x / (1 + x.abs().sum(-1, keepdim=True))
    j = x / ts.clip(ts.norm(x, axis=-1, keepdim=True), 1e-6)
    q = ts.softmax(w, axis=-1)
    kept = ts.where(q >= q.max(-1, keepdim=True), q, 0.0)
    k = kept / kept.sum(-1, keepdim=True)
    gates = w / w.sum(-1, keepdim=True)  # of which nothing says that they cancel out
    return a, b, c, d, e, f, g, h, i, j, k, gates, x / x.mean()


@ts.function
def rescaled_while_long(x: Tensor["D"]):
    while ts.norm(x) > 0.5:
        x = x / ts.norm(x)
    return x


@ts.function
def summed_in_16_bits(x: Tensor["N", "D", bf16]):
    total = ts.zeros((D,), bf16)
    for i in ts.range(N):
        total = total + x[i]
        #       ^^^^^^^^^^^^ TS317
        # says: this sum is kept in bf16, which has 8 binary digits: once it is 256 times a term
    return total


@ts.function
def residuals(x: Tensor["N", "D", bf16], w: Tensor["D", "D", bf16]):
    total = ts.zeros((D,), f32)
    for i in ts.range(N):
        total = total + x[i]
    few = ts.zeros((D,), bf16)
    for i in ts.range(4):
        few = few + x[i]
    for i in ts.range(48):
        x = x + x @ w
    return x, total, few


@ts.function
def accepted(x: Tensor["B", "D"]):
    a = x / ts.norm(x)  # tessera: ignore[TS316]
    b = ts.exp(x) - 1  # tessera: ignore
    c = ts.log(  # tessera: ignore[TS314, TS315]
        1 + x
    )
    d = ts.log(1 + x)  # tessera: ignore[TS316]
    #   ^^^^^^^^^^^^^ TS314
    return a, b, c, d


@ts.function
def summed_in_16_bits_unrolled(x: Tensor[64, "D", f16], w: Tensor["D", "D", f16]):
    total = ts.zeros((D,), f16)
    for i in range(64):
        total = x[i] + total
        #       ^^^^^^^^^^^^ TS317
        # says: this sum is kept in f16, which has 11 binary digits: once it is 2048 times a term
    wide = 0.0
    few = x[0]
    for i in range(8):
        few += x[i]
        wide = wide + x[i].to(f32)
    for i in range(64):
        x = x + ts.tanh(x @ w)
    return total, wide, few, x


@ts.function
def some_sizes(x: Tensor["B", "D"]):
    if B > 4:
        y = ts.exp(x) / ts.exp(x).sum(-1, keepdim=True)
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS312
    else:
        y = ts.softmax(x, axis=-1)
    return y
