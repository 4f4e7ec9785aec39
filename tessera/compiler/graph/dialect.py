"""The ops of Graph IR that are not operators: functions, constants, kernels, terminators. Control flow: `control`."""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.launches import DOC, verify_launch
from tessera.compiler.ir.spec import FUNCTION, Reading, demand, spec
from tessera.compiler.ir.types import TensorType
from tessera.language.dims import Expr


@spec("graph.func", "A function. attrs: sym_name, arg_names; divisible, equal: the asserts that hold, as pairs of "
      "dims; block: rows and columns of a program, if the schedule fixes them; states: arguments that the "
      "last results replace, one each. Its block's arguments are tensors; scalars have rank 0.", effects=True,
      reading=FUNCTION)  # fmt: skip
def _func(op: Op) -> None:
    demand(isinstance(op.attrs.get("sym_name"), str), op, "needs sym_name")
    names = op.attrs.get("arg_names")
    args = op.region.block.args
    demand(isinstance(names, tuple) and len(names) == len(args), op, "needs a name per argument")
    for a in args:
        demand(isinstance(a.type, TensorType), op, f"argument {a.hint} is not a tensor")
    for name in ("divisible", "equal"):
        pairs = op.attrs.get(name, ())
        ok = isinstance(pairs, tuple) and all(isinstance(p, tuple) and len(p) == 2 for p in pairs)
        demand(ok, op, f"{name} holds pairs of dims")
    demand(
        bool(op.region.block.ops) and op.region.block.terminator.name == "graph.return", op, "ends with graph.return"
    )
    states = cast("tuple[int, ...]", op.attrs.get("states", ()))
    results = op.region.block.terminator.operands
    last = results[len(results) - len(states) :]
    ok = len(states) == len(last) == len(set(states)) and all(0 <= i < len(args) for i in states)
    demand(ok, op, "states are arguments, and have a result each")
    for i, v in zip(states, last, strict=True):
        was, now = args[i].type, v.type
        ok = isinstance(was, TensorType) and isinstance(now, TensorType) and was.dtype == now.dtype
        demand(ok and was.rank == now.rank, op, "states keep their types")  # type: ignore[union-attr]


@spec("graph.return", "Ends a function; operands are its results.", terminator=True, effects=True)
def _return(op: Op) -> None:
    demand(op.parent is None or op.parent.name == "graph.func", op, "stands in no function")
    demand(not op.results, op, "has no results")


@spec("graph.constant", "A rank-0 constant, attr `value`.", reading=Reading(literal="value"))
def _constant(op: Op) -> None:
    t, value = op.result.type, op.attrs.get("value")
    demand(isinstance(t, TensorType) and t.rank == 0, op, "is a scalar")
    demand(isinstance(value, (bool, int, float, complex)) and not isinstance(value, Expr), op, "has a number as value")
    demand(not op.operands, op, "has no operands")


spec("graph.launch", DOC)(verify_launch)
