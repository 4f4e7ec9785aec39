"""How many machine instructions of which kind a kernel has, counted in its assembly: a static figure, not a run's."""

from __future__ import annotations

import re
from collections import Counter

_LABEL = re.compile(r"^([A-Za-z_$][\w$.]*):")
_INSTRUCTION = re.compile(r"^\s+([a-z][\w.]*)(?:\s+(.*))?$")
_CALL = re.compile(r"^\s+(?:callq?|bl|jmp|b)\s+_?([A-Za-z][\w$.]*)")
_FMA = re.compile(r"v?fn?m(add|sub|la|ls)|vdp|tdp|bfdot|bfmmla")
_CONVERT = re.compile(r"v?cvt|vpmov[sz]x|[su]cvtf|fcvt")
_SHUFFLE = re.compile(r"v?p?(perm|shuf|unpck|blend|insert|extract|broadcast|align)|(zip|uzp|trn|tbl|dup|ext)\d?$")
_JUMP = re.compile(r"j[a-z]+$|call|ret|b(\.[a-z]+)?$|bl$|cb|tb")
_VECTOR = re.compile(r"%[xyz]mm|\bv\d+\.|\bz\d+\.|\bq\d+\b")
_MOVE = re.compile(r"v?mov|ld[rp1]|st[rp1]|vmask|vgather|vscatter")
_SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)")
_SASS_KINDS = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"[A-Z]G?MMA$|UTC\w*MMA$", "tensor core"),
        (r"LDGSTS|UTMALDG|UBLKCP", "async copy"),
        (r"LDG|STG|LD$|ST$|UTMASTG|ATOM|RED$", "global memory"),
        (r"LDS|STS|ATOMS", "shared memory"),
        (r"LDL|STL", "spill"),
        (r"[FHD](FMA|MUL|ADD|SETP|SET|MNMX|SEL)|F2FP", "float"),
        (r"MUFU", "special function"),
        (r"SHFL|MOVM", "shuffle"),
        (r"BAR|DEPBAR|LDGDEPBAR|SYNCS|WARPSYNC|WARPGROUP|MEMBAR|FENCE", "synchronisation"),
    )
]
"""SASS opcodes, from CUDA's "Binary Utilities" tables; what is left computes addresses and jumps"""


def instruction_mix(assembly: str, kernels: set[str]) -> dict[str, dict[str, int]]:
    """Kernel -> kind -> count, the most frequent first: the instructions of a kernel and of what it calls, each once.
    x86-64 (AT&T) and AArch64 as LLVM writes them, and SASS."""
    counts: dict[str, Counter[str]] = {}
    calls: dict[str, list[str]] = {}
    current = ""
    for line in assembly.splitlines():
        if label := _LABEL.match(line):
            name = label[1] if label[1] in kernels else label[1].removeprefix("_").removesuffix("_kernel")
            if name in kernels or not label[1].startswith((".L", "L", "$")):
                current = name if name in kernels else label[1]
                counts[current], calls[current] = Counter(), []
        elif current and (op := _INSTRUCTION.match(line)):
            counts[current][_kind(op[1], op[2] or "")] += 1
            if called := _CALL.match(line):
                calls[current].append(called[1])
        elif current and (op := _SASS.match(line)) and op[1] != "NOP":
            counts[current][next((kind for what, kind in _SASS_KINDS if what.match(op[1])), "integer, control")] += 1
    own = [name for name in counts if name in kernels]
    mixes = {name: sum((counts[f] for f in _reached(name, calls)), Counter[str]()) for name in own}
    return {name: dict(mix.most_common()) for name, mix in mixes.items()}


def _reached(name: str, calls: dict[str, list[str]]) -> list[str]:
    """A function and those that it calls, those of other texts left out."""
    found = [name]
    for function in found:
        found += [called for called in dict.fromkeys(calls[function]) if called in calls and called not in found]
    return found


def _kind(name: str, operands: str) -> str:
    vector = "vector" if _VECTOR.search(operands) else "scalar"
    if _FMA.match(name):
        return f"{vector} fma"
    if _JUMP.match(name):
        return "jump"
    if _CONVERT.match(name):
        return "convert"
    if vector == "vector" and _SHUFFLE.match(name):
        return "shuffle"
    if _MOVE.match(name):
        return f"{vector} move"
    return vector
