"""Sectors of a GPU's memory that loads and stores touch, as a table: static figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.compiler.targets.base import GlobalAccess
from tessera.profiler.views.markup import hinted, origin, table, text, unknown

_COLUMNS = ("line", "access", "array", "sectors a request <small>of 32 B</small>", "at best", "requests")


def access_tables(found: Sequence[GlobalAccess], titles: Mapping[str, str]) -> str:
    """One for each kernel, called by its title: those that touch most above what they need first."""
    out = ""
    for kernel in dict.fromkeys(a.kernel for a in found):
        own = sorted((a for a in found if a.kernel == kernel), key=lambda a: -((a.sectors or 0) - (a.ideal or 0)))
        rows = [(str(a.line), text(a.kind), text(f"{a.array} {a.dtype}".strip()), *_sectors(a)) for a in own]
        out += f"<h5>Global memory of {text(titles.get(kernel, kernel))} {origin('static')}</h5>{table(_COLUMNS, rows)}"
    return out


def _sectors(a: GlobalAccess) -> tuple[str, str, str]:
    if a.per_request is None or a.least is None:
        why = a.why or "no lane takes part"
        return unknown(why), unknown(why), unknown(why) if a.requests is None else "0"
    note = " and ".join(["its mask is not counted"] * a.masked + ["of the first programs alone"] * a.some)
    each = f"{a.per_request:.3g}"
    return hinted(each, note) if note else each, f"{a.least:.3g}", f"{a.requests:,}"
