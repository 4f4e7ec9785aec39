"""Modules that are imported at first use, so that editors and `import tessera` never pay for NumPy."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class LazyModule:
    """Stands for module `name` and becomes it at the first attribute access."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = importlib.import_module(self._name)
        value = getattr(self._module, attribute)
        setattr(self, attribute, value)  # the next access does not come here
        return value


np: Any = LazyModule("numpy")
