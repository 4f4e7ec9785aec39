"""Which memory may be changed in place: that of a value that no op uses afterwards.

Values are never changed, so an operator that replaces a part of a value gives a new value. Where the live range of the
old one ends there, both share one memory, and nothing is copied: along a chain of such operators, through a branch that
changes a tensor on one path only, and from one iteration of a loop to the next.
"""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.schedule.views import is_view, kind_of


def dies(v: Value, at: Op) -> bool:
    """Whether the memory of `v` belongs to the program, and no op but `at` uses it from there on.

    `v` is not a view. Ops run in the order of their blocks, as those of Schedule IR do.
    """
    return _owned(v, at) and not read_later(v, at)


def read_later(v: Value, at: Op) -> bool:
    """Whether an op but `at` reads `v`, and may have to do so when `at` has run."""
    return any(not _earlier(user, at) for user in readers(v) if user is not at)


def readers(v: Value) -> list[Op]:
    """The ops that read `v`, also through views."""
    return [r for user in v.users for r in (readers(user.result) if is_view(user) else [user])]


def _owned(v: Value, at: Op) -> bool:
    """Whether the program may change the memory of `v` at the op `at`: once each time that `v` is computed."""
    home = v.owner.block if isinstance(v.owner, Op) else v.owner
    while at.block is not home:
        around = at.parent
        if around is None or around.name.rpartition(".")[2] != "if":
            return False
        at = around
    if v.op is not None:
        return kind_of(v.op) != "generate"
    around = at.parent
    if around is None:
        return False
    if around.name.endswith(".while"):
        return around.regions[1].block is home  # the loop's test changes nothing
    return v.index in cast("tuple[int, ...]", around.attrs.get("states", ()))


def _earlier(user: Op, at: Op) -> bool:
    """Whether `user` runs before `at`, is inside of it, or is on another path."""
    levels: dict[Block | None, Op] = {}
    op: Op | None = at
    while op is not None:
        levels[op.block] = op
        op = op.parent
    one: Op | None = user
    while one is not None and one.block not in levels:
        one = one.parent
    if one is None or one.block is None:
        return False
    here = levels[one.block]
    if one is here:  # the op around `at` has read its operands before
        return one is user or here.name.endswith(".if")
    return one.block.index(one) < one.block.index(here)


def read_before(op: Op) -> list[Op]:
    """The ops before `op` in its block that read the value of which `op` replaces a part: they run first, so that the
    value can be changed in place."""
    if kind_of(op) == "put":
        changed = [op.operands[0]]
    elif op.regions and any(inner.name == "graph.put" for inner in op.walk()):
        changed = [*op.operands, *captured(op)]
    else:
        return []
    assert op.block is not None
    found: dict[Op, None] = {}
    for v in changed:
        while v.op is not None and is_view(v.op):
            v = v.op.operands[0]
        for user in readers(v):
            one: Op | None = user
            while one is not None and one.block is not op.block:
                one = one.parent
            if one is not None and op.block.index(one) < op.block.index(op):
                found[one] = None
    return list(found)


def captured(op: Op) -> list[Value]:
    """Values from outside that the regions of `op` use."""
    inner = [o for region in op.regions for block in region.blocks for top in block.ops for o in top.walk()]
    own = {r for o in inner for r in o.results} | {
        a for o in (op, *inner) for r in o.regions for b in r.blocks for a in b.args
    }
    return list(dict.fromkeys(v for o in inner for v in o.operands if v not in own))
