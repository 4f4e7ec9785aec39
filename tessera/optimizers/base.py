"""What optimizers have in common: state, groups, clipping, steps that are left out, and the one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import tessera as ts
from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.language.absent import ONLY_REFUSES, no_attribute
from tessera.language.records import ArrayType
from tessera.nn import tree
from tessera.optimizers.groups import Group, demand_rates, planned
from tessera.optimizers.loss_scale import checked_scale, first_scale, next_scale
from tessera.optimizers.memory import OptimizerState
from tessera.optimizers.repeated import again, remember
from tessera.optimizers.swapped import swapped
from tessera.tracebacks import outward

Model = TypeVar("Model")
MASTER = "master"


@fitted
@dataclass(frozen=True)
class Optimizer:
    """Base of the rules. `lr` is a number or a function of the step; another value does not recompile the update.

    `clip`: gradients are scaled down to this norm over all parameters. `transforms`: functions (gradient, parameter) ->
    gradient, which then change each gradient in turn. `groups`: the first group that matches applies.
    `loss_scale`: the loss is multiplied by it; "dynamic" starts at 65536, is halved after an overflow and doubled after
    2000 steps without one. `numerics`: the rounding of parameters and moments narrower than f32, and the loss scale:
    `ts.stochastic_round`, `ts.saturate`, `ts.loss_scale("dynamic")`, a policy of several, or its text. `master`: for
    parameters narrower than f32, the update changes a copy in f32, and the parameters are its rounding. `state_dtype`:
    the dtype in which moments are kept, f32 or bf16; by default f32, for f64 parameters f64. Stochastic rounding
    depends on `seed`, the step and the parameter's position. A subclass defines `moments`, `first` and `changed`.
    """

    lr: float | Callable[[Any], Any]
    clip: float | None = field(default=None, kw_only=True)
    transforms: tuple[Callable[[Any, Any], Any], ...] = field(default=(), kw_only=True)
    groups: tuple[Group, ...] = field(default=(), kw_only=True)
    loss_scale: float | Literal["dynamic"] = field(default=1.0, kw_only=True)
    numerics: ts.Policy | str | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    master: bool = field(default=False, kw_only=True)
    state_dtype: ts.DType | None = field(default=None, kw_only=True)

    moments = ()
    """names of the arrays that it keeps of each parameter"""
    exact = ()
    """those of them that `state_dtype` does not change: roots and bases, of which small errors grow, and small ones"""

    if not TYPE_CHECKING:  # an attribute that is not there is an error in editors, too

        @outward
        def __new__(cls, *args: Any, **options: Any) -> Any:
            """With parameters before the rate, as in PyTorch: a `BoundOptimizer`."""
            bound = deferred("optimizers.bound")
            if args and bound.holds_parameters(args[0]):
                return bound.BoundOptimizer(args[0], cls(*args[1:], **options))
            return super().__new__(cls)

        @outward
        def __getattr__(self, name: str) -> Any:
            raise no_attribute("optimizer", self, name)

        setattr(__getattr__, ONLY_REFUSES, True)

    def __post_init__(self) -> None:
        if self.lr is None or isinstance(self.lr, (str, list, tuple, dict)):
            message = f"{type(self).__name__}: lr is a number, or a function of the step, not {self.lr!r}"
            raise LaunchError(Diagnostic("TS105", message))
        if isinstance(self.groups, Group):
            object.__setattr__(self, "groups", (self.groups,))
        demand_rates(type(self).__name__, self.lr, self.groups)
        object.__setattr__(self, "transforms", (self.transforms,) if callable(self.transforms) else self.transforms)
        demand_settings(type(self).__name__, vars(self))
        policy = _numerics(self.numerics)
        object.__setattr__(self, "numerics", policy)
        if self.state_dtype is not None:
            object.__setattr__(self, "state_dtype", _state_dtype(self.state_dtype))
        object.__setattr__(self, "loss_scale", checked_scale(self.loss_scale, policy.loss_scale))

    def kept(self, name: str, parameter: Any) -> tuple[str, ...]:
        """The names of the state arrays of this parameter."""
        return self.moments

    def _kept(self, name: str, parameter: Any) -> tuple[str, ...]:
        kept = self.kept(name, parameter)
        return (*kept, MASTER) if self.master and ts.asarray(parameter).dtype.is_low_precision else kept

    def _kept_of(self, trained: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        if type(self).kept is Optimizer.kept and not self.master:  # the same of each
            return dict(zip(trained, [self.moments] * len(trained), strict=True))
        return {n: self._kept(n, p) for n, p in trained.items()}

    def _first(self, moment: str, parameter: Any) -> Any:
        return parameter.astype(ts.f32) if moment == MASTER else self.first(moment, parameter)

    def shape(self, moment: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a state array, for a parameter of this shape."""
        return shape

    def first(self, moment: str, parameter: Any) -> Any:
        """The initial value of a state array."""
        return ts.zeros(self.shape(moment, tuple(parameter.shape)), self.dtype(moment, parameter.dtype))

    def dtype(self, moment: str, dtype: ts.DType) -> ts.DType:
        """The dtype of a state array, for a parameter of this dtype."""
        wide = computed_in(dtype)
        return wide if self.state_dtype is None or moment in (MASTER, *self.exact) else self.state_dtype

    def changed(self, p, g, held, lr, t, decay):
        """The parameter and its arrays after step `t`, counted from 1. `p`, `g` and `held` are f32, or f64 for f64;
        `lr` and `t` are f64 numbers, because 1 - 0.999 loses three digits."""
        raise NotImplementedError

    def init(self, model: Any) -> OptimizerState:
        """The state before the first step. Raises LaunchError TS362 if there are no parameters, or one array is two."""
        trained = self._trained(model)
        if not trained and not tree.parameters(model):
            message = f"{type(model).__name__} has no parameters: arrays of floats, in a module, a list or a dict"
            raise LaunchError(Diagnostic("TS362", message))
        if shared := tree.same_array(trained):
            message = f"{' and '.join(shared)} are one array: hold it at one place, and use that twice"
            raise LaunchError(
                Diagnostic("TS362", f"parameters that share one array would become different: {message}.")
            )
        tree.noted(trained)
        arrays = {n: p.detach() for n, p in zip(trained, map(ts.asarray, trained.values()), strict=True)}
        return OptimizerState(
            {n: {m: self._first(m, arrays[n]) for m in kept} for n, kept in self._kept_of(arrays).items()},
            ts.zeros((), ts.int32),
            ts.zeros((), ts.int32),
            ts.full((), first_scale(self.loss_scale), ts.f32),
            ts.zeros((), ts.f32),
            ts.zeros((3,), ts.int32),
        )

    def update(
        self, model: Model, gradient: Any, state: OptimizerState | None = None, lr: float | None = None
    ) -> tuple[Model, OptimizerState]:
        """Returns the model and the state after a step. `lr` replaces the optimizer's for this step.

        A gradient with NaN or infinity skips the step and changes nothing; `state.report` says so.
        Raises LaunchError TS362 if gradient or state belong to another model, TS105 for a rate below 0.
        """
        if lr is not None:
            demand_rate(type(self).__name__, "update", lr)
        found = again(self, model, gradient, state, lr)
        if found is not None:
            return found
        trained = self._trained(model)
        gradients = tree.arrays(gradient)
        if swapped(model, gradient):
            message = "the gradient is given in place of the model: opt.update(model, gradient, state)"
            raise LaunchError(Diagnostic("TS362", message))
        check(self, trained, gradients, state)
        if not trained:
            return model, state
        names = list(trained)
        held = [state.moments[n] for n in names]
        given = (self.lr if lr is None else lr) if not callable(self.lr) or lr is not None else 0.0
        rule = replace(self, lr=self.lr if callable(self.lr) and lr is None else 0.0, groups=(), numerics=None)
        args = (
            rule, self._plan(trained), [trained[n] for n in names], [gradients[n] for n in names], held,
            state.step, state.good, state.scale, given, self.seed,
        )  # fmt: skip
        parameters, held, step, good, scale, norm, tally = updated(*args)
        changed = tree.renewed(model, dict(zip(names, parameters, strict=True)))
        tree.noted(tree.parameters(changed))
        moments = dict(zip(names, held, strict=True))
        remember(self, model, gradient, names, updated, args)
        return changed, OptimizerState(moments, step, good, scale, norm, tally)

    def _group(self, name: str, parameter: Any) -> Group | None:
        for group in self.groups:
            if group.matches(name, parameter):
                return group
        return None

    def _trained(self, model: Any) -> dict[str, Any]:
        if not self.groups:
            return tree.parameters(model)
        groups = {n: (p, self._group(n, p)) for n, p in tree.parameters(model).items()}
        return {n: p for n, (p, g) in groups.items() if g is None or not g.frozen}

    def _plan(self, trained: dict[str, Any]) -> Plan:
        decay, policy = getattr(self, "weight_decay", 0.0), _numerics(self.numerics)
        groups = [self._group(n, p) for n, p in trained.items()] if self.groups else [None] * len(trained)
        return planned(groups, decay, policy.rounding == "stochastic", bool(policy.saturate))


