"""The machine's instructions of compiled code: made when somebody asks, kept on disk with the code.

A disassembler may take a second to start (nvdisasm builds its tables anew each time), so a view can begin it, show what
it knows without it, and add the instructions when they are there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Artifact, SpilledValue
from tessera.errors import Diagnostic, TargetError, TesseraError
from tessera.runtime.code import cache

_NAME = "assembly"
LONG = 1_000_000
"""characters of source, whose assembly a CPU's compiler writes in two seconds"""

_running: dict[str, Future[str]] = {}
"""key -> what a thread makes; removed when it is done"""
_lock = threading.Lock()


def assembly_of(artifact: Artifact) -> str | None:
    """An artefact's assembly; None if there is none. Targets that do not keep it make it on request, with `//##` marks
    of source lines where they know them."""
    if (maker := _maker(artifact)) is not None and not is_at_hand(artifact):
        artifact.assembly = _begun(artifact, maker).result()
    return artifact.assembly


def plain_assembly(artifact: Artifact) -> str | None:
    """The same as one reads it: without the marks of source lines."""
    text = assembly_of(artifact)
    return text and "\n".join(line.rstrip() for line in text.splitlines() if "//##" not in line) + "\n"


def spilled_of(artifact: Artifact) -> list[SpilledValue]:
    """The values that lie in memory because a kernel has too few registers; empty where nothing is spilled.

    Raises MissingDependency without the disassembler, TargetError TS602 for a target that does not tell.
    """
    read = getattr(targets.get(artifact.target), "spilled", None)
    if read is None:
        raise TargetError(Diagnostic("TS602", f"The {artifact.target} target does not tell which values are spilled."))
    return read(artifact, assembly_of(artifact) or "") if may_spill(artifact) else []


def may_spill(artifact: Artifact) -> bool:
    """Whether the target tells which values are spilled, and its compiler does not say that none are."""
    known = hasattr(targets.get(artifact.target), "spilled")
    return known and any(figures.get("spills", True) for figures in artifact.resources.values())


def spilled_or_why(artifact: Artifact) -> list[SpilledValue] | str:
    """The same for those that show it beside other things, or why it is not known."""
    if not may_spill(artifact):
        return []
    if len(artifact.source) > LONG and not is_at_hand(artifact):
        return "its code is long, and would be compiled once more: compiled.spills() does that"
    try:
        return spilled_of(artifact)
    except TesseraError as error:
        return str(error)


def is_at_hand(artifact: Artifact) -> bool:
    """Whether `assembly_of` answers at once."""
    if artifact.assembly is None and _maker(artifact) is not None:
        store = cache.default()
        kept = store.get(_key(artifact)) if store is not None else None
        artifact.assembly = kept[_NAME].decode() if kept is not None else None
        return kept is not None
    return True


def begin(artifact: Artifact) -> None:
    """Makes the assembly in a thread, for `assembly_of` to find."""
    if (maker := _maker(artifact)) is not None and not is_at_hand(artifact):
        _begun(artifact, maker)


def _maker(artifact: Artifact) -> Callable[[Artifact], str] | None:
    return getattr(targets.get(artifact.target), "assembly", None)


def _begun(artifact: Artifact, maker: Callable[[Artifact], str]) -> Future[str]:
    """One thread for equal code, however many ask."""
    key = _key(artifact)
    with _lock:
        if (found := _running.get(key)) is None:
            found = _running[key] = Future()
            threading.Thread(
                target=_make, args=(found, key, artifact, maker), name="tessera-assembly", daemon=True
            ).start()
        return found


def _make(found: Future[str], key: str, artifact: Artifact, maker: Callable[[Artifact], str]) -> None:
    try:
        made = maker(artifact)
        if (store := cache.default()) is not None:
            store.put(key, {_NAME: made.encode()}, f"assembly of {artifact.name} for {artifact.target}")
        found.set_result(made)
    except BaseException as error:  # raised by the thread that waits
        found.set_exception(error)
    finally:
        with _lock:
            _running.pop(key, None)


def _key(artifact: Artifact) -> str:
    """By content; 5 is the version of what targets write."""
    files = (part for name in sorted(artifact.files) for part in (name, artifact.files[name]))
    return cache.digest("assembly 5", targets.get(artifact.target).fingerprint, artifact.source, *files)
