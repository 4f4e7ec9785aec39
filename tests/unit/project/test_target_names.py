"""No room but its own knows a target by name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TARGET_NAME = re.compile(r"(cpu|gpu|cuda|reference|emulator|sm_\w*|avx\w*|sse\w*|amx\w*)(:.*)?")
OWNERS = ("tessera/compiler/targets/", "tessera/compiler/machines.py", "tessera/runtime/arrays/")
NAMED_ELSEWHERE = {
    "tessera/cli/doctor.py": {"cuda"},  # what the optional libraries are called in `pip install tessera[cuda]`
    "tessera/dist/arrays.py": {"gpu"},  # JAX's own word for a platform
    "tessera/language/absent.py": {"cpu", "cuda"},  # methods of PyTorch's tensors and modules
    "tessera/language/distribution.py": {
        "cpu",
        "cuda",
    },  # which names a mesh takes; the language knows no room
    "tessera/runtime/eager/tensor.py": {"gpu"},  # a word that people say for a device
}


def named_targets(path: Path) -> set[str]:
    """The texts of a file, documentation apart, that are the name of a target or device."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in documentation]
    return {t.value for t in texts if isinstance(t.value, str) and TARGET_NAME.fullmatch(t.value)}


def test_targets_are_named_in_their_own_rooms_alone() -> None:
    """`compiler/machines.py` has the names and what follows from them; other rooms ask it, or the target's platform."""
    found = {
        str(path.relative_to(ROOT)): names
        for folder in ("tessera", "lsp", "jupyter_ext")
        for path in (ROOT / folder).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(OWNERS) and (names := named_targets(path))
    }
    assert found == NAMED_ELSEWHERE
