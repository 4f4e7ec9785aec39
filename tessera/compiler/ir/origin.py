"""What is known of an op beside what it computes: the derivative that it belongs to, and whether it may be saved.

Passes that put ops in the place of others hand it on as they do the place in the sources (`Builder`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.immutable import immutable
from tessera.language.saving import Save


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """One call under `ts.remat`. `policy` None: what is kept of it is chosen by cost."""

    policy: Save | None


@immutable
class OpOrigin:
    """`order`: 0 in a forward pass, 1 in its derivative, 2 in the derivative of both. `again`: the op computes again
    what an earlier one has computed. `within`: the calls under `ts.remat` that it is part of, outermost first.
    `constant`: it was computed under `ts.no_grad()`, so that its results are constants for derivatives.

    `sides`: where only some of many equal layers are lowered, n for an op of the layers before those that are left out,
    and -n for one of the layers behind them; n counts the stacks of layers from 1."""

    order: int = 0
    again: bool = False
    within: tuple[Section, ...] = ()
    constant: bool = False
    sides: tuple[int, ...] = ()


FORWARD = OpOrigin()
