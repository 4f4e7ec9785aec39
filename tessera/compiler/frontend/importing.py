"""Importing `.tess` files: modules in Tessera's dialect, found on sys.path like any other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tessera.compiler.frontend.syntax.parse import compile_text
from tessera.errors import register_source

SUFFIX = ".tess"


class DialectLoader(SourceFileLoader):
    """Compiles the rewritten text and makes the text as written known to carets. No bytecode is kept on disk."""

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_bytes().decode("utf-8-sig")
        register_source(self.path, text)
        return compile_text(text, self.path)


class DialectFinder(MetaPathFinder):
    """Looks for NAME.tess, and NAME/__init__.tess, in the folders where modules are looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.rpartition(".")[2]
        for folder in sys.path if path is None else path:
            base = Path(folder or ".")
            for file, package in ((base / name / f"__init__{SUFFIX}", True), (base / f"{name}{SUFFIX}", False)):
                if file.is_file():
                    python = PathFinder.find_spec(fullname, path)
                    if python is not None and python.loader is not None:
                        return None  # Python's own modules come first
                    return _spec(fullname, file, package)
        return None


def _spec(fullname: str, file: Path, package: bool) -> ModuleSpec:
    loader: Any = DialectLoader(fullname, str(file))
    spec = ModuleSpec(fullname, loader, origin=str(file), is_package=package)
    spec.has_location = True
    if package:
        spec.submodule_search_locations = [str(file.parent)]
    return spec


def install_import_hook() -> None:
    """Makes `import model` find model.tess; a model.py comes first. Calling it again does nothing."""
    if any(isinstance(f, DialectFinder) for f in sys.meta_path):
        return
    # Before Python's finder, which takes a folder without __init__.py for a namespace and asks no other finder.
    at = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(at, DialectFinder())
