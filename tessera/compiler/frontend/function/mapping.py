"""`ts.vmap`: evaluates the function once, for one element, and batches the ops that it emits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, cast

from tessera.compiler.autodiff.batching import batch
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.undecided import Snapshot
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.function.gradient_arguments import Refused, each, each_number, parts
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import Record, has_unknown, is_dict, is_sequence, is_tuple, type_name
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.unit import LaunchCheck
from tessera.language import dims
from tessera.language.dims import Dim


class MappedCall:
    """One call of a function that is mapped over elements."""

    def __init__(
        self, ev: Evaluator, emission: Emission, node: ast.AST, callee: TransformedRef, args: list[Any],
        kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        self.ev, self.emission, self.node, self.function = ev, emission, node, callee.function
        self.options = dict(callee.transform.options)
        self.args, self.kwargs = args, kwargs
        self.block = Block()
        self.size: Dim | None = None
        self.of: dict[Value, Value] = {}
        """what an element is to the function: the tensor of all, its axis of elements in front"""

    @property
    def g(self) -> GraphBuilder:
        return self.emission.g

    def run(self) -> Any:
        args = [
            self._element(v, axis, f"argument {i}")
            for i, (v, axis) in enumerate(zip(self.args, self._axes(), strict=True))
        ]
        kwargs = {k: self._element(v, 0, k) for k, v in self.kwargs.items()}
        if self.size is None:
            dim = self.options.get("in_dims")
            what = f"no argument has the dim {dim}" if dim else "in_axes name no tensor to map over"
            lists = "; np.asarray makes an array of a list of numbers" if any(map(is_sequence, self.args)) else ""
            raise self._refused("TS105", f"{what}, so that vmap does not know how many elements there are{lists}")
        span, saved = self.ev.span(self.node), Snapshot(self.ev.frame)
        with self.ev.builder.inside(self.block):
            result = self.ev.call(self.node, self.function, args, kwargs)
            if saved.changed():
                saved.restore()
                message = "an object, list or dict from outside is changed in a function that vmap maps"
                raise self._refused(
                    "TS102", f"{message}, which is done for many elements at once; return what it holds"
                )
            if has_unknown(result):
                raise Refused
            result = each_number(result, lambda v: self.ev.layer.lift(v, None, span))
        values = [v for v in parts(result) if isinstance(v, Value)]
        with self.ev.builder.at(span):
            found, differ, looped = batch(self.g, self.size, self.block, self.of, values)
            whole = iter(
                [self._placed(v, d, axis) for v, d, axis in zip(found, differ, self._out_axes(result), strict=True)]
            )
        for op in looped:
            name = op.name.removeprefix("graph.")
            message = f"vmap does {'a kernel' if name == 'launch' else name} for one element after the other"
            self.ev.error("TS359", message, op.span, severity="note")
        return each(result, lambda v: next(whole) if isinstance(v, Value) else v)

    # what is given

    def _axes(self) -> list[Any]:
        """For each argument the axis to map over, or None."""
        axes = self.options.get("in_axes", 0)
        if not is_tuple(axes):
            axes = (axes,) * len(self.args)
        without = [None] * max(0, len(self.args) - len(axes))  # those that were left out have no tensors in them
        if without and not any(isinstance(v, Value) for v in parts(self.args[len(axes) :])):
            axes = (*axes, *without)
        if len(axes) != len(self.args):
            message = f"in_axes of vmap has one entry for each argument: {len(axes)} for {len(self.args)}"
            raise self._refused("TS105", message)
        return list(axes)

    def _spread(self, value: Any, axes: Any, name: str) -> Iterator[int | None]:
        """The axis of each tensor in a structure, in order: one number says it for all, a structure part by part."""
        if axes is None or type(axes) is int:
            yield from (axes for v in parts(value) if isinstance(v, Value))
            return
        if not is_tuple(axes) and not isinstance(axes, frozenset):
            raise self._refused("TS105", f"{name} of vmap are numbers of axes or None, not {type_name(axes)}")
        held = _items(value)
        given = dict(cast("frozenset[tuple[Any, Any]]", axes)) if isinstance(axes, frozenset) else dict(enumerate(axes))
        tensors = [k for k, v in held.items() if any(isinstance(p, Value) for p in parts(v))]
        if given.keys() - held.keys() or any(k not in given for k in tensors):
            names = ", ".join(map(repr, given))
            message = f"{name} of vmap has entries for {names}, where {_described(value, tensors)}"
            raise self._refused("TS105", message)
        for k in tensors:
            yield from self._spread(held[k], given[k], name)

    def _element(self, value: Any, axes: Any, place: str) -> Any:
        """The argument as the function sees it: one element of each tensor in it."""
        dim = self.options.get("in_dims")
        found = self._spread(value, axes, "in_axes")

        def one(v: Any) -> Any:
            if not isinstance(v, Value):
                return v
            at = next(found) if dim is None else self._named(v, dim)
            return v if at is None else self._opened(v, at, place)

        element = each(value, one, outside=True)
        self.ev.keep_unchanged(element, copied=True)
        return element

    def _named(self, v: Value, dim: str) -> int | None:
        """The axis that the annotation of a parameter calls `dim`."""
        given = v.op is None and v in self.ev.block.args
        shape = next(
            (getattr(p.annotation, "shape", None) for p in self.ev.signature.parameters if p.name == v.hint), None
        )
        if not given or shape is None:
            message = f"in_dims looks for {dim} in the annotations of parameters, and {type_name(v)} has none"
            raise self._refused("TS105", f"{message}; say in_axes")
        found = [i for i, d in enumerate(shape) if d == dims.symbol(dim)]
        if len(found) > 1:
            raise self._refused("TS105", f"{v.hint} has the dim {dim} twice; say which with in_axes")
        return None if not found else found[0] - len(shape) if Ellipsis in shape[: found[0]] else found[0]

    def _opened(self, v: Value, axis: int, place: str) -> Value:
        shape = tensor(v).shape
        if not -len(shape) <= axis < len(shape):
            message = f"vmap maps over axis {axis} of {place}, which is {type_name(v)}"
            raise self._refused("TS204", f"{message}; in_axes=None passes it as it is")
        axis %= len(shape)
        self._count(shape[axis], place)
        with self.ev.builder.at(self.ev.span(self.node)):
            front = self.g.transpose(v, (axis, *(a for a in range(len(shape)) if a != axis))) if axis else v
        element = self.block.add_arg(tensor(v).with_shape((*shape[:axis], *shape[axis + 1 :])), v.hint)
        self.of[element] = front
        return element

    def _count(self, size: Dim, place: str) -> None:
        """All have as many elements."""
        if self.size is None:
            self.size = size
        answer = dims.compare(self.size, size, self.ev.facts)
        if answer == "no":
            message = f"vmap maps over as many elements of all arguments: {self.size}, and {size} of {place}"
            raise self._refused("TS213", message)
        if answer == "unknown":
            self.ev.checks.append(LaunchCheck(self.size, size, "vmap: elements of all arguments"))

    # what is given back

    def _out_axes(self, result: Any) -> list[int | None]:
        """For each tensor of the result where the axis of the elements goes."""
        return list(self._spread(result, self.options.get("out_axes", 0), "out_axes"))

    def _placed(self, v: Value, differs: bool, axis: int | None) -> Value:
        if axis is None:
            if differs:
                message = "out_axes of vmap is None for a result that is not the same for all elements"
                raise self._refused("TS105", message)
            return v
        assert self.size is not None
        v = v if differs else self.g.broadcast_to(v, (self.size, *tensor(v).shape))
        rank = tensor(v).rank
        if not -rank <= axis < rank:
            raise self._refused("TS204", f"out_axes={axis} of vmap is not an axis of the result {type_name(v)}")
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        return self.g.transpose(v, tuple(order)) if axis % rank else v

    def _refused(self, code: str, message: str) -> Refused:
        self.ev.error(code, message, self.node)
        return Refused()


def _items(value: Any) -> dict[Any, Any]:
    """What a structure holds, by position or name."""
    if is_dict(value):
        return value
    return value.members if isinstance(value, Record) else dict(enumerate(value)) if is_sequence(value) else {}


def _described(value: Any, tensors: list[Any]) -> str:
    there = f"tensors at {', '.join(map(repr, tensors))}" if tensors else "no tensors in it"
    return f"there is {type_name(value)} with {there}" if _items(value) else f"there is {type_name(value)}"
