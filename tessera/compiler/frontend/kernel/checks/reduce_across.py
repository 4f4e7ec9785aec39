"""`reduce_across`, a reduction over programs, and the checks of where its result is stored.

The store says so (attr `across`). Lowering has each program store its share beside those of others, and adds a launch
that combines them in ascending order of the programs (lower/reduce_across.py).
"""

from __future__ import annotations

from tessera.compiler.frontend.kernel.access import Place
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Share, TileWindow
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.tile.dialect import INDEX_OPS
from tessera.errors import Note, Span

PLACES = frozenset(f"tile.{n}" for n in (*INDEX_OPS, "dim", "program_id", "subview"))
"""ops that a place may be computed with: the last launch computes it again"""


def store(k: KernelState, place: Place, share: Share, span: Span) -> None:
    """Raises KernelFault where not all programs would take part, or where sums would be rounded in between."""
    if k.builder.block is not k.ev.block or k.memory.mask is not None:
        why = "every program has a share: store what reduce_across gives outside of branches and loops"
        raise KernelFault("TS102", why)
    if not isinstance(place, TileWindow) or place.mask is not None:
        raise KernelFault("TS406", "store the result of reduce_across to a block of a tensor, not at computed places")
    dtype = place.view.dtype
    if dtype.is_low_precision and share.op in ("sum", "prod"):
        why = f"{place.view.name} holds {dtype}, and shares of a {share.op} would be rounded to it"
        raise KernelFault("TS303", f"{why}; store it as {tile_type(share.tile).dtype}, and convert the result")
    k.memory.store(place, share.tile, span)
    stored = k.memory.stores[-1].op
    if stored.attrs.get("masked"):
        raise KernelFault("TS406", "store the result of reduce_across to a whole block, without a mask")
    stored.attrs["across"] = share.op


def check(k: KernelState) -> None:
    """Refuses places that only the program itself can compute, and results that are used in other ways, too."""
    for s in k.memory.stores:
        if "across" not in s.op.attrs or s.op.block is None:
            continue
        odd = next((op for op in _computed(s.op) if op.name not in PLACES), None)
        if odd is not None:
            message = "the place of what reduce_across gives depends on more than the program's coordinates"
            k.ev.error("TS406", message, s.span, notes=[Note("computed here", odd.span)])
        users = [u for u in _users(s.view.value) if u is not s.op]
        if users:
            name = s.view.name
            message = f"{name} gets what reduce_across gives when all programs have run; nothing else may use it"
            k.ev.error("TS406", message, s.span, notes=[Note(f"{name} is used here", users[0].span)])


def _computed(store: Op) -> list[Op]:
    """The ops that the view and the offsets of a store are made with."""
    found: dict[Op, None] = {}
    waiting = [store.operands[0], *store.operands[2:]]
    while waiting:
        op = waiting.pop().op
        if op is not None and op not in found:
            found[op] = None
            waiting += op.operands
    return list(found)


def _users(view: Value) -> list[Op]:
    out: list[Op] = []
    for user in view.users:
        out += _users(user.result) if user.name == "tile.subview" else [user]
    return out