def _numerics(given: ts.Policy | str | None) -> ts.Policy:
    """The `numerics` as one policy. Raises LaunchError TS105 for clauses that do not apply to stored
    parameters."""
    policy = ts.Policy() if given is None else ts.Policy().merge(given)
    for part in policy.parts():
        if part.name == "device" or (part.name == "accum" and part.value not in (ts.f32, ts.f64)):
            message = f"numerics: an optimizer does not enforce {part}: it computes in f32, for f64 in f64"
            raise LaunchError(Diagnostic("TS105", message))
    return policy


def demand_settings(
    rule: str, settings: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]] | None = None
) -> None:
    """Raises LaunchError TS105 for numbers with which a rule climbs, or forgets more than everything. `ranges` are the
    least number of each setting and the one that it stays below."""
    ranges = _RANGES if ranges is None else ranges
    for name, given in settings.items():
        parts = given if isinstance(given, (tuple, list)) else (given,)
        least, below = ranges.get(name, (None, None))
        if least is None or not all(isinstance(v, (int, float)) for v in parts):
            continue
        if not all(v >= least and v < below for v in parts):
            said = f"at least {least:g}" + (f" and less than {below:g}" if below < math.inf else "")
            raise LaunchError(Diagnostic("TS105", f"{rule}: {name} is {said}, not {given!r}"))


