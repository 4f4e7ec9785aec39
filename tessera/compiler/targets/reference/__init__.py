"""The `reference` target: Programs interpreted in NumPy, with accesses checked. Slow on purpose, and the oracle.

Uninitialised reads, races between programs and missing barriers are always checked; `debug` adds what it adds on every
target: computed indices, asserts and NaN.
"""

from __future__ import annotations

from tessera.compiler.ir import printer
from tessera.compiler.ir.readable import readable
from tessera.compiler.targets.base import Artifact, Executable, Target
from tessera.compiler.targets.reference.executable import ReferenceExecutable
from tessera.compiler.targets.reference.program_text import decode, encode
from tessera.compiler.tile.interpret.interpreter import InterpreterOptions
from tessera.compiler.tile.program import Program
from tessera.errors import DeviceError, Diagnostic
from tessera.language.lazy import np

PROGRAM = "program.json"
VERSION = 2
"""of the artefact's format and of the interpreter's results"""


class ReferenceTarget:
    """Follows `targets.base.Target`."""

    name = "reference"
    device = "cpu"
    passes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return f"reference-{VERSION} text-{printer.VERSION} numpy-{np.__version__}"

    def compile(self, program: Program, *, profile: bool = False, debug: bool = False) -> Artifact:
        source = "\n".join(readable(launch.kernel).text for launch in program.launches)
        resources = {
            str(launch.kernel.attrs["sym_name"]): {
                "registers": None,
                "registers_reason": "the reference target interprets Tile IR",
            }
            for launch in program.launches
        }
        meta = {"debug": debug, "phases": ["program"], "workspace_bytes": None}
        return Artifact("reference", program.name, source, {PROGRAM: encode(program)}, None, resources, meta)

    def load(self, artifact: Artifact) -> Executable:
        if artifact.target != "reference" or PROGRAM not in artifact.files:
            raise DeviceError(
                Diagnostic("TS605", f"the artefact is for {artifact.target}, not for the reference target")
            )
        debug = bool(artifact.meta.get("debug"))
        options = InterpreterOptions(check_nan=debug, check_indices=False, check_asserts=debug)
        return ReferenceExecutable(decode(artifact.files[PROGRAM]), options)


def create(name: str) -> Target:
    return ReferenceTarget()
