"""Attention and its relatives in the spellings of NumPy, PyTorch and JAX. All of it is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations
import math
from typing import Optional
import tessera as ts
from tessera import Tensor, Const, f16, bf16, f32, int64, int32

@ts.function
def rope(x: Tensor["B", "S", "H", "E"], cos: Tensor["S", "E//2"], sin: Tensor["S", "E//2"]) -> Tensor["B", "S", "H", "E"]:
    assert E % 2 == 0
    x1 = x[..., ::2]  #: [B, S, H, E//2] f32
    x2 = x[..., 1::2]  #: [B, S, H, E//2] f32
    c = cos[None, :, None, :]  #: [1, S, 1, E//2] f32
    s = sin[None, :, None, :]  #: [1, S, 1, E//2] f32
    r1 = x1 * c - x2 * s  #: [B, S, H, E//2] f32
    r2 = x1 * s + x2 * c  #: [B, S, H, E//2] f32
    out = ts.stack([r1, r2], axis=-1)  #: [B, S, H, E//2, 2] f32
    return out.reshape(B, S, H, E)

@ts.function
def rope_half(q: Tensor["B", "H", "S", "D"], cos: Tensor["S", "D"], sin: Tensor["S", "D"]) -> Tensor["B", "H", "S", "D"]:
    half = D // 2  #: D//2
    left, right = q[..., :half], q[..., half:]  #: [B, H, S, D//2] f32 | [B, H, S, D-(D//2)] f32
    rot = ts.concat([-right, left], axis=-1)  #: [B, H, S, D] f32
    return q * cos + rot * sin

@ts.function
def decode(x: Tensor["B", 1, "D"], k_cache: Tensor["B", "H", "T", "D//H"], v_cache: Tensor["B", "H", "T", "D//H"],
           wq: Tensor["D", "D"], wk: Tensor["D", "D"], wv: Tensor["D", "D"]):
    assert D % H == 0
    q = (x @ wq).reshape(B, 1, H, D // H).transpose(1, 2)  #: [B, H, 1, D//H] f32
    k = (x @ wk).reshape(B, 1, H, D // H).transpose(1, 2)  #: [B, H, 1, D//H] f32
    v = (x @ wv).reshape(B, 1, H, D // H).transpose(1, 2)  #: [B, H, 1, D//H] f32
    k_all = ts.concat([k_cache, k], axis=2)  #: [B, H, T+1, D//H] f32
    v_all = ts.concat([v_cache, v], axis=2)  #: [B, H, T+1, D//H] f32
    att = ts.softmax(q @ k_all.transpose(-2, -1) / math.sqrt(64.0), axis=-1)  #: [B, H, 1, T+1] f32
    y = (att @ v_all).transpose(1, 2).reshape(B, 1, D)  #: [B, 1, D] f32
    return y, k_all, v_all

@ts.function
def gqa(q: Tensor["B", "HQ", "S", "E"], k: Tensor["B", "HK", "S", "E"], v: Tensor["B", "HK", "S", "E"]) -> Tensor["B", "HQ", "S", "E"]:
    if HQ % HK:
        raise ValueError("heads")
    rep = HQ // HK  #: HQ//HK
    k = ts.repeat(k, rep, axis=1)  #: [B, HQ, S, E] f32
    v = ts.repeat(v, rep, axis=1)  #: [B, HQ, S, E] f32
    scores = ts.einsum("bhqd,bhkd->bhqk", q, k)  #: [B, HQ, S, S] f32
    w = ts.softmax(scores, axis=-1)  #: [B, HQ, S, S] f32
    return ts.einsum("bhqk,bhkd->bhqd", w, v)

@ts.function
def gqa2(q: Tensor["B", "HK*G", "S", "E"], k: Tensor["B", "HK", "S", "E"], v: Tensor["B", "HK", "S", "E"]):
    qg = q.reshape(B, HK, G, S, E)  #: [B, HK, G, S, E] f32
    scores = qg @ k[:, :, None].mT  #: [B, HK, G, S, S] f32
    out = ts.softmax(scores, -1) @ v.unsqueeze(2)  #: [B, HK, G, S, E] f32
    return out.reshape(B, -1, S, E)

@ts.function
def patchify(img: Tensor["B", "C", "H", "W"], w: Tensor["C*P*P", "D"], P: Const["P"]) -> Tensor["B", "(H//P)*(W//P)", "D"]:
    assert H % P == 0 and W % P == 0
    x = img.reshape(B, C, H // P, P, W // P, P)  #: [B, C, H//P, P, W//P, P] f32
    x = x.permute(0, 2, 4, 1, 3, 5)  #: [B, H//P, W//P, C, P, P] f32
    x = x.reshape(B, (H // P) * (W // P), C * P * P)  #: [B, (H//P)*(W//P), C*P*P] f32
    return x @ w

@ts.function
def patchify16(img: Tensor["B", 3, "H", "W"], w: Tensor[768, "D"], cls: Tensor[1, 1, "D"], pos: Tensor[1, "(H//16)*(W//16)+1", "D"]):
    B, C, H, W = img.shape
    x = img.reshape(B, C, H // 16, 16, W // 16, 16).transpose((0, 2, 4, 3, 5, 1)).reshape(B, -1, 768)  #: [B, (H//16)*(W//16), 768] f32
    tok = x @ w  #: [B, (H//16)*(W//16), D] f32
    c = cls.expand(B, -1, -1)  #: [B, 1, D] f32
    tok = ts.cat([c, tok], axis=1)  #: [B, (H//16)*(W//16)+1, D] f32
    tok = tok + pos
    return tok[:, 0], tok[:, 1:]

@ts.function
def moe(x: Tensor["T", "D"], wg: Tensor["D", "E"], w1: Tensor["E", "D", "F"], w2: Tensor["E", "F", "D"]) -> Tensor["T", "D"]:
    logits = x @ wg  #: [T, E] f32
    p = ts.softmax(logits, axis=-1)  #: [T, E] f32
    top = p.argmax(axis=-1)  #: [T] int64
    gate = p.max(axis=-1, keepdims=True)  #: [T, 1] f32
    mask = ts.one_hot(top, E)  #: [T, E] f32
    disp = ts.einsum("te,td->etd", mask, x)  #: [E, T, D] f32
    h = ts.gelu(disp @ w1)  #: [E, T, F] f32
    y = h @ w2  #: [E, T, D] f32
    comb = (y * mask.T[:, :, None]).sum(axis=0)  #: [T, D] f32
    return comb * gate

@ts.function
def lm_loss(x: Tensor["B", "S", "D"], emb: Tensor["V", "D"], target: Tensor["B", "S", int64]) -> Tensor[()]:
    logits = ts.einsum("bsd,vd->bsv", x, emb)  #: [B, S, V] f32
    flat = logits.reshape(-1, V)  #: [B*S, V] f32
    t = target.reshape(-1)  #: [B*S] int64
    logp = ts.log_softmax(flat, axis=-1)  #: [B*S, V] f32
    picked = logp[ts.arange(B * S), t]  #: [B*S] f32
    return -picked.mean()

@ts.function
def mha(x: Tensor["B", "S", "D"], w: Tensor["D", "3*D"], wo: Tensor["D", "D"], H: Const["H"]) -> Tensor["B", "S", "D"]:
    assert D % H == 0, "D must divide"
    E = D // H  #: D//H
    qkv = (x @ w).reshape(B, S, 3, H, -1).permute(2, 0, 3, 1, 4)  #: [3, B, H, S, D//H] f32
    q, k, v = qkv[0], qkv[1], qkv[2]  #: [B, H, S, D//H] f32 | [B, H, S, D//H] f32 | [B, H, S, D//H] f32
    s = (q @ k.transpose(-1, -2)) * (1.0 / E ** 0.5)  #: [B, H, S, S] f32
    mask = ts.tril(ts.ones((S, S), dtype=ts.bool))  #: [S, S] bool
    s = ts.where(mask, s, float("-inf"))
    o = ts.softmax(s, -1) @ v  #: [B, H, S, D//H] f32
    return o.transpose(1, 2).reshape(B, S, -1) @ wo

@ts.function
def static_layers(x: Tensor["B", "D"], w0: Tensor["D", "D"], w1: Tensor["D", "D"]):
    outs = [ts.tanh(x @ w) for w in (w0, w1)]  #: [D, D] f32
    d = {"a": outs[0], "b": outs[1]}  #: {a: [B, D] f32, b: [B, D] f32}
    total = sum(outs)  #: [B, D] f32
    s = ts.stack(list(d.values()), axis=1)  #: [B, 2, D] f32
    z = ts.concat([o * i for i, o in enumerate(outs)], axis=-1)  #: [B, 2*D] f32 | [B, D] f32
    return total, s, z

@ts.function
def optional(x: Tensor["B", "S", "D"], mask: Tensor["S", "S"] | None = None, bias: Optional[Tensor["D"]] = None):
    s = x @ x.mT  #: [B, S, S] f32
    if mask is not None:
        s = s + mask
    y = ts.softmax(s, -1) @ x  #: [B, S, D] f32
    return y if bias is None else y + bias


@ts.function
def losses(x: Tensor["B", "D"]) -> dict[str, Tensor]:
    y = x * 2  #: [B, D] f32
    return {"loss": y.sum(), "y": y}
