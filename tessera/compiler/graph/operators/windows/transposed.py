"""The transpose of a convolution: each element of its operand reaches the places of a window, a stride apart from the
next one's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import at_least_zero
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.operators.contraction import widened
from tessera.compiler.graph.operators.joining import part
from tessera.compiler.graph.operators.windows.sliding import Ints, resized, spread
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

WITHIN, PLACES = "ijk", "xyz"
"""labels of the axes of a window, and of those that windows slide along"""
PHASES = 9
"""convolutions that a transposed one with a stride falls into at most"""


def spread_out(
    g: GraphBuilder, x: Value, weight: Value, sizes: Shape, stride: Ints, padding: Sequence[tuple[int, int]],
    dilation: Ints, groups: int,
) -> Value:  # fmt: skip
    """The transpose of a convolution whose operand had these sizes; weights [channels of x, results / groups, ...].

    A stride leaves places between the elements of x. Where windows do not overlap, one product gives all of them; else
    places that are a stride apart are a convolution with every so many weights. For large strides x is spread out.
    """
    if all(s == 1 for s in stride):
        return turned_round(g, x, weight, sizes, padding, dilation, groups)
    kernel: Any = tensor(weight).shape[2:]
    if all(k <= s and d == 1 for k, s, d in zip(kernel, stride, dilation, strict=True)):
        return side_by_side(g, x, weight, sizes, stride, padding, groups)
    if math.prod(stride) <= PHASES:
        return by_phases(g, x, weight, sizes, stride, padding, dilation, groups)
    for axis, s in enumerate(stride, 2):
        last = at_least_zero((tensor(x).shape[axis] - 1) * s + 1)
        x = part(g, spread(g, x, axis, s), axis, 0, last)
    return turned_round(g, x, weight, sizes, padding, dilation, groups)


def turned_round(
    g: GraphBuilder, x: Value, weight: Value, sizes: Shape, padding: Sequence[tuple[int, int]], dilation: Ints,
    groups: int, most: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """The same for a stride of 1. `most`: how much longer than x the result may be, where that may be less than 0."""
    n, shape = len(dilation), tensor(weight).shape
    kernel: Any = shape[2:]
    pairs: list[tuple[Dim, Dim]] = []
    ends: dict[int, Dim] = {}
    for i, (d, k, (a, _), e) in enumerate(zip(sizes, kernel, padding, dilation, strict=True)):
        before, whole = e * (k - 1) - a, d + e * (k - 1)
        after = whole - before - tensor(x).shape[2 + i]  # so that as many windows are left as wanted
        if most is not None and not isinstance(after, int):
            after, ends[2 + i] = max(0, most[i] + e * (k - 1) - before), whole
        pairs.append((before, after))
    x = padded(g, x, pairs)
    for axis, stop in ends.items():
        x = part(g, x, axis, 0, stop)
    each = dims.floordiv(shape[0], groups)
    turned = g.flip(g.reshape(weight, (groups, each, *shape[1:])), tuple(range(3, 3 + n)))
    turned = g.transpose(turned, (0, 2, 1, *range(3, 3 + n)))
    turned = g.reshape(turned, (shape[1] * groups, each, *kernel))
    return getattr(g, f"conv{n}d")(x, turned, None, dilation=dilation, groups=groups)


def by_phases(
    g: GraphBuilder, x: Value, weight: Value, sizes: Shape, stride: Ints, padding: Sequence[tuple[int, int]],
    dilation: Ints, groups: int,
) -> Value:  # fmt: skip
    """Result i + a * stride, for each i less than the stride: windows reach it with the weights whose places have the
    same rest modulo the stride as it has."""
    n, shape, have = len(stride), tensor(weight).shape, tensor(x).shape
    counts = tuple(dims.ceildiv(d, s) for d, s in zip(sizes, stride, strict=True))
    kernel: Any = shape[2:]
    most = [  # of a phase, beyond x: what the windows at its end add, and what the stride leaves over
        -(-(d * (k - 1) + 1 - a - b + max(s, d)) // s)
        for k, s, d, (a, b) in zip(kernel, stride, dilation, padding, strict=True)
    ]
    phases: list[Value] = []
    for phase in np.ndindex(*stride):
        start, step, pads, apart = [0, 0], [1, 1], list[tuple[int, int]](), list[int]()
        for i, k, s, d, (a, _) in zip(phase, kernel, stride, dilation, padding, strict=True):
            at, common = i + a, math.gcd(s, d)
            first = next((j for j in range(k) if (j * d - at) % s == 0), k)
            start.append(first)
            step.append(s // common)
            pads.append(((at - first * d) // s, 0))
            apart.append(d // common)
        reached = all(
            first < k and not (isinstance(size, int) and before >= size + e * ((k - 1 - first) // every))
            for first, every, k, size, (before, _), e in zip(
                start[2:], step[2:], kernel, have[2:], pads, apart, strict=True
            )
        )
        if not reached:
            phases.append(g.zeros((have[0], shape[1] * groups, *counts), dtype=tensor(x).dtype))
            continue
        some = g.slice(weight, tuple(start), shape, tuple(step))
        phases.append(turned_round(g, x, some, counts, pads, tuple(apart), groups, most))
    both = g.concat([g.unsqueeze(p, 2) for p in phases], axis=2)
    both = g.reshape(both, (have[0], shape[1] * groups, *stride, *counts))
    order = [a for i in range(n) for a in (2 + n + i, 2 + i)]
    wide = tuple(c * s for c, s in zip(counts, stride, strict=True))
    both = g.reshape(g.transpose(both, (0, 1, *order)), (have[0], shape[1] * groups, *wide))
    for axis, d in enumerate(sizes, 2):
        both = part(g, both, axis, 0, d)
    return both


def side_by_side(
    g: GraphBuilder, x: Value, weight: Value, sizes: Shape, stride: Ints, padding: Sequence[tuple[int, int]],
    groups: int,
) -> Value:  # fmt: skip
    """Windows that do not overlap: each is a product of its element of x with the weights."""
    n, shape, have = len(stride), tensor(weight).shape, tensor(x).shape
    each = dims.floordiv(shape[0], groups)
    within, places = WITHIN[:n], PLACES[:n]
    split, weights = g.reshape(x, (have[0], groups, each, *have[2:])), g.reshape(weight, (groups, each, *shape[1:]))
    out = "".join(p + w for p, w in zip(places, within, strict=True))
    found = g.to(widened(g, split, weights, f"ngc{places}", f"gco{within}", f"ngo{out}"), tensor(x).dtype)
    gaps = [s - k for s, k in zip(stride, shape[2:], strict=True)]
    if any(gaps):
        found = g.pad(found, ((0, 0), (0, 0), (0, 0), *(p for gap in gaps for p in ((0, 0), (0, gap)))))
    wide = tuple(d * s for d, s in zip(have[2:], stride, strict=True))
    found = g.reshape(found, (have[0], groups * shape[1], *wide))
    for axis, (d, (a, _)) in enumerate(zip(sizes, padding, strict=True), 2):
        found = resized(g, part(g, found, axis, a, tensor(found).shape[axis]) if a else found, axis, d)
    return found


def padded(g: GraphBuilder, x: Value, pairs: Sequence[tuple[Dim, Dim]]) -> Value:
    """`x` with zeros around its spatial axes; negative numbers known here cut off."""
    shape = tensor(x).shape
    negative = [tuple(n if isinstance(n, int) and n < 0 else 0 for n in p) for p in pairs]
    more = tuple((a - c, b - d) for (a, b), (c, d) in zip(pairs, negative, strict=True))
    if any(n != 0 for p in more for n in p):
        x = g.pad(x, ((0, 0), (0, 0), *more))
    if any(n for p in negative for n in p):
        have = tensor(x).shape
        start = (0, 0, *(-a for a, _ in negative))
        x = g.slice(x, start, (*shape[:2], *(n + b for n, (_, b) in zip(have[2:], negative, strict=True))))
    return x
