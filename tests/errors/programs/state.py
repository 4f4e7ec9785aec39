"""What functions may change, and what not. What is not marked is right."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import KVCache, StatefulObject, Tensor, effect, f32, int64


class Counter(StatefulObject):
    total: Tensor["D"]
    steps: Tensor[int64]

    @effect("update")
    def add(self, x: Tensor["D"]):
        self.total = self.total + x
        self.steps = self.steps + 1

    @effect("update")
    def widen(self, x: Tensor["D"]):
        self.total = ts.concat([self.total, x])
#       ^^^^^^^^^^ TS381
    # says: self.total is a tensor [D] f32, and a tensor [2*D] f32 is given: state keeps its shape and dtype

    @effect("update")
    def name(self, x: Tensor["D"]):
        self.last = x
#       ^^^^^^^^^ TS381
    # says: Counter holds total, steps: an effect cannot add 'last'


@ts.function
def counted(counter: Counter, x: Tensor["D"], n: ts.Int):
    for _ in ts.range(n):
        counter.add(x)
    if ts.sum(x) > 0:
        counter.add(x * 2)
    return counter.total


@ts.function
def from_outside(counter: Counter, x: Tensor["D"]):
    counter.total = x
#   ^^^^^^^^^^^^^ TS102
    # says: Counter is state of the caller, which effects alone change
    return x


@ts.function
def cached(cache: KVCache, k: Tensor["B", "H", "T", "D_h"]):
    cache.append(k, k)
    return ts.sum(cache.keys, axis=(0, 1, 3))


@ts.function
def another_shape(cache: KVCache, k: Tensor["B", "T", "D_h"], v: Tensor["B", "H", "T", "D_h"]):
    cache.append(k, v)
#                   ^ TS209
    return cache.length
