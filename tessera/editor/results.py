"""What variables hold that the text gives a value: optimizers, caches, records, runs of `ts.train`. Nothing is run."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tessera
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import ClassRef, Property, Record
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.frontend.syntax.parse import parse_module
from tessera.language.annotations import dotted_name

if TYPE_CHECKING:
    from tessera.compiler.frontend.called.arguments import Names  # slow: the evaluator, at a server's start

RUN = Path(tessera.__path__[0], "training", "run.py")


def held_by(scope: TextScope, function: ast.FunctionDef | None, name: str) -> Record | None:
    """The object that a variable of the module, or of a function, holds; None where the text does not tell, or where it
    is given things of several kinds."""
    from tessera.compiler.frontend.called.arguments import Names  # slow: as above

    names = Names(scope, scope, scope.tree)
    if function is not None and name in assigned_names(function):
        names = Names(scope, names, function)
    elif function is not None and any(p.arg == name for p in ast.walk(function.args) if isinstance(p, ast.arg)):
        return None
    elif len(names.bound.get(name, ())) != len(scope.binders.get(name, ())):
        return None  # a loop, an import or the like gives it something too
    given = names.bound.get(name, [])
    found = [_made(names, node) for node, item in given if item is None]
    kinds = {f.type_name if f is not None else "" for f in found}
    return found[0] if len(found) == len(given) and len(kinds) == 1 else None


def _made(names: Names, node: ast.expr) -> Record | None:
    if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == "train":
        return _run(names, node)
    found = names.value(node)
    if isinstance(found, Record):
        return found
    return _declared(names.meaning(node.func)) if isinstance(node, ast.Call) else None


def _declared(function: Any) -> Record | None:
    """An object of a class that is called, or of the class of its file that a function says it returns."""
    cls = function
    if isinstance(function, Closure) and isinstance(function.node, ast.FunctionDef):
        said = function.node.returns
        cls = function.definition.scope.lookup(said.id) if isinstance(said, ast.Name) else None
    return Record(cls.name, dict.fromkeys(cls.fields), cls) if isinstance(cls, ClassRef) else None


def _run(names: Names, call: ast.Call) -> Record | None:
    """What `ts.train` returns, with the model that the text makes."""
    from tessera.compiler.frontend.called.trainings import means_train  # slow: as above

    cls = _run_class() if means_train(call.func, names) else None
    if cls is None:
        return None
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "model")]
    model = names.value(given[0]) if given else None
    own = {"model": model} if isinstance(model, Record) else {}
    return Record(cls.name, {**own, **dict.fromkeys(_fields(cls))}, cls)


@cache
def _run_class() -> ClassRef | None:
    """The class of what `ts.train` returns, from its text; None where that is not there, as in an extension."""
    if not RUN.is_file():
        return None
    text = RUN.read_text("utf-8")
    tree = parse_module(text, str(RUN))[0]
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TrainingRun")
    scope, members = TextScope(str(RUN), text, tree), dict[str, Any]()
    for s in node.body:
        if isinstance(s, ast.FunctionDef):
            method = Closure(s, Definition("function", s.name, str(RUN), s.lineno, s, text, scope))
            is_property = any(dotted_name(d) == "property" for d in s.decorator_list)
            members[s.name] = Property(method) if is_property else method
    return ClassRef(node.name, members)


def _fields(cls: ClassRef) -> list[str]:
    """The attributes that the constructor sets for others."""
    made: Any = cls.members["__init__"]
    targets = (t for s in made.node.body if isinstance(s, ast.Assign) for t in s.targets)
    return [t.attr for t in targets if isinstance(t, ast.Attribute) and not t.attr.startswith("_")]
