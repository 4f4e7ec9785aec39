"""Notes on a compiled kernel: where each shared tile is stored, which copies run ahead, which accesses are not whole
vectors and why, what was spilled. Shown by `Compiled.explain()`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, goes_on
from tessera.compiler.targets.cuda.emit.memory import stages_of
from tessera.compiler.targets.cuda.report.registers import LIKELY, Pressure, changes
from tessera.compiler.targets.cuda.report.shared_memory import shared_parts
from tessera.compiler.targets.cuda.tensor_cores.products import WIDEST, is_wide
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products, plan_contraction
from tessera.compiler.tile import vectors
from tessera.compiler.tile.dialect import has_scales
from tessera.compiler.tile.offsets import Bounds
from tessera.compiler.tile.pipelines import rings
from tessera.errors import Span

PRODUCTS = ("tile.mma", "tile.contract")


def shared_layouts(e: KernelEmitter) -> dict[str, str]:
    """How each shared tile is stored, by its name."""
    return {f"shared {name}": tile.describe() for name, tile in e.placed.items()}


def notes(e: KernelEmitter) -> list[str]:
    """One line each, with the user's line."""
    found: list[str] = []
    if e.kernel.attrs.get("persistent") and not goes_on(e):
        found.append(f"{_at(e.kernel.span)}: not persistent: tensor copies count the steps of one program")
    for op in e.kernel.walk():
        if op.name == "tile.pipeline":
            found.append(f"{_at(op.span)}: {_ahead(e, op)}")
        if op.name in PRODUCTS and (why := _without_tensor_cores(e, op)):
            found.append(f"{_at(op.span)}: {why}")
        if why := op.attrs.get("unscaled"):
            found.append(
                f"{_at(op.span)}: multiplied in bf16 behind its scales, not by a block-scaled instruction: {why}"
            )
        if isinstance(why := e.warpgroups.get(op), str) and e.settings.warpgroup_dtypes:
            why += _for_tensor_copies(e, op)
            found.append(f"{_at(op.span)}: multiplied by mma.sync, not by wgmma with tensor copies: {why}")
        if is_wide(op) and e.settings.warpgroup_dtypes:
            found.append(f"{_at(op.span)}: not multiplied by wgmma: more than {WIDEST} columns")
        if why := e.products.refused.get(op):
            found.append(f"{_at(op.span)}: copied by threads, not by tensor copies: {why}")
        if (access := vectors.narrow(op, e.bounds)) is not None:
            found.append(f"{_at(op.span)}: {access}{_would_help(access.sizes, access.elements)}")
    return list(dict.fromkeys(found))


def _without_tensor_cores(e: KernelEmitter, op: Op) -> str:
    """Why a product of narrow values, which newer architectures multiply on tensor cores, is a chain of fma here."""
    a, cores = op.operands[0].type, e.settings.tensor_cores
    assert isinstance(a, (TileType, SharedType, ViewType))
    if has_scales(op):
        mixed = "multiplied without tensor cores: another product that adds to the same sum cannot have them"
        return "" if e.layout_of(op.result).tensor_core else mixed
    if a.dtype.itemsize > 2 or a.dtype in cores.dtypes:
        return ""
    arch = f"sm_{e.settings.arch}"
    return f"{a.dtype} is multiplied in {a.dtype.accumulate} without tensor cores, which on {arch} do not take it"


def spilled(p: Pressure, kernel: Op) -> list[str]:
    """Which tiles hold the registers, for a kernel whose registers did not suffice, and what would make room."""
    held = [f"{_at(h.span)}: {h}" for h in p.held[:3]]
    enough = changes(p, lambda n: n < LIKELY * p.limit, "num_warps" in kernel.attrs) if p.likely else []
    return [*held, f"{', or '.join(enough)} would make room"] if enough else held


def tight(p: Pressure, kernel: Op) -> list[str]:
    """A note from before the compiler has run: tiles hold so many registers that the compiler is likely to spill."""
    if not p.likely:
        return []
    some = f"tiles hold {p.registers} of the {p.limit} registers of a thread: some are likely to be spilled to memory"
    return [some, *spilled(p, kernel)]


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


def _for_tensor_copies(e: KernelEmitter, product: Op) -> str:
    """The assert that lets tensor copies fetch the operands of a product; empty where there is none."""
    supported, views = e.settings.warpgroup_dtypes, product.operands[:2]
    left = views[0].type
    assert isinstance(left, ViewType)

    def fetched(b: Bounds) -> bool:
        return isinstance(plan_contraction(e.kernel, b, supported, None)[product], Products)

    by = vectors.BYTES // left.dtype.itemsize
    return _would_help(vectors.multiples(e.bounds, views, by, fetched), by)


def _would_help(sizes: Sequence[str], by: int) -> str:
    return f"; it would be with `{vectors.assertion(dict.fromkeys(sizes, by))}` at the top" if sizes else ""
