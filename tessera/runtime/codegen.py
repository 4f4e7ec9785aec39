"""Small Python functions generated for one signature."""

from __future__ import annotations

import os
from typing import Any

# A name inside the package, so that `callsite` takes generated frames for Tessera's own.
_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "<generated>")


def define(source: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs `source`, which is text of this package alone, with values for its free `names`; returns the namespace."""
    exec(compile(source, _FILE, "exec"), names)
    return names


def expression(source: str, names: dict[str, Any]) -> Any:
    """The value of an expression made in the same way."""
    return eval(compile(source, _FILE, "eval"), names)
