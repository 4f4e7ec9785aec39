"""Losses, routing, samplers and solvers as research code writes them. All of it is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations
import math
import tessera as ts
from tessera import Tensor, Const, f16, bf16, f32, int64

@ts.function
def clip_loss(img: Tensor["B", "D"], txt: Tensor["B", "D"], logit_scale: f32):
    i = img / (ts.norm(img, axis=-1, keepdims=True) + 1e-6)  #: [B, D] f32
    t = txt / (ts.norm(txt, axis=-1, keepdims=True) + 1e-6)  #: [B, D] f32
    logits = ts.exp(logit_scale) * i @ t.T  #: [B, B] f32
    labels = ts.arange(B)  #: [B] int64
    a = ts.log_softmax(logits, axis=1)  #: [B, B] f32
    b = ts.log_softmax(logits.T, axis=1)  #: [B, B] f32
    loss = -(a[labels, labels] + b[labels, labels]).mean() / 2  #: [] f32
    return loss

@ts.function
def vae(x: Tensor["B", "D"], wm: Tensor["D", "Z"], wv: Tensor["D", "Z"], noise: Tensor["B", "Z"], dec: Tensor["Z", "D"]):
    mu, logvar = x @ wm, x @ wv  #: [B, Z] f32 | [B, Z] f32
    z = mu + ts.exp(0.5 * logvar) * noise  #: [B, Z] f32
    rec = ts.sigmoid(z @ dec)  #: [B, D] f32
    bce = -(x * ts.log(rec + 1e-7) + (1 - x) * ts.log(1 - rec + 1e-7)).sum(-1)  #: [B] f32
    kl = -0.5 * (1 + logvar - ts.square(mu) - ts.exp(logvar)).sum(-1)  #: [B] f32
    return (bce + kl).mean()

@ts.function
def moe_capacity(x: Tensor["T", "D"], router: Tensor["D", "E"], w: Tensor["E", "D", "F"], C: Const["C"]):
    p = ts.softmax(x @ router, axis=-1)  #: [T, E] f32
    e = p.argmax(-1)  #: [T] int64
    hot = ts.one_hot(e, E)  #: [T, E] f32
    pos = (ts.cumsum(hot, axis=0) * hot).sum(-1).astype(int64) - 1  #: [T] int64
    keep = pos < C  #: [T] bool
    slot = ts.one_hot(ts.where(keep, pos, 0), C) * keep[:, None]  #: [T, C] f32
    dispatch = hot[:, :, None] * slot[:, None, :]  #: [T, E, C] f32
    inp = ts.einsum("tec,td->ecd", dispatch, x)  #: [E, C, D] f32
    out = ts.einsum("ecd,edf->ecf", inp, w)  #: [E, C, F] f32
    y = ts.einsum("tec,ecf->tf", dispatch * p[:, :, None], out)  #: [T, F] f32
    aux = (hot.mean(0) * p.mean(0)).sum() * E  #: [] f32
    return y, aux

@ts.function
def ddim(x: Tensor["B", "C", "H", "W"], eps: Tensor["B", "C", "H", "W"], a_t: Tensor["B"], a_s: Tensor["B"]):
    at = a_t.reshape(B, 1, 1, 1)  #: [B, 1, 1, 1] f32
    as_ = a_s[:, None, None, None]  #: [B, 1, 1, 1] f32
    x0 = (x - ts.sqrt(1 - at) * eps) / ts.sqrt(at)  #: [B, C, H, W] f32
    x0 = x0.clip(-1, 1)
    return ts.sqrt(as_) * x0 + ts.sqrt(1 - as_) * eps

@ts.function
def conv1d(x: Tensor["B", "T", "C"], w: Tensor["K", "C", "O"], K: Const["K"] = 3) -> Tensor["B", "T", "O"]:
    xp = ts.pad(x, ((0, 0), (K - 1, 0), (0, 0)))  #: [B, T+2, C] f32
    return sum(xp[:, i : i + T] @ w[i] for i in range(K))

@ts.function
def strided(x: Tensor["B", "H", "W"]):
    assert H % 2 == 0 and W % 2 == 0
    a, b, c, d = x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]  #: [B, H//2, W//2] f32 | [B, H//2, W//2] f32 | [B, H//2, W//2] f32 | [B, H//2, W//2] f32
    s = a + b + c + d  #: [B, H//2, W//2] f32
    m = ts.maximum(ts.maximum(a, b), ts.maximum(c, d))  #: [B, H//2, W//2] f32
    cat = ts.stack([a, b, c, d], axis=1).reshape(B, 4, -1)  #: [B, 4, (H//2)*(W//2)] f32
    return s, m, cat

@ts.function
def alibi(H: Const["H"], S: Const["S"]):
    m = 2.0 ** (-8.0 / 8 * (ts.arange(H) + 1))  #: [H] f32
    d = ts.arange(S)[None, :] - ts.arange(S)[:, None]  #: [S, S] int64
    bias = m[:, None, None] * d  #: [H, S, S] f32
    return ts.where(d <= 0, bias, float("-inf"))

@ts.function
def sliding(q: Tensor["B", "S", "D"], k: Tensor["B", "S", "D"], W: Const["W"] = 64):
    assert S % W == 0
    qb = q.reshape(B, S // W, W, D)  #: [B, S//64, 64, D] f32
    kb = k.reshape(B, -1, W, D)  #: [B, S//64, 64, D] f32
    prev = ts.concat([ts.zeros((B, 1, W, D)), kb[:, :-1]], axis=1)  #: [B, S//64, 64, D] f32
    ctx = ts.concat([prev, kb], axis=2)  #: [B, S//64, 128, D] f32
    s = qb @ ctx.mT  #: [B, S//64, 64, 128] f32
    i = ts.arange(W)[:, None] + W  #: [64, 1] int64
    j = ts.arange(2 * W)[None, :]  #: [1, 128] int64
    ok = (j <= i) & (j > i - W)  #: [64, 128] bool
    return ts.softmax(ts.where(ok, s, -1e9), -1)

@ts.function
def rk4(y: Tensor["N"], A: Tensor["N", "N"], h: f32, steps: Const["steps"] = 10):
    f = lambda v: A @ v
    for _ in range(steps):
        k1 = f(y)  #: [N] f32
        k2 = f(y + h / 2 * k1)  #: [N] f32
        k3 = f(y + h / 2 * k2)  #: [N] f32
        k4 = f(y + h * k3)  #: [N] f32
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y

@ts.function
def heat(u: Tensor["N", "M"], k: f32, n: int64):
    for _ in ts.range(100):  #: [] int64
        inner = u[1:-1, 1:-1] + k * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])  #: [N-2, M-2] f32
        mid = ts.concat([u[1:-1, :1], inner, u[1:-1, -1:]], axis=1)  #: [N-2, M] f32
        u = ts.concat([u[:1], mid, u[-1:]], axis=0)
    return u

@ts.function
def kmeans(x: Tensor["N", "D"], c: Tensor["K", "D"]):
    d = (x * x).sum(-1)[:, None] - 2 * x @ c.T + (c * c).sum(-1)  #: [N, K] f32
    a = d.argmin(axis=1)  #: [N] int64
    h = ts.one_hot(a, K)  #: [N, K] f32
    n = ts.maximum(h.sum(0), 1)  #: [K] f32
    return h.T @ x / n[:, None]

@ts.function
def bn(x: Tensor["B", "C", "H", "W"], g: Tensor["C"], b: Tensor["C"], rm: Tensor["C"], rv: Tensor["C"], training: bool = True):
    if training:
        m, v = x.mean((0, 2, 3)), x.var((0, 2, 3))  #: [C] f32 | [C] f32
    else:
        m, v = rm, rv
    y = (x - m.reshape(1, -1, 1, 1)) / ts.sqrt(v.reshape(1, -1, 1, 1) + 1e-5)  #: [B, C, H, W] f32
    y = y * g[None, :, None, None] + b[None, :, None, None]
    return y, 0.9 * rm + 0.1 * m, 0.9 * rv + 0.1 * v

@ts.function
def sinkhorn(logits: Tensor["N", "M"]):
    z = logits  #: [N, M] f32
    for _ in ts.range(20):  #: [] int64
        z = z - ts.logsumexp(z, axis=1, keepdims=True)
        z = z - ts.logsumexp(z, axis=0, keepdims=True)
    return ts.exp(z)

@ts.function
def gumbel(p: Tensor["B", "V"], u: Tensor["B", "V"]):
    g = -ts.log(-ts.log(u + 1e-10) + 1e-10)  #: [B, V] f32
    return ts.softmax((ts.log_softmax(p) + g) / 0.5, -1)

@ts.function
def welford(x: Tensor["N", "D"]):
    mean, m2 = ts.zeros((D,)), ts.zeros((D,))  #: [D] f32 | [D] f32
    for i in ts.range(N):  #: [] int64
        d = x[i] - mean  #: [D] f32
        mean = mean + d / (i + 1)
        m2 = m2 + d * (x[i] - mean)
    return mean, m2 / N

@ts.function
def linear_attention(q: Tensor["B", "H", "S", "E"], k: Tensor["B", "H", "S", "E"], v: Tensor["B", "H", "S", "F"]):
    q, k = ts.relu(q) + 1e-3, ts.relu(k) + 1e-3
    kv = ts.einsum("bhse,bhsf->bhef", k, v)  #: [B, H, E, F] f32
    z = 1 / ts.einsum("bhse,bhe->bhs", q, k.sum(2))  #: [B, H, S] f32
    return ts.einsum("bhse,bhef,bhs->bhsf", q, kv, z)
