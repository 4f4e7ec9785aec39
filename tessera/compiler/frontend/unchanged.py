"""Which names of a module surely mean what they meant before an edit, told from its statements alone.

A statement that the edit did not touch keeps its node. A name bound by the same node means the same if the names that
its value is computed from do. Asking this costs a fraction of evaluating the names and comparing what they are.
"""

from __future__ import annotations

import ast
from weakref import WeakKeyDictionary

from tessera.compiler.frontend.scope import Scope
from tessera.compiler.frontend.text_scope import TextScope
from tessera.compiler.frontend.vocabulary import is_known

_NAMES: WeakKeyDictionary[ast.AST, set[str] | None] = WeakKeyDictionary()
"""of statements that have been asked about, the names that they read"""


class Unchanged:
    """Answers for the names of one scope, compared with each of the scopes that analyses were made in before."""

    def __init__(self, scope: TextScope) -> None:
        self._scope = scope
        self._answers: dict[tuple[int, str], bool] = {}

    def __call__(self, name: str, before: Scope) -> bool:
        """Whether a name is surely the same; False also where that is merely not known."""
        if not isinstance(before, TextScope):
            return False
        key = (id(before), name)
        if key not in self._answers:
            self._answers[key] = False  # while it is looked into: of names that go in a circle nothing is sure
            self._answers[key] = self._same(name, before)
        return self._answers[key]

    def _same(self, name: str, before: TextScope) -> bool:
        node = self._scope.bound.get(name)
        if node is not before.bound.get(name):
            return False
        if node is None:
            return not self._scope.stars and not before.stars
        read = _NAMES[node] if node in _NAMES else _NAMES.setdefault(node, _read(node))
        return read is not None and all(self(n, before) for n in read)


def _read(node: ast.AST) -> set[str] | None:
    """The names that a statement's value is computed from. None: also from something else, say another file."""
    match node:
        case ast.Import(names=names):
            return set() if all(is_known(n.name) for n in names) else None
        case ast.ImportFrom(module=module, level=level):
            return set() if module is not None and not level and is_known(module) else None
        case ast.Assign() | ast.AnnAssign() | ast.ClassDef() | ast.FunctionDef():
            return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        case _:
            return None
