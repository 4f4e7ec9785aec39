"""In which order groups run: each where the program has what it reads, so that little waits in memory."""

from __future__ import annotations

import tessera as ts
from tessera import Tensor, f32
from tessera.compiler import levels
from tessera.compiler.frontend.analyse import analyse


def test_a_number_of_arguments_delays_nothing() -> None:
    """As the scale of all gradients, which the program has after the last of them."""

    def gradients(x: Tensor["M", "K", f32], y: Tensor["M", "K", f32], w: Tensor["K", "K", f32], scale: Tensor[(), f32]):
        first = x.T @ y
        back = ts.exp(y @ w) @ w
        unit = 1.0 / scale
        return first * unit, back

    schedule = levels.schedule(analyse(ts.function(gradients).definition(), None, {}), {}, "cpu")
    labels = [str(op.attrs["label"]) for op in schedule.region.block.ops if op.name == "schedule.group"]
    assert labels == ["div", "contract+mul", "contract+exp", "contract"]
