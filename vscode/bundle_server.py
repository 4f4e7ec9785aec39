"""Packs the language server and the pure Python libraries that it needs into one JSON text of path -> content.

`python bundle_server.py` prints it; pack-server.mjs compresses it. The libraries are those of the interpreter
that runs this.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from importlib.metadata import distribution
from pathlib import Path

LIBRARIES = {"pygls": "pygls", "lsprotocol": "lsprotocol", "cattrs": "cattrs", "attrs": "attrs", "attr": "attrs"}
LIBRARIES["typing_extensions"] = "typing_extensions"
# What the server stands below (see the import contracts in pyproject.toml), and what only clients need.
OMITTED = (
    *("tessera/cli/", "tessera/runtime/", "tessera/profiler/", "tessera/compiler/targets/"),
    *("tessera/compiler/pipeline.py", "pygls/client.py", "pygls/lsp/client.py", "pygls/lsp/_base_client.py"),
    *("cattrs/preconf/", "cattrs/strategies/"),
)
# Text that hovers show stands in these.
DOCUMENTED = ("tessera/compiler/graph/", "tessera/language/", "tessera/kernels/")
MAIN = "from tessera_lsp.__main__ import main\n\nmain()\n"


def bundle() -> dict[str, str]:
    files = {"__main__.py": MAIN}
    for module in ("tessera", "tessera_lsp", *LIBRARIES):
        for path, file in sources(module).items():
            if not path.startswith(OMITTED):
                text = file.read_text("utf-8")
                files[path] = text if path.startswith(DOCUMENTED) else without_docstrings(text)
    for name in sorted(set(LIBRARIES.values())):
        licences = [f for f in distribution(name).files or () if f.name.startswith("LICENSE")]
        files |= {f"licenses/{name}.txt": Path(str(f.locate())).read_text("utf-8") for f in licences}
    return files


def sources(module: str) -> dict[str, Path]:
    """The module's files by the path that they have in the bundle."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} is missing: pip install tessera[lsp]"
    if not spec.submodule_search_locations:
        return {f"{module}.py": Path(spec.origin)}
    root = Path(spec.origin).parent
    return {f"{module}/{file.relative_to(root).as_posix()}": file for file in sorted(root.rglob("*.py"))}


def without_docstrings(text: str) -> str:
    """The module with what is for its readers left out."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


if __name__ == "__main__":
    json.dump(bundle(), sys.stdout)
