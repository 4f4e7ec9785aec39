"""How the interpreter runs a `tile.pipeline`."""

from __future__ import annotations

from typing import Any

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.tile.interpret.memory import SharedTile
from tessera.compiler.tile.pipelines import rings


def run_pipeline(machine: Any, op: Op) -> Any:
    """Copies run as far ahead as they may, each stage is watched like a tile of its own."""
    lower, upper, step, *carried = machine.operands(op)
    fetch, body = (region.block for region in op.regions)
    stages = int(op.attrs["stages"])  # type: ignore[call-overload]
    kept = {ring: [_stage(machine, ring) for _ in range(stages)] for ring in rings(op)}
    counters = range(lower, upper, step)

    def choose(i: int) -> None:
        for ring, tiles in kept.items():
            machine.env[ring] = tiles[i % stages]

    def start(i: int) -> None:
        if i < len(counters):
            choose(i)
            machine.run(fetch, [counters[i]])

    for i in range(stages - 1):
        start(i)
    for i, counter in enumerate(counters):
        if stages == 1:
            start(i)
        for tiles in kept.values():
            tiles[i % stages].barrier()
            for tile in tiles:
                tile.readers = None
        for tile in machine.shared:
            tile.barrier()
        if stages > 1:
            start(i + stages - 1)
        choose(i)
        carried = machine.run(body, [counter, *carried])
    return carried if len(op.results) != 1 else carried[0]


def _stage(machine: Any, ring: Value) -> SharedTile:
    tile: SharedTile = machine.env[ring]
    return SharedTile(tile.name, tile.data.shape, ring.type.dtype)  # type: ignore[union-attr]
