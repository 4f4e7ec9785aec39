"""Linear algebra: `ts.linalg.cholesky`, `solve`, `qr` ..., in functions and outside, with the names of the Array API.

Factors, solutions and determinants are operators (`tessera/compiler/graph/operators/linalg`); what operators express is
a program in this folder, to be read and copied. Modules load at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from tessera.deferred import deferred
from tessera.language.absent import instead
from tessera.nearest import nearest

HOME = {
    **dict.fromkeys(
        ("cross", "diagonal", "matmul", "matrix_power", "matrix_transpose", "outer", "tensordot"), "products"
    ),
    **dict.fromkeys(("trace", "vecdot"), "products"),
    **dict.fromkeys(("pinv", "matrix_rank", "lstsq"), "least_squares"),
    **dict.fromkeys(("matrix_norm", "norm", "vector_norm"), "norms"),
}
"""the module of each name that is a program"""


def __getattr__(name: str) -> Any:
    if name in HOME:
        found = deferred("runtime.eager.made").made(
            getattr(importlib.import_module(f"tessera.linalg.{HOME[name]}"), name)
        )
    else:
        found = importlib.import_module("tessera.runtime.eager.operators").member("linalg", name)
    if found is None:
        near = "" if name.startswith("_") else nearest(name, __dir__())
        hint = instead(name, "tessera.linalg") or (f"did you mean {near!r}?" if near else "")
        raise AttributeError(f"module 'tessera.linalg' has no attribute {name!r}{hint and f'; {hint}'}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    importlib.import_module("tessera.compiler.graph")  # fills the registry
    return sorted({*HOME, *importlib.import_module("tessera.compiler.graph.operator").MEMBERS["linalg"]})
