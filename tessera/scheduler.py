"""Custom schedulers, which decide which operators of a function share a kernel.

`register` decorates one. `graph_to_schedule(func, target, MyGrouping)` makes a schedule under another `FusionGrouping`,
whose `join` and `merge` decide what shares a kernel.
"""

from __future__ import annotations

from tessera.compiler.register import register_scheduler as register
from tessera.compiler.schedule.graph_to_schedule import graph_to_schedule
from tessera.compiler.schedule.grouping import FusionGroup, FusionGrouping

__all__ = ["FusionGroup", "FusionGrouping", "graph_to_schedule", "register"]
