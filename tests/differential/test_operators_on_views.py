"""Every operator with operands that are windows of each kind, of arguments and of computed values, against NumPy.

What is wanted is the operator's NumPy reference of contiguous copies: no view and no target has a part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tessera.collector import collector_paused
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import InferError
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Op, Value, clone
from tessera.compiler.ir.types import TensorType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.lower.schedule_to_tile import schedule_to_tile
from tessera.compiler.pipeline import generate, passes, to_schedule
from tessera.compiler.targets import base
from tessera.compiler.unit import Param
from tessera.language.dtypes import DType, of
from tests.conftest import require
from tests.differential.operator_examples import (
    EXAMPLES,
    Example,
    applied,
    called,
    close,
    function,
    is_long_in_two_batches,
    symbols,
    values,
)
from tests.differential.test_operators_lowered import SIZES, dtype_of
from tests.together import builds

require("g++")


LONG = SIZES[0]["B"]
"""the first axis of what is repeated along it"""


@dataclass(frozen=True)
class View:
    """`memory` makes an array that holds `x`, and `window` reads it there."""

    memory: Callable[[Any], Any]
    window: Callable[[GraphBuilder, Value], Value]


def _sliced(g: GraphBuilder, m: Value, start: int, step: int) -> Value:
    shape = tensor(m).shape
    return g.slice(m, (start,) * len(shape), tuple(d - start for d in shape), (step,) * len(shape))


def _turned(g: GraphBuilder, m: Value) -> Value:
    return g.transpose(m, tuple(reversed(range(tensor(m).rank))))


def _stretched(g: GraphBuilder, m: Value) -> Value:
    return g.broadcast_to(m, (LONG, *tensor(m).shape[1:]))


def _second(g: GraphBuilder, m: Value) -> Value:
    """What `m` holds, as the second of two computed values in one array."""
    both = g.stack([g.flip(m), m])
    shape = tensor(both).shape
    return g.reshape(g.slice(both, (1, *(0 for _ in shape[1:])), shape), shape[1:])


def _apart(x: Any) -> Any:
    """Every element twice along each axis: every other one is `x`."""
    for axis in range(x.ndim):
        x = np.repeat(x, 2, axis)
    return x


VIEWS: dict[str, View] = {
    "offset": View(lambda x: np.pad(x, 2, "wrap"), lambda g, m: _sliced(g, m, 2, 1)),
    "strided": View(_apart, lambda g, m: _sliced(g, m, 0, 2)),
    "transposed": View(lambda x: np.ascontiguousarray(x.T), _turned),
    "reversed": View(lambda x: np.ascontiguousarray(np.flip(x)), lambda g, m: g.flip(m)),
    "repeated": View(lambda x: x[:1], _stretched),
    "computed": View(lambda x: np.ascontiguousarray(x.T), lambda g, m: _turned(g, _second(g, m))),
}
EMULATED = {"sum", "cumsum", "contract", "matmul", "take", "take_along_axis", "concat", "pad", "softmax", "embedding",
            "where", "argmax", "any", "random_bits", "one_hot", "segment_sum",
            "scatter", "put", "sort", "argsort"}  # fmt: skip
"""one operator of each structural kind at least, and what is made of gathers: the emulator's compiler takes its time"""


def is_tried(example: Example) -> bool:
    return bool(example.args) and not is_long_in_two_batches(example)


def operands(example: Example, which: int, rng: np.random.Generator, view: str) -> tuple[list[DType], list[Any]]:
    """Dtypes and arrays; for repeated ones, rows that are all the same."""
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    chosen = [dtype_of(x, which) for x in flat]
    arrays = [values(rng, x, d, sizes_of(example)) for x, d in zip(flat, chosen, strict=True)]
    if example.name.startswith("take"):  # the reference target reports indices outside
        n = arrays[0].size if example.attrs.get("axis") is None else arrays[0].shape[example.attrs["axis"]]
        arrays[1] = np.clip(arrays[1], -n if arrays[1].dtype.kind == "i" else 0, n - 1).astype(arrays[1].dtype)
    if view == "repeated":
        arrays = [np.broadcast_to(x[:1], x.shape).copy() if seen(view, x) else x for x in arrays]
    return chosen, arrays


