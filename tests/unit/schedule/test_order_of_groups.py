"""In which order groups run: each where the program has what it reads, so that little waits in memory."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera import Tensor, f32
from tessera.compiler import levels
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.core import Op


def test_a_number_of_arguments_delays_nothing() -> None:
    """As the scale of all gradients, which the program has after the last of them."""

    def gradients(x: Tensor["M", "K", f32], y: Tensor["M", "K", f32], w: Tensor["K", "K", f32], scale: Tensor[(), f32]):
        first = x.T @ y
        back = ts.exp(y @ w) @ w
        unit = 1.0 / scale
        return first * unit, back

    assert labels(gradients) == ["div", "contract+mul", "contract+exp", "contract"]


def test_a_backward_pass_copies_what_is_there_again() -> None:
    """`h` is kept for its square; the copy of it for the product would be kept beside it."""

    def gradients(x: Tensor[2, 4, 32, 16, f32], w: Tensor[16, 16, f32], out: Tensor[64, 64, f32]):
        def loss(x, w, out):
            h = x @ w
            return ts.sum(ts.square(ts.swapaxes(h, 1, 2).reshape(2, 32, 64) @ out)) + ts.sum(ts.square(h))

        return ts.grad(lambda all: loss(*all))((x, w, out))

    assert labels(gradients).count("copy") == 2


def scheduled(f: Any) -> Op:
    return levels.schedule(analyse(ts.function(f).definition(), None, {}), {}, "cpu")


def labels(f: Any) -> list[str]:
    return [str(op.attrs["label"]) for op in scheduled(f).region.block.ops if op.name == "schedule.group"]
