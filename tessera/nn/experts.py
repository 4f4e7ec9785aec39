"""Mixtures of experts: each token goes through a few of many feed-forward parts, so the work does not grow with the
number of experts.

Tokens are sorted by expert into one table of slots, the operand of a batched product. The results are added by token
with a segment sum. So no sum depends on the order of threads, forward or backward: equal operands give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import tessera as ts
from tessera import Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import init
from tessera.nn.dense import Linear
from tessera.nn.module import Module
from tessera.nn.transformer import TransformerBlock

BLOCK = 32
"""slots of one product where no token is left out: more fill worse, fewer copy an expert's weights more often"""


class TopKRouter(Module):
    """The `k` experts of each token x [N, D]: (weights [N, k], experts [N, k] of int64, balance, a number).

    p = softmax(x W) over all experts, and the k largest are taken; for k > 1 their weights are divided by their sum, as
    in GShard (D. Lepikhin et al., 2020), for k = 1 the weight is p, as in Switch (W. Fedus, B. Zoph, N. Shazeer, 2021).
    `balance` is Switch's load-balancing loss, E sum_e f_e P_e with f_e the share of all choices that fell on e and P_e
    the mean of p: 1 where both are even. Add it to the loss, times 0.01. Probabilities are f32 for any dtype of x.
    """

    gate: Linear
    k: int

    def __init__(self, features: int, experts: int, *, key: int | None = None, k: int = 2, dtype: Any = ts.f32) -> None:
        if k > experts:
            raise LaunchError(Diagnostic("TS105", f"{k} of {experts} experts cannot be chosen: k is at most {experts}"))
        self.gate = Linear(features, experts, key=key, bias=False, dtype=dtype)
        self.k = k

    def __call__(self, x: Tensor["N", "D"]):
        experts = self.gate.weight.shape[1]
        p = ts.softmax(self.gate(x).to(ts.f32), axis=-1)
        weights, chosen = ts.topk(p, self.k)
        if self.k > 1:
            weights = weights / ts.sum(weights, axis=-1, keepdims=True)
        share = _counts(ts.ravel(chosen), experts).to(ts.f32) / (x.shape[0] * self.k)
        return weights, chosen, experts * ts.sum(share * ts.mean(p, axis=0))


def _counts(chosen: Tensor["M", ts.int64], experts: int):
    return ts.segment_sum(ts.ones_like(chosen), chosen, experts)


