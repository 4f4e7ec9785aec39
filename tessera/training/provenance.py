"""Where the first NaN of a step comes from: the step computed once more, one operator at a time.

The program is what a call would compile, before any operator is joined with another. Each array is kept, also those of
each round of a loop. From one element of a result that is not finite the way goes back, element by element, to an
operator that made it of finite elements. What a slice cuts off and what `where` does not take is not on the way: a root
of a negative number that is masked does no harm. Operators of the backward pass have the lines of the forward operators
that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.graph.operator import operator_of
from tessera.compiler.graph.reference import evaluate, evaluate_op, watching
from tessera.compiler.ir.core import Op, Value
from tessera.errors import NOWHERE, DebugCheckError, Span, TesseraError
from tessera.runtime.call.dispatch import launcher_of
from tessera.runtime.call.prepared import PreparedLaunch
from tessera.runtime.eager.tensor import TENSOR, Tensor

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
        taken = launcher_of(step).parameters
        bound = taken.bind(taken.positions(tuple(args), {}))
        return _Traced(taken.definition, bound.arguments, bound.values).origin(forward)
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


def origin_of_launch(step: Any, launch: PreparedLaunch, values: Mapping[str, Any]) -> Cause | None:
    """The origin of what is not finite in the results of a launch that a call of `step` has made; None where computing
    it again, operator by operator, gives finite results."""
    try:
        return _Traced(launcher_of(step).parameters.definition, launch.types, values).origin(None)
    except (TesseraError, MemoryError):
        return None


class _Run(NamedTuple):
    """One evaluation of an op, in a loop that of one round."""

    op: Op
    operands: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    sizes: Mapping[str, int]

    def again(self, operands: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """The results for other operands."""
        return evaluate_op(self.op, operands, self.sizes)


class _Element(NamedTuple):
    array: np.ndarray
    at: tuple[int, ...]


class _Traced:
    """A call of a function, with all arrays that it computed."""

    def __init__(self, definition: Definition, arguments: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        analysis = analyse(definition, arguments, {})
        analysis.unit()  # raises where it has errors
        assert analysis.op is not None
        self.func = analysis.op
        names: tuple[str, ...] = self.func.attrs["arg_names"]  # type: ignore[assignment]
        given = [host_array(values[n]) for n in names if n in values]
        arrays = [*given, *(host_array(c) for c in analysis.captures)]
        parameters = self.func.region.block.args
        shown = (names[v.index] if v.index < len(names) else v.hint for v in parameters)
        self.given = {id(array): name for name, array in zip(shown, arrays, strict=True)}
        self.made: dict[int, _Run] = {}
        """by the identity of a result: an array is handed on as it is by branches and by the rounds of loops"""
        with watching(self._saw), np.errstate(all="ignore"):
            self.results = evaluate(self.func, arrays)

    def _saw(self, op: Op, operands: Sequence[Any], results: Sequence[Any], sizes: Mapping[str, int]) -> None:
        if not op.regions:
            run = _Run(op, operands, results, sizes)
            handed_on = {id(x) for x in operands}
            self.made |= {id(y): run for y in results if id(y) not in handed_on}

    def origin(self, forward: int | None) -> Cause | None:
        wrong = [array for array in self.results if not_finite(array).any()]
        if not wrong:
            return None
        with np.errstate(all="ignore"):
            nan = next((array for array in wrong if is_nan(array).any()), None)
            bad = not_finite if nan is None else is_nan
            found = self._back(_first(wrong[0] if nan is None else nan, bad), bad)
            if nan is not None and id(found.array) in self.made:  # infinities that met: inf - inf, 0 * inf
                infinite = _source(self.made[id(found.array)], found, not_finite)
                earlier = self._back(infinite, not_finite) if infinite is not None else found
                made = self.made.get(id(earlier.array))
                if made is None or made.operands:  # an infinity of the text's own, as of masks, is meant
                    found = earlier
        return self._cause(found, self._needed(self.func.region.block.terminator.operands[:forward]))

    def _back(self, element: _Element, bad: Bad) -> _Element:
        """The first bad element on the way to this one: of an operator's result, or of an argument."""
        while (run := self.made.get(id(element.array))) is not None:
            source = _source(run, element, bad)
            if source is None:
                break
            element = source
        return element

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

    def _cause(self, found: _Element, forward: set[Op]) -> Cause:
        run = self.made.get(id(found.array))
        if run is None:
            name = self.given[id(found.array)]
            return Cause(NOWHERE, "", f"{name} {_contents(found.array)} itself, {_where(found)}")
        op = outer = run.op
        while outer.parent is not None and outer.parent is not self.func:
            outer = outer.parent
        way = "" if outer in forward else "the backward pass of this line: "
        name = op.name.partition(".")[2]
        arguments = [self.given[id(array)] for array in run.operands if id(array) in self.given]
        of = f" of {', '.join(arguments)}" if arguments else ""
        gives = _contents(found.array)[6:]
        said = f"{way}{name}{of} {_taken(run, found.at)} and gives {gives}: {_where(found)}"
        return Cause(op.span, f"{gives} here", said)


