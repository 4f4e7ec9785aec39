"""Mixed precision: products in a narrow dtype, everything else in f32, with a report of the changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tessera as ts
from tessera.language.absent import no_attribute
from tessera.nn import tree
from tessera.nn.module import Module
from tessera.tracebacks import outward


@outward
def to_mixed_precision(what: Any, compute: Any = ts.bf16, accumulate: Any = ts.f32, storage: Any = None) -> Any:
    """A model or function whose products (matmul, linear, einsum, convolutions) round operands of f32 to `compute`.

    Sums, and the results of products, are in `accumulate`. All else stays f32: norms, softmax, losses, reductions,
    elementwise operators, cotangents, and parameters, which are the optimizer's master weights. `storage`: the dtype in
    which a model's arrays with two or more axes (matrices, tables, filters) are stored, saturated to its range; they
    are widened where they are used. Arrays with one axis, such as biases, and buffers are not narrowed, because they
    are small. A gradient has the dtype of its parameter.

    For a function, returns it under the policy `compute(...) accum(...)`; for a model, a `MixedPrecision`, whose
    `report` lists each array with its dtype. Raises LaunchError TS105 if `what` is neither, and for dtypes
    that products do not support.
    """
    policy = ts.Policy().merge(ts.accum(accumulate)) if accumulate is not ts.f32 else ts.Policy()
    if compute is not ts.f32:
        policy = policy.merge(ts.compute(compute))
    if isinstance(what, ts.Function):
        if storage is not None:
            raise TypeError("storage is for models: a function holds no parameters")
        own = what.options.get("numerics")
        return what.with_options(numerics=policy if own is None else own.merge(policy))
    if not isinstance(what, Module):
        raise TypeError(f"to_mixed_precision takes a model or a @ts.function, not {type(what).__name__}")
    model, lines = (what, _unchanged(what)) if storage is None else _stored(what, storage)
    head = (
        f"{type(what).__name__}: products round their operands to {compute} and sum in {accumulate}\n"
        "norms, softmax, losses, reductions, elementwise operators and cotangents stay f32\n"
    )
    return MixedPrecision(model, _under(policy), head + "\n".join(lines))


class MixedPrecision(Module):
    """A model whose products are computed in a narrow dtype. Call it like the model; `report` lists the changes."""

    model: Any
    run: Callable
    report: str

    def __call__(self, *inputs, **named):
        return self.run(self.model, *inputs, **named)

    if not TYPE_CHECKING:

        @outward
        def __getattr__(self, name: str) -> Any:
            error = no_attribute("module", self, name)
            if hasattr(vars(self).get("model"), name):
                error = AttributeError(f"{error}; the model itself has it: .model.{name}", name=name, obj=self)
            raise error


def _under(policy: Any) -> Callable[..., Any]:
    @ts.function(numerics=policy)
    def run(model, *inputs, **named):
        return model(*inputs, **named)

    return run


def _unchanged(model: Module) -> list[str]:
    return [f"  {leaf.path}: {ts.asarray(leaf.array).dtype}, as it was" for leaf in tree.leaves(model)]


def _stored(model: Module, storage: Any) -> tuple[Module, list[str]]:
    """The model with narrow arrays, and a line for each array."""
    arrays, lines = {}, []
    for leaf in tree.leaves(model):
        array = ts.asarray(leaf.array)
        text = f"  {leaf.path}: {array.dtype}"
        if not leaf.trained or len(array.shape) < 2 or array.dtype == storage:
            why = "state" if not leaf.trained else "it has that dtype" if array.dtype == storage else "one axis"
            lines.append(f"{text}, as it was ({why})")
            continue
        arrays[leaf.path] = narrow = ts.saturate_cast(array, storage)
        lost, size = (float(ts.sqrt(ts.sum(ts.square(x)))) for x in (narrow.astype(ts.f32) - array, array))
        share = f"{100 * lost / size:.2g} % of its norm" if size else "nothing"
        lines.append(f"{text} -> {storage}, {array.size * storage.itemsize} bytes; rounding took {share}")
    return tree.replaced(model, arrays), lines
