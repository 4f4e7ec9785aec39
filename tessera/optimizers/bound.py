"""Optimizers that hold the parameters they change, as PyTorch's do: for loops with `loss.backward()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.language.absent import no_attribute
from tessera.language.records import holding
from tessera.nn import tree
from tessera.nn.module import Module, buffer, demand_removed
from tessera.optimizers.base import Optimizer, demand_rate
from tessera.optimizers.groups import Group
from tessera.optimizers.memory import OptimizerState, StepReport
from tessera.optimizers.state import TrainingState
from tessera.tracebacks import outward


class HeldParameters:
    """Tensors by name. They belong to a model, so they are not part of the optimizer that holds them."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors


class BoundOptimizer(Module):
    """A rule with the parameters that it changes in place, and its state. `AdamW(model.parameters(), lr=1e-3)` makes
    one::

        optimizer = ts.optimizers.AdamW(model.parameters(), lr=1e-3)
        for x, y in data:
            loss = ts.mse(model(x), y)
            optimizer.step(loss)  # or optimizer.zero_grad(); loss.backward(); optimizer.step()

    The parameters are Tensors; they get `requires_grad`, unless some of them have it already: the others then stay as
    they are. Dicts set other values for some, `AdamW([{"params": a}, {"params": b, "lr": 1e-4}], lr=1e-3)`. New values
    are stored into their memory, with the same bits as `optimizer.update` gives. Its arrays, for `state_dict()` and
    checkpoints, are those of the state alone.
    """

    rule: Optimizer
    memory: OptimizerState = buffer()
    held: HeldParameters

    def __init__(self, parameters: Any, rule: Optimizer) -> None:
        """Raises LaunchError TS105 if there is no parameter, or one is no Tensor, TS362 like `rule.init`."""
        parameters, self.rule = _grouped(parameters, rule)
        self.held = HeldParameters(_tensors(parameters))
        self.memory = self.rule.init(self._arrays())

    def _arrays(self) -> dict[str, Any]:
        """The memory of the parameters."""
        return {name: p.detach() for name, p in self.held.tensors.items()}

    @outward
    def step(self, loss: Any = None, lr: float | None = None) -> None:
        """Changes the parameters by their `.grad`. With a `loss`, first calls its `backward()`, and removes the
        gradients afterwards. `lr` replaces the optimizer's for this step.

        NaN or infinity in a gradient changes nothing; `report` says so. Raises LaunchError TS362 for parameters without
        a gradient, and like `backward()`.
        """
        if lr is not None:
            demand_rate(type(self.rule).__name__, "step", lr)
        if loss is not None and not isinstance(loss, ts.Tensor):
            message = f"step(loss) takes the number that the model's call gave, not {type(loss).__name__}"
            raise LaunchError(Diagnostic("TS105", f"{message}; step() goes by the .grad that loss.backward() has set"))
        if loss is not None:
            (loss * self.scale if self.rule.loss_scale != 1 else loss).backward()
        gradients = {name: p.grad for name, p in self.held.tensors.items()}
        if all(g is None for g in gradients.values()):
            message = "no parameter has a gradient: call loss.backward() before optimizer.step(), or step(loss)"
            raise LaunchError(Diagnostic("TS362", message))
        if unused := [n for n in self.memory.moments if gradients[n] is None]:
            raise LaunchError(Diagnostic("TS362", self._unused(unused)))
        held = {"model": self._arrays(), "memory": self.memory, "optimizer": self.rule}
        with ts.no_grad():
            holding(TrainingState, held)._step(gradients, lr)
        if loss is not None:
            self.zero_grad()

    def holding(self, others: Mapping[int, Any]) -> BoundOptimizer:
        """The same optimizer of other tensors: of those with the identity of a parameter, where there is one."""
        changed = copy(self)
        changed.held = HeldParameters({name: others.get(id(p), p) for name, p in self.held.tensors.items()})
        return changed

    def _unused(self, names: list[str]) -> str:
        """What is said of parameters that the loss did not reach: those of a list have their positions for names."""
        shown = ", ".join(
            f"{n if not n.isdigit() else f'number {n}'} {list(self.held.tensors[n].shape)}" for n in names[:3]
        )
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        how = "leave them out of the optimizer's parameters, or freeze them, Group(..., frozen=True)"
        return f"the loss does not depend on these parameters, which have no gradient: {shown}{more}; {how}"

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters before the next `backward()`: they are None, as in PyTorch."""
        demand_removed(set_to_none)
        for p in self.held.tensors.values():
            p.grad = None

    @property
    def lr(self) -> Any:
        """The learning rate, a number or a function of the step. It may be set."""
        return self.rule.lr

    @lr.setter
    def lr(self, value: Any) -> None:
        self.rule = replace(self.rule, lr=value)

    @property
    def scale(self) -> Any:
        """The loss scale: `step(loss)` multiplies by it; multiply a loss whose `backward()` you call."""
        return self.memory.scale

    @property
    def report(self) -> StepReport:
        """The report of the last step. Waits for its result."""
        return self.memory.report

    @property
    def grad_norm(self) -> float:
        """The norm of the last gradient over all parameters, before clipping. Waits for the step."""
        return float(self.memory.norm)

    def __repr__(self) -> str:
        return f"<{self.rule!r} of {len(self.held.tensors)} parameters, after {int(self.memory.step)} steps>"

    @outward
    def __getattr__(self, name: str) -> Any:
        raise no_attribute("optimizer", self, name)


def _tensors(parameters: Any) -> dict[str, Any]:
    """The parameters by name, or by position; they require a gradient from here on. One that a model uses twice is one
    parameter."""
    given = parameters if isinstance(parameters, (Module, Mapping)) else list(parameters)
    found = tree.parameters(given)
    if other := next((n for n, p in found.items() if not isinstance(p, ts.Tensor)), None):
        message = f"parameter {other} is a {type(found[other]).__name__}, and no Tensor that has a .grad"
        raise LaunchError(Diagnostic("TS105", f"{message}: call model.requires_grad_() first"))
    if not found:
        raise LaunchError(Diagnostic("TS105", "there are no parameters: none of these is a tensor of floats"))
    once: dict[int, tuple[str, Any]] = {}
    for name, p in (tree.recorded(given) or found).items():
        once.setdefault(id(p), (name, p.requires_grad_()))
    return dict(once.values())


@dataclass(frozen=True)
class Named:
    """Whether a parameter has one of these names."""

    names: frozenset[str]

    def __call__(self, name: str, parameter: Any) -> bool:
        return name in self.names


def _grouped(parameters: Any, rule: Optimizer) -> tuple[Any, Optimizer]:
    """Parameters in dicts with settings, as PyTorch's optimizers take them, `[{"params": parameters, "lr": 1e-4}]`, as
    parameters and a rule with groups."""
    given = parameters if isinstance(parameters, (Module, Mapping)) else list(parameters)
    if not isinstance(given, list) or not any(isinstance(g, Mapping) and "params" in g for g in given):
        return given, rule
    settings = ("lr", "weight_decay", "lr_scale")
    held: dict[str, Any] = {}
    groups: list[Group] = []
    for i, group in enumerate(given):
        known = isinstance(group, Mapping) and "params" in group
        others = sorted(set(group) - {"params", *settings}) if known else ()
        if not known or others:
            what = f"has {', '.join(map(str, others))}, which all parameters share" if others else "has no 'params'"
            message = f"group {i} of the parameters {what}: a group has 'params', {', '.join(map(repr, settings))}"
            raise LaunchError(Diagnostic("TS105", message))
        one = group["params"]
        found = tree.parameters(one if isinstance(one, Module) or tree.is_array(one) else list(one))
        names = {(f"{i}.{n}" if n else str(i)): p for n, p in found.items()}
        held |= names
        groups.append(Group(Named(frozenset(names)), **{n: group[n] for n in settings if n in group}))
    return held, replace(rule, groups=(*groups, *rule.groups))


def holds_parameters(first: Any) -> bool:
    """Whether the first argument of an optimizer is parameters and not a learning rate."""
    return isinstance(first, (Module, Iterable)) and not isinstance(first, str) and not tree.is_array(first)
