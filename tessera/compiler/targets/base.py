"""What a target is, and the register of those that exist.

A target compiles a whole Program ahead of running it; the artefact is plain bytes and JSON, so that it can be cached,
shown and shipped. Loading gives an executable that runs on raw addresses: it knows nothing of arrays.
"""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tessera.compiler.machines import ALIASES, CUDA_ARCHITECTURES
from tessera.compiler.tile.program import Program
from tessera.errors import Diagnostic, TargetError


@dataclass(slots=True)
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
    """where arrays must live: "cpu" or "cuda" """
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


# name pattern -> module that defines `create(name) -> Target`; imported at first use
_PROVIDERS: dict[str, str | Callable[[str], Target]] = {
    "cpu": "tessera.compiler.targets.cpu",
    "reference": "tessera.compiler.targets.reference",
    "sm_": "tessera.compiler.targets.cuda",
    "emulator:": "tessera.compiler.targets.cuda",
}
KNOWN = ("cpu", "reference", *CUDA_ARCHITECTURES)
_targets: dict[str, Target] = {}


def provide(prefix: str, create: Callable[[str], Target]) -> None:
    """Registers a target from outside: names that start with `prefix` are made by `create(name)`."""
    _PROVIDERS[prefix] = create
    _targets.clear()


def get(name: str) -> Target:
    """The target called `name` ("cpu", "h100", "emulator:sm_80" ...). Raises TargetError TS601 when unknown."""
    canonical = ALIASES.get(name.lower(), name.lower())
    if canonical not in _targets:
        prefix = next((p for p in sorted(_PROVIDERS, key=len, reverse=True) if canonical.startswith(p)), None)
        if prefix is None or (
            prefix == canonical[: len(prefix)] and prefix in ("cpu", "reference") and canonical != prefix
        ):
            raise unknown(name)
        provider = _PROVIDERS[prefix]
        create = importlib.import_module(provider).create if isinstance(provider, str) else provider
        _targets[canonical] = create(canonical)
    return _targets[canonical]


def unknown(name: str) -> TargetError:
    close = difflib.get_close_matches(name, [*KNOWN, *ALIASES], n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return TargetError(Diagnostic("TS601", f"There is no target {name!r}.{hint} Known: auto, cuda, {', '.join(KNOWN)}"))


def architecture(name: str) -> int:
    """80 for "sm_80", 90 for "sm_90a". Raises TargetError TS601 for one that is not known."""
    if name not in CUDA_ARCHITECTURES:
        raise unknown(name)
    return int(name.removeprefix("sm_").rstrip("af"))
