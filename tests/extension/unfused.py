from __future__ import annotations

import numpy as np

import tessera as ts
from tessera.compiler.ir.core import Op
from tessera.scheduler import FusionGroup, FusionGrouping, graph_to_schedule


class Alone(FusionGrouping):
    """Every operator is a kernel of its own: what fusion saves can be measured against it."""

    def join(self, g: FusionGroup, op: Op) -> bool:
        return False

    def merge(self, g: FusionGroup, h: FusionGroup) -> None:
        """Never."""


@ts.scheduler.register("unfused")
def unfused(func: Op, target: str) -> Op:
    return graph_to_schedule(func, target, Alone)


@ts.function
def grown(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
    return ts.exp(x + y) * 0.5


if __name__ == "__main__":
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    alone = grown.with_config(scheduler="unfused")
    np.testing.assert_array_equal(alone(x, x), grown(x, x))
    assert [f.ir("schedule").count("group(") for f in (grown, alone)] == [1, 3]
