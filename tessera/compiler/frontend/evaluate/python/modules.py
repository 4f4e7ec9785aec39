"""Functions of `functools`, `itertools`, `operator`, `math` and `dataclasses` over items that may be tensors.

They run at compile time, as Python's own would. Sequences are lists here, so what they give can be read again. What is
not in this table is called with ordinary values alone; with tensors it is refused.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.calls import PYTHON_FUNCTIONS, adopt, call
from tessera.compiler.frontend.evaluate.expressions import subscript_value
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.operators import PYTHON, UNARY, unary
from tessera.compiler.frontend.names.values import UNKNOWN, ClassRef, Record, Unknown
from tessera.language.records import members

Rule = Callable[..., Any]
"""takes the evaluator and the node of the call, then the arguments as Python's function does"""


def _items(ev: Evaluator, node: ast.AST, *sequences: Any) -> list[list[Any]] | None:
    """The items of each; None where one of them is not known, or is no sequence."""
    found = [ev.iterate(node, s) for s in sequences]
    return None if any(s is None for s in found) else [s for s in found if s is not None]


def _reduce(ev: Evaluator, node: ast.AST, function: Any, iterable: Any, *initial: Any) -> Any:
    lists = _items(ev, node, iterable)
    if lists is None:
        return UNKNOWN
    values = [*initial[:1], *lists[0]]
    if not values:
        return ev.error("TS107", "TypeError: reduce() of empty iterable with no initial value", node)
    return functools.reduce(lambda a, b: call(ev, node, function, [a, b], {}), values)


def _accumulate(ev: Evaluator, node: ast.AST, iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    lists = _items(ev, node, iterable)
    if lists is None:
        return UNKNOWN
    combine = operator.add if func is None else func
    values = lists[0] if initial is None else [initial, *lists[0]]
    return list(itertools.accumulate(values, lambda a, b: call(ev, node, combine, [a, b], {})))


def _starmap(ev: Evaluator, node: ast.AST, function: Any, iterable: Any) -> Any:
    lists = _items(ev, node, iterable)
    rows = None if lists is None else _items(ev, node, *lists[0])
    return UNKNOWN if rows is None else [call(ev, node, function, row, {}) for row in rows]


def _flattened(ev: Evaluator, node: ast.AST, iterable: Any) -> Any:
    lists = _items(ev, node, iterable)
    inner = None if lists is None else _items(ev, node, *lists[0])
    return UNKNOWN if inner is None else list(itertools.chain(*inner))


def _prod(ev: Evaluator, node: ast.AST, iterable: Any, *, start: Any = 1) -> Any:
    return _reduce(ev, node, operator.mul, iterable, start)


def _listed(kind: Callable[..., Iterable[Any]], sequences: int | None = None) -> Rule:
    """The items that `kind` gives, for its first arguments as lists: all of them, or so many."""

    def rule(ev: Evaluator, node: ast.AST, *args: Any, **kwargs: Any) -> Any:
        lists = _items(ev, node, *args[:sequences])
        if lists is None:
            return UNKNOWN
        rest = () if sequences is None else args[sequences:]
        try:
            found: list[Any] = list(itertools.islice(kind(*lists, *rest, **kwargs), budget.ITEMS + 1))
        except (TypeError, ValueError) as e:
            return ev.error("TS107", f"{type(e).__name__}: {e}", node)
        return ev.weighed(node, found)

    return rule


def _repeat(ev: Evaluator, node: ast.AST, object: Any, times: Any) -> Any:
    if not isinstance(times, int):
        return ev.error("TS102", "how often repeat repeats must be known at compile time", node)
    return ev.weighed(node, list(itertools.repeat(object, min(times, budget.ITEMS + 1))))


def _getitem(ev: Evaluator, node: ast.AST, a: Any, b: Any) -> Any:
    return subscript_value(ev, node, a, b)


def _replace(ev: Evaluator, node: ast.AST, obj: Any, /, **changes: Any) -> Any:
    """Runs `__init__` and `__post_init__` again, which `ts.replace` does not."""
    if isinstance(obj, Unknown):
        return UNKNOWN
    if isinstance(obj, Record):
        return call(ev, node, obj.cls, [], _of_init(obj.cls, obj.members) | changes)
    held = {n: adopt(ev, node, v) for n, v in _of_init(obj.__class__, members(obj)).items()}
    return call(ev, node, obj.__class__, [], held | changes)


def _of_init(cls: Any, held: Mapping[str, Any]) -> dict[str, Any]:
    """The fields among what an instance holds that its `__init__` takes."""
    names = cls.fields if isinstance(cls, ClassRef) else [f.name for f in dataclasses.fields(cls) if f.init]
    return {n: held[n] for n in names if n in held}


def _new_tuple(ev: Evaluator, node: ast.AST, cls: Any, items: Any = ()) -> Any:
    """What `_make` and `_replace` of named tuples end in."""
    held = ev.iterate(node, items)
    return UNKNOWN if held is None else cls(*held) if hasattr(cls, "_fields") else tuple(held)


def _binary(symbol: str) -> Rule:
    def rule(ev: Evaluator, node: ast.AST, a: Any, b: Any) -> Any:
        return ev.operate(node, symbol, a, b)

    return rule


def _unary(symbol: str) -> Rule:
    def rule(ev: Evaluator, node: ast.AST, a: Any) -> Any:
        return unary(ev, node, symbol, a)

    return rule


PYTHON_FUNCTIONS.update({
    **{function: _binary(symbol) for symbol, function in PYTHON.items()},
    **{function: _unary(symbol) for symbol, function in UNARY.items()},
    operator.getitem: _getitem, math.prod: _prod, functools.reduce: _reduce,
    dataclasses.replace: _replace, cast("Any", tuple).__new__: _new_tuple,
    itertools.accumulate: _accumulate, itertools.starmap: _starmap, itertools.repeat: _repeat,
    itertools.chain: _listed(itertools.chain), itertools.chain.from_iterable: _flattened,
    itertools.product: _listed(itertools.product), itertools.zip_longest: _listed(itertools.zip_longest),
    **{f: _listed(f, 1) for f in (itertools.pairwise, itertools.islice, itertools.combinations,
                                  itertools.permutations, itertools.combinations_with_replacement)},
})  # fmt: skip
