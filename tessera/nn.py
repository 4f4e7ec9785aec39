"""`ts.nn`: the operators under the name by which other libraries' programs know them, `ts.nn.relu(x)`.

They are the same functions as `ts.relu`; this is no library of layers.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    operators = importlib.import_module("tessera.runtime.eager.operators")
    found = operators.function(name) if not name.startswith("_") else None
    if found is None:
        raise AttributeError(f"module 'tessera.nn' has no attribute {name!r}{operators.hint(name)}")
    return found


def __dir__() -> list[str]:
    importlib.import_module("tessera.compiler.graph")  # fills the registry
    return sorted(importlib.import_module("tessera.compiler.graph.operator").FUNCTIONS)
