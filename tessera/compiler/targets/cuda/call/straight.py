"""All launches of a program at fixed sizes as straight code: no loop, no look-up that the sizes decide.

For two launches with a temporary between them, for instance::

    def go(a0, a1, s0, stream):
        told(run)
        status, own = allocate(4096, stream)
        if status: fail(status, 'cuMemAllocAsync')
        own = int(own)
        try:
            pack0(block0, 0, a0, own + 0)
            if status := launch(function0, 12, 1, 1, 128, 1, 1, 0, stream, table0, 0)[0]: fail(status, 'cuLaunchKernel')
            try: pack1(block1, 0, own + 0, a1, s0)
            except UNPACKED: slowly1(block1, 0, own + 0, a1, as_bytes(s0, 'f32'))
            if status := launch(function1, 1, 1, 1, 256, 1, 1, 0, stream, table1, 0)[0]: fail(status, 'cuLaunchKernel')
        finally: free(own, stream)
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from tessera.compiler.targets.cuda.call import steps
from tessera.compiler.targets.cuda.call.context import Driver, Launched, recent
from tessera.compiler.targets.cuda.call.launch import PreparedKernel

UNPACKED = (struct.error, OverflowError, TypeError)
"""The exceptions of packing for a scalar beyond its dtype's range, or of a dtype without a format letter of struct."""
_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "<generated>")


def straight(
    driver: Driver,
    launched: Launched,
    launches: Sequence[PreparedKernel],
    addresses: Sequence[str],
    parameters: Sequence[str],
    workspace: int,
) -> Callable[..., None]:
    """The function over `parameters` and a stream. `addresses`: the expression of each of the run's addresses, over the
    parameters and `own`, the start of `workspace` bytes of workspace."""
    b = driver.bindings
    names: dict[str, Any] = {"launch": b.cuLaunchKernel, "fail": driver.fail, "UNPACKED": UNPACKED,
                             "as_bytes": steps.pack_scalar, "told": recent.append, "run": launched}  # fmt: skip
    lines: list[str] = []
    for n, p in enumerate(launches):
        lines += _pack(n, p, addresses, names)
        names |= {f"function{n}": p.function, f"table{n}": ctypes.addressof(p.parameters), f"held{n}": p}
        shape = f"{p.grid}, 1, 1, {p.threads}, 1, 1, {p.shared}"
        lines.append(
            f"if status := launch(function{n}, {shape}, stream, table{n}, 0)[0]: fail(status, 'cuLaunchKernel')"
        )
    if workspace:
        names |= {"allocate": b.cuMemAllocAsync, "free": b.cuMemFreeAsync}
        taken = [f"status, own = allocate({workspace}, stream)", "if status: fail(status, 'cuMemAllocAsync')"]
        lines = [*taken, "own = int(own)", "try:", *(f" {line}" for line in lines), "finally: free(own, stream)"]
    head = f"def go({', '.join([*parameters, 'stream'])}):"
    told = ["told(run)"] if launches else []
    exec(_code("\n".join([head, *(f" {line}" for line in [*told, *lines]), " return None"])), names)
    return names["go"]


def _pack(n: int, p: PreparedKernel, addresses: Sequence[str], names: dict[str, Any]) -> list[str]:
    """The lines that write the parameters of one launch, as far as they change from run to run."""
    pointers = [_plus(addresses[slot], start) for slot, start in p.pointers]
    maps: list[str] = []
    for i, (slot, start, prepared) in enumerate(p.maps):
        names |= {f"known{n}_{i}": prepared.encoded.get, f"encode{n}_{i}": prepared.at}
        where = _plus(addresses[slot], start)
        maps.append(f"known{n}_{i}({where}) or encode{n}_{i}({where})")
    names |= {f"pack{n}": struct.Struct(p.layout(False)).pack_into, f"block{n}": p.block}
    scalars = [f"s{number}" for number, _ in p.scalars]
    quick = f"pack{n}({', '.join([f'block{n}', '0', *pointers, *scalars, *maps])})"
    if not scalars:
        return [quick]
    names[f"slowly{n}"] = struct.Struct(p.layout(True)).pack_into
    held = [f"as_bytes(s{number}, {dtype!r})" for number, dtype in p.scalars]
    slow = f"slowly{n}({', '.join([f'block{n}', '0', *pointers, *held, *maps])})"
    return [f"try: {quick}", f"except UNPACKED: {slow}"]


def _plus(address: str, start: int) -> str:
    return f"{address} + {start}" if start else address


@lru_cache(maxsize=256)
def _code(source: str) -> CodeType:
    """Compiled once for all threads, whose parameters differ."""
    return compile(source, _FILE, "exec")


def entry(
    current: Callable[[], Any],
    context: int,
    find: Callable[[int], Any],
    pointers: Sequence[str],
    scalars: Sequence[str],
) -> Callable[..., bool]:
    """`quick(*addresses, *scalars, stream)`: False once the program has been launched; True, with nothing done, where
    this thread has launched nothing in this context yet, another context is current or an address is not aligned."""
    args = ", ".join([*pointers, *scalars, "stream"])
    names: dict[str, Any] = {"current": current, "CONTEXT": context, "find": find, "thread": threading.get_ident}
    aligned = f"({' | '.join(pointers)}) & {steps.ALIGNMENT - 1}" if pointers else "False"
    source = (
        f"def quick({args}):\n"
        f" go = find(thread())\n"
        f" if go is None or {aligned} or int(current()[1]) != CONTEXT: return True\n"
        f" go({args})\n"
        f" return False"
    )
    exec(_code(source), names)
    return names["quick"]
