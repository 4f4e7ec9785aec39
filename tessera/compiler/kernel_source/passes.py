"""Softmax before a product in one pass over its rows: what has been summed up is rescaled when the maximum grows.

M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import facts_of, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.kernel_source.axes import Axes, Line, NoKernel
from tessera.compiler.kernel_source.layout import KernelPlan
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim

MOVES = ("graph.reshape", "graph.transpose", "graph.broadcast_to")
"""what only says which axes meet: in a tile each axis knows that itself"""


@immutable
class Online:
    """`top`: a maximum. `same`: values that are it. `weights`: exp(scores - top). `late`: sums of those."""

    top: Op
    same: tuple[Value, ...]
    weights: tuple[Op, ...]
    late: tuple[Op, ...]
    behind: frozenset[Op]
    """all that depends on it"""

    @property
    def scores(self) -> Value:
        return self.top.operands[0]


def divide_behind(func: Op) -> None:
    """Makes (e / total) @ v, where e is an exponential and total one value for each row, to (e @ v) / total."""
    for op in func.walk():
        if op.name == "graph.contract" and op.block is not None:
            for i, side in enumerate(("lhs", "rhs")):
                if _divided(op, i, str(op.attrs[side])):
                    break


def _divided(op: Op, i: int, labels: str) -> bool:
    share = _unrounded(op.operands[i], moved=False).op
    if share is None or share.name != "graph.div":
        return False
    weights = _unrounded(share.operands[0], moved=False).op
    if weights is None or weights.name != "graph.exp":
        return False
    total, out = share.operands[1], str(op.attrs["out"])
    sizes = tensor(total).shape
    rows = [c for c, d in zip(labels[len(labels) - len(sizes) :], sizes, strict=True) if d != 1]
    behind = [c for c in out if c in rows]
    if len(behind) != len(rows):
        return False
    assert op.block is not None
    block = Block()
    g = GraphBuilder(Builder(block, span=op.span), facts_of(op))
    operands = list(op.operands)
    operands[i] = g.to(weights.result, tensor(operands[i]).dtype)
    mixed = g.contract(*operands, **{n: op.attrs[n] for n in ("lhs", "rhs", "out")})
    lined_up = tuple(d if c in rows else 1 for c, d in zip(out, tensor(mixed).shape, strict=True))
    column = g.reshape(g.compute(total), tuple(d for d in sizes if d != 1))
    if rows != behind:
        column = g.transpose(column, perm=tuple(map(rows.index, behind)))
    result = g.to(g.div(g.compute(mixed), g.reshape(column, lined_up)), tensor(op.result).dtype)
    at = op.block.ops.index(op)
    for n, inner in enumerate(list(block.ops)):
        op.block.insert(at + n, inner)
    result.hint = op.result.hint
    op.result.replace_by(result)
    op.erase()
    return True


def _unrounded(v: Value, moved: bool = True) -> Value:
    """What a value is before conversions between floats, and with `moved` before moves of axes."""
    while v.op is not None and (_rounds(v.op) or (moved and v.op.name in MOVES)):
        v = v.op.operands[0]
    return v


def _rounds(op: Op) -> bool:
    return op.name == "graph.cast" and tensor(op.operands[0]).dtype.is_float and tensor(op.result).dtype.is_float


def online(top: Op, late: Sequence[Op], inner: Collection[Op]) -> Online | None:
    """How the sums in `late`, over the line along which `top` is the maximum, are found together with it.

    None where one is not a sum of exp(scores - top), or something else needs the maximum. `inner`: the ops whose
    values have that line.
    """
    behind = _behind(top)
    same = _same(top)
    weights = tuple(dict.fromkeys(u for v in same for e in v.users if (u := _weights(e, same, behind)) is not None))
    if not weights or not late or not all(_linear_sum(op, weights, behind) for op in late):
        return None
    for v in same:
        for user in v.users:
            moves = any(r in same for r in user.results) or _compares(user, same)
            shifts = any(w.operands[0].op is user for w in weights)
            if not moves and not shifts and (user in inner or user.name != "graph.add"):
                return None
    return Online(top, same, weights, tuple(late), frozenset(behind))


def _behind(op: Op) -> set[Op]:
    """All that depends on it."""
    found: set[Op] = set()
    stack = [op]
    while stack:
        for user in (u for r in stack.pop().results for u in r.users):
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


def _same(top: Op) -> tuple[Value, ...]:
    """The maximum under all its names; where it is -inf it may be replaced, for here it is finite then."""
    found = [top.result]
    for v in found:
        for user in v.users:
            guard = user.name == "graph.where" and user.operands[2] is v and _is_lowest(user.operands[0], found)
            if (user.name in MOVES or _rounds(user) or guard) and user.result not in found:
                found.append(user.result)
    return tuple(found)


def _is_lowest(condition: Value, same: Collection[Value]) -> bool:
    op = condition.op
    if op is None or op.name != "graph.eq" or op.operands[0] not in same:
        return False
    number = _unrounded(op.operands[1]).op
    return number is not None and number.attrs.get("value") == float("-inf")


def _compares(op: Op, same: Collection[Value]) -> bool:
    """Whether it is the condition of such a replacement only."""
    return bool(op.results) and _is_lowest(op.result, same) and all(u.result in same for u in op.result.users)


def _weights(shifted: Op, same: Collection[Value], behind: Collection[Op]) -> Op | None:
    """The exponential of scores less their maximum."""
    if shifted.name != "graph.sub" or shifted.operands[1] not in same or shifted.operands[0].op in behind:
        return None
    users = shifted.result.users
    return users[0] if len(users) == 1 and users[0].name == "graph.exp" else None


def _linear_sum(op: Op, weights: Collection[Op], behind: Collection[Op]) -> bool:
    if op.name == "graph.sum":
        return _linear(op.operands[0], weights, behind)
    if op.name != "graph.contract":
        return False
    free = [v.op not in behind for v in op.operands]
    return free.count(True) == 1 and _linear(op.operands[free.index(False)], weights, behind)


def _linear(v: Value, weights: Collection[Op], behind: Collection[Op]) -> bool:
    """Whether it is the weights, times what does not depend on them."""
    op = _unrounded(v).op
    if op in weights:
        return True
    if op is None or op.name not in ("graph.mul", "graph.div"):
        return False
    a, b = op.operands
    if b.op not in behind:
        return _linear(a, weights, behind)
    return op.name == "graph.mul" and a.op not in behind and _linear(b, weights, behind)


# Which sums a kernel finds in which loop: those that need another's result come in a loop behind its own.


@mutable
class LineLoop:
    """A loop over a `line`. `sums`: what is known at its end. `inner`: what it computes at each step, in order."""

    line: Line
    sums: list[Op]
    inner: list[Op]
    online: Online | None = None


def passes(func: Op, axes: Axes, made: KernelPlan) -> list[LineLoop]:
    """Raises NoKernel where something walks two loops at once."""
    ops = func.region.block.ops[:-1]
    inner = [op for op in ops if any(a in made.looped for a in axes.of_value(op.result))]
    for op in inner:
        if sum(a in made.looped for a in axes.of_value(op.result)) > 1:
            raise NoKernel("it sums over two axes of one value, which are two loops in each other")
    depth: dict[Value, int] = {}
    found: dict[tuple[int, Dim], LineLoop] = {}
    for op in ops:
        least = max((depth.get(v, 0) for v in op.operands), default=0)
        line = axes.along(op)
        sums = line is not None and line in made.looped
        depth[op.result] = least + 1 if sums else least
        if sums and line is not None:
            found.setdefault((least, made.names[line]), LineLoop(line, [], inner)).sums.append(op)
    for at, name in sorted(found, key=lambda k: k[0]):
        late = found.get((at + 1, name))
        tops = [op for op in found[at, name].sums if op.name == "graph.max"] if late is not None else []
        made_online = [o for op in tops if (o := online(op, late.sums if late else (), inner)) is not None]
        if late is not None and len(made_online) == 1:
            found[at, name].online = made_online[0]
            found[at, name].sums += late.sums
            late.sums = []
    kept = [found[key] for key in sorted(found, key=lambda k: k[0]) if found[key].sums]
    for p in kept:
        p.inner = _needed(p, inner)
    return kept


def _needed(p: LineLoop, inner: list[Op]) -> list[Op]:
    """What the sums of a loop are made of, within it."""
    needed: set[Op] = set()
    stack = [v.op for op in p.sums for v in op.operands]
    while stack:
        op = stack.pop()
        if op is not None and op in inner and op not in needed:
            needed.add(op)
            stack += [v.op for v in op.operands]
    return [op for op in inner if op in needed]
