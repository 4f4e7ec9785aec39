"""Calls of transformed functions: the original function is evaluated in place, then its ops are differentiated."""

from __future__ import annotations

import ast
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tessera.compiler.autodiff.custom  # noqa: F401  # pyright: ignore[reportUnusedImport]: registers loops
from tessera.compiler.autodiff.forward import push_forward
from tessera.compiler.autodiff.jacobians import columns, rows
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.transforms import parameter_names
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.function.gradient_arguments import SIZES, Opened, Refused, each, each_number, parts
from tessera.compiler.frontend.function.mapping import MappedCall
from tessera.compiler.frontend.function.scanning import ScanCall
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Record,
    has_unknown,
    is_sequence,
    is_tuple,
    type_name,
)
from tessera.compiler.frontend.result import Pulled
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.origin import Section
from tessera.errors import CompileError
from tessera.immutable import mutable
from tessera.language import dims
from tessera.language.saving import bytes_of, save
from tessera.language.transforms import Transform

if TYPE_CHECKING:
    from tessera.compiler.autodiff.handed_on import HandedOn


def call(
    ev: Evaluator, emission: Emission, node: ast.AST, callee: TransformedRef, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The result of the transformed function; UNKNOWN after a finding. What a text does not tell of a module is not
    differentiated by."""
    if has_unknown([v for v in (*args, *kwargs.values()) if not isinstance(v, Record)]):
        return UNKNOWN
    try:
        if isinstance(callee.function, LinearMap):
            return callee.function.apply(node, args, kwargs)
        return TransformedCall(ev, emission, node, callee, args, kwargs).run()
    except Refused:
        return UNKNOWN
    except CompileError as e:  # at the forward line
        for d in e.diagnostics:
            ev.error(d.code, d.message, d.span, notes=d.notes)
        return UNKNOWN


OF_COMPLEX = frozenset({"grad", "value_and_grad", "jvp", "vjp", "linearize", "pullback", "forward", "recalled"})
"""transforms by complex numbers. Inside, cotangents are not conjugated; what people see is: the gradient of a real
number points to where it grows most, as PyTorch has it"""


class TransformedCall:
    """One call of a transformed function."""

    def __init__(
        self, ev: Evaluator, emission: Emission, node: ast.AST, callee: TransformedRef, args: list[Any],
        kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        self.ev, self.emission, self.node = ev, emission, node
        self.callee, self.transform = callee, callee.transform
        self.args = [ev.whole(node, v) for v in args]
        self.kwargs = {k: ev.whole(node, v) for k, v in kwargs.items()}
        self.opened = Opened(ev, emission, node, self.transform.name in OF_COMPLEX)

    def run(self) -> Any:
        return getattr(self, f"_{self.transform.name}")()

    # what is given

    def select(self) -> None:
        """Opens the arguments that `argnums` name."""
        names = parameter_names(self.callee.function)
        seen: set[int | str] = set()
        for wanted in self.transform.wanted:
            at, name = self._position(wanted, names)
            if (place := at % len(self.args) if isinstance(at, int) else at) in seen:
                raise self.refused("TS105", f"argnums of {self.transform.name} name {name} twice")
            seen.add(place)
            given: Any = self.args if isinstance(at, int) else self.kwargs
            given[at] = self.opened.open(given[at], name)

    def _position(self, wanted: int | str, names: list[str]) -> tuple[int | str, str]:
        """Where an argument to differentiate by is given: its position or keyword; and how it is called."""
        count = len(self.args)
        if isinstance(wanted, int):
            if -count <= wanted < count:
                return wanted, names[wanted] if -len(names) <= wanted < len(names) else f"argument {wanted}"
            if 0 <= wanted < len(names) and names[wanted] in self.kwargs:
                return names[wanted], names[wanted]
            text = f"argument {wanted}"
        else:
            if wanted in self.kwargs:
                return wanted, wanted
            if wanted in names[:count]:
                return names.index(wanted), wanted
            text = repr(wanted)
        raise self.refused("TS105", f"{self.callee.described} differentiates by {text}, which is not given")

    def primals(self) -> None:
        """Opens the arguments of a call that is given as a tuple of them: all, or those that `argnums` name."""
        given = self.args[0]
        if not is_sequence(given):
            message = f"{self.transform.name} takes the arguments of the function as a tuple, not {type_name(given)}"
            raise self.refused("TS105", message)
        if not given:
            raise self.refused("TS105", f"{self.transform.name} differentiates by arguments, and none is given")
        names = parameter_names(self.callee.function)
        at = [names[i] if i < len(names) else f"argument {i}" for i in range(len(given))]
        wanted = range(len(given)) if self.transform.argnums is None else self.transform.wanted
        self.args[0] = [self.opened.open(v, at[i]) if i in wanted else v for i, v in enumerate(given)]

    def evaluated(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, list[Op]]:
        """The result of the function, numbers in it as tensors, and the ops that it emitted."""
        block = self.ev.builder.block
        start = len(block.ops)
        self.ev.differentiating += 1
        try:
            result = self.ev.call(self.node, function, args, kwargs)
        finally:
            self.ev.differentiating -= 1
        if has_unknown(result):
            raise Refused
        return self._lifted(result), block.ops[start:]

    def _lifted(self, value: Any) -> Any:
        """A result with its numbers as tensors, but for those that may be sizes."""
        span = self.ev.span(self.node)
        return each_number(value, lambda v: v if isinstance(v, SIZES) else self.ev.layer.lift(v, None, span))

    # gradients

    def _grad(self) -> Any:
        _, aux, gradient = self.gradient()
        return (gradient, aux) if self.transform.has_aux else gradient

    def _value_and_grad(self) -> Any:
        value, aux, gradient = self.gradient()
        return ((value, aux), gradient) if self.transform.has_aux else (value, gradient)

    def gradient(self) -> tuple[Any, Any, Any]:
        """The value, what is passed on beside it, and the gradient."""
        self.select()
        result, ops = self.evaluated(self.callee.function, self.args, self.kwargs)
        loss, aux = self._parted(result)
        loss = self._scalar(loss)
        with self.deriving():
            g = self.emission.g
            met: dict[Value, Value] = {}
            found = self.pulled_back(g, ops, [(loss, g.ones_like(loss))], met)
            if not self.ev.live:
                self.ev.pulled.append(Pulled(ops, self.opened.values, met, self.ev.places))
            return loss, aux, self.by_argument(self.completed(found, warn=True))

    def pulled_back(
        self, g: GraphBuilder, ops: list[Op], seeds: list[tuple[Value, Value]], met: dict[Value, Value] | None = None
    ) -> list[Value | None]:
        """The cotangents of what was opened; `met` receives those on the way. Under the policy `loss_scale` all are
        that many times as large on their way."""
        scales = {p.loss_scale for v, _ in seeds if (p := tensor(v).policy) is not None and p.loss_scale is not None}
        scale = max(map(float, scales), default=1.0)
        if scale == 1.0:
            return pull_back(g, ops, self.opened.values, seeds, met=met)
        found = pull_back(g, ops, self.opened.values, [(v, g.mul(ct, scale)) for v, ct in seeds], met=met)
        return [None if v is None else g.mul(v, 1 / scale) for v in found]

    def _parted(self, result: Any) -> tuple[Any, Any]:
        if not self.transform.has_aux:
            return result, None
        if not is_tuple(result) or len(result) != 2:
            raise self.refused("TS352", f"with has_aux the function gives (value, aux), not {_summary(result)}")
        return result

    def _scalar(self, loss: Any) -> Value:
        name = self.transform.name
        if not isinstance(loss, Value):
            more = "; with has_aux=True it may give (value, aux)" if is_tuple(loss) and len(loss) == 2 else ""
            given = f"this function gives {_summary(loss)}{more}"
            raise self.refused("TS352", f"{name} differentiates one real number, and {given}")
        dtype, rank = tensor(loss).dtype, tensor(loss).rank
        if dtype.is_complex:
            message = "which is complex; differentiate its real part, or its absolute value squared"
        elif not dtype.is_float:
            message = "which has no gradient; convert it with .to(ts.f32) where it is computed from floats"
        elif rank:
            message = "a number for each element; reduce it with .sum() or .mean()"
        else:
            return loss
        given = f"this function gives {type_name(loss)}, {message}"
        raise self.refused("TS352", f"{name} differentiates one real number, and {given}")

    def by_argument(self, found: list[Value]) -> Any:
        """What `argnums` ask for: of one argument, or a tuple."""
        self.ev.gradients.update(found)
        made = self.opened.closed(found)
        return tuple(made) if is_tuple(self.transform.argnums) else made[0]

    def completed(self, found: list[Value | None], warn: bool = False) -> list[Value]:
        """Zeros where nothing depends on a tensor; TS354 says so."""
        leaves = list(zip(self.opened.leaves, found, strict=True))
        if warn and len(self.ev.undecided) == self.ev.harmless and not self.ev.guesses:
            reached = [leaf.place for leaf, v in leaves if v is not None]
            idle = [leaf.place for leaf, v in leaves if v is None and not leaf.buffer]
            for place in dict.fromkeys(_widest(place, reached) for place in idle):
                message = f"the result does not depend on {place}: its gradient is 0"
                self.ev.error("TS354", message, self.node, severity="warning")
        return [self.emission.g.zeros_like(leaf.value) if v is None else self.conjugated(v) for leaf, v in leaves]

    def conjugated(self, v: Value) -> Value:
        """A cotangent as people see it, or the other way round."""
        return self.emission.g.conj(v) if tensor(v).dtype.is_complex else v

    # what is kept

    def _remat(self) -> Any:
        """The result of the function itself, whose ops say what is kept of them."""
        builder, options = self.ev.builder, dict(self.transform.options)
        policy, memory = options.get("policy"), options.get("memory")
        if memory is not None:
            self.emission.limit(bytes_of(memory), self.ev.span(self.node))
        section = Section(save.nothing if policy is None and memory is None else policy)
        with builder.under(replace(builder.origin, within=(*builder.origin.within, section))):
            return self.ev.call(self.node, self.callee.function, self.args, self.kwargs)

    # linear maps

    def _jvp(self) -> Any:
        """(result, its tangent), of the arguments and their tangents."""
        tangents = self.args[1]
        self.primals()
        result, ops = self.evaluated(self.callee.function, self.args[0], {})
        given = self.opened.fitting(self.opened.arguments, tangents, "tangents")
        return result, self.pushed(ops, result, given)

    def pushed(self, ops: list[Op], result: Any, given: list[tuple[Value, Value]]) -> Any:
        with self.deriving():
            outs = [v for v in parts(result) if isinstance(v, Value)]
            found = push_forward(self.emission.g, ops, dict(given), outs)
            of = {id(o): self.emission.g.zeros_like(o) if t is None else t for o, t in zip(outs, found, strict=True)}
            return each_number(each(result, lambda v: of.get(id(v), v)), lambda v: False if isinstance(v, bool) else 0)

    def pulled(self, ops: list[Op], result: Any, cotangents: Any) -> Any:
        given = self.opened.fitting(result, cotangents, "the cotangent")
        with self.deriving():
            seeds = [(v, self.conjugated(c)) for v, c in given]
            return tuple(self.opened.closed(self.completed(self.pulled_back(self.emission.g, ops, seeds))))

    def _vjp(self) -> Any:
        return self._linear("pullback")

    def _linearize(self) -> Any:
        return self._linear("pushforward")

    def _linear(self, name: str) -> Any:
        """(result, the linear map): called as a function, with tangents or a cotangent."""
        self.args = [self.args]
        self.primals()
        result, ops = self.evaluated(self.callee.function, self.args[0], {})
        made = LinearMap(self, ops, result, name == "pullback")
        return result, TransformedRef(Transform(name, None), made)

    def _pullback(self) -> Any:
        """The cotangents of the arguments, in one call: of the arguments and the cotangent of the result."""
        self.primals()
        result, ops = self.evaluated(self.callee.function, self.args[0], {})
        return self.pulled(ops, result, self.args[1])

    def _hvp(self) -> Any:
        """The tangent of the gradient."""
        count = len(self.args[0]) if is_sequence(self.args[0]) else 1
        inner = Transform("grad", 0 if count == 1 else tuple(range(count)))
        self.callee = replace(self.callee, function=TransformedRef(inner, self.callee.function))
        return self._jvp()[1]

    # two programs

    def _forward(self) -> Any:
        """The result, and by name what `recalled` is to be given for the backward pass."""
        self.select()
        result, ops = self.evaluated(self.callee.function, self.args, self.kwargs)
        with self.handed_on(ops, result) as found:
            return result, {name: found.emitted(name) for name in found.chosen()}

    def _recalled(self) -> Any:
        """The result of the function, of a tuple of arguments and a dict of those by keyword, and what `forward` has
        given beside it: of that nothing is computed again."""
        before: Any = self.args[2]
        self.args, self.kwargs = list[Any](self.args[0]), dict[str, Any](self.args[1])
        self.select()
        result, ops = self.evaluated(self.callee.function, self.args, self.kwargs)
        with self.handed_on(ops, result) as found:
            known = [name for name in before if name in found.values]
            pairs = [*found.equal(), *((found.emitted(name), before[name]) for name in known)] if known else []
            for value, other in pairs:
                self.emission.g.recalled(value, other)
            self.emission.named |= found.made
        return result

    @contextmanager
    def handed_on(self, ops: list[Op], result: Any) -> Generator[HandedOn]:
        from tessera.compiler.autodiff.handed_on import HandedOn  # slow: hints need no passes

        ends = [v for v in parts(result) if isinstance(v, Value)]
        with self.deriving():
            found = HandedOn(self.emission.g, ops, self.opened.values, ends)
            try:
                yield found
            finally:
                found.drop()

    # Jacobians

    def _jacfwd(self) -> Any:
        return self._jacobian("columns")

    def _jacrev(self) -> Any:
        return self._jacobian("rows")

    def _jacobian(self, way: str = "") -> Any:
        """For each tensor of the result the structure of the arguments, with axes of the result, then of the
        argument."""
        self.select()
        result, ops = self.evaluated(self.callee.function, self.args, self.kwargs)
        outs = [v for v in parts(result) if isinstance(v, Value)]
        numbers: list[Any] = []
        each_number(result, numbers.append)
        for out in (*outs, *numbers):
            if not isinstance(out, Value) or not tensor(out).dtype.is_float:
                raise self.refused("TS352", f"a result is {type_name(out)}: only floats have derivatives")
        g, values = self.emission.g, self.opened.values
        with self.deriving():
            if not way:
                produced, given = (sum(dims.prod(tensor(v).shape) for v in vs) for vs in (outs, values))
                fewer = isinstance(produced, int) and isinstance(given, int) and produced < given
                way = "rows" if fewer or produced == 1 else "columns"
            found = (rows if way == "rows" else columns)(g, ops, values, outs)
            made = {id(o): self.by_argument(row) for o, row in zip(outs, found, strict=True)}
        return each(result, lambda v: made.get(id(v), v))

    def _hessian(self) -> Any:
        """The derivative of the gradient, one argument at a time."""
        inner = replace(self.transform, name="grad")
        self.callee = replace(self.callee, function=TransformedRef(inner, self.callee.function))
        return self._jacobian("columns")

    # loops

    def _scan(self) -> Any:
        return ScanCall(self.ev, self.emission, self.node, self.callee, self.args).run()

    def _vmap(self) -> Any:
        return MappedCall(self.ev, self.emission, self.node, self.callee, self.args, self.kwargs).run()

    # findings

    def deriving(self) -> _Deriving:
        return _Deriving(self.ev, self.ev.span(self.node))

    def refused(self, code: str, message: str) -> Refused:
        return self.opened.refused(code, message)


@mutable(eq=False)
class LinearMap:
    """What `vjp` and `linearize` give beside the result: the ops of the function, to be gone through when it is
    called."""

    made: TransformedCall
    ops: list[Op]
    result: Any
    backwards: bool

    @property
    def name(self) -> str:
        return getattr(self.made.callee.function, "name", "a function")

    def apply(self, node: ast.AST, args: list[Any], kwargs: dict[str, Any]) -> Any:
        made, opened = self.made, self.made.opened
        opened.node = made.node = node
        count = 1 if self.backwards else len(opened.arguments)
        if kwargs or len(args) != count:
            what = "the cotangent of the result" if self.backwards else "a tangent for each argument"
            raise opened.refused("TS105", f"{made.transform.name} gave a function that takes {what}")
        if self.backwards:
            return made.pulled(self.ops, self.result, args[0])
        return made.pushed(self.ops, self.result, opened.fitting(opened.arguments, args, "tangents"))


class _Deriving:
    """Notes what is emitted meanwhile as derived."""

    def __init__(self, ev: Evaluator, span: Any) -> None:
        self.ev, self.at = ev, ev.builder.at(span)

    def __enter__(self) -> None:
        self.at.__enter__()
        self.block = self.ev.builder.block
        self.start = len(self.block.ops)

    def __exit__(self, *exception: Any) -> None:
        self.ev.derived |= set(self.block.ops[self.start :])
        self.at.__exit__(*exception)


def _widest(place: str, reached: list[str]) -> str:
    """The outermost member of an argument in which nothing is reached: a layer, or the tensor itself."""
    ends = [i for i, c in enumerate(place) if c in ".["]
    parts = (place[:end] for end in ends[1:])
    return next((p for p in parts if not any(r.startswith((f"{p}.", f"{p}[")) for r in reached)), place)


def _summary(value: Any) -> str:
    return f"{len(value)} results" if is_sequence(value) else type_name(value)
