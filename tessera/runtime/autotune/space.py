"""Which configurations differ at all: parameters that nothing reads are left out before anything is compiled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tessera.compiler.targets.base import Target
from tessera.language.schedule import names_in
from tessera.runtime.watch import Watch, is_function, python_function

LAUNCH = frozenset({"num_warps", "warps", "num_stages", "stages"})
"""how a GPU runs a program; other targets have no use for them"""
IMPLICIT = frozenset({"BLOCK", "ROWS"})
"""taken where a kernel's text leaves the block open"""


def read_by(fn: Any, watch: Watch, target: Target) -> frozenset[str]:
    """The parameters that can change the code of a function or kernel for a target, among those of its space."""
    if fn.kind == "function":  # which refuses what it does not know
        return frozenset(name for config in fn.options["autotune"]["configs"] for name in config)
    spoken = names_in(python_function(fn).__code__) | IMPLICIT
    for read in watch.reads:
        if is_function(read.value):
            spoken |= names_in(python_function(read.value).__code__)
    return spoken | LAUNCH if target.device == "cuda" else spoken


def text_of(config: Mapping[str, Any], read: frozenset[str]) -> str:
    """A configuration as the store knows it: what is read of it, in one spelling."""
    return json.dumps({k: v for k, v in config.items() if k in read}, sort_keys=True)
