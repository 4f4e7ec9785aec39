"""`tessera run`: a script in Tessera's dialect or plain Python."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from tessera.compiler.frontend.importing import install_import_hook
from tessera.compiler.frontend.incremental import read_text
from tessera.compiler.frontend.syntax.parse import compile_text
from tessera.errors import register_source


def execute(path: Path, arguments: list[str], name: str = "__main__") -> dict[str, object]:
    """Runs a file as a script; gives its namespace. Raises CompileError where it does not parse."""
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    install_import_hook()
    text = read_text(path)
    register_source(str(path), text)
    code = compile_text(text, str(path))
    module, before = ModuleType(name), sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and named tuples look there for what their annotations mention
    namespace: dict[str, object] = vars(module)
    namespace |= {"__file__": str(path), "__builtins__": __builtins__}
    saved, sys.argv = sys.argv, [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        exec(code, namespace)
    finally:
        sys.argv = saved
        if before is not None:
            sys.modules[name] = before
        sys.path.remove(str(path.resolve().parent))
    return namespace


def run(
    file: Annotated[Path, typer.Argument(help="A .tess or .py file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, behind -- where it has options.")
    ] = None,
) -> None:
    """Run a script. A .tess file may use Tessera's dialect of Python (type parameters, keywords, policies)."""
    execute(file, arguments or [])
