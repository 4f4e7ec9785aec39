"""Philox4x32-10 in vectors."""

from __future__ import annotations

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import Val, const


def philox(fn: LLVMFunction, counter: Val, key: Val) -> Val:
    """Words 0 and 1 as 64 bits. Ten rounds on 32-bit words in 64-bit lanes, so that a product is one multiplication."""
    counter, key = fn.align_lanes(counter, key)

    def k(n: int) -> Val:
        return const(n, counter.ty)

    def low(x: Val) -> Val:
        return fn.binary("and", x, k(0xFFFFFFFF))

    def high(x: Val) -> Val:
        return fn.binary("lshr", x, k(32))

    c, keys = [low(counter), high(counter), k(0), k(0)], [low(key), high(key)]
    for _ in range(10):
        p0, p1 = fn.binary("mul", k(0xD2511F53), c[0]), fn.binary("mul", k(0xCD9E8D57), c[2])
        mixed = [
            fn.binary("xor", fn.binary("xor", high(p), w), x) for p, w, x in ((p1, c[1], keys[0]), (p0, c[3], keys[1]))
        ]
        c = [mixed[0], low(p1), mixed[1], low(p0)]
        keys = [low(fn.binary("add", keys[0], k(0x9E3779B9))), low(fn.binary("add", keys[1], k(0xBB67AE85)))]
    return fn.binary("or", c[0], fn.binary("shl", c[1], k(32)))
