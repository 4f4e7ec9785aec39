"""Values that lie in memory because a kernel has too few registers, as tables: static figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.compiler.targets.base import SpilledValue
from tessera.profiler.views.markup import origin, table, text

_COLUMNS = ("value", "{} <small>B per thread</small>", "stores", "loads", "of these in loops", "at lines")


def spill_tables(found: Sequence[SpilledValue] | str, titles: Mapping[str, str]) -> str:
    """One for each kernel that spills, called by its title; of what is not known, why."""
    if isinstance(found, str):
        return f'<p class="ts-why">Spilled values: {text(found)}.</p>'
    out = ""
    for kernel in dict.fromkeys(value.kernel for value in found):
        own = [value for value in found if value.kernel == kernel]
        rows = [
            (text(v.title), str(v.bytes), str(v.stores), str(v.loads), str(v.in_loops), ", ".join(map(str, v.moved_at)))
            for v in own
        ]
        names = [name.format(own[0].where) for name in _COLUMNS]
        out += f"<h5>Spilled values of {text(titles.get(kernel, kernel))} {origin('static')}</h5>{table(names, rows)}"
    return out
