"""The text of a module, divided into several that are compiled at the same time.

LLVM compiles each function by itself, so that the machine code of a function does not depend on the part it is in.
How a text is divided depends on nothing but the text: code in a cache is the same wherever it was made.
"""

from __future__ import annotations

import re

from tessera.compiler.parallel import shared_out

LEAST = 100_000
"""characters of a part, of all parts on average: LLVM takes about 25 ms for them, and a further part costs 3 to 4"""
MOST = 8
_ITEM = re.compile(r"^(?=define |declare |attributes |[@!])", re.MULTILINE)
"""where a function, a declaration, a constant or metadata begins"""
_OWN = "define internal "
"""how a small function begins that each part has a copy of, as it has of constants"""
_NAME = re.compile(r"@[\w.]+")
_PARAMETER = re.compile(r" %\w+")


def divided(text: str) -> list[str]:
    """Texts that hold the functions of `text` between them, the longest to compile first.

    Each declares the functions of the others, and has the constants and internal functions that its functions name."""
    many = min(MOST, len(text) // LEAST)
    items = _ITEM.split(text) if many > 1 else []
    functions = [item for item in items if item.startswith("define ") and not item.startswith(_OWN)]
    many = min(many, len(functions))
    if many <= 1:
        return [text]
    constants = [item for item in items if item.startswith(("@", _OWN))]
    rest = [item for item in items if not item.startswith(("define ", "@"))]
    declarations = [_declaration(function) for function in functions]
    out: list[str] = []
    for share in shared_out([len(function) for function in functions], many):
        body = "".join(functions[i] for i in share)
        others = [d for i, d in enumerate(declarations) if i not in share]
        out.append("".join([*_named(constants, body), *rest, *others, body]))
    return out


def _named(items: list[str], body: str) -> list[str]:
    """The items that a text names, and those that these name."""
    found = [item for item in items if _name(item) in body]
    if not found:
        return []
    return [*found, *_named([item for item in items if item not in found], "".join(found))]


def _name(item: str) -> str:
    found = _NAME.search(item)
    assert found is not None
    return found[0]


def _declaration(function: str) -> str:
    """That of a function whose text begins `define void @name(ptr %frame, i64 %n) #0`."""
    head = function[: function.index(") #0") + 1]
    return _PARAMETER.sub("", head).replace("define", "declare", 1) + "\n"
