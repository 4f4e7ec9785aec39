"""The plan of a distributed function: what `run` does with its arguments and results, printed for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.machines import HOST
from tessera.compiler.frontend.distribution import unsuitable
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.graph.sharding import Collective, Partition, partition
from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.language.distribution import Distribution, Mesh
from tessera.runtime.arrays import devices


@dataclass(frozen=True, slots=True)
class DevicePart:
    """`start` to `stop` of the dim, on a device."""

    device: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.start}:{self.stop} on {self.device}"


@dataclass(frozen=True, slots=True)
class DistributionPlan:
    """`parts` is empty where the plan was made from annotations: what the arguments are decides how many there are."""

    analysis: Analysis
    said: Distribution
    partition: Partition
    parts: tuple[DevicePart, ...] = ()
    unchanged: Callable[[], bool] = lambda: True
    """whether what the function reads from outside is still what it was"""
    outside: tuple[Callable[[], Any], ...] = ()
    """how to read the arrays among it, which come after the arguments"""
    staged: Any = None
    """the `Staged` that runs it where a part is not the function itself"""

    @property
    def axes(self) -> dict[str, int | None]:
        """Where each argument is cut."""
        return {a.name: a.axis for a in self.partition.arguments}

    @property
    def communication(self) -> tuple[Collective, ...]:
        """What the parts send each other."""
        return tuple(self.partition.collectives)

    def __str__(self) -> str:
        over, p = self.said.over, self.partition
        lines = [f"{self.analysis.name} over {over}, on {self.said.mesh}"]
        for a in p.arguments:
            how = f"cut along axis {a.axis}" if a.axis is not None else "whole for each part"
            lines.append(f"  {a.name:10} {a.type.pretty():24} {how}")
        for i, r in enumerate(p.results):
            if r.combine is not None:
                how = f"{r.combine} of the parts' shares"
            else:
                how = f"joined along axis {r.axis}" if r.axis is not None else "the first part's, as all give the same"
            lines.append(f"  -> {i:<7} {r.type.pretty():24} {how}")
        lines.append(f"  sent between parts: {'; '.join(r.sent() for r in self.communication) or 'nothing'}")
        if self.parts:
            lines.append(f"  parts of {over}: {', '.join(map(str, self.parts))}")
        return "\n".join(lines)

    __repr__ = __str__


def made(fn: Any, arguments: Mapping[str, Any] | None) -> DistributionPlan:
    """The plan for arguments whose cut axes have the dim itself as size; None goes by the annotations.

    Raises CompileError TS801, TS802 where the function cannot be distributed so.
    """
    said: Distribution = fn.options["distributed"]
    if wrong := list(unsuitable(fn.definition(), said.over)):
        raise CompileError(wrong)
    analysis = analyse(fn.definition(), arguments)
    errors = [d for d in analysis.diagnostics if d.severity == "error"]
    if errors or analysis.op is None:
        open_ = analysis.undecided if arguments is None else [_undecided(d, fn) for d in analysis.undecided]
        raise CompileError(errors or list(open_))
    return DistributionPlan(analysis, said, partition(analysis.op, said.over, analysis.checks))


def _undecided(d: Diagnostic, fn: Any) -> Diagnostic:
    over = fn.options["distributed"].over
    message = f"{fn.name} cannot be distributed over {over}, whose size is another one for each part: {d.message}"
    return Diagnostic("TS802", message, d.span, notes=d.notes, function=fn.name)


def parts_of(mesh: Mesh, home: str, size: int) -> tuple[DevicePart, ...]:
    """The dim in parts as equal as can be, the larger ones first; those without elements are left out, but one."""
    places = list(places_of(mesh, home))
    each, more = divmod(size, len(places))
    out: list[DevicePart] = []
    at = 0
    for i, device in enumerate(places):
        end = at + each + (i < more)
        out.append(DevicePart(device, at, end))
        at = end
    return tuple(p for p in out if p.size) or tuple(out[:1])


def places_of(mesh: Mesh, home: str) -> Iterator[str]:
    """The device of each part. Raises LaunchError TS605 for one that this machine does not have."""
    gpus = [d.name for d in devices.cuda_devices()]
    kind = gpus if home != HOST else [HOST]
    for place in mesh.devices if mesh.devices is not None else range(len(kind)):
        if isinstance(place, int):
            yield kind[place % len(kind)]
        elif place != HOST and place not in gpus:
            have = f"the driver shows {', '.join(gpus)}" if gpus else "the driver shows no GPU"
            message = f"the mesh names {place}, but {have}; a number stands for whatever device there is"
            raise LaunchError(Diagnostic("TS605", message))
        else:
            yield place
