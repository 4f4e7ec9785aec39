"""Sums of products in the order that language/order.py prescribes, with all sums in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.language.order import CHAIN, GROUP, SPAN

Chains: TypeAlias = "Callable[[list[Index], Index, list[Val]], list[Val]]"
"""Writes chains side by side: from which k on each, how many products each, what the sums of each start with."""

STEPS = 4
"""steps of k that stand one behind the other where a block has few products in each: counting and jumping takes its
time"""
FEWEST = 8
"""chains of a row from which on it pays to hold them in lanes"""


def chains_in_lanes(k: int, lanes: int) -> int | None:
    """How many chains a row of `k` elements has if vectors of `lanes` can hold one group of them; else None."""
    if SPAN <= k < 2 * SPAN:
        return GROUP
    chains, rest = divmod(k, CHAIN)
    return chains if k < SPAN and not rest and chains >= FEWEST and lanes % chains == 0 else None


def sums(fn: LLVMFunction, k: Index, depth: int, start: Sequence[Val], chains: Chains, together: int = 1) -> list[Val]:
    """The sums over range(k) where the first chain starts with `start`. `depth` is what `levels` says of k; `together`:
    how many chains are computed side by side, so that none waits for its own additions alone.

    Chains and groups are added to -0.0, which changes nothing: so the code of a chain is written once.
    """
    start = list(start)
    n = len(start)
    if depth == 1:
        return chains([0], k, start)
    nothing = [const(-0.0 if v.ty.kind == "f" else 0, v.ty) for v in start]
    zeros = [const(0, v.ty) for v in start]
    begins = [] if all(v.const == 0 for v in start) else start

    def walk(
        lo: Index, hi: Index, step: int, count: int, state: list[Val], part: Callable[..., list[Val]]
    ) -> list[Val]:
        """`state` is the sum so far and, behind it, what the next part starts with where that is not zero."""
        with fn.loop(lo, hi, step * count, state) as at:
            total, first = at.carried[:n], at.carried[n:]
            done = part(at.index, hi, [*(first or zeros), *zeros * (count - 1)])
            for i in range(0, len(done), n):
                total = [added(fn, x, y) for x, y in zip(total, done[i : i + n], strict=True)]
            at.next = [*total, *zeros[: len(first)]]
        return at.results

    def one(lo: Index, hi: Index, values: list[Val]) -> list[Val]:
        return chains([lo], fn.smin(CHAIN, fn.sub(hi, lo)), values)

    def several(lo: Index, _: Index, values: list[Val]) -> list[Val]:
        return chains([fn.add(lo, i * CHAIN) for i in range(together)], CHAIN, values)

    def group(lo: Index, hi: Index, values: list[Val]) -> list[Val]:
        hi = fn.smin(fn.add(lo, SPAN), hi)
        state = [*nothing, *(values if begins else [])]
        if together > 1:
            whole = fn.add(lo, fn.mul(fn.div(fn.sub(hi, lo), CHAIN * together), CHAIN * together))
            state = walk(lo, whole, CHAIN, together, state, several)
            lo = whole
        return walk(lo, hi, CHAIN, 1, state, one)[:n]

    total = group(0, k, start) if depth == 2 else walk(0, k, SPAN, 1, [*nothing, *begins], group)[:n]
    if isinstance(k, int):
        return total
    some = fn.icmp("sgt", k, 0)
    return [fn.select(some, x, y) for x, y in zip(total, start, strict=True)]


def in_steps(
    fn: LLVMFunction,
    isa: VectorISA,
    lo: Index,
    hi: Index,
    values: list[Val],
    step: Callable[[Val, list[Val]], list[Val]],
) -> list[Val]:
    """The values after `step(k, values)` for each k from `lo` up to `hi`, in their order."""
    if isa.registers < 32:
        length = fn.sub(hi, lo)
        several = fn.add(lo, fn.sub(length, fn.mod(length, STEPS)))
        with fn.loop(lo, several, STEPS, values) as at:
            at.next = at.carried
            for i in range(STEPS):
                at.next = step(fn.index(fn.add(at.index, i)), at.next)
        lo, values = several, at.results
        if lo is hi or lo == hi:
            return values
    with fn.loop(lo, hi, 1, values) as at:
        at.next = step(at.index, at.carried)
    return at.results


def added(fn: LLVMFunction, x: Val, y: Val) -> Val:
    return fn.binary("fadd" if x.ty.kind == "f" else "add", x, y)
