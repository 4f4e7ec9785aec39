"""What the variables of a kernel's source hold, so that a register of the machine code can be called by a name."""

from __future__ import annotations

import re

from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_tile
from tessera.compiler.targets.cuda.report.registers import owner_of, shape_of_tile, starts_at
from tessera.language.dtypes import f64

_COPY = re.compile(r"^\s*(?:[\w:<>, ]+ )?(\w+) = (\w+);$")


def values(e: KernelEmitter) -> list[dict[str, object]]:
    """Plain data for each value that variables hold: the author's `name` ("" where there is none), `what` it is, the
    `file` and `line` where it starts, the `bytes` of it that each thread holds, the `kind` of its numbers ("whole",
    "float", "double"), and the `variables`.

    Variables that are copied to one another, and a product and the sum that it adds to, are one value: the compiler
    keeps them in one set of registers.
    """
    variables = {**{name: v for v, name in e.env.items() if name in e.names}, **e.declared}
    held = {name: v for name, v in variables.items() if isinstance(v.type, TileType) and v not in e.splat}
    same = {v: v for v in held.values()}

    def first(v: Value) -> Value:
        while same[v] is not v:
            v = same[v]
        return v

    for v in list(same):
        if v.op is not None and v.op.name == "tile.mma" and (total := v.op.operands[2]) in same:
            same[first(v)] = first(total)
    for copy in filter(None, map(_COPY.match, e.source.lines)):
        if copy[1] in held and copy[2] in held:
            same[first(held[copy[1]])] = first(held[copy[2]])
    found: dict[Value, list[str]] = {}
    for name, v in held.items():
        found.setdefault(first(v), []).append(name)
    return [_row(e, v, names, [held[n] for n in names]) for v, names in found.items()]


def _row(e: KernelEmitter, v: Value, variables: list[str], held: list[Value]) -> dict[str, object]:
    assert isinstance(v.type, TileType)
    span = starts_at(v) if is_tile(v) else (v.op or owner_of(v)).span
    shape, dtype = " x ".join(map(str, shape_of_tile(v))), dtype_of(v)
    layout = e.grouping.of(v).layout if is_tile(v) else None
    names = ", ".join(dict.fromkeys(x.hint for x in held if x.hint))
    return {
        "name": names,
        "what": f"{shape} {dtype}".strip(),
        "file": span.file,
        "line": span.line,
        "bytes": (layout.registers if layout is not None else 1) * dtype.itemsize,
        "kind": "whole" if dtype.is_integer else "double" if dtype is f64 else "float",
        "variables": variables,
    }
