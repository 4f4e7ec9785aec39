"""Attributes and operands that no operator was made for: each is accepted, or rejected in words."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tessera.compiler.graph.operator import REGISTRY, InferError
from tessera.compiler.ir.verifier import verify
from tessera.language import dims, dtypes
from tests.differential.operator_examples import EXAMPLES, Arg, Example, applied

B = dims.symbol("B")
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    7,
    -9,
    1.5,
    float("nan"),
    float("inf"),
    "x",
    "mean",
    (),
    (0,),
    (0, 0),
    (1, 2, 3),
    (-1, -1),
    ((1, 2), (3, 4)),
    [],
    [0, 1],
    B,
    B * B,
    (B, 2),
    dtypes.f32,
    dtypes.int8,
    {},
    object(),
    2**70,
    1j,
    ("a",),
    ((1,),),
    (None,),
    slice(1),
]
PUBLIC = list(
    {e.name: e for e in EXAMPLES if REGISTRY[e.name].function_names or REGISTRY[e.name].method_names}.values()
)
WITH_ATTRIBUTES = [e for e in PUBLIC if any(not p.operand for p in REGISTRY[e.name].parameters)]


def leaves(args: Any) -> list[Arg]:
    return [x for a in args if a is not None for x in (a if isinstance(a, list) else [a])]


def attempt(example: Example) -> None:
    try:
        func = applied(example, [x.dtypes()[0] for x in leaves(example.args)])
    except InferError as e:
        assert e.diagnostic.code.startswith("TS") and e.diagnostic.message
    else:
        verify(func)  # what is accepted is accepted again in its canonical form


@pytest.mark.parametrize("example", WITH_ATTRIBUTES, ids=lambda e: e.name)
def test_odd_attributes(example: Example) -> None:
    for parameter in REGISTRY[example.name].parameters:
        if not parameter.operand:
            for value in ODD:
                attempt(Example(example.name, example.args, {**example.attrs, parameter.name: value}))


@pytest.mark.parametrize("example", PUBLIC, ids=lambda e: e.name)
def test_odd_operands(example: Example) -> None:
    draw = random.Random(example.name)

    def odd() -> Arg:
        shape = draw.choice(["", "B", "B S", "B S D", "1", "0", "S B", "B 1", "B 0 2 S"])
        return Arg(shape, draw.choice(["f32", "int64", "bool", "complex64", "bf16", "uint8", "fp8_e4m3"]))

    for _ in range(20):
        args = [None if a is None else [odd() for _ in a] if isinstance(a, list) else odd() for a in example.args]
        attempt(Example(example.name, args, example.attrs))
