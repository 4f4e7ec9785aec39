"""Functions that go on after their parts have sent each other something: one launch of each part between two sends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.machines import HOST
from tessera import knobs
from tessera.compiler import extensions
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.sharding import Stage
from tessera.compiler.graph.sharding import stages
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.printer import print_op
from tessera.compiler.structure import row
from tessera.compiler.targets import base as targets
from tessera.compiler.unit import Param, Unit
from tessera.dist import arrays
from tessera.dist.plan import DevicePart, DistributionPlan
from tessera.runtime.arrays import devices
from tessera.runtime.arrays.adapter import Adapter
from tessera.runtime.code.build import Request
from tessera.runtime.code.build import build
from tessera.runtime.arrays.libraries import CUPY
from tessera.runtime.arrays.libraries import JAX
from tessera.runtime.arrays.libraries import NUMPY
from tessera.runtime.arrays.libraries import TORCH
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.call import straight
from tessera.runtime.call.prepared import PreparedLaunch

Values = dict[Value, Any]
KEPT = 1024
"""prepared launches of one plan, one for each stage and size of a part; beyond it the oldest go"""


class Staged:
    """The stages of one plan, compiled for the arrays that they have been given."""

    def __init__(self, plan: DistributionPlan) -> None:
        self.analysis, self.partition = plan.analysis, plan.partition
        self.stages = stages(plan.partition)
        self._ready: dict[Hashable, Callable[..., Any]] = {}

    def __call__(
        self, arguments: Sequence[Sequence[Any]], parts: Sequence[DevicePart], adapter: Adapter | None, home: str
    ) -> list[list[Any]]:
        """The results of each part, given its arguments in order; shares are whole in all of them."""
        args = self.partition.func.region.block.args
        known: list[Values] = [dict(zip(args, given, strict=True)) for given in arguments]
        total = sum(p.size for p in parts)
        for stage in self.stages:
            for part, mine in zip(parts, known, strict=True):
                run = self._prepared(stage, mine, part, total, adapter)
                mine.update(zip(stage.gives, run(*(mine[v] for v in stage.takes)), strict=True))
            for v in stage.gives:
                if v in self.partition.shares:
                    self._meet(v, known, parts, home)
        return [[mine[v] for v in self.partition.func.region.block.terminator.operands] for mine in known]

    def _meet(self, v: Value, known: Sequence[Values], parts: Sequence[DevicePart], home: str) -> None:
        """The shares of a value become the whole one, on every part's device."""
        sizes = [p.size for p in parts]
        shares = [mine[v] for mine in known]
        whole = arrays.combined(shares, self.partition.shares[v], sizes, tensor(v).dtype, home)
        for part, mine in zip(parts, known, strict=True):
            mine[v] = arrays.moved(whole, part.device)

    def _prepared(
        self, stage: Stage, known: Mapping[Value, Any], part: DevicePart, total: int, adapter: Adapter | None
    ) -> Callable[..., Any]:
        values = [known[v] for v in stage.takes]
        adapters = [adapter_of(v) for v in values]
        target = targets.get(devices.resolve(knobs.target(), part.device))
        kinds = tuple(type(v) if a is None else (a.name, a.key(v)) for v, a in zip(values, adapters, strict=True))
        key = (id(stage), part.device, part.size, total, target.fingerprint, knobs.debug(), extensions.state(), kinds)
        found = self._ready.get(key)
        if found is None:
            request = self._request(stage, target)
            laid = [a is None or a.view(v).contiguous for v, a in zip(values, adapters, strict=True)]
            copied = {i for i, contiguous in enumerate(laid) if not contiguous}
            library = adapter if adapter in (TORCH, JAX) else NUMPY if part.device == HOST else CUPY
            sizes = {self.partition.dim: part.size, self.partition.total: total}
            prepared = PreparedLaunch(build(request), adapters, frozenset(copied), library, part.device, sizes)
            prepared.profiled = lambda: build(replace(request, profile=True))
            while len(self._ready) >= KEPT:
                self._ready.pop(next(iter(self._ready)), None)
            found = self._ready[key] = straight.ready(prepared)
        return found

    def _request(self, stage: Stage, target: targets.Target) -> Request:
        names: tuple[str, ...] = stage.func.attrs["arg_names"]  # type: ignore[assignment]
        params = tuple(self._param(name, v) for name, v in zip(names, stage.takes, strict=True))
        results = stage.func.region.block.terminator.operands
        unit = Unit(stage.func, params, structure=row(len(results)))
        front = ("stage", print_op(stage.func), repr(params))
        return Request(str(stage.func.attrs["sym_name"]), target, lambda: unit, front, debug=knobs.debug())

    def _param(self, name: str, v: Value) -> Param:
        """An argument of the function stays a number where it is one."""
        scalar = v.op is None and self.analysis.params[v.index].shape is None
        return Param(name, None if scalar else tensor(v).shape, tensor(v).dtype)
