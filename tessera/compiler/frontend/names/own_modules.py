"""What Tessera's own modules hold, as their texts say: nothing is imported to know it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import tessera
from tessera import tile

_ROOT = Path(tessera.__path__[0])


@lru_cache(maxsize=64)
def members(module: str) -> frozenset[str] | None:
    """The names and modules in `tessera.<...>`; None for other things, for a module whose members are found
    when they are asked for, and where not all of the package is installed (an editor's bundled server)."""
    if module == "tessera.tile":
        return frozenset(dir(tile))
    place = _ROOT.joinpath(*module.split(".")[1:])
    package = (place / "__init__.py").is_file()
    file = place / "__init__.py" if package else place.with_suffix(".py")
    if not (_ROOT / "cli").is_dir() or not file.is_file():
        return None
    tree = ast.parse(file.read_bytes())
    names = set(_bound(tree.body))
    stated = _stated(tree)
    made = "__getattr__" in names or any(isinstance(n, ast.Name) and n.id == "globals" for n in ast.walk(tree))
    if "*" in names or (made and stated is None):
        return None
    found = (p for p in place.iterdir() if (p / "__init__.py").is_file() or p.suffix == ".py") if package else ()
    return frozenset({*names, *(stated or ()), *(p.stem for p in found)})


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that a module's statements give a value."""
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            pending += ast.iter_child_nodes(node)


def _stated(tree: ast.Module) -> list[str] | None:
    """`__all__`, where it is written out."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=ast.List(elts) | ast.Tuple(elts)):
                texts = [e.value for e in elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
                return texts if len(texts) == len(elts) else None
            case _:
                pass
    return None
