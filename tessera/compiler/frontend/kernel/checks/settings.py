"""Schedule parameters that a kernel is given and does not read."""

from __future__ import annotations

import ast

from tessera.compiler.frontend.kernel.state import DEFAULTS, KernelState
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.nearest import nearest

_ANYWHERE = {*DEFAULTS, "ROWS"}
"""what the compiler itself looks for in a configuration"""


def check_settings(k: KernelState) -> None:
    """Raises KernelFault TS105 for a parameter that neither the compiler nor the kernel reads: a slip of the fingers.

    A branch that this configuration leaves out may be what reads it.
    """
    read = {n.attr for n in ast.walk(k.ev.definition.tree) if isinstance(n, ast.Attribute)} | k.settings_read
    for name in k.config:
        if name in _ANYWHERE or name in read:
            continue
        meant = nearest(name, sorted(_ANYWHERE | k.settings_read))
        advice = f"did you mean {meant}?" if meant else f"read ts.tile.context().{name}, or leave it out"
        raise KernelFault("TS105", f"{k.ev.definition.name} reads no parameter {name}: {advice}")
