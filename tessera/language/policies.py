"""Numerics policies: how a tensor's elements are accumulated, rounded, scaled and placed. They are part of the type."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from tessera.errors import LaunchError
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.tracebacks import outward

Rounding = Literal["nearest", "stochastic"]


class PolicyError(LaunchError):
    """A policy's text or value cannot be understood, or two policies disagree (TS105)."""

    default_code = "TS105"

    @property
    def reason(self) -> str:
        return self.diagnostics[0].message


@dataclass(frozen=True, slots=True, repr=False)
class PolicyPart:
    """One clause, e.g. `accum(f32)`: sets field `name` of a policy to `value`."""

    name: str
    value: object

    def __rmatmul__(self, dtype: object) -> Policy:
        """`bf16 @ accum(f32)`: the dtype under this clause."""
        return _under(dtype, self)

    def __str__(self) -> str:
        if self.value is True:
            return f"@{self.name}"
        if self.name == "rounding":
            return f"@{self.value}_round"
        return f"@{self.name}({self.value!r})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True, repr=False)
class Policy:
    """A dtype with its numerics: `bf16 @ accum(f32) @ loss_scale(128.0)`. None means "not said"."""

    dtype: DType | None = None
    accum: DType | None = None
    loss_scale: float | Literal["dynamic"] | None = None
    rounding: Rounding | None = None
    saturate: bool | None = None
    deterministic: bool | None = None
    fast: bool | None = None
    device: str | None = None
    compute: DType | None = None

    def merge(self, other: Policy | PolicyPart | str) -> Policy:
        """Both policies at once, `other` as text too. Raises PolicyError naming the field on which they disagree."""
        other = parse(other) if isinstance(other, str) else other
        if not isinstance(other, (Policy, PolicyPart)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PolicyError(f"a policy is such as ts.bf16 @ ts.accum(ts.f32), or its text, not {other!r}")
        parts = [other] if isinstance(other, PolicyPart) else other.parts()
        out = self if isinstance(other, PolicyPart) or other.dtype is None else replace(self, dtype=other.dtype)
        for p in parts:
            mine = getattr(out, p.name)
            if mine is not None and mine != p.value:
                raise PolicyError(f"{p.name} is {mine} on one side and {p.value} on the other")
            out = replace(out, **{p.name: p.value})
        return out

    __matmul__ = merge

    def __rmatmul__(self, dtype: object) -> Policy:
        """`bf16 @ mixed`, where `mixed` is a policy that has a name: the dtype under it."""
        return _under(dtype, self)

    def parts(self) -> list[PolicyPart]:
        return [
            PolicyPart(f.name, v)
            for f in fields(self)
            if f.name != "dtype" and (v := getattr(self, f.name)) is not None
        ]

    @property
    def empty(self) -> bool:
        return not self.parts()

    def __str__(self) -> str:
        return " ".join([*([str(self.dtype)] if self.dtype else []), *map(str, self.parts())])

    __repr__ = __str__


def _under(dtype: object, policy: Policy | PolicyPart) -> Policy:
    """Raises PolicyError where `dtype` is none."""
    base = dtypes.of(dtype)
    if base is None:
        raise PolicyError(f"{dtype!r} is not a dtype")
    return Policy(base).merge(policy)


@outward
def accum(dtype: object) -> PolicyPart:
    """Accumulate reductions and contractions in `dtype` (at least f32)."""
    found = dtypes.of(dtype)
    if found is None or not (found.is_float or found.is_complex) or found.compute != found:
        raise PolicyError(f"accum needs f32, f64 or a complex dtype, not {dtype!r}")
    return PolicyPart("accum", found)


@outward
def compute(dtype: object) -> PolicyPart:
    """Round f32 operands of products to `dtype`: f16, bf16 or tf32. Sums are f32, or wider by `accum`, results f32."""
    found = dtypes.of(dtype)
    if found not in (dtypes.f16, dtypes.bf16, dtypes.tf32):
        raise PolicyError(f"compute needs f16, bf16 or tf32, not {dtype!r}; formats of 8 bits need scales: ts.scaled")
    return PolicyPart("compute", found)


@outward
def loss_scale(scale: float | Literal["dynamic"]) -> PolicyPart:
    """Gradients are computed `scale` times as large, so that narrow floats hold them, and divided by it at the end.

    "dynamic" follows overflows; it is for optimizers, which keep it in their state.
    """
    if scale == "dynamic":
        return PolicyPart("loss_scale", scale)
    if isinstance(scale, str) or not scale > 0:
        raise PolicyError(f"loss_scale needs a positive factor or 'dynamic', not {scale!r}")
    return PolicyPart("loss_scale", float(scale))


@outward
def device(name: str) -> PolicyPart:
    """Placement, e.g. "gpu:0"."""
    if not re.fullmatch(r"[\w.:-]+", str(name)):
        raise PolicyError(f"{name!r} is not the name of a device")
    return PolicyPart("device", str(name))


stochastic_round = PolicyPart("rounding", "stochastic")
saturate = PolicyPart("saturate", True)
deterministic = PolicyPart("deterministic", True)


def unenforced(policy: Policy | None, dtype: DType | None = None) -> str:
    """Why tensors of a program, of `dtype` if it is known, may not have this policy (TS306); empty where they may."""
    for part in policy.parts() if policy else ():
        match part.name, part.value:
            case "rounding", "stochastic":
                return (
                    f"{part} is not enforced for tensors of a program, which would need a key: round with "
                    "ts.stochastic_cast(x, dtype, key), or let an optimizer do it, numerics=ts.stochastic_round"
                )
            case "loss_scale", "dynamic":
                return f"{part} is not enforced here, for it needs state: give it to an optimizer, loss_scale='dynamic'"
            case "device", _:
                return f"{part} is not enforced by this version of Tessera; leave it out"
            case "saturate" | "loss_scale" | "compute", _ if dtype is not None and not dtype.is_float:
                instead = "use ts.saturate_cast" if part.name == "saturate" else "leave it out"
                return f"{part} is not enforced for {dtype}, only for floats; {instead}"
            case _:
                pass
    return ""


_FLAGS = {
    "stochastic_round": stochastic_round,
    "nearest_round": PolicyPart("rounding", "nearest"),
    "saturate": saturate,
    "deterministic": deterministic,
    "fast": PolicyPart("fast", True),
}


@outward
def NumericalPolicy(
    accumulation: object = dtypes.f32,
    rounding: str = "nearest",
    loss_scale: float | Literal["dynamic"] = 1.0,
    saturate: bool = False,
    deterministic: bool = False,
) -> Policy:
    """A policy from keywords; fields that keep their defaults set nothing."""
    out = Policy().merge(accum(accumulation))
    if rounding not in ("nearest", "stochastic"):
        raise PolicyError(f"rounding is 'nearest' or 'stochastic', not {rounding!r}")
    if rounding == "stochastic":
        out = out.merge(stochastic_round)
    if loss_scale != 1.0:
        out = out.merge(_CALLS["loss_scale"](loss_scale))
    if saturate:
        out = out.merge(PolicyPart("saturate", True))
    return out.merge(PolicyPart("deterministic", True)) if deterministic else out


_CLAUSE = re.compile(r"@\s*(\w+)\s*(?:\(([^()]*)\))?\s*")


@outward
def parse(text: str) -> Policy:
    """Reads "bf16 @accum(f32) @loss_scale(128.0)". Raises PolicyError; runs no code."""
    head, at, _ = text.partition("@")
    out = Policy()
    if head.strip():
        base = dtypes.named(head.strip())
        if base is None:
            raise PolicyError(f"{head.strip()!r} is not a dtype")
        out = Policy(base)
    rest, end = text[len(head) :] if at else "", 0
    for m in _CLAUSE.finditer(rest):
        if m.start() != end:
            break
        end = m.end()
        out = out.merge(clause(m.group(1), m.group(2)))
    if end != len(rest):
        raise PolicyError(f"{rest[end:]!r} is not a policy clause")
    return out


def clause(name: str, argument: str | None) -> PolicyPart:
    """One `@name(argument)` as text."""
    if name in _FLAGS and not argument:
        return _FLAGS[name]
    if name not in _CALLS:
        known = ", ".join([*_CALLS, "stochastic_round", "saturate", "deterministic"])
        raise PolicyError(f"@{name} is not a policy; known: {known}")
    if not argument:
        raise PolicyError(f"@{name} needs an argument")
    if name in ("accum", "compute"):
        return _CALLS[name](argument.strip())
    try:
        value = ast.literal_eval(argument.strip())
    except (ValueError, SyntaxError, TypeError) as e:
        raise PolicyError(f"@{name}({argument}) cannot be read: {e}") from e
    return _CALLS[name](value)


_CALLS: dict[str, Callable[[Any], PolicyPart]] = {
    "accum": accum, "compute": compute, "loss_scale": loss_scale, "device": device,
}  # fmt: skip
