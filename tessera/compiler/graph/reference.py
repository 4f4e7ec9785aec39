"""The golden model of Graph IR: NumPy, through the operators' references, one op at a time.

Every value is rounded to its dtype as soon as it is computed, so that what is fused in a target's code is held against
the meaning of each op. Slow, and right.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands, tensor
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.launches import LAUNCHES
from tessera.compiler.ir.spec import demand
from tessera.errors import LaunchError
from tessera.language import dims
from tessera.language.dims import Expr
from tessera.language.lazy import np
from tessera.language.rounding import round_to, to_compute

Arrays = dict[Value, Any]
Watch = Callable[[Op, Sequence[Any], Sequence[Any], Mapping[str, int]], None]
_watch: ContextVar[Watch | None] = ContextVar("_watch", default=None)


@contextmanager
def watching(watch: Watch) -> Generator[None]:
    """Inside it `watch(op, operands, results, sizes)` is called after each op that is evaluated, in branches and loops
    too."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def evaluate(func: Op, arrays: Sequence[Any]) -> list[Any]:
    """The results of a `graph.func` for NumPy arguments. Raises LaunchError where they do not fit its parameters."""
    args = func.region.block.args
    names = cast("tuple[str, ...]", func.attrs["arg_names"])
    if len(args) != len(arrays):
        raise LaunchError(f"{func.attrs['sym_name']} takes {len(args)} arguments, {len(arrays)} were given")
    env: Arrays = {}
    equations: list[tuple[object, dims.Dim, int]] = []
    for name, arg, given in zip(names, args, arrays, strict=True):
        array, t = np.asarray(given), tensor(arg)
        if array.ndim != t.rank or array.dtype != t.dtype.numpy:
            raise LaunchError(f"argument {name} is {array.dtype}{list(array.shape)}, expected {t.pretty()}")
        equations += [((name, i), d, n) for i, (d, n) in enumerate(zip(t.shape, array.shape, strict=True))]
        env[arg] = array
    sizes, mismatches = dims.solve(equations)
    for m in mismatches:
        raise LaunchError(f"size {m.actual} of {m.where} is not {m.dim}", "TS502")
    return run(func.region.block, env, sizes)


def run(block: Block, env: Arrays, sizes: Mapping[str, int]) -> list[Any]:
    """Evaluates the ops of a block; gives the values of its terminator's operands."""
    watch = _watch.get()
    for op in block.ops[:-1]:
        operands = [env[v] for v in op.operands]
        results = evaluate_op(op, operands, sizes, env)
        env.update(zip(op.results, results, strict=True))
        if watch is not None:
            watch(op, operands, results, sizes)
    return [env[v] for v in block.terminator.operands]


def evaluate_op(op: Op, arrays: Sequence[Any], sizes: Mapping[str, int], env: Arrays | None = None) -> list[Any]:
    """The results of one op for arrays in its operands' dtypes. `env` is what its regions see from outside."""
    demand(op.name not in LAUNCHES, op, "runs a kernel, which this model of whole tensors does not know")
    if op.regions:
        return _CONTROL[op.name](op, arrays, {} if env is None else env, sizes)
    if op.name == "graph.constant":
        return [round_to(op.attrs["value"], tensor(op.result).dtype)]
    operator = operator_of(op)
    sums = operator.kind in ("reduce", "contract", "scan")
    wide: Arrays = {}
    for v, a in zip(op.operands, arrays, strict=True):
        t = tensor(v)
        accum = t.policy.accum if sums and t.policy and not t.dtype.is_complex else None  # a policy asks for more
        wide[v] = a if operator.stored else to_compute(a, t.dtype) if accum is None else round_to(a, accum)
    operands = [_looked_up(wide, o) for o in split_operands(op)]
    found = operator.reference(*operands, **substituted(attributes_of(op), sizes))
    results = list(found) if operator.multiple else [found]
    out = [round_to(a, tensor(r).dtype) for a, r in zip(results, op.results, strict=True)]
    for a, r in zip(out, op.results, strict=True):
        shape = tuple(dims.evaluate(d, sizes) for d in tensor(r).shape)
        demand(a.shape == shape, op, f"its reference gave shape {list(a.shape)} instead of {list(shape)}")
    return out


def _looked_up(arrays: Arrays, operand: Any) -> Any:
    if isinstance(operand, list):
        return [arrays[v] for v in cast("list[Value]", operand)]
    return None if operand is None else arrays[operand]


def substituted(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with its dims as sizes."""
    if isinstance(value, Expr):
        return dims.evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(substituted(v, sizes) for v in cast("tuple[Any, ...]", value))
    if isinstance(value, dict):
        return {k: substituted(v, sizes) for k, v in cast("dict[str, Any]", value).items()}
    return value


def _enter(block: Block, env: Arrays, carried: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    return run(block, {**env, **dict(zip(block.args, carried, strict=True))}, sizes)


def _if(op: Op, arrays: Sequence[Any], env: Arrays, sizes: Mapping[str, int]) -> list[Any]:
    return _enter(op.regions[0 if arrays[0] else 1].block, env, (), sizes)


def _while(op: Op, arrays: Sequence[Any], env: Arrays, sizes: Mapping[str, int]) -> list[Any]:
    carried = list(arrays)
    while _enter(op.regions[0].block, env, carried, sizes)[0]:
        carried = _enter(op.regions[1].block, env, carried, sizes)
    return carried


def _for(op: Op, arrays: Sequence[Any], env: Arrays, sizes: Mapping[str, int]) -> list[Any]:
    lower, upper, step, *carried = arrays
    for i in range(int(lower), int(upper), int(step)):
        carried = _enter(op.region.block, env, [np.int64(i), *carried], sizes)
    return carried


_CONTROL = {"graph.if": _if, "graph.while": _while, "graph.for": _for}
