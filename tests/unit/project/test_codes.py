"""The catalogue of codes says who finds what, and it is so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tessera.codes import CODES

ROOT = Path(__file__).resolve().parents[3]


def codes_found_by(node: ast.AST) -> Iterator[str]:
    """The codes that a module gives to its findings: not those that it compares or looks up."""
    match node:
        case ast.Compare() | ast.Set() | ast.Subscript() | ast.Expr(ast.Constant()):
            return
        case ast.Dict():
            inside = node.values
        case ast.Constant(str() as text):
            inside = []
            yield from re.findall(r"^(TS\d{3})(?:: |$)", text)
        case ast.Call(ast.Name("MissingDependency")):
            inside = []
            yield "TS604"
        case _:
            inside = ast.iter_child_nodes(node)
    for part in inside:
        yield from codes_found_by(part)


def finders(root: Path) -> dict[str, set[str]]:
    """The modules that find each code."""
    found: dict[str, set[str]] = {}
    for path in (root / "tessera").rglob("*.py"):
        if path.name not in ("errors.py", "codes.py"):
            name = ".".join(path.relative_to(root / "tessera").with_suffix("").parts).removesuffix(".__init__")
            for code in codes_found_by(ast.parse(path.read_text("utf-8"))):
                found.setdefault(code, set()).add(name)
    return found


def holds(place: str, module: str) -> bool:
    return f"{module}.".startswith(f"{place}.")


def test_every_code_names_who_finds_it() -> None:
    """Also: every code in use is in the table, and nothing is in the table that no module finds."""
    wrong: list[str] = []
    found = finders(ROOT)
    for code in sorted(found.keys() | CODES.keys()):
        modules, places = found.get(code, set()), CODES[code].found_in.split(", ") if code in CODES else []
        wrong += [f"{code}: {m} finds it" for m in sorted(modules) if not any(holds(p, m) for p in places)]
        wrong += [f"{code}: nothing in {p} finds it" for p in places if not any(holds(p, m) for m in modules)]
    assert not wrong, "mend `found_in` in tessera/codes.py:\n" + "\n".join(wrong)


def test_who_finds_a_code() -> None:
    text = '''
"""TS101 and TS102 are what this speaks of."""
KNOWN = {"TS103"}
FIXES = {"TS104": 1}
ENTRY = CODES["TS105"]
raise LaunchError(Diagnostic("TS106", "no") if e.code == "TS107" else fault(code="TS108"))
warn(f"TS109: {why}")
raise MissingDependency("rich", "all", "the table")
'''
    assert sorted(codes_found_by(ast.parse(text))) == ["TS106", "TS108", "TS109", "TS604"]
