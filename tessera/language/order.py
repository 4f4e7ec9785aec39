"""The constants that fix the order of sums, and so the bits of results (docs/decisions/0008). They are defined only
here: the CUDA headers repeat some, and a test compares them.

Sums of products: `CHAIN` products in a row are one chain of fused multiply-adds in ascending k; `GROUP` chains, then
all groups, are added in ascending order. How k is cut depends on k alone. A chain is long enough to repay what its end
costs, and short enough that rounding errors stay below those of the libraries that NumPy calls.
"""

from __future__ import annotations

from tessera.language.dims import Dim

CHUNK = 1 << 16
"""elements of a sum that have partial results of their own; the chunks' results are combined in ascending order"""
CHAIN = 128
"""products that are added one after the other"""
GROUP = 16
"""chains that are added one after the other, before the groups are"""
SPAN = CHAIN * GROUP
"""products of a group"""


PARTIAL_BITS = 2048
"""of a CPU's reduction: as many partial results as fit into them; element i belongs to partial i modulo their number"""
PARTIALS_ALONG, PARTIALS_ACROSS = 1024, 128
"""of a GPU's reduction along a row, and across rows: partial results, to which positions belong in the same way"""


def pairs(n: int, prefixes: bool) -> list[tuple[int, int, int]]:
    """The steps in which `n` elements in a row are combined two at a time, as (first, apart, count): pair p of a step
    is elements first + 2 * apart * p and, to its right, the one `apart` further on. Pairs of a step are independent.

    The total is collected on the left: neighbours, then neighbouring results, up to element 0. Prefixes are collected
    on the right (Brent and Kung 1982): up to the totals of whole powers of two, and down again. Either way what is
    combined with what depends on the places of the elements alone, never on how many stand behind them.
    """
    halves = [1 << i for i in range(max(n - 1, 0).bit_length())]
    if not prefixes:
        return [(0, s, (n + s - 1) // (2 * s)) for s in halves]
    up = [(s - 1, s, n // (2 * s)) for s in halves]
    down = [(2 * s - 1, s, (n - s) // (2 * s)) for s in reversed(halves)]
    return [step for step in (*up, *down) if step[2] > 0]


def levels(k: Dim | None) -> int:
    """Of sums of up to `k` products (None: of any number): 1 where it is one chain, 2 where it is one group, else 3."""
    if not isinstance(k, int):
        return 3
    return 1 if k <= CHAIN else 2 if k <= SPAN else 3
