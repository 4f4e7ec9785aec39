"""Other files of the workspace, that a file imports: read as text, never executed.

`from layers import attend`, `from .layers import HEADS` and `import layers as L` find files beside the importing one,
or beside the package it is in; what an editor has open comes before what is on the disk. A file is read again when its
content has changed; what was looked up through an old one is then looked up anew.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.definition import Definition, FileScope
from tessera.compiler.frontend.names.values import MISSING, FileModule
from tessera.compiler.frontend.syntax.reparse import ParsedStatements, parsed
from tessera.errors import register_source

SUFFIXES = (".py", ".tess")
LARGEST = 2_000_000
"""bytes; a longer file is data rather than a program"""


class Modules:
    """The files of one workspace. `changed` are called with the path of each file whose text an editor has changed."""

    def __init__(self) -> None:
        self.opened: dict[str, str] = {}
        self.changed: list[Callable[[str], None]] = []
        self.version = 0
        """counts the states of all files together"""
        self._scopes: dict[str, ModuleScope] = {}
        self._found: dict[tuple[str, str, int], str | None] = {}

    def open(self, path: str, text: str | None) -> None:
        """What an editor has under this path; None: no longer anything, and the disk counts."""
        if text is None:
            self.opened.pop(path, None)
        else:
            self.opened[path] = text
        for tell in list(self.changed):
            tell(path)

    def refresh(self) -> None:
        """Looks which files have changed. To be called before each analysis, during which none may."""
        self._found.clear()
        self.version += sum(scope.read() for scope in self._scopes.values())

    def path(self, importer: str, name: str, level: int) -> str | None:
        """The file that `importer` means by `name`, after so many dots; of a package its folder."""
        key = (importer, name, level)
        if key not in self._found:
            known = not level and vocabulary.is_known(name)
            self._found[key] = None if known else self._find(Path(importer), name, level)
        return self._found[key]

    def file_of(self, path: str) -> str:
        """The file at a module's path: of a package, its `__init__`; "" where it has none."""
        folder = Path(path)
        if folder.suffix in SUFFIXES:
            return path
        return next((f for s in SUFFIXES if self.exists(Path(f := str(folder / f"__init__{s}")))), "")

    def _find(self, importer: Path, name: str, level: int) -> str | None:
        parts = [p for p in name.split(".") if p]
        folder = importer.parent
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return self.file(folder, parts) if parts else str(folder)
        while True:
            found = self.file(folder, parts)
            if found is not None or not self.exists(folder / "__init__.py") or folder == folder.parent:
                return found
            folder = folder.parent

    def file(self, folder: Path, parts: list[str]) -> str | None:
        """The file of a module, or the folder of a package."""
        base = folder.joinpath(*parts)
        for suffix in SUFFIXES:
            if self.exists(base.with_name(base.name + suffix)):
                return str(base.with_name(base.name + suffix))
        return str(base) if any(self.exists(base / f"__init__{s}") for s in SUFFIXES) else None

    def exists(self, path: Path) -> bool:
        try:
            return str(path) in self.opened or path.is_file()
        except (OSError, ValueError):  # a name too long for the system, or one with a null character
            return False

    def scope(self, path: str) -> ModuleScope:
        found = self._scopes.get(path)
        if found is None:
            found = self._scopes[path] = ModuleScope(self, path)
            found.read()
        return found


def imported_files(scope: TextScope) -> set[str]:
    """The files that were looked into for a scope's names, also by each other."""
    pending, seen = list(scope.imports.values()), set[str]()
    while pending:
        found = pending.pop()
        if found.file not in seen:
            seen.add(found.file)
            pending += found.imports.values()
    return seen


class ModuleScope:
    """The names of an imported file, as its text is now."""

    live = False

    def __init__(self, modules: Modules, path: str) -> None:
        self.path = path
        self._modules = modules
        self._text: str | None = None
        self._stamp: tuple[int, int] | None = None
        self._parsed: ParsedStatements | None = None
        self._scope: TextScope | None = None
        self._version = -1

    @property
    def file(self) -> str:
        """Of a package, its `__init__`."""
        return self._modules.file_of(self.path)

    def read(self) -> bool:
        """Reads the file if it has changed, and says whether it has."""
        file = self.file
        text = self._modules.opened.get(file)
        if text is None:
            text = self._on_disk(file)
        else:
            self._stamp = None
        if text == self._text:
            return False
        self._text = text
        self._parsed = parsed(text, file, self._parsed)
        register_source(file, text)
        self._scope = None
        return True

    def _on_disk(self, file: str) -> str:
        try:
            state = Path(file).stat()
            stamp = (state.st_mtime_ns, state.st_size)
            if stamp == self._stamp and self._text is not None:
                return self._text
            self._stamp = stamp
            return Path(file).read_text("utf-8-sig") if state.st_size <= LARGEST else ""
        except (OSError, ValueError):  # it is gone, or no text
            self._stamp = None
            return ""

    @property
    def _names(self) -> TextScope:
        if self._scope is None or self._version != self._modules.version:
            tree = self._parsed.tree if self._parsed is not None else ast.Module([], [])
            self._scope = TextScope(self.file, self._text or "", tree, self._modules, self)
            self._version = self._modules.version
        return self._scope

    @property
    def signatures(self) -> dict[Any, Any]:
        return self._names.signatures

    @property
    def imports(self) -> dict[str, FileScope]:
        return self._names.imports

    def lookup(self, name: str) -> Any:
        found = self.member(name)
        return found if found is not MISSING else self._names.lookup(name)

    def member(self, name: str) -> Any:
        """What an import or an attribute of the module gives; `lookup` also gives the builtins of Python."""
        found = self._names.lookup(name) if name in self._names.bound or self._names.stars else MISSING
        if found is not MISSING:
            return found
        path = Path(self.path)
        inner = self._modules.file(path, [name]) if path.suffix not in SUFFIXES else None
        if inner is None:
            return MISSING
        scope = self._names.imports[inner] = self._modules.scope(inner)
        return FileModule(name, scope)

    def names(self) -> Iterable[str]:
        return list(self._names.bound)

    def edited(self, definition: Definition, text: str) -> Definition | None:
        return None  # a fix in another file is not tried
