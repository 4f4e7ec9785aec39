"""Gradient accumulation, clipping, and averages of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.nn import tree
from tessera.optimizers.base import Optimizer, computed_in

Tree = TypeVar("Tree")


@fitted
def accumulate(sum_: Tree | None, gradient: Tree, share: float = 1.0) -> Tree:
    """`sum_ + share * gradient`, of a gradient's structure; `share * gradient` where there is no sum yet.

    The gradient of a batch in four parts: `for part in parts: total = accumulate(total, gradient_of(part), 1 / 4)`.
    """
    arrays = tree.parameters(gradient)
    sums = None if sum_ is None else _by_name(tree.parameters(sum_), arrays, "the sum")
    return tree.replaced(gradient, dict(zip(arrays, added(sums, list(arrays.values()), share), strict=True)))


@fitted
def clip_grad_norm(gradient: Tree, max_norm: float) -> tuple[Tree, Any]:
    """The gradient, scaled down so that its norm over all arrays is at most `max_norm`, and its norm before.

    As PyTorch's, the factor is min(1, max_norm / (norm + 1e-6)). Given parameters that require a gradient, or a model
    of them, it is their `.grad` that is scaled down, and stored again; it returns them and the norm. Raises LaunchError
    TS105 for a norm below 0, TS362 where there is no gradient.
    """
    if found := tree.recorded(gradient):
        held = [p for p in found.values() if p.grad is not None]
        if not held:
            message = "no parameter has a gradient: call loss.backward() before clip_grad_norm"
            raise LaunchError(Diagnostic("TS362", message))
        clipped, norm = clip_grad_norm([p.grad for p in held], max_norm)
        for p, grad in zip(held, clipped, strict=True):
            p.grad = grad
        return gradient, norm
    arrays = tree.parameters(gradient)
    if not arrays:
        message = (
            f"{type(gradient).__name__} has no gradient to scale down: arrays of floats, in a module, a list or a dict"
        )
        raise LaunchError(Diagnostic("TS362", message))
    clipped, norm = scaled_down(list(arrays.values()), max_norm)
    return tree.replaced(gradient, dict(zip(arrays, clipped, strict=True))), norm


@fitted
@dataclass(frozen=True)
class ClipNorm:
    """For `chain`: gradients are scaled down to this norm over all parameters, as `clip=` of an optimizer does."""

    max_norm: float


@fitted
@dataclass(frozen=True)
class ClipValue:
    """For `chain`: each element of a gradient is at least -most and at most `most`."""

    most: float

    def __call__(self, gradient, parameter):
        return ts.clip(gradient, -self.most, self.most)


@fitted
def chain(*parts: Any) -> Optimizer:
    """An optimizer that changes each gradient before its rule sees it: `chain(ClipNorm(1.0), lambda g, p: g + 0.01 * p,
    SGD(0.1))`. The parts before the rule are functions (gradient, parameter) -> gradient, of f32, or f64 for f64; a
    `ClipNorm` stands first. As `AdamW(..., clip=, transforms=)`.

    Raises LaunchError TS105 for parts that are none of these.
    """
    *before, rule = parts or (None,)
    if not isinstance(rule, Optimizer):
        raise LaunchError(Diagnostic("TS105", f"chain: the last part is an optimizer, not {rule!r}"))
    clip = rule.clip
    if before and isinstance(before[0], ClipNorm):
        clip = before.pop(0).max_norm
    for part in before:
        if not callable(part):
            where = (
                "stands first" if isinstance(part, ClipNorm) else "is not a function (gradient, parameter) -> gradient"
            )
            raise LaunchError(Diagnostic("TS105", f"chain: {part!r} {where}"))
    return replace(rule, clip=clip, transforms=(*before, *rule.transforms))


@fitted
@dataclass(frozen=True)
class EMA:
    """Averages of parameters over steps: average = decay * average + (1 - decay) * parameter.

    `ema.update(average, model)` returns a module like the model; start with the model itself. Everything but the
    parameters is taken from the model.
    """

    decay: float = 0.999

    def update(self, average: Tree, model: Tree) -> Tree:
        now, before = tree.parameters(model), tree.parameters(average)
        new = averaged(_by_name(before, now, "the average"), list(now.values()), self.decay)
        return tree.replaced(model, dict(zip(now, new, strict=True)))


def _by_name(held: dict[str, Any], wanted: dict[str, Any], what: str) -> list[Any]:
    """The arrays of these names. Raises LaunchError TS362 where names or shapes differ."""
    for name in (*wanted, *held):
        if name not in held or name not in wanted:
            where = f"{what} has no {name}" if name not in held else f"{what} has {name}, and what is added has not"
            raise LaunchError(Diagnostic("TS362", f"trees of different structure: {where}"))
        if (have := tuple(held[name].shape)) != (want := tuple(wanted[name].shape)):
            message = f"trees of different structure: {name} is {list(want)}, and in {what} {list(have)}"
            raise LaunchError(Diagnostic("TS362", message))
    return [held[n] for n in wanted]


def wide(x):
    return x.to(computed_in(x.dtype))


@ts.function
def added(sums, arrays, share: ts.f64):
    scaled = [(wide(a) * share.to(computed_in(a.dtype))).to(a.dtype) for a in arrays]
    return scaled if sums is None else [s + a for s, a in zip(sums, scaled, strict=True)]


@ts.function
def scaled_down(arrays, most: ts.f64):
    norm = ts.sqrt(total([ts.sum(ts.square(wide(a))) for a in arrays]))
    factor = ts.minimum(most.to(norm.dtype) / (norm + 1e-6), 1.0)
    return [(wide(a) * factor.to(computed_in(a.dtype))).to(a.dtype) for a in arrays], norm


@ts.function
def averaged(averages, parameters, decay: ts.f64):
    return [average(a, p, decay.to(computed_in(a.dtype))) for a, p in zip(averages, parameters, strict=True)]


def average(held, p, decay):
    return (wide(held) * decay + p.to(decay.dtype) * (1 - decay)).to(held.dtype)


def total(squares: Sequence[Any]):
    """The sum of numbers, in their order."""
    found = squares[0]
    for s in squares[1:]:
        found = found + s
    return found
