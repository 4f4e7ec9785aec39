"""Settings of some of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.optimizers.schedules import Constant


@fitted
@dataclass(frozen=True)
class Group:
    """Settings for the parameters for which `matches(name, array)` is true.

    `lr`, a number or a function of the step, and `weight_decay` replace the optimizer's; `lr_scale` multiplies the
    rate. Frozen parameters do not change, and cost no memory or time.
    """

    matches: Callable[[str, Any], bool]
    lr: float | Callable[[Any], Any] | None = None
    weight_decay: float | None = None
    frozen: bool = False
    lr_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The compile-time properties of each parameter, in order: which rate, 0 the optimizer's and those of `rates` from
    1 on, times what, and the decay."""

    rates: tuple[Callable[[Any], Any], ...]
    which: tuple[int, ...]
    scales: tuple[float, ...]
    decays: tuple[float, ...]
    stochastic: bool
    saturate: bool


def planned(groups: Sequence[Group | None], decay: float, stochastic: bool, saturate: bool) -> Plan:
    """The plan of parameters by the group of each."""
    rates: list[Any] = [None]
    for group in groups:
        if group is not None and group.lr not in rates:
            rates.append(group.lr)
    return Plan(
        tuple(r if callable(r) else Constant(r) for r in rates[1:]),
        tuple(0 if g is None else rates.index(g.lr) for g in groups),
        tuple(1.0 if g is None else g.lr_scale for g in groups),
        tuple(decay if g is None or g.weight_decay is None else g.weight_decay for g in groups),
        stochastic,
        saturate,
    )


def demand_rates(rule: str, lr: Any, groups: Sequence[Group]) -> None:
    """Raises LaunchError TS105 for a group whose rate is a number, where the optimizer's changes with the step: whether
    it falls with the others would be a guess."""
    number = next((g.lr for g in groups if g.lr is not None and not callable(g.lr)), None)
    if callable(lr) and number is not None:
        message = f"{rule}: lr is a function of the step, and that of a group the number {number}: give the group a"
        message += " function too, or lr_scale=, which multiplies the optimizer's"
        raise LaunchError(Diagnostic("TS105", message))