def demand_rate(rule: str, method: str, lr: Any) -> None:
    """Raises LaunchError TS105 for what is no rate of one step."""
    if isinstance(lr, (str, bytes, list, tuple, dict)):
        raise LaunchError(Diagnostic("TS105", f"{rule}.{method}: lr is a number or None, not {lr!r}"))
    demand_settings(rule, {"lr": lr})


def computed_in(dtype: Any) -> Any:
    """The dtype of the arithmetic with gradients and parameters of this dtype."""
    return ts.f64 if dtype == ts.f64 else ts.f32


_RANGES = {
    **dict.fromkeys(("lr", "eps", "weight_decay", "clip"), (0.0, math.inf)),
    **dict.fromkeys(("betas", "momentum"), (0.0, 1.0)),
    **dict.fromkeys(("every", "largest"), (1, math.inf)),
}
"""of settings by their names"""


def _state_dtype(given: Any) -> ts.DType:
    """Raises LaunchError TS105 for what moments are not kept in."""
    if given in (ts.f32, ts.bf16, ts.f64):
        return given
    why = ": squares of gradients are smaller than what f16 holds" if given == ts.f16 else ""
    raise LaunchError(Diagnostic("TS105", f"state_dtype is ts.f32 or ts.bf16, not {given!r}{why}"))


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def check(rule: Optimizer, trained: dict[str, Any], gradients: dict[str, Any], state: OptimizerState | None) -> None:
    """Raises LaunchError TS362 unless gradient and state belong to these parameters."""
    if state is None:
        raise LaunchError(Diagnostic("TS362", "the state of the optimizer is missing: opt.init(model) makes it"))
    if not isinstance(state, OptimizerState):
        message = (
            f"the state is {_kind(state)}: opt.init(model) makes it, and opt.update(model, gradient, state) takes it"
        )
        raise LaunchError(Diagnostic("TS362", message))
    faults = unfit(rule, rule._kept_of(trained), tree.types(trained), tree.types(gradients), tree.types(state.moments))
    if faults:
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise LaunchError(Diagnostic("TS362", f"this is not of the model: {'; '.join(faults[:3])}{more}"))


def unfit(
    rule: Optimizer, kept: dict[str, tuple[str, ...]], trained: dict[str, ArrayType], gradients: dict[str, ArrayType],
    moments: dict[str, dict[str, ArrayType]],
) -> list[str]:  # fmt: skip
    """What does not fit each other, for people; of types alone, so that Python runs it where a step is compiled."""
    faults = [f"the state has no {n}" for n in kept if n not in moments]
    faults += [f"the state has {n}, which is not a parameter that is trained" for n in moments if n not in kept]
    for name, wanted in kept.items():
        shape, dtype = trained[name]
        found, held = gradients.get(name), moments.get(name)
        if found is None:
            faults.append(f"the gradient has no {name}; freeze it in a Group, or differentiate by it")
        elif found.shape != shape:
            faults.append(f"{name} is {list(shape)} and its gradient {list(found.shape)}")
        if held is not None and set(held) != set(wanted):
            faults.append(
                f"{type(rule).__name__} keeps {' and '.join(wanted) or 'nothing'} of {name}, not {', '.join(held)}"
            )
            continue
        for moment, have in (held or {}).items():
            if have.shape != (shape if moment == MASTER else rule.shape(moment, shape)):
                faults.append(f"{name} is {list(shape)} and its {moment} {list(have.shape)}")
            elif have.dtype != (known := rule.dtype(moment, dtype)):
                faults.append(
                    f"the {moment} of {name} is {have.dtype}, and this {type(rule).__name__} keeps it in {known}"
                )
    return faults


