"""Generators of random numbers that stand at the top of test files: every test draws the same numbers from them,
whichever tests ran before it in its worker."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

_collected: dict[str, list[tuple[Any, Any]]] = {}
"""the generators of each module of the tests, and their states when all tests had been collected"""


def remember() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            made = [v for v in vars(module).values() if isinstance(v, np.random.Generator)]
            _collected[name] = [(g.bit_generator, g.bit_generator.state) for g in made]


def rewind(module: ModuleType) -> None:
    """Sets back what tests of `module` can draw from."""
    for generator, state in _within_reach(module.__name__):
        generator.state = state


@cache
def _within_reach(name: str) -> list[tuple[Any, Any]]:
    """The generators of the module, and of the tests' other modules that it has functions or classes of."""
    reached, left = set[str](), [name]
    while left:
        if (at := left.pop()) not in reached and at in _collected:
            reached.add(at)
            left += [str(getattr(v, "__module__", "")) for v in list(vars(sys.modules[at]).values())]
    return [pair for at in sorted(reached) for pair in _collected[at]]
