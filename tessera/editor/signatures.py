"""How everything that can be called is called, and its documentation: operators, `ts.tile`, functions of the file."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, replace
from typing import Any

from tessera.compiler.frontend.kernel.builtins import public
from tessera.compiler.frontend.module import TextScope, decorated_kind
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import MISSING, Builtin, Namespace, OperatorRef
from tessera.compiler.graph.operator import METHODS, PROPERTIES, REGISTRY, Operator
from tessera.language import decorators, distribution, transforms
from tessera.language.dtypes import DType

TILE = "tessera.tile."


@dataclass(frozen=True, slots=True)
class CallSignature:
    """`parameters` and `returns` as they are written: `axis=-1`, `x: Tensor["M", "N"]`. `written`: whether the program
    holds it, so that its documentation is plain text; Tessera's own is Markdown."""

    name: str
    parameters: tuple[str, ...]
    doc: str
    returns: str = ""
    written: bool = False

    @property
    def text(self) -> str:
        returned = f" -> {self.returns}" if self.returns else ""
        return f"{self.name}({', '.join(self.parameters)}){returned}"

    @property
    def names(self) -> list[str]:
        """Of the parameters, with their stars."""
        return [re.split(r"[:=]", p, maxsplit=1)[0] for p in self.parameters]

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return self.doc.partition("\n")[0]


def resolve(scope: TextScope, dotted: str) -> Any:
    """What a dotted name of the module stands for; MISSING where that is not known."""
    head, *rest = dotted.split(".")
    value = scope.lookup(head) if head else MISSING
    for name in rest:
        value = vocabulary.member_of(value, name) if isinstance(value, Namespace) else MISSING
    return value


def is_decorated(closure: Closure) -> bool:
    """Whether it is a function or kernel of Tessera rather than a helper."""
    scope, node = closure.definition.scope, closure.node
    found = isinstance(node, ast.FunctionDef) and isinstance(scope, TextScope) and decorated_kind(scope, node)
    return bool(found)


def of_value(value: Any) -> CallSignature | None:
    match value:
        case OperatorRef(name=name):
            return of_operator(REGISTRY[name])
        case Builtin(path=path) if path.startswith(TILE):
            return of_tile(path.removeprefix(TILE))
        case Builtin(path=path) if path.startswith("tessera."):
            name = path.rpartition(".")[2]
            home = distribution if name in ("distributed", "mesh") else decorators
            home = transforms if name in vocabulary.TRANSFORMS else home
            return _of_python(path.removeprefix("tessera."), getattr(home, name, None))
        case Closure(node=ast.FunctionDef() as node):
            return of_definition(node)
        case TransformedRef(transform=transform, function=function) if (inner := of_value(function)) is not None:
            text = f"{transform.name} of {inner.name}\n\n{inner.doc}"
            return replace(inner, name=f"{transform.name}({inner.name})", doc=text, returns="")
        case _:
            return None


def of_operator(operator: Operator, method: bool = False) -> CallSignature:
    """As a method, an operator lacks its first operand."""
    given = [p.name if p.required else f"{p.name}={_default_text(p.default)}" for p in operator.parameters]
    return CallSignature(operator.name, tuple(given[1:] if method else given), operator.doc)


def of_method(name: str) -> CallSignature | None:
    """That of a method of tensors."""
    if name in vocabulary.made_methods():
        made = of_value(vocabulary.member("tessera", name))
        return bound(made) if made is not None else None
    operator = METHODS.get(name) or PROPERTIES.get(name)
    return of_operator(operator, method=True) if operator is not None else None


def of_tile(name: str, method: bool = False) -> CallSignature | None:
    """As a method of a tile, a function lacks its first parameter."""
    builtin = public().get(name)
    return CallSignature(name, builtin.written[1 if method else 0 :], builtin.text) if builtin is not None else None


def bound(signature: CallSignature) -> CallSignature:
    """As a method of an object that is there: without its first parameter."""
    return replace(signature, parameters=signature.parameters[1:])


def of_definition(node: ast.FunctionDef | ast.AsyncFunctionDef) -> CallSignature:
    a = node.args
    plain = [*a.posonlyargs, *a.args]
    given = list(map(_parameter, plain, [*[None] * (len(plain) - len(a.defaults)), *a.defaults]))
    if a.vararg or a.kwonlyargs:
        given.append(f"*{_parameter(a.vararg) if a.vararg else ''}")
    given += map(_parameter, a.kwonlyargs, a.kw_defaults)
    if a.kwarg:
        given.append(f"**{_parameter(a.kwarg)}")
    returns = _written(node.returns) if node.returns is not None else ""
    return CallSignature(node.name, tuple(given), ast.get_docstring(node) or "", returns, written=True)


def _parameter(p: ast.arg, default: ast.expr | None = None) -> str:
    text = f": {_written(p.annotation)}" if p.annotation is not None else ""
    equals = " = " if text else "="
    return p.arg + text + (f"{equals}{_written(default)}" if default is not None else "")


def _written(node: ast.expr) -> str:
    """With the quotes that the language's own examples have."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def _of_python(name: str, function: Any) -> CallSignature | None:
    if not callable(function):
        return None
    given = tuple(
        f"{'*' if p.kind is p.VAR_POSITIONAL else '**' if p.kind is p.VAR_KEYWORD else ''}{p.name}"
        + (f"={_default_text(p.default)}" if p.default is not p.empty else "")
        for p in inspect.signature(function).parameters.values()
    )
    return CallSignature(name, given, inspect.getdoc(function) or "")


def _default_text(default: object) -> str:
    return str(default) if isinstance(default, DType) else repr(default)
