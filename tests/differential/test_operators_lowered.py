"""Every operator through the whole compiler: passes, schedule, tile programs, the reference target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.verifier import verify
from tessera.compiler.lower.schedule_to_tile import schedule_to_tile
from tessera.compiler.pipeline import passes, to_schedule
from tessera.compiler.targets.reference.executable import ReferenceExecutable
from tessera.compiler.tile.interpret.interpreter import InterpreterOptions
from tessera.compiler.tile.program import Program
from tessera.compiler.unit import Param
from tests.differential.operator_examples import EXAMPLES, Example, applied, close, symbols, values

SIZES: list[dict[str, int]] = [
    {"B": 3, "S": 5, "D": 2, "E": 4, "K": 7, "H": 2},
    {"B": 1, "S": 1, "D": 1, "E": 1, "K": 1, "H": 2},
    {"B": 2, "S": 70, "D": 33, "E": 3, "K": 40, "H": 4},
]


def execute(program: Program, arrays: list[np.ndarray]) -> list[np.ndarray]:
    outs = {i: np.empty(program.buffers[i].shape, program.buffers[i].dtype.numpy) for i in program.outputs}  # type: ignore[arg-type]
    given = [np.ascontiguousarray(a) for a in arrays]
    pointers = [
        given[b.param].ctypes.data if b.role == "input" and b.param is not None else outs[b.id].ctypes.data
        for b in program.buffers
        if b.role in ("input", "output")
    ]
    ReferenceExecutable(program, InterpreterOptions()).run(pointers, (), ())
    return [outs[i] for i in program.outputs]


def dtype_of(arg: Any, which: int) -> Any:
    found = arg.dtypes()
    return found[which % len(found)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_lowered_operator_means_what_its_reference_means(example: Example, device: str) -> None:
    lowered_means_what_is_meant(example, device, {"cpu": 2, "cuda": 1}[device] if example.is_long else len(SIZES))


def lowered_means_what_is_meant(example: Example, device: str, count: int) -> None:
    """In the first `count` of the sizes."""
    flat = [x for a in example.args if a is not None for x in (a if isinstance(a, list) else [a])]
    for number, sizes in enumerate(SIZES[:count]):
        sizes = {s: max(sizes[s], example.least) for s in symbols(example)}
        which = [0, 2, 1][number] if device == "cpu" else 0
        chosen = [dtype_of(x, which) for x in flat]
        rng = np.random.default_rng(number)
        arrays = [values(rng, x, d, sizes) for x, d in zip(flat, chosen, strict=True)]
        if example.name.startswith("take"):  # the reference target reports indices outside
            n = arrays[0].size if example.attrs.get("axis") is None else arrays[0].shape[example.attrs["axis"]]
            arrays[1] = np.clip(arrays[1], -n if arrays[1].dtype.kind == "i" else 0, n - 1).astype(arrays[1].dtype)
        arrays.append(np.zeros(tuple(sizes.values()), bool))
        func = applied(example, chosen, sizes)
        wanted = evaluate(func, arrays)
        results = [tensor(v).dtype for v in func.region.block.terminator.operands]
        params = [Param(a.hint, tensor(a).shape, tensor(a).dtype) for a in func.region.block.args]
        for transform in passes("graph"):
            transform.run(func)
            verify(func)
        program = schedule_to_tile(to_schedule(func, device), params, (), device, len(results) != 1)
        for launch in program.launches:
            verify(launch.kernel)
        for got, want, dtype in zip(execute(program, arrays), wanted, results, strict=True):
            close(got, np.asarray(want), dtype, factor=3)
