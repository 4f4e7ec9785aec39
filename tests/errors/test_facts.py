"""What asserts and guards say of sizes, through the whole check: they settle questions, and hide no mismatch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = "import tessera as ts\nfrom tessera import Const, Tensor\n"
PROGRAM = """

@ts.function
def {name}({parameters}, n: Const["H"]):
    {fact}
    return {result}
"""
CONTRACTED = 'x: Tensor["B", "S", "D"], y: Tensor["3*D", "K"]'
FREE = 'x: Tensor["B", "S", "D"], y: Tensor["S", "K"]'
ADDED = 'x: Tensor["B", "D"], y: Tensor["B", "2*D"]'
HEADS = 'x: Tensor["B", "D"], y: Tensor["B", "H*(D//H)"]'
# name: parameters, fact, result, code of the mistake (None: there is none), sizes of the example
CASES = {
    "no_fact": (CONTRACTED, "pass", "x @ y", "TS203", {"D": 2}),
    "constant": (CONTRACTED, "assert D % 4 == 0", "x @ y", "TS203", {"D": 4}),
    "symbol": (CONTRACTED, "assert D % H == 0", "x @ y", "TS203", {"D": None}),
    "two_divisors": (CONTRACTED, "assert D % 6 == 0 and D % 4 == 0", "x @ y", "TS203", {"D": 12}),
    "guard": (CONTRACTED, "if D % 8 != 0:\n        raise ValueError(D)", "x @ y", "TS203", {"D": 8}),
    "short_guard": (CONTRACTED, "if D % 8:\n        raise ValueError(D)", "x @ y", "TS203", {"D": 8}),
    "both_divisible": (FREE, "assert D % 4 == S % 4 == 0", "x @ y", "TS203", {"D": None, "S": None}),
    "neighbour": (FREE, "assert D == S + 1", "x @ y", "TS203", {"D": 3, "S": 2}),
    "product": (FREE, "assert B * D == 2 * S", "x @ y", "TS203", {"D": None, "S": None}),
    "elsewhere": (FREE, "assert B % 4 == 0", "x @ y", "TS203", {"D": None, "S": None}),
    "larger": (FREE, "assert D > 7", "x @ y", "TS203", {"D": None, "S": None}),
    "added": (ADDED, "assert D % 64 == 0", "x + y", "TS202", {"D": 64}),
    "joined": (ADDED, "assert D % 64 == 0", "ts.concat([x, y], axis=0)", "TS206", {"D": 64}),
    "settled": (FREE, "assert D == S", "x @ y", None, {}),
    "settled_by_both": (FREE, "assert D == H and S == H", "x @ y", None, {}),
    "settled_guard": (FREE, "if D != S:\n        raise ValueError(D)", "x @ y", None, {}),
    "whole": (HEADS, "assert D % H == 0", "x + y", None, {}),
    "open": (HEADS, "pass", "x + y", None, {}),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list[dict]]:
    """The findings of `tessera check` by function."""
    file: Path = tmp_path_factory.mktemp("facts") / "programs.py"
    parts = [PROGRAM.format(name=n, parameters=p, fact=f, result=r) for n, (p, f, r, _, _) in CASES.items()]
    file.write_text(HEAD + "".join(parts))
    command = [sys.executable, "-m", "tessera", "check", "--json", file.name]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=120)
    out: dict[str, list[dict]] = {n: [] for n in CASES}
    for d in json.loads(done.stdout)["diagnostics"]:
        out[d["function"]].append(d)
    return out


@pytest.mark.parametrize("name", CASES)
def test_check(found, name: str) -> None:
    *_, code, sizes = CASES[name]
    assert [d["code"] for d in found[name]] == ([code] if code else [])
    for d in found[name]:
        (example,) = [n["message"] for n in d["notes"] if n["message"].startswith("for example")]
        said = {n: int(v) for n, v in re.findall(r"(\w+)=(\d+)", example)}
        assert said.keys() == sizes.keys()
        assert all(want in (None, said[n]) for n, want in sizes.items())