def _source(run: _Run, element: _Element, bad: Bad) -> _Element | None:
    """A bad element of an operand that makes this one bad; None where it is bad without any."""
    wrong = [(k, bad(array)) for k, array in enumerate(run.operands)]
    wrong = [(k, mask) for k, mask in wrong if mask.any()]
    if not wrong:
        return None
    if _by_elements(run.op):
        shape = element.array.shape
        if run.op.name == "graph.where":
            taken = 1 if np.broadcast_to(run.operands[0], shape)[element.at] else 2
            wrong = [(k, mask) for k, mask in wrong if k == taken]
        places = ((k, _place(mask.shape, element.at), mask) for k, mask in wrong)
        return next((_Element(run.operands[k], at) for k, at, mask in places if mask[at]), None)
    clean = [np.array(array, order="C") for array in run.operands]
    for k, mask in wrong:
        clean[k][mask] = 1
    index = next(i for i, array in enumerate(run.results) if array is element.array)

    def reaches(k: int, places: np.ndarray) -> bool:
        """Whether the element is bad if, of all bad ones, those at flat `places` of operand k alone are kept."""
        mixed = list(clean)
        if places.size:
            mixed[k] = clean[k].copy()
            mixed[k].reshape(-1)[places] = np.asarray(run.operands[k]).reshape(-1)[places]
        return bool(bad(np.asarray(run.again(mixed)[index]))[element.at])

    if reaches(0, np.array([], int)):
        return None
    for k, mask in wrong:
        places = np.flatnonzero(mask)
        if not reaches(k, places[:1]):
            if not reaches(k, places):
                continue
            while places.size > 1:
                half, rest = np.array_split(places, 2)
                places = half if reaches(k, half) else rest
        return _Element(run.operands[k], tuple(int(i) for i in np.unravel_index(int(places[0]), mask.shape)))
    k, mask = wrong[0]  # several together
    return _first(run.operands[k], bad)


def _by_elements(op: Op) -> bool:
    return operator_of(op).kind == "map"


def _place(shape: tuple[int, ...], at: tuple[int, ...]) -> tuple[int, ...]:
    """Where the element of an operand is that goes to `at` of the result, which it is broadcast to."""
    return tuple(0 if n == 1 else i for n, i in zip(shape, at[len(at) - len(shape) :], strict=True))


def _first(array: np.ndarray, bad: Bad) -> _Element:
    return _Element(array, tuple(int(i) for i in np.argwhere(bad(array))[0]))


def is_nan(array: np.ndarray) -> np.ndarray:
    return np.isnan(_wide(array)) if _of_floats(array) else np.zeros(array.shape, bool)


def not_finite(array: np.ndarray) -> np.ndarray:
    return ~np.isfinite(_wide(array)) if _of_floats(array) else np.zeros(array.shape, bool)


def _of_floats(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iub"


def _wide(array: np.ndarray) -> np.ndarray:
    """In a dtype that NumPy knows: bf16 and fp8 are not its own."""
    return array if array.dtype.kind in "fc" else array.astype(np.float32)


def host_array(value: Any) -> np.ndarray:
    """An array of any library, or a number, in NumPy's."""
    if isinstance(value, Tensor):
        return TENSOR.numpy(value)
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value.get() if hasattr(value, "get") else value)


def _contents(array: np.ndarray) -> str:
    return "holds NaN" if is_nan(array).any() else "holds infinity"


def described(array: np.ndarray) -> str:
    """`NaN: 1 of 64 elements, the first at [3, 1]`."""
    bad = is_nan(array) if is_nan(array).any() else not_finite(array)
    return f"{'NaN' if is_nan(array).any() else 'infinity'}: {_where(_first(array, lambda _: bad))}"


def _where(found: _Element) -> str:
    """`1 of 64 elements, the first at [3, 1]`."""
    wrong = not_finite(found.array)
    first = "the first" if tuple(np.argwhere(wrong)[0]) == found.at else "the first that is used"
    place = f", {first} at {list(found.at)}" if found.at else ""
    return f"{int(wrong.sum()):,} of {found.array.size:,} element{'s' * (found.array.size != 1)}{place}"


def _taken(run: _Run, at: tuple[int, ...]) -> str:
    """What it was given: what the operator finds wrong with it, the very elements where it works element by element,
    or else ranges."""
    if wrong := operator_of(run.op).fault(*map(np.asarray, run.operands), **run.op.attrs):
        return f"takes {wrong},"
    if _by_elements(run.op):
        elements = (_wide(np.asarray(x[_place(x.shape, at)])).item() for x in run.operands)
        return f"takes {', '.join(f'{e:.6g}' for e in elements)}"
    finite = [_wide(x)[np.isfinite(_wide(x))] for x in run.operands if _of_floats(x)]
    most = max((float(np.abs(x).max()) for x in finite if x.size), default=0.0)
    return f"takes numbers of up to {most:.3g} in size"
