"""The machine code of many cubins by one start of nvdisasm, which takes a quarter of a second whatever it reads."""

from __future__ import annotations

import re
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from tessera.compiler.targets.cuda import cubin

_ADDRESS = re.compile(r"\s*/\*([0-9a-f]+)\*/")


def instructions(arch: str, cubins: Sequence[bytes]) -> list[str]:
    """For each cubin its kernels' instructions, a line each: without labels, and without marks of source lines."""
    codes = [b"".join(s.data for s in cubin._sections(c) if s.name.startswith(".text.")) for c in cubins]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code"
        path.write_bytes(b"".join(codes))
        command = [cubin.binary("nvdisasm"), "--binary", f"SM{arch.removeprefix('sm_')}", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ends = list(accumulate(map(len, codes)))
    texts: list[list[str]] = [[] for _ in codes]
    for line in listing.splitlines():
        if address := _ADDRESS.match(line):
            texts[bisect_right(ends, int(address[1], 16))].append(line)
    return ["\n".join(lines) for lines in texts]
