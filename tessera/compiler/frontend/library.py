"""`tessera.nn`, `tessera.optimizers`, `tessera.fft` and others as editors know them: their texts are
read, as a user's files are."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import tessera
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.values import MISSING, UNKNOWN, Namespace
from tessera.compiler.frontend.names.vocabulary import FUNCTIONS, LIBRARIES, SPACES
from tessera.compiler.frontend.syntax.parse import parse_module


@cache
def _scope(file: Path) -> TextScope:
    text = file.read_text("utf-8")
    return TextScope(str(file), text, parse_module(text, str(file))[0])


def outside(module: str, name: str) -> Any:
    """A function of the package that is called outside of programs, `train` of `tessera`, as its text has it; MISSING
    where there is none, and where the text is not to be had."""
    module = vars(tessera)["_HOME"].get(name, module) if module == "tessera" else module
    place = Path(tessera.__path__[0], *module.split(".")[1:])
    file = place.with_suffix(".py") if not (place / "__init__.py").is_file() else place / "__init__.py"
    return _scope(file).lookup(name) if module.startswith("tessera.") and file.is_file() else MISSING


class TextLibrary:
    """A package of the house that is written as users write programs."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.folder = Path(tessera.__path__[0], package.partition(".")[2])

    @cached_property
    def homes(self) -> dict[str, str]:
        """The module of each name that the package gives, as its `__init__` says: `dict.fromkeys(names, module)`."""
        file = self.folder / "__init__.py"
        calls = ast.walk(ast.parse(file.read_bytes())) if file.is_file() else ()
        out: dict[str, str] = {}
        for call in calls:
            match call:
                case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[names, ast.Constant(str() as module)]):
                    out |= dict.fromkeys(ast.literal_eval(names), module)
                case _:
                    pass
        return out

    def lookup(self, path: str, name: str) -> Any:
        """What a name of the package or of one of its modules is. Unknown where its text is not to be had, as in an
        editor's bundled server."""
        if not self.homes:
            return UNKNOWN
        module = self.homes.get(name, "") if path == self.package else path.removeprefix(f"{self.package}.")
        file = self.folder / f"{module or name}.py"
        if not file.is_file() or name.startswith("_"):
            return MISSING
        if not module:
            return Namespace(f"{self.package}.{name}")
        return _scope(file).lookup(name)

    def names(self) -> Iterable[str]:
        """What the package gives."""
        return self.homes


for _package in ("tessera.kernels", "tessera.nn", "tessera.optimizers", *(f"tessera.{s}" for s in SPACES), FUNCTIONS):
    LIBRARIES[_package] = TextLibrary(_package)
