"""Running a distributed function: each part of the arguments on its device, then one result.

All parts are started before the first is waited for: launches on GPUs only enqueue, so several run at once. On the CPU
each part uses all threads, one part after the other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend.result import ArgType
from tessera.compiler.frontend.names.binding import equations
from tessera.compiler.graph.sharding import Placement
from tessera.compiler.frontend.names.values import remade
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.compiler.structure import assembled, in_a_row
from tessera.dist import arrays
from tessera.dist.plan import DevicePart, DistributionPlan, made, parts_of
from tessera.dist.staged import Staged
from tessera.errors import CompileError, Diagnostic
from tessera.language import dims
from tessera.language.distribution import Distribution
from tessera.runtime.call.arguments import Bound
from tessera.runtime.call.arguments import Parameters
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.code.reads import reads
from tessera.runtime.code.watch import Watch


def call(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Runs a `Distributed` function. Raises LaunchError where the arguments or devices do not fit, CompileError where
    the program is wrong or cannot be distributed."""
    return distributor_of(fn)(args, kwargs)


def distributor_of(fn: Any) -> Distributor:
    """What knows a distributed function's plans; lives as long as it does."""
    return vars(fn).get("distributor") or vars(fn).setdefault("distributor", Distributor(fn))


def plan_of(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DistributionPlan:
    """What `f.plan(...)` gives."""
    if not args and not kwargs:
        return made(fn, None)
    return distributor_of(fn).plan(args, kwargs)


class Distributor:
    """The plans of one function, one for each way its arguments are, whatever the size of the dim that is cut."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.said: Distribution = fn.options["distributed"]
        self.parameters = Parameters(fn.definition(), fn.__wrapped__)
        self._plans: dict[Hashable, DistributionPlan] = {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        values = self.parameters.positions(tuple(args), kwargs)
        bound = self.parameters.bind(values)
        plan = self.for_arguments(bound)
        taken: dict[tuple[str, str], Any] = {}
        if plan.staged is not None and len(plan.parts) > 1:  # one part alone has nothing to send
            given = [self.flat(p, plan, bound, taken) for p in plan.parts]
            outputs: Sequence[Sequence[Any]] = plan.staged(given, plan.parts, bound.adapter, bound.device)
        else:
            outputs = [self.part(p, values, plan, bound, taken) for p in plan.parts]
        results = [self.whole(plan, i, [o[i] for o in outputs], bound) for i in range(len(plan.partition.results))]
        return assembled(plan.analysis.structure, results)

    def plan(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DistributionPlan:
        return self.for_arguments(self.parameters.bind(self.parameters.positions(tuple(args), kwargs)))

    def for_arguments(self, bound: Bound) -> DistributionPlan:
        """The plan for these arguments, from an earlier call where nothing that it rests on has changed."""
        open_ = _by_leaf(bound, lambda name, type: self.symbolic(name, type))
        shown = {name: str(value) for name, value in bound.fields.items()}
        key = tuple((n, open_.get(n, shown[f"argument {n}"])) for n in (leaf.name for leaf in bound.leaves))
        plan = self._plans.get(key)
        if plan is None or not plan.unchanged():
            arguments = {name: _nested((name,), a, open_) for name, a in bound.arguments.items()}
            watch = Watch(
                reads(self.fn.single, bound.fixed)
            )
            plan = made(self.fn, arguments)
            outside = tuple(_reader(watch, array) for array in plan.analysis.captures)
            staged = Staged(plan) if plan.partition.staged else None
            plan = self._plans[key] = replace(plan, unchanged=watch.guard(), outside=outside, staged=staged)
        size = bound.sizes[self.said.over]
        return replace(plan, parts=parts_of(self.said.mesh, bound.device, size))

    def symbolic(self, name: str, type: TensorType) -> TensorType:
        """An argument's type with the cut dim as a symbol, along the axes that its annotation says have it."""
        annotation = self.parameters.by_name[name.partition(".")[0]].annotation
        over = dims.symbol(self.said.over)
        axes = [e.axis for e in equations(name, annotation, type.shape) or () if e.want == over]
        return type.with_shape(tuple(over if i in axes else d for i, d in enumerate(type.shape)))

    def part(
        self, part: DevicePart, values: Mapping[str, Any], plan: DistributionPlan, bound: Bound, taken: dict[tuple[str, str], Any]
    ) -> tuple[Any, ...]:
        """The results of one part, which is the function itself, called on less."""

        def given(name: str, value: Any) -> Any:
            return self.given(name, value, part, plan, taken) if name in bound.views else value

        mine = {name: _with_arrays((name,), value, given) for name, value in values.items()}
        ready = inspect.BoundArguments(self.parameters.python, mine)  # type: ignore[arg-type]
        found = self.fn.single(*ready.args, **ready.kwargs)
        return tuple(in_a_row(found))

    def flat(self, part: DevicePart, plan: DistributionPlan, bound: Bound, taken: dict[tuple[str, str], Any]) -> list[Any]:
        """The arguments of one part as those of the analysed function: arrays, numbers, arrays from outside."""
        names = [a.name for a in plan.partition.arguments]
        outside = [read() for read in plan.outside]
        values = {**bound.values, **dict(zip(names[len(names) - len(outside) :], outside, strict=True))}
        return [self.given(n, values[n], part, plan, taken) for n in names]

    def given(self, name: str, value: Any, part: DevicePart, plan: DistributionPlan, taken: dict[tuple[str, str], Any]) -> Any:
        """An argument as a part gets it. `taken`: what has been given whole, by name and device."""
        if adapter_of(value) is None:
            return value  # a number
        axis = plan.axes.get(name)
        if axis is not None:
            return arrays.moved(arrays.piece(arrays.bare(value), axis, part.start, part.stop), part.device)
        if (name, part.device) not in taken:
            taken[name, part.device] = arrays.moved(arrays.bare(value), part.device)
        return taken[name, part.device]

    def whole(self, plan: DistributionPlan, i: int, parts: Sequence[Any], bound: Bound) -> Any:
        """One result from those of the parts, where the arguments live."""
        place, parts = plan.partition.results[i], [arrays.bare(p) for p in parts]
        if len(parts) > 1:
            self.expect(plan, place, parts)
        if len(parts) == 1 or (place.axis is None and (place.combine is None or plan.staged is not None)):
            out = arrays.moved(parts[0], bound.device)
        elif place.axis is not None:
            out = arrays.joined(parts, place.axis, bound.device)
        else:
            sizes = [p.size for p in plan.parts]
            out = arrays.combined(parts, place.combine or "sum", sizes, place.type.dtype, bound.device)
        return arrays.dressed(out, bound.adapter)

    def expect(self, plan: DistributionPlan, place: Placement, parts: Sequence[Any]) -> None:
        """Refuses parts of other shapes than the plan's: a squeeze, say, takes an axis away where a part has size 1."""
        for part, array in zip(plan.parts, parts, strict=True):
            wanted = tuple(dims.substitute(d, {self.said.over: part.size}) for d in place.type.shape)
            if tuple(array.shape) != wanted:
                message = f"part {part} gives a result {shape_text(tuple(array.shape))} instead of {shape_text(wanted)}"
                why = f"{self.fn.name} does something else where {self.said.over} is {part.size}"
                hint = "name the axes in squeeze()"
                where = plan.analysis.definition.span
                raise CompileError(Diagnostic("TS802", f"{message}: {why}; {hint}", where, function=self.fn.name))


def _with_arrays(path: tuple[Any, ...], value: Any, leaf: Callable[[str, Any], Any]) -> Any:
    """An argument with its arrays replaced, also those in tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        return remade(value, (_with_arrays((*path, i), v, leaf) for i, v in enumerate(value)))
    if isinstance(value, dict):
        return {k: _with_arrays((*path, k), v, leaf) for k, v in value.items()}
    return leaf(".".join(map(str, path)), value)


def _reader(watch: Watch, array: Any) -> Callable[[], Any]:
    """How an array from outside is read at each call. An array that the function made while it was read is kept."""
    path = watch.path_of(array)
    return watch.by_path[path].get if path is not None else lambda: array


def _by_leaf(bound: Bound, change: Callable[[str, TensorType], TensorType]) -> dict[str, TensorType]:
    found: dict[str, TensorType] = {}

    def see(name: str, argument: ArgType) -> None:
        if isinstance(argument, TensorType):
            found[name] = change(name, argument)

    for name, argument in bound.arguments.items():
        _with_arrays((name,), argument, see)
    return found


def _nested(path: tuple[Any, ...], argument: Any, types: Mapping[str, TensorType]) -> Any:
    return _with_arrays(path, argument, lambda name, a: types.get(name, a))


class DistributionExplanation:
    """A plan, and what runs on each device; `print` it."""

    def __init__(self, plan: DistributionPlan, single: Any) -> None:
        self.plan, self.single = plan, single

    def __str__(self) -> str:
        what = "undistributed, which parts go through in steps" if self.plan.partition.staged else "each part"
        return f"{self.plan}\n{what}:\n{self.single}"

    __repr__ = __str__


def explanation(fn: Any, target: str, dims: Mapping[str, int] | None) -> DistributionExplanation:
    """What `f.explain()` gives."""
    return DistributionExplanation(made(fn, None), fn.single.explain(target, dims))
