"""The meaning of Graph IR without rounding: every float is an f64, every complex number a complex128.

What a derivative rule says of numbers in bf16 can then be held to the digits of f64. With `noise`, each result is
disturbed by so much of its greatest element: the spread of some such runs tells how well conditioned a program is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands, tensor
from tessera.compiler.ir.core import Block, Op, Value
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.rounding import round_to

Arrays = dict[Value, Any]


class Exact:
    """Evaluates ops into `known`, the arrays of values. `noise(dtype)`: the relative error of each result."""

    def __init__(self, known: Arrays, noise: Any = None, seed: int = 0) -> None:
        self.known, self.noise = known, noise
        self.rng = np.random.default_rng(seed)

    def run(self, ops: Sequence[Op]) -> Arrays:
        for op in ops:
            found = self.results(op)
            for value, array in zip(op.results, found, strict=True):
                self.known[value] = self._disturbed(array, tensor(value).dtype)
        return self.known

    def results(self, op: Op) -> Sequence[Any]:
        known = self.known
        if op.regions:
            return CONTROL[op.name](self, op)
        if op.name == "graph.constant":
            return [wide(op.attrs["value"], tensor(op.result).dtype)]
        if op.name in ("graph.cast", "graph.saturate_cast", "graph.stochastic_cast"):
            return [wide(known[op.operands[0]], tensor(op.result).dtype)]
        operands = [
            [known[v] for v in o] if isinstance(o, list) else None if o is None else known[o]
            for o in split_operands(op)
        ]
        operator = operator_of(op)
        attrs = {k: widest(v) if isinstance(v, DType) else v for k, v in attributes_of(op).items()}
        found = operator.reference(*operands, **attrs)
        several = list(found) if operator.multiple else [found]
        return [wide(a, tensor(r).dtype) for a, r in zip(several, op.results, strict=True)]

    def region(self, block: Block, carried: Sequence[Any]) -> list[Any]:
        for arg, array in zip(block.args, carried, strict=True):
            self.known[arg] = array
        self.run(block.ops[:-1])
        return [self.known[v] for v in block.terminator.operands]

    def _disturbed(self, array: Any, dtype: DType) -> Any:
        if self.noise is None or not array.size or array.dtype.kind not in "fc":
            return array
        size = np.max(np.abs(array), initial=0.0, where=np.isfinite(array))
        return array + self.noise(dtype) * size * self.rng.uniform(-1, 1, array.shape)


def widest(dtype: DType) -> DType:
    return dtypes.complex128 if dtype.is_complex else dtypes.f64 if dtype.is_float else dtype


def wide(array: Any, dtype: DType) -> Any:
    """An array without the limits of its dtype, but for those of integers and bools."""
    array = np.asarray(array)
    if dtype.is_complex:
        return array.astype(np.complex128)
    if dtype.is_float:
        return (array.real if array.dtype.kind == "c" else array).astype(np.float64)
    return round_to(array, dtype)


def _if(run: Exact, op: Op) -> Sequence[Any]:
    return run.region(op.regions[0 if run.known[op.operands[0]] else 1].block, ())


def _while(run: Exact, op: Op) -> Sequence[Any]:
    carried = [run.known[v] for v in op.operands]
    while run.region(op.regions[0].block, carried)[0]:
        carried = run.region(op.regions[1].block, carried)
    return carried


def _for(run: Exact, op: Op) -> Sequence[Any]:
    lower, upper, step, *carried = [run.known[v] for v in op.operands]
    for i in range(int(lower), int(upper), int(step)):
        carried = run.region(op.region.block, [np.int64(i), *carried])
    return carried


def _custom(run: Exact, op: Op) -> Sequence[Any]:
    return run.region(op.regions[0].block, [run.known[v] for v in op.operands])


CONTROL = {"graph.if": _if, "graph.while": _while, "graph.for": _for, "graph.custom": _custom}