@ts.function
def updated(rule, plan, parameters, gradients, held, step, good, scale, lr: ts.f64, seed: ts.Int):
    """One step of all parameters."""
    found = (0.0, ts.inf, True, 0, 0)
    for g in gradients:  # all of one after all of another: so it repeats layer by layer, which the compiler sees
        found = with_gradient(found, g, 1.0 / scale)
    total, least, _, ahead, finite = found
    norm = ts.sqrt(total)
    fine = ts.isfinite(norm)
    shrink = 1.0 / scale
    if rule.clip is not None:
        shrink = ts.minimum(rule.clip / (norm + 1e-6), 1.0) / scale
    # what changes a parameter waits for the norm of all of them: it is one kernel then, and reads what it changes once
    shrink = ts.where(fine, shrink, 0.0)
    t = step.to(ts.f64)
    rates = [rate_at(rule.lr, t) if callable_(rule) else lr, *[rate_at(found, t) for found in plan.rates]]
    t = t + 1.0
    keys = [None] * len(parameters)
    if plan.stochastic:  # of the seed, the step and the parameter's number
        keys = ts.unstack(ts.random_bits(ts.random_bits(seed, (1,))[0] + step.to(ts.uint64), (len(parameters),)))
    common = (rule, shrink, fine, t, plan.saturate)
    rates = [rates[i] for i in plan.which]
    each = zip(parameters, gradients, held, rates, plan.scales, plan.decays, keys, strict=True)
    changed = [updated_parameter(common, *one) for one in each]
    new, states = [p for p, _ in changed], [state for _, state in changed]
    good = ts.where(fine, good + 1, 0)
    if rule.loss_scale == "dynamic":
        scale, good = next_scale(scale, good, fine)
    tally = ts.stack([ahead, finite, (least == 0).to(ts.int32)])
    return new, states, step + fine.to(ts.int32), good, scale, norm.to(ts.f32), tally


updated.options["constant"] = True  # nothing of it is recorded for backward()


@ts.function
def with_gradient(found, g, unscale):
    """What is known of the gradients up to this one: the sum of all squares, the least of their sums, whether all are
    finite, how many come before the first that is not, and how many are finite."""
    total, least, sound, ahead, finite = found
    wide = ts.f64 if g.dtype == ts.f64 else ts.f32
    square = ts.sum(ts.square(g.to(wide) * unscale.to(wide)))
    holds = ts.isfinite(square)
    sound = sound & holds
    ahead, finite = ahead + sound.to(ts.int32), finite + holds.to(ts.int32)
    total, least = total + square, ts.minimum(least, square)
    return total, least, sound, ahead, finite


@ts.function
def updated_parameter(common, p, g, held, rate, factor, decay, key):
    """A parameter and its arrays after a step."""
    rule, shrink, fine, t, saturate = common
    wide = ts.f64 if p.dtype == ts.f64 else ts.f32
    before = {k: held[k].to(wide) for k in held}
    q = before[MASTER] if MASTER in before else p.to(wide)
    g = g.to(wide) * shrink.to(wide)
    for transform in rule.transforms:
        g = transform(g, q)
    q, kept = rule.changed(q, g, before, rate * factor, t, decay)
    if MASTER in before:
        kept = {**kept, MASTER: q}
    order = list(kept)
    state = {
        k: ts.where(fine, stored(kept[k], held[k], saturate, key, 1 + order.index(k)), held[k]) for k in kept
    }  # fmt: skip
    return ts.where(fine, stored(q, p, saturate, key, 0), p), state


with_gradient.options["alike"] = True  # most parameters differ in their names alone
updated_parameter.options["alike"] = True


def stored(q, like, saturate, key, draw):
    """A parameter or moment as it is kept. An element's first three draws are of one key."""
    if key is not None:
        q = ts.stochastic_cast(q, like.dtype, key + draw // 3, draw=draw % 3)
    return ts.saturate_cast(q, like.dtype) if saturate else q.to(like.dtype)


def rate_at(schedule, t):
    found = schedule(t)
    return ts.full((), found, ts.f64) if isinstance(found, (int, float)) else found


def callable_(rule):
    return not isinstance(rule.lr, float)
