"""What a compiled kernel says of itself: where each shared tile lies, which copies run ahead, which accesses are not
whole vectors and why, what was spilled. Shown by `Compiled.explain()`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.targets.cuda import suggest
from tessera.compiler.targets.cuda.bounds import strides_of
from tessera.compiler.targets.cuda.budget import shared_parts
from tessera.compiler.targets.cuda.emit import KernelEmitter
from tessera.compiler.targets.cuda.emit_memory import stages_of
from tessera.compiler.targets.cuda.products import WIDEST, is_wide
from tessera.compiler.targets.cuda.registers import Pressure
from tessera.compiler.tile.pipelines import rings
from tessera.errors import Span

ACCESSES = {"tile.load": (0, 1), "tile.copy_async": (1, 2), "tile.store": (0, 2)}
"""Which operand is the view, and where its offsets start."""

PRODUCTS = ("tile.mma", "tile.contract")


def shared_layouts(e: KernelEmitter) -> dict[str, str]:
    """How each shared tile lies, by its name."""
    return {f"shared {name}": tile.describe() for name, tile in e.placed.items()}


def notes(e: KernelEmitter) -> list[str]:
    """One line each, with the user's line."""
    found: list[str] = []
    for op in e.kernel.walk():
        if op.name == "tile.pipeline":
            found.append(f"{_at(op.span)}: {_ahead(e, op)}")
        if op.name in PRODUCTS and (why := _without_tensor_cores(e, op)):
            found.append(f"{_at(op.span)}: {why}")
        if isinstance(why := e.warpgroups.get(op), str) and e.settings.warpgroup_dtypes:
            why += _would_help(suggest.for_tensor_copies(e, op))
            found.append(f"{_at(op.span)}: multiplied by mma.sync, not by wgmma with tensor copies: {why}")
        if is_wide(op) and e.settings.warpgroup_dtypes:
            found.append(f"{_at(op.span)}: not multiplied by wgmma: more than {WIDEST} columns")
        if why := e.products.refused.get(op):
            found.append(f"{_at(op.span)}: copied by threads, not by tensor copies: {why}")
        if op.name in ACCESSES and (why := _not_vectors(e, op)):
            found.append(f"{_at(op.span)}: {why}")
    return list(dict.fromkeys(found))


def _without_tensor_cores(e: KernelEmitter, op: Op) -> str:
    """Why a product of narrow values, which newer architectures multiply on tensor cores, is a chain of fma here."""
    a, cores = op.operands[0].type, e.settings.tensor_cores
    assert isinstance(a, (TileType, SharedType, ViewType))
    if a.dtype.itemsize > 2 or a.dtype in cores.dtypes:
        return ""
    arch = f"sm_{e.settings.arch}"
    return f"{a.dtype} is multiplied in {a.dtype.accumulate} without tensor cores, which on {arch} do not take it"


def spilled(p: Pressure) -> list[str]:
    """Which tiles hold the registers, for a kernel whose registers did not suffice."""
    return [f"{_at(h.span)}: {h}" for h in p.held[:3]]


def tight(p: Pressure) -> list[str]:
    """Said before a compiler has run: so many registers hold tiles that the compiler is likely to spill."""
    if not p.likely:
        return []
    some = f"tiles hold {p.registers} of the {p.limit} registers of a thread: some are likely to be spilled to memory"
    return [some, *spilled(p)]


def _at(span: Span) -> str:
    return f"{PurePath(span.file).name}:{span.line}"


def _ahead(e: KernelEmitter, op: Op) -> str:
    wanted = int(op.attrs["stages"])  # type: ignore[call-overload]
    stages, filled = stages_of(e, wanted), rings(op)
    names = ", ".join(ring.hint or "a tile" for ring in filled)
    size = sum(p.bytes for p in shared_parts(e) if p.name in {ring.hint for ring in filled})
    plural = "step" if stages == 2 else "steps"
    text = f"{names}: copied {stages - 1} {plural} ahead, in {stages} stages ({size} bytes of shared memory)"
    if stages < wanted:
        without = e.settings.arch < 80
        why = "the architecture has no asynchronous copies" if without else "shared memory has no room for more"
        text += f"; num_stages asks for {wanted}, {why}"
    return text


def _not_vectors(e: KernelEmitter, op: Op) -> str:
    at, first = ACCESSES[op.name]
    view: Value = op.operands[at]
    t = view.type
    if not isinstance(t, ViewType) or not t.rank or _one_element(op):
        return ""
    vector = max(1, 16 // t.dtype.itemsize)
    offsets = [e.bounds.of(o) for o in op.operands[first : first + t.rank]]
    if vector == 1 or e.bounds.vectors(view, offsets, vector):
        return ""
    name = view.hint or "the array"
    why = _why(e, view, offsets[-1].multiple, vector)
    help = _would_help(suggest.for_vectors(e, view, op.operands[first : first + t.rank], vector))
    return f"{name} is not moved {vector} elements at a time: {why}{help}"


def _would_help(assertion: str) -> str:
    return f"; it would be with `{assertion}` at the top" if assertion else ""


def _why(e: KernelEmitter, view: Value, multiple: int, vector: int) -> str:
    steps: Sequence[object] = strides_of(view)
    if steps[-1] != 1:
        return "neighbours along its last axis are not neighbours in memory"
    for step in strides_of(view)[:-1]:
        if e.bounds.divisor(step) % vector:
            known = "is not" if isinstance(step, int) else "is not known to be"
            return f"its rows start every {step} elements, and that {known} a multiple of {vector}"
    if multiple % vector:
        return f"the offset along its last axis is not known to be a multiple of {vector}"
    return "its memory may start between 16-byte boundaries"


def _one_element(op: Op) -> bool:
    tile = op.result if op.results else op.operands[0 if op.name == "tile.copy_async" else 1]
    assert isinstance(tile.type, (TileType, SharedType))
    shape = tile.type.shape
    return not shape or shape[-1] == 1
