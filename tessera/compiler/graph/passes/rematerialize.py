"""Which values of a forward pass are kept for its backward pass, and which are computed again.

The ops of a block are early or late: those of a derivative, and all that depends on them, are late. An early value that
late ops read is kept in memory, or computed again from kept values, beside its first late reader. The cheapest choice
is the smallest cut of a graph. Each early op is two nodes, one before and one after it, and those that late ops have
are on the sink's side: keeping its results cuts the edge between the two, computing it again cuts the edge from the
source to the first; and its operands must be available too. Costs are bytes moved to and from memory. An elementwise
operator moves none where it is computed in the kernel that reads it, so that chains of them cost their arithmetic
alone.

The operators and their order stay the same, and so do all bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from tessera.compiler.graph.min_cut import INFINITE, Network
from tessera.compiler.graph.operator import BY_OP, attributes_of, operator_of, split_operands, types_of
from tessera.compiler.graph.passes.eliminate_dead import eliminate_dead
from tessera.compiler.ir.core import Block, Op, Value, clone
from tessera.compiler.ir.origin import Section
from tessera.compiler.ir.types import TensorType
from tessera.immutable import immutable
from tessera.language.dims import Dim, evaluate, prod, symbols
from tessera.language.saving import save

FLOPS_PER_BYTE = 8
"""operations that take about as long as moving one byte, on CPUs and GPUs alike within a factor of three"""
USUAL_SIZE = 512
"""the assumed size of a dim whose size is not known when compiling"""
LOOP = 1 << 44
"""the cost of a loop or branch, whose rounds are not known: it is computed again where a policy asks for it"""
SCALE = 64
"""steps of cost in a byte"""
FREE = ("view", "generate", "table")
"""kinds of operators that cost nothing to have again"""
APART = frozenset({"contract", "join", "gather", "scatter", "put", "sort", "spectral", "control", "random", None})
"""kinds of operators that read their operands from memory; None are those that kernels written in tiles compute"""
STORING = APART - {"contract", "gather", "random"}
"""those of them that no other operator follows in their kernels"""


@immutable
class Trade:
    """How memory is weighed against time. `weight`: what a byte that is kept costs beside the time to move it, in bytes
    moved. `gently`: no product is computed again for it, no value that leads past one, and nothing under `ts.remat`,
    where policies decide. With `parts`, the early ops are cut into this number of parts, at the places that the fewest
    bytes cross; the values that cross are kept, so that one part is computed again at a time. With `sections` each call
    under `ts.remat(memory=...)` is such a part."""

    weight: float
    parts: int = 0
    sections: bool = False
    gently: bool = False


EVEN = 1 / 8
"""the weight under which the smaller of two choices is taken that take the same time"""
USUAL = Trade(3, gently=True)
"""without a memory limit: activations that cost a few operations each are computed again, which takes hardly any time,
for they need not be moved"""
HARD = 1 << 12
"""the weight under which only values that cross between parts are kept"""
TRADES: tuple[Trade, ...] = (
    Trade(EVEN),
    Trade(1),
    *(Trade(HARD, parts) for parts in (96, 48, 32, 24, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2)),
    Trade(HARD, sections=True),
)
"""from the quickest to the smallest"""


def rematerialize(func: Op, trade: Trade = USUAL) -> tuple[int, ...]:
    """Computes values again, in place, that are not worth keeping; gives these ops, by their number in each block.

    Ops after it must not be merged with equal ones before them.
    """
    chosen = tuple(i for block in list(_blocks(func)) for i in _block(block, trade))
    if chosen:
        eliminate_dead(func)  # what only late ops read, and is there twice now
    return chosen


def _blocks(op: Op) -> Iterator[Block]:
    for region in op.regions if op.name != "graph.launch" else ():
        for block in region.blocks:
            yield block
            for inner in block.ops:
                yield from _blocks(inner)


def _block(block: Block, trade: Trade) -> Iterator[int]:
    found = orders(block)
    for order in range(1, max(found.values(), default=0) + 1):
        crossing = Crossing(block, found, order, trade)
        if chosen := crossing.chosen():
            numbers = {op: i for i, op in enumerate(block.ops)}
            yield from (-order, *sorted(numbers[op] for op in chosen))
            crossing.compute_again(chosen)
            found = orders(block)


def orders(block: Block) -> dict[Op, int]:
    """The order of the derivative that each op belongs to: at least the order of its operands."""
    found: dict[Op, int] = {}
    for op in block.ops[:-1]:
        found[op] = max((op.origin.order, *(found.get(v.op, 0) for v in reads(op) if v.op is not None)))
    return found


def reads(op: Op) -> list[Value]:
    """The operands of an op and what its regions read from outside of it, each once."""
    if not op.regions or op.name == "graph.launch":
        return list(dict.fromkeys(op.operands))
    own = {a for inner in op.walk() for r in inner.regions for b in r.blocks for a in b.args}
    own |= {r for inner in op.walk() if inner is not op for r in inner.results}
    return [v for v in dict.fromkeys(v for inner in op.walk() for v in inner.operands) if v not in own]


def kind_of(op: Op) -> str | None:
    if op.name == "graph.constant":
        return "generate"
    operator = BY_OP.get(op.name)
    return operator.kind if operator is not None else "control"


def size_of(v: Value) -> int:
    """Bytes of a value, with a usual size for each dim that is not known."""
    return _known(prod(v.type.shape)) * v.type.dtype.itemsize if isinstance(v.type, TensorType) else 8


def _known(d: Dim) -> int:
    return d if isinstance(d, int) else max(0, evaluate(d, dict.fromkeys(symbols(d), USUAL_SIZE)))


def flops_of(op: Op) -> int:
    """Floating point operations of one run of an operator."""
    results = [r.type for r in op.results if isinstance(r.type, TensorType)]
    return _known(operator_of(op).flops(types_of(split_operands(op)), results, **attributes_of(op)))


def cost_again(op: Op) -> int:
    """The cost of running an op once more for a late reader, in bytes moved."""
    kind = kind_of(op)
    if kind in FREE:
        return 0
    if kind == "control":
        return LOOP
    cost = flops_of(op) // FLOPS_PER_BYTE
    if kind != "map":  # in a kernel of its own
        cost += sum(map(size_of, reads(op)))
    return cost + (2 * sum(map(size_of, op.results)) if stored(op) else 0)


def stored(op: Op) -> bool:
    """Whether the results of an op are in memory in any case: it writes nowhere else, or they are read there."""
    return kind_of(op) in STORING or any(_read_apart(r) for r in op.results)


def _read_apart(v: Value) -> bool:
    for user in v.users:
        kind = kind_of(user) if not user.name.endswith((".return", ".yield")) else "control"
        if kind in APART or (kind == "view" and any(map(_read_apart, user.results))):
            return True
    return False


class Crossing:
    """The early values of one block that ops from derivative `order` on read."""

    def __init__(self, block: Block, orders: dict[Op, int], order: int, trade: Trade) -> None:
        self.block, self.order, self.trade = block, order, trade
        self.early: dict[Op, int] = {}
        """early ops, by their number among them"""
        self.late: list[Op] = []
        self.within: dict[Op, set[Section]] = {}
        """the sections that an early op belongs to"""
        self.forward = {op for op, own in orders.items() if own < order}
        for op in orders:
            if op in self.forward or self._could_be_early(op, orders):
                self.early[op] = len(self.early)
                self.within[op] = set(op.origin.within)
            else:
                self.late.append(op)
        for op in self.early:
            if op not in self.forward:  # ops that depend on a section's values alone do not bypass its policy
                before = self._before(op)
                self.within[op] |= {s for o in before for s in self.within[o] if not self._leaves(s, o)}
        self.carried = self._carried() if trade.gently else set[Op]()
        """the ops whose results lead past a product: from one layer to the next, all would be computed again at once"""
        self.stations = self._stations() if trade.parts else set[Op]()
        """the ops whose results cross from one part to the next ones"""
        self.needed = {o for op in self.late for o in self._before(op)}
        self.inside = {section for op in self.late for section in op.origin.within}
        """sections with late ops of their own: what these read is no business of the section"""

    def _before(self, op: Op) -> list[Op]:
        """The early ops that an op reads from."""
        return [v.op for v in reads(op) if v.op is not None and v.op in self.early]

    def _could_be_early(self, op: Op, orders: dict[Op, int]) -> bool:
        """Whether an op of the derivative needs nothing but early values: it may run beside what it reads, and its
        result be kept, such as the slope of an activation."""
        if op.origin.again or kind_of(op) not in ("map", *FREE):
            return False
        return all(v.op in self.early for v in op.operands if v.op in orders)

    def _carried(self) -> set[Op]:
        depth: dict[Op, int] = {}
        """the products on the longest way to each op"""
        found: set[Op] = set()
        for op in self.early:
            before = self._before(op)
            deepest = max((depth[o] for o in before), default=0)
            product = kind_of(op) in ("contract", None)
            depth[op] = deepest + product
            if not product:
                found.update(o for o in before if depth[o] < deepest)
        for op in reversed(self.early):
            if op in found and kind_of(op) in FREE:
                found.update(self._before(op))
        return found

    def _stations(self) -> set[Op]:
        ops = [op for op in self.early if op in self.forward and kind_of(op) not in FREE]
        numbers = {op: i for i, op in enumerate(ops)}
        sizes = [sum(map(size_of, op.results)) for op in ops]
        last = [
            max((numbers.get(u, i) for r in op.results for u in _readers(r)), default=i) for i, op in enumerate(ops)
        ]
        change = [0] * (len(ops) + 1)
        for i, end in enumerate(last):
            change[i] += sizes[i]
            change[end] -= sizes[i]
        across = list(accumulate(change[:-1]))
        """bytes that ops behind each op read of it and of those before"""
        before = list(accumulate(sizes))
        found: set[Op] = set()
        for part in range(self.trade.parts):
            low, high = (before[-1] * (part + i) / self.trade.parts for i in (0, 1))
            inside = [i for i, n in enumerate(before) if low < n <= high]
            if inside:
                at = min(inside, key=lambda i: (across[i], i))
                found.update(op for i, op in enumerate(ops) if i <= at < last[i])
        return found

    def chosen(self) -> set[Op]:
        """The early ops to compute again."""
        if not self.needed or not self.forward:
            return set()
        network, nodes = Network(), dict[Op, int]()
        waiting = list(self.needed)
        for op in waiting:  # grows
            if op in nodes:
                continue
            nodes[op] = network.node()
            network.node()
            waiting += self._before(op)
        for op, node in nodes.items():
            again, kept = self.costs(op)
            network.edge(0, node, again)
            network.edge(node, node + 1, kept)
            if op in self.needed:
                network.edge(node + 1, 1, INFINITE)
            for v in reads(op):
                if v.op in nodes:
                    network.edge(nodes[v.op] + 1, node, INFINITE)
        _, late = network.cut()
        return {op for op, node in nodes.items() if node in late}

    def costs(self, op: Op) -> tuple[int, int]:
        """The cost of computing an op again, and of keeping its results."""
        kind = kind_of(op)
        if op.name == "graph.launch" or (kind == "control" and not op.regions):
            return INFINITE, 0
        if kind in FREE:
            return 0, INFINITE
        again = SCALE * cost_again(op)
        gently = self.trade.gently
        weight = EVEN if op in self.carried or (gently and self.within[op]) else self.trade.weight
        kept = int(SCALE * sum(map(size_of, op.results)) * (weight + (1 if stored(op) else 2)))
        if op in self.stations or (gently and kind == "contract" and not self.within[op]):
            again = INFINITE
        for section in self.within[op]:
            policy = save.nothing if section.policy is None and self.trade.sections else section.policy
            if section in self.inside or policy is None:
                continue
            leaves = self._leaves(section, op)
            if (leaves and section.policy is None) or policy.keeps(kind == "contract", frozenset(_names(op))):
                again = INFINITE
            elif not leaves:
                kept = INFINITE
        return (again, kept) if again < INFINITE or kept < INFINITE else (INFINITE, 0)

    def _leaves(self, section: Section, op: Op) -> bool:
        """Whether something that is early and outside of the section reads a result: it is there in any case."""
        readers = [u for r in op.results for u in _readers(r)]
        return any(
            (u in self.forward and section not in u.origin.within) or u is self.block.terminator for u in readers
        )

    def compute_again(self, chosen: set[Op]) -> None:
        """Clones ops to the place before their first late reader, which reads the clones from then on."""
        known: dict[Value, Value] = {}

        def wanted(v: Value, before: Op) -> Value:
            op = v.op
            if op is None or op not in chosen:
                return v
            if v not in known:
                operands = {x: wanted(x, before) for x in reads(op)}
                if kind_of(op) in FREE and all(x is y for x, y in operands.items()):
                    return known.setdefault(v, v)  # it is not in memory, or it is part of a value that is
                new = clone(op, operands)
                for inner in new.walk():
                    inner.origin = replace(inner.origin, order=max(inner.origin.order, self.order), again=True)
                self.block.insert(self.block.index(before), new)
                known.update(zip(op.results, new.results, strict=True))
            return known[v]

        for op in self.late:
            given = {v: wanted(v, op) for v in reads(op)}
            for inner in op.walk() if op.name != "graph.launch" else (op,):
                for i, v in enumerate(inner.operands):
                    if given.get(v, v) is not v:
                        inner.set_operand(i, given[v])


def _readers(v: Value) -> Iterator[Op]:
    """The ops that read a value, or a view of it."""
    for user in v.users:
        yield user
        if kind_of(user) == "view":
            yield from _readers(user.result)


def _names(op: Op) -> Iterator[str]:
    """The variables that hold a result, or a view of it."""
    for r in op.results:
        yield r.hint
        yield from (u.result.hint for u in _readers(r) if kind_of(u) == "view")
