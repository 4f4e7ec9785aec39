"""What a target is, and the register of those that exist.

A target compiles a whole Program ahead of running it; the artefact is plain bytes and JSON, so that it can be cached,
shown and shipped. Loading gives an executable that runs on raw addresses: it knows nothing of arrays.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Protocol, cast, runtime_checkable

from tessera.compiler import machines
from tessera.compiler.machines import (
    ALIASES,
    ANY_GPU,
    AUTO,
    CUDA_ARCHITECTURES,
    EMULATOR,
    HOST,
    MACHINES,
    Machine,
    canonical,
)
from tessera.compiler.tile.program import Program
from tessera.errors import CompileError, Diagnostic, TargetError
from tessera.immutable import immutable, mutable
from tessera.nearest import nearest


@mutable
class Artifact:
    """The product of a compilation. Everything but `files` is JSON; nothing in it is ever unpickled.

    `source` is what a person reads (LLVM IR, CUDA C++, Tile IR); `resources` maps kernel -> figures (registers,
    shared bytes, spills ...), where a figure that is not to be had is None and `<name>_reason` says why; `meta` is the
    target's own business.
    """

    target: str
    name: str
    source: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    assembly: str | None = None
    resources: dict[str, Any] = field(default_factory=dict[str, Any])
    meta: dict[str, Any] = field(default_factory=dict[str, Any])

    def header(self) -> str:
        """All but the binary parts, as JSON text."""
        plain = {k: getattr(self, k) for k in ("target", "name", "source", "assembly", "resources", "meta")}
        return json.dumps(plain, sort_keys=True)

    @staticmethod
    def restore(header: str, files: dict[str, bytes]) -> Artifact:
        return Artifact(files=files, **json.loads(header))


@immutable
class SpilledValue:
    """A value of each thread that lies in memory for a while, because there are too few registers.

    `kind`: "value" (the author's `name`, or what the generated source calls a result without one), "temporary" (of the
    statement at `line` alone), "compiler" (an address, a counter, or what else no variable holds) or "unknown".
    `bytes`: those of it that are ever in memory, each once; `of`: what a thread holds of the value (0: not known).
    `stores` and `loads`: instructions that move it, `in_loops` of them in loops of a program; `moved_at`: the user's
    lines where they stand; `where`: in which memory. Of a loop whose steps overlap, several steps may have a part
    there: `bytes` may be more than `of`.
    """

    kernel: str
    kind: str
    name: str
    what: str
    file: str
    line: int
    bytes: int
    of: int
    stores: int
    loads: int
    in_loops: int
    moved_at: tuple[int, ...]
    where: str = "in local memory"

    @property
    def title(self) -> str:
        """What it is: `acc: 256 x 256 f32, 1024 B a thread, line 8`"""
        held = f", {self.of} B a thread" if self.of else ""
        return {
            "value": f"{self.name}: {self.what}{held}, line {self.line}",
            "temporary": f"a temporary of line {self.line}",
            "compiler": "a compiler temporary" + (f", by the line table of line {self.line}" if self.line else ""),
            "unknown": f"not known: {self.what}",
        }[self.kind]

    def __str__(self) -> str:
        often = f", {self.in_loops} of these in loops" if self.in_loops else ""
        lies = f"{self.bytes} B of each thread lie {self.where}" if self.bytes else self.where
        moves = f"{self.stores} store{'s' * (self.stores != 1)} and {self.loads} load{'s' * (self.loads != 1)}"
        return f"{self.title}: {lies}; {moves}{often}"


class UnknownFlow(Exception):
    """Why it is not known which machine instructions may follow one another."""


@immutable
class Instruction:
    """One machine instruction of a kernel. `offset`: its place in the code, in bytes (of a GPU's) or instructions;
    `line` counts in the generated source, `user_line` in the user's `file`; 0: unknown. `live`: registers of a thread
    that hold something there; None: unknown. `spill`: whether it moves a register to or from memory for want of more.
    """

    kernel: str
    offset: int
    text: str
    line: int
    file: str
    user_line: int
    live: int | None
    spill: bool


@immutable
class GlobalAccess:
    """A load, a store, or a copy into shared memory, of one array by one statement, over all programs of a launch.

    `requests` of warps touch `sectors` of 32 bytes, where `ideal` would hold the bytes that they move; None where this
    is not known, and `why`. `masked`: counted as if the mask let every lane through. `some`: of the first programs.
    """

    kernel: str
    kind: str
    array: str
    dtype: str
    file: str
    line: int
    requests: int | None
    sectors: int | None
    ideal: int | None
    why: str
    masked: bool
    some: bool

    @property
    def per_request(self) -> float | None:
        """Sectors of a request, on average."""
        return None if not self.requests or self.sectors is None else self.sectors / self.requests

    @property
    def least(self) -> float | None:
        """Sectors of a request at best, on average."""
        return None if not self.requests or self.ideal is None else self.ideal / self.requests

    def __str__(self) -> str:
        what = f"line {self.line}: {self.kind} of {self.array or 'an array'} ({self.dtype})"
        if self.per_request is None or self.least is None:
            return f"{what}: {'no request' if self.requests == 0 else f'not known: {self.why}'}"
        often = f"{self.per_request:.3g} sectors a request, {self.least:.3g} at best"
        mask = ", mask not counted" if self.masked else ""
        return f"{what}: {often}; {self.requests:,} requests{mask}{', of the first programs' if self.some else ''}"


class TileRecorder(Protocol):
    """Receives tile timings of a profiled run."""

    def record(self, columns: dict[str, Any]) -> None:
        """`columns`: equally long arrays tile, resource, phase (an index into meta["phases"]), start, duration (ns).
        A target with little room adds `dropped`, how many more there would be."""
        ...


@runtime_checkable
class Executable(Protocol):
    """Loaded code. `run` is thread-safe and returns when the outputs are written (CUDA: when they are enqueued)."""

    def run(
        self,
        pointers: Sequence[int],
        scalars: Sequence[bool | int | float | complex],
        dims: Sequence[int],
        *,
        stream: int = 0,
        record: TileRecorder | None = None,
    ) -> None:
        """`pointers`: addresses of the Program's input and output buffers, in order; `scalars`: its scalar parameters,
        in order; `dims`: sizes of its free dims, in order."""
        ...


class Target(Protocol):
    """One way to compile. `fingerprint` names everything that makes its output differ: it is part of cache keys."""

    name: str
    device: str
    """the platform that arrays must live on"""
    passes: tuple[str, ...]
    """the optional passes of the pipeline's list that its programs go through"""

    @property
    def fingerprint(self) -> str: ...

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        """The code of a Program whose passes have run: `pipeline.generate` runs them and calls this."""
        ...

    def load(self, artifact: Artifact) -> Executable:
        """Raises DeviceError where the artefact cannot run on this machine."""
        ...


@immutable
class Platform:
    """A kind of device that arrays live on. `streams`: launches are enqueued on a stream, and events tell when they are
    done; without them results are there when a call returns. `worker`: what timelines call the place of a program."""

    name: str
    streams: bool
    worker: str


PLATFORMS = {p.name: p for p in (Platform(HOST, False, "worker"), Platform(ANY_GPU, True, "SM"))}


def platform_of(device: str) -> Platform:
    """That of a device ("cuda:1"). Raises KeyError where there is none."""
    return PLATFORMS[device.partition(":")[0]]


# how a name begins -> module that defines `create(name) -> Target`; imported at first use
_PROVIDERS = {
    "cpu": "tessera.compiler.targets.cpu",
    "reference": "tessera.compiler.targets.reference",
    "sm_": "tessera.compiler.targets.cuda",
    EMULATOR: "tessera.compiler.targets.cuda",
}
KNOWN = tuple(MACHINES)
_registered: dict[str, Callable[[], Target]] = {}
_targets: dict[str, Target] = {}


def register(name: str, machine: Machine | None = None) -> Callable[[Any], Any]:
    """Registers a custom target: decorates a class whose objects follow `Target`, or a function that makes one.

    `name` is what TESSERA_TARGET and `target=` say for it; `machine` is its row in the table of machines, by which
    programs are cut up and predicted: without one, as for a CPU. A second target of that name replaces the first.
    Raises CompileError TS614 for names that are taken.
    """
    taken = [k for k in (*KNOWN, *ALIASES, AUTO, ANY_GPU) if k == name and k not in _registered]
    if taken or name != name.lower() or name.startswith(EMULATOR):
        why = "that name is taken" if taken else "its name is in lower case and says no emulator"
        raise CompileError(Diagnostic("TS614", f"target {name!r} cannot be registered: {why}"))
    if machine is not None and machine.name != name:
        message = f"target {name!r} cannot be registered: its machine is called {machine.name!r}"
        raise CompileError(Diagnostic("TS614", message))

    def registered(create: Any) -> Any:
        _registered[name] = create
        _targets.pop(name, None)
        if machine is not None:
            machines.register(machine)
        return create

    return registered


def known() -> tuple[str, ...]:
    """The names of all targets."""
    return (*KNOWN, *_registered)


def get(name: str) -> Target:
    """The target called `name` ("cpu", "h100", "emulator:sm_80" ...). Raises TargetError TS601 when unknown."""
    found = canonical(name)
    if found not in _targets:
        _targets[found] = _complete(found, _registered[found]()) if found in _registered else _made(name, found)
    return _targets[found]


def _made(name: str, found: str) -> Target:
    prefix = next((p for p in _PROVIDERS if found == p or (found.startswith(p) and p not in MACHINES)), None)
    if prefix is None:
        raise unknown(name)
    return cast("Target", importlib.import_module(_PROVIDERS[prefix]).create(found))


def _complete(name: str, target: Any) -> Target:
    """A target from outside with all that a target has. Raises CompileError TS614."""
    needed = ("name", "device", "passes", "fingerprint", "compile", "load")
    if missing := [a for a in needed if not hasattr(target, a)]:
        message = f"target {name!r} cannot be used: it has no {', '.join(missing)}"
        raise CompileError(Diagnostic("TS614", message))
    if target.device not in PLATFORMS:
        message = f"target {name!r} cannot be used: its device is one of {', '.join(PLATFORMS)}, not {target.device!r}"
        raise CompileError(Diagnostic("TS614", message))
    return cast("Target", target)


def unknown(name: str) -> TargetError:
    close = nearest(name, [*known(), *ALIASES])
    hint = f" Did you mean {close}?" if close else ""
    return TargetError(
        Diagnostic("TS601", f"There is no target {name!r}.{hint} Known: {AUTO}, {ANY_GPU}, {', '.join(known())}")
    )


def architecture(name: str) -> int:
    """80 for "sm_80", 90 for "sm_90a". Raises TargetError TS601 for one that is not known."""
    if name not in CUDA_ARCHITECTURES:
        raise unknown(name)
    return int(name.removeprefix("sm_").rstrip("af"))
