"""The repeated launch on NumPy arrays as straight code: no loop, no look-up that the signature decides.

What `Prepared.run` does step by step is written out once per signature, for instance for two inputs and a result::

    def run(v0, v1):
        if active():                      # somebody listens: the long way
            return slow(v0, v1)
        o2 = empty(shape2, dtype2)
        execute((at(id(v0) + 16).value, at(id(v1) + 16).value, at(id(o2) + 16).value), (), sizes)
        return o2
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tessera.language.lazy import np
from tessera.runtime import events, memory
from tessera.runtime.arrays import NUMPY
from tessera.runtime.codegen import define

if TYPE_CHECKING:
    from tessera.runtime.prepared import Prepared


def generated_run(prepared: Prepared) -> Callable[..., Any] | None:
    """Straight code for a prepared launch; None where it has something that only the long way knows."""
    if prepared.library is not NUMPY or prepared.copied or prepared.device != "cpu" or prepared.poisoned:
        return None
    if any(a is not None and a is not NUMPY for a in prepared.adapters):
        return None
    executable = prepared.built.code.executable()
    names: dict[str, Any] = {
        "active": events.active,
        "slow": prepared.run,
        "pointer": NUMPY.pointer_reader(),
        "sizes": tuple(prepared.sizes),
    }
    args = ", ".join(f"v{i}" for i in range(len(prepared.plan.params)))
    lines = [f"if not v{i}.flags.writeable: return slow({args})" for i in prepared.written]
    arrays: list[str] = []
    for i, (param, shape, dtype) in enumerate(prepared.slots):
        if param is not None:
            arrays.append(f"v{param}")
            continue
        nbytes = math.prod(shape) * dtype.itemsize
        names |= {f"shape{i}": shape, f"dtype{i}": dtype.numpy}
        if nbytes < memory.SMALL:
            names["empty"] = np.empty
            lines.append(f"o{i} = empty(shape{i}, dtype{i})")
        else:
            names["allocate"] = memory.empty
            lines.append(f"o{i} = allocate(shape{i}, dtype{i}, {nbytes})")
        arrays.append(f"o{i}")
    scalars = [f"v{i}" for i in prepared.scalars]
    fast = getattr(executable, "fast", None)
    if fast is not None and not prepared.sizes:
        names["fast"] = fast
        lines.append(f"fast({', '.join([*arrays, *scalars])})")
    else:
        names["execute"] = executable.run
        pointers = "".join(f"pointer({a}), " for a in arrays)
        lines.append(f"execute(({pointers}), ({''.join(f'{s}, ' for s in scalars)}), sizes)")
    results = [f"v{p}" if (p := prepared.plan.slots[i].param) is not None else f"o{i}" for i in prepared.plan.outputs]
    whole = f"({''.join(f'{r}, ' for r in results)})" if prepared.plan.tuple_result else (results or ["None"])[0]
    body = [
        f"def run({args}):",
        f" if active(): return slow({args})",
        *(f" {line}" for line in lines),
        f" return {whole}",
    ]
    return define("\n".join(body), names)["run"]