class MixtureOfExperts(Module):
    """Each token of x [..., D] goes through `k` of the experts: (y [..., D], balance, the loss of `TopKRouter`).

    y is the sum of weight_e * act(x U_e) V_e over the token's experts e (N. Shazeer et al., 2017), with `up` [E, D, H]
    and `down` [E, H, D]. An expert takes at most `capacity` times the even share k N / E of the choices, rounded up;
    first choices take precedence, then earlier tokens, and a choice beyond the capacity counts 0 (Switch, 2021), so add
    y to x, as blocks do. `capacity=None` drops no choice: each expert's tokens fill blocks of 32 slots (as in
    MegaBlocks, T. Gale et al., 2022), and weights are copied once per block. An expert without tokens has gradient 0.
    """

    router: TopKRouter
    up: Tensor["E", "D", "H"]
    down: Tensor["E", "H", "D"]
    act: Callable
    capacity: float | None

    def __init__(
        self, features: int, hidden: int, experts: int, *, key: int | None = None, k: int = 2,
        capacity: float | None = 1.25, act: Callable[..., Any] = ts.gelu, dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        a, b, c = init.split(key, 3)
        self.router = TopKRouter(features, experts, key=a, k=k, dtype=dtype)
        self.up = init.lecun_uniform((experts, features, hidden), b, dtype, fan_in=features)
        self.down = init.lecun_uniform((experts, hidden, features), c, dtype, fan_in=hidden)
        self.act = act
        self.capacity = capacity

    def __call__(self, x: Tensor["...", "D"]):
        tokens = ts.reshape(x, (-1, x.shape[-1]))
        count = tokens.shape[0]
        weights, chosen, balance = self.router(tokens)
        first = ts.ravel(ts.swapaxes(chosen, 0, 1))  # all first choices, then all second ones
        choice, owner = self.slots(first)
        token = ts.where(choice < 0, count, choice % count)  # a row outside reads as 0, and is summed nowhere
        up, down = (self.up, self.down) if owner is None else (self.up[owner], self.down[owner])
        y = self.act(ts.take(tokens, token, axis=0) @ up) @ down
        weight = ts.take(ts.ravel(ts.swapaxes(weights, 0, 1)), ts.maximum(choice, 0)).to(x.dtype)
        rows = ts.reshape(y * weight[..., None], (-1, x.shape[-1]))
        return ts.reshape(ts.segment_sum(rows, ts.ravel(token), count), x.shape), balance

    def slots(self, chosen: Tensor["M", ts.int64]):
        """Which choice lies in each slot [groups, slots of a group], -1 in those that stay empty, and the expert of
        each group; None where there is one group for each expert."""
        experts, total = self.up.shape[0], chosen.shape[0]
        counts = _counts(chosen, experts)
        start = ts.cumsum(counts) - counts
        if self.capacity is None:
            owner, place = self.blocks(counts, (total + experts * (BLOCK - 1)) // BLOCK)
            start, counts = start[owner], counts[owner]
        else:
            owner, room = None, -(-total * round(self.capacity * 100) // (100 * experts))
            place = ts.arange(room)
        order = ts.argsort(chosen)
        found = ts.take(order, start[:, None] + place)
        return ts.where(place < counts[:, None], found, -1), owner

    def blocks(self, counts: Tensor["E", ts.int64], blocks: int):
        """The expert of each block of slots, and [blocks, BLOCK], the how manieth of its choices a slot takes."""
        needed = (counts + (BLOCK - 1)) // BLOCK
        ends = ts.cumsum(needed)
        block = ts.arange(blocks)
        owner = ts.minimum(ts.sum(block[:, None] >= ends, axis=1), counts.shape[0] - 1)
        before = block - (ends - needed)[owner]
        return owner, before[:, None] * BLOCK + ts.arange(BLOCK)


class SwitchBlock(TransformerBlock):
    """A block of a transformer whose feed-forward part is a mixture of experts: (x, balance)."""

    feed: MixtureOfExperts

    def __call__(self, x: Tensor["...", "S", "D"], key=None, mask=None):
        first, second = (None, None) if key is None else ts.unstack(ts.random_bits(key, (2,)))
        x = self.attended(x, first, mask)
        y, balance = self.feed(self.before_feed(x))
        return x + self.drop(y, second), balance


class SwitchTransformer(Module):
    """Blocks of a transformer, every second of which has experts in place of one feed-forward part: x [..., S, D] to
    (y [..., S, D], balance), the mean of the balance losses (W. Fedus, B. Zoph, N. Shazeer, 2021).

    Each token goes to `k` experts. `capacity` is that of `MixtureOfExperts`, the other arguments are those of
    `TransformerBlock`.
    """

    blocks: list

    def __init__(
        self, features: int, heads: int, layers: int, experts: int, *, key: int | None = None, k: int = 1,
        capacity: float | None = 1.25, hidden: int | None = None, causal: bool = True,
        positions: Literal["rotary", "alibi"] | None = None, dropout: float = 0.0, dtype: Any = ts.f32,
    ) -> None:  # fmt: skip
        hidden = hidden or 4 * features
        self.blocks = []
        for i, seed in enumerate(init.split(key, layers)):
            first, second = init.split(seed, 2)
            block = TransformerBlock(
                features, heads, key=first, causal=causal, positions=positions, hidden=hidden, dropout=dropout,
                dtype=dtype,
            )  # fmt: skip
            if i % 2:
                feed = MixtureOfExperts(features, hidden, experts, key=second, k=k, capacity=capacity, dtype=dtype)
                block = SwitchBlock(block.attention, feed, block.before_attention, block.before_feed, block.drop)
            self.blocks.append(block)

    def __call__(self, x: Tensor["...", "S", "D"], key=None, mask=None):
        keys = None if key is None else ts.random_bits(key, (len(self.blocks),))
        balance = 0.0
        for i, block in enumerate(self.blocks):
            own = None if keys is None else keys[i]
            if i % 2:
                x, more = block(x, own, mask)
                balance = balance + more
            else:
                x = block(x, own, mask)
        return x, balance / (len(self.blocks) // 2)
