"""Where the first NaN of a step comes from: the step computed once more, one operator at a time.

The program is what a call would compile, before any operator is joined with another, and each value is kept. From the
result that is not finite the way goes back, through operands that are not finite either, to the operator that had
good operands. What `where` does not take is left aside: a root of a negative number that is masked does no harm.
Operators of the backward pass have the lines of the forward operators that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.graph.operator import operator_of
from tessera.compiler.graph.reference import evaluate, watching
from tessera.compiler.ir.core import Op, Value
from tessera.errors import NOWHERE, DebugCheckError, Span, TesseraError
from tessera.runtime.call.dispatch import launcher_of

Bad = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Cause:
    """What gave the first value that is not finite. `span` is its forward line, `label` stands behind the carets."""

    span: Span
    label: str
    said: str


def origin(step: Any, args: Sequence[Any], forward: int) -> Cause | None:
    """The origin of what is not finite in the results of `step(*args)`; None where all is finite, or where the step
    cannot be computed again. The first `forward` results are the loss and what comes with it, the others the gradient.
    """
    try:
        return _Traced(step, args).origin(forward)
    except (TesseraError, MemoryError):  # kernels have no meaning operator by operator: only stores are seen
        with knobs.debug.override(1):
            try:
                step(*args)
            except DebugCheckError as found:
                (first, *_) = found.diagnostics
                return Cause(first.span, first.label, first.message)
            except TesseraError:
                pass
        return None


class _Traced:
    """A call of a function, with all values that it computed."""

    def __init__(self, step: Any, args: Sequence[Any]) -> None:
        parameters = launcher_of(step).parameters
        bound = parameters.bind(parameters.positions(tuple(args), {}))
        analysis = analyse(parameters.definition, bound.arguments, {})
        analysis.unit()  # raises where it has errors
        assert analysis.op is not None
        self.func = analysis.op
        self.names: tuple[str, ...] = self.func.attrs["arg_names"]  # type: ignore[assignment]
        given = [np.asarray(_numpy(bound.values[n])) for n in self.names if n in bound.values]
        arrays = [*given, *(np.asarray(_numpy(c)) for c in analysis.captures)]
        self.values: dict[Value, np.ndarray] = dict(zip(self.func.region.block.args, arrays, strict=True))
        self.order: list[tuple[Op, Sequence[np.ndarray], Sequence[np.ndarray]]] = []
        with watching(self._saw), np.errstate(all="ignore"):
            evaluate(self.func, arrays)

    def _saw(self, op: Op, operands: Sequence[Any], results: Sequence[Any]) -> None:
        self.values.update(zip(op.results, results, strict=True))
        if op.block is not self.func.region.block:  # of a loop, the last round would be left
            self.order.append((op, operands, results))

    def origin(self, forward: int) -> Cause | None:
        results = self.func.region.block.terminator.operands
        wrong = [v for v in results if not_finite(self.values[v]).any()]
        if not wrong:
            return None
        nan = next((v for v in wrong if is_nan(self.values[v]).any()), None)
        found = self._back(nan, is_nan) if nan is not None else self._back(wrong[0], not_finite)
        at_top = isinstance(found, Op) and found.block is self.func.region.block
        if nan is not None and isinstance(found, Op) and at_top:  # infinities that met: inf - inf, 0 * inf
            infinite = next((v for v in found.operands if self._reaches(found, v, not_finite)), None)
            earlier = self._back(infinite, not_finite) if infinite is not None else found
            if isinstance(earlier, Value) or earlier.operands:  # an infinity of the text's own, as of masks, is meant
                found = earlier
        return self._cause(found, self._needed(results[:forward]))

    def _back(self, value: Value, bad: Bad) -> Op | Value:
        """The operator that is the first on the way to a bad value, or the argument that is bad itself."""
        while (op := value.op) is not None:
            operand = next((v for v in op.operands if self._reaches(op, v, bad)), None)
            if operand is None:
                inside = next((o for o, xs, ys in self.order if _within(o, op) and _begins(xs, ys, bad)), None)
                return inside or op
            value = operand
        return value

    def _reaches(self, op: Op, operand: Value, bad: Bad) -> bool:
        """Whether something bad in an operand can be what makes the result bad."""
        array = self.values[operand]
        wrong = bad(array)
        if op.name == "graph.where" and operand is not op.operands[0]:
            taken = self.values[op.operands[0]].astype(bool)
            wrong = wrong & (taken if operand is op.operands[1] else ~taken)
        return bool(wrong.any())

    def _needed(self, results: Sequence[Value]) -> set[Op]:
        """The operators that these results depend on."""
        found: set[Op] = set()
        waiting = [v.op for v in results]
        while waiting:
            op = waiting.pop()
            if op is not None and op not in found:
                found.add(op)
                waiting += [v.op for v in op.operands]
        return found

    def _cause(self, found: Op | Value, forward: set[Op]) -> Cause:
        if isinstance(found, Value):
            name = self.names[found.index] if found.index < len(self.names) else found.hint
            array = self.values[found]
            return Cause(NOWHERE, "", f"{name} {_contents(array)} itself, {_where(array)}")
        operands, results = next(
            ((xs, ys) for o, xs, ys in self.order if o is found),
            ([self.values[v] for v in found.operands], [self.values[r] for r in found.results]),
        )
        result = next(r for r in results if not_finite(r).any())
        outer = found
        while outer.parent is not None and outer.parent is not self.func:
            outer = outer.parent
        way = "" if outer in forward else "the backward pass of this line: "
        name = found.name.partition(".")[2]
        given = self.func.region.block
        arguments = [self.names[v.index] for v in found.operands if v.owner is given and v.index < len(self.names)]
        of = f" of {', '.join(arguments)}" if arguments else ""
        took = _taken(found, operands, result)
        return Cause(found.span, f"{_contents(result)[6:]} here", f"{way}{name}{of} {took} and {_gives(result)}")


def is_nan(array: np.ndarray) -> np.ndarray:
    return np.isnan(_wide(array)) if _of_floats(array) else np.zeros(array.shape, bool)


def not_finite(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(_wide(array)) if _of_floats(array) else np.zeros(array.shape, bool)


def _of_floats(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iub"


def _wide(array: np.ndarray) -> np.ndarray:
    """In a dtype that NumPy knows: bf16 and fp8 are not its own."""
    return array if array.dtype.kind in "fc" else array.astype(np.float32)


def _numpy(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value.get() if hasattr(value, "get") else value


def _within(op: Op, outer: Op) -> bool:
    parent = op.parent
    while parent is not None and parent is not outer:
        parent = parent.parent
    return parent is outer


def _begins(operands: Sequence[np.ndarray], results: Sequence[np.ndarray], bad: Bad) -> bool:
    return any(bad(r).any() for r in results) and not any(bad(x).any() for x in operands)


def _contents(array: np.ndarray) -> str:
    return "holds NaN" if is_nan(array).any() else "holds infinity"


def _where(array: np.ndarray) -> str:
    """`1 of 64 elements, the first at [3, 1]`."""
    wrong = not_finite(array)
    place = f", the first at {[int(i) for i in np.argwhere(wrong)[0]]}" if array.ndim else ""
    return f"{int(wrong.sum()):,} of {array.size:,} element{'s' * (array.size != 1)}{place}"


def _gives(result: np.ndarray) -> str:
    return f"gives {_contents(result)[6:]}: {_where(result)}"


def _taken(op: Op, operands: Sequence[np.ndarray], result: np.ndarray) -> str:
    """What it was given: the very elements where it works element by element, ranges where it does not."""
    operator = None if op.regions else operator_of(op)
    if operator is not None and operator.kind == "map":
        at = tuple(np.argwhere(not_finite(result))[0])
        elements = (np.broadcast_to(x, result.shape)[at] for x in operands)
        return f"takes {', '.join(f'{np.asarray(_wide(np.asarray(e))).item():.6g}' for e in elements)}"
    finite = [_wide(x)[np.isfinite(_wide(x))] for x in operands if _of_floats(x)]
    most = max((float(np.abs(x).max()) for x in finite if x.size), default=0.0)
    return f"takes numbers of up to {most:.3g} in size"
