"""A mixture of experts: a router, the best two experts of each token, the balance of their load."""
# fmt: off
# ruff: noqa

import tessera as ts
from tessera import Tensor, bf16, f32, int64

EXPERTS = 8
ACTIVE = 2


def z_loss(logits):
    top = logits.max(axis=-1, keepdim=True)
    total = ts.log(ts.exp(logits - top).sum(axis=-1)) + top.squeeze(-1)
    return (total * total).mean()


@ts.function
def route(x: Tensor["T", "D"], router: Tensor["D", EXPERTS]):
    logits = x @ router  #: [T, 8] f32
    best = logits.argmax(axis=-1)  #: [T] int64
    ids = ts.arange(0, EXPERTS)  #: [8] int64
    rest = ts.where(ids == best[:, None], -1e9, logits)  #: [T, 8] f32
    second = rest.argmax(axis=-1)  #: [T] int64
    values = ts.stack([logits.max(axis=-1), rest.max(axis=-1)], axis=1)  #: [T, 2] f32
    share = ts.softmax(values, axis=-1)  #: [T, 2] f32
    return share, ts.stack([best, second], axis=1)


@ts.function
def gates(share: Tensor["T", ACTIVE], indices: Tensor["T", ACTIVE, int64]) -> Tensor["T", EXPERTS]:
    ids = ts.arange(0, EXPERTS)  #: [8] int64
    chosen = indices[:, :, None] == ids  #: [T, 2, 8] bool
    weighted = ts.where(chosen, share[:, :, None], 0.0)  #: [T, 2, 8] f32
    return weighted.sum(axis=1)


@ts.function
def experts(
    x: Tensor["T", "D"], gate: Tensor["T", EXPERTS], up: Tensor[EXPERTS, "D", "F"], down: Tensor[EXPERTS, "F", "D"]
) -> Tensor["T", "D"]:
    hidden = ts.silu(x @ up)  #: [8, T, F] f32
    out = hidden @ down  #: [8, T, D] f32
    mixed = ts.einsum("etd,te->td", out, gate)  #: [T, D] f32
    return mixed


@ts.function
def balance(p: Tensor["T", EXPERTS], gate: Tensor["T", EXPERTS]):
    load = (gate > 0).astype(f32).mean(axis=0)  #: [8] f32
    importance = p.mean(axis=0)  #: [8] f32
    loss = EXPERTS * (load * importance).sum()  #: [] f32
    return loss


@ts.function
def layer(
    x: Tensor["B", "S", "D"],
    router: Tensor["D", EXPERTS],
    up: Tensor[EXPERTS, "D", "F"],
    down: Tensor[EXPERTS, "F", "D"],
) -> Tensor["B", "S", "D"]:
    tokens = x.reshape(B * S, D)  #: [B*S, D] f32
    logits = tokens @ router  #: [B*S, 8] f32
    penalty = z_loss(logits)  #: [] f32
    share, indices = route(tokens, router)  #: [B*S, 2] f32 | [B*S, 2] int64
    gate = gates(share, indices)  #: [B*S, 8] f32
    mixed = experts(tokens, gate, up, down)  #: [B*S, D] f32
    mixed = mixed * (1.0 - 0.001 * penalty)
    return x + mixed.reshape(B, S, D)


@ts.function
def low_precision(x: Tensor["T", "D", bf16], up: Tensor["D", "F", bf16], scale: Tensor["F", f32]):
    hidden = x @ up  #: [T, F] bf16
    wide = hidden.astype(f32) * scale  #: [T, F] f32
    narrow = wide.astype(bf16)  #: [T, F] bf16
    return narrow


@ts.function
def mismatched(x: Tensor["T", "D"], up: Tensor[EXPERTS, "F", "D"]):
    hidden = x @ up
    #        ^^^^^^ TS203
    return hidden