def sizes_of(example: Example) -> dict[str, int]:
    return {s: max(SIZES[0][s], example.least) for s in symbols(example)}


def seen(view: str, x: Any) -> bool:
    """Whether an operand is given as this kind of view."""
    return bool(x.ndim) and bool(x.size) and (view != "repeated" or x.shape[0] == LONG)


def views(example: Example) -> list[str]:
    """All; every third one where a view makes many kernels, which ones by the number of axes."""
    return list(VIEWS)[len(symbols(example)) % 3 :: 3] if example.is_long else list(VIEWS)


def results(func: Op) -> list[TensorType]:
    return [tensor(v) for v in func.region.block.terminator.operands]


def applied_to_windows(example: Example) -> tuple[Op, list[Any], list[Any]]:
    """One function of all kinds of views, its arguments, and what NumPy makes of copies of them."""
    given: list[Any] = []
    wanted: list[Any] = []
    calls: list[tuple[str, list[Any]]] = []
    for which, view in enumerate(views(example)):
        chosen, arrays = operands(example, which, np.random.default_rng(which), view)
        try:
            alone = applied(example, chosen, sizes_of(example))
        except InferError:  # these dtypes do not go together
            chosen, arrays = operands(example, 0, np.random.default_rng(which), view)
            alone = applied(example, chosen, sizes_of(example))
        wanted += evaluate(alone, [*arrays, np.zeros(tuple(sizes_of(example).values()), bool)])
        given += [VIEWS[view].memory(x) if seen(view, x) else x for x in arrays]
        calls.append((view, arrays))

    def body(g: GraphBuilder, *memory: Value) -> list[Value]:
        out: list[Value] = []
        rest = iter(memory)
        for view, arrays in calls:
            windows = [VIEWS[view].window(g, m) if seen(view, x) else m for x, m in zip(arrays, rest)]  # noqa: B905
            found = called(example, g, windows, sizes_of(example))
            out += found if isinstance(found, (tuple, list)) else [found]
        return out

    types = [TensorType(x.shape, of(x.dtype)) for x in given]
    return function(types, body), given, wanted


def compiled(func: Op, arrays: list[Any], target: str) -> Callable[[], list[Any]]:
    """What runs the function."""
    params = [Param(a.hint, tensor(a).shape, tensor(a).dtype) for a in func.region.block.args]
    chosen = base.get(target)
    lowered = to_schedule(func, target)
    program = schedule_to_tile(lowered, params, (), target, True)
    for launch in program.launches:
        verify(launch.kernel)
    executable = chosen.load(generate(program, chosen))
    memory = {b.id: np.ascontiguousarray(arrays[b.param]) if b.param is not None else np.empty(b.shape, b.dtype.numpy)
              for b in program.buffers if b.role in ("input", "output")}  # fmt: skip

    def run() -> list[Any]:
        executable.run([m.ctypes.data for m in memory.values()], (), ())
        return [memory[i] for i in program.outputs]

    return run


def everywhere(example: Example) -> tuple[list[Any], list[TensorType], dict[str, Callable[[], list[Any]]]]:
    """What is wanted, its types, and what runs it on each target."""
    func, given, wanted = applied_to_windows(example)
    kinds = results(func)
    for transform in passes("graph"):
        transform.run(func)
        verify(func)
    targets = ("cpu", "reference", *(["emulator:sm_80"] if example.name in EMULATED else []))
    with collector_paused():
        return wanted, kinds, {target: compiled(clone(func, {}), given, target) for target in targets}


@builds(everywhere)
@pytest.mark.parametrize("example", list(filter(is_tried, EXAMPLES)), ids=str)
def test_operator_of_views_means_what_it_means_of_copies(example: Example, built: Any) -> None:
    wanted, kinds, runs = built
    for target, run in runs.items():
        for i, (got, want, t) in enumerate(zip(run(), wanted, kinds, strict=True)):
            try:
                close(got, np.asarray(want), t.dtype, factor=3)
            except AssertionError as e:
                seen_as = views(example)
                pytest.fail(f"{seen_as[i * len(seen_as) // len(wanted)]} on {target}: {e}")
