"""The type stub of `ts.nn`, whose layers are called with arrays of any library, wherever they say `Tensor`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tessera.nn.module import Module

HEAD = '''"""The names of `ts.nn`, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias, TypeVar

{made}

Array: TypeAlias = Any
"""a Tensor, a number, or an array of NumPy, CuPy, PyTorch or JAX"""
A = TypeVar("A")
"""results belong to the library of the first array"""
'''
KNOWN = frozenset(
    {"Any", "Callable", "Literal", "None", "Self", "bool", "dict", "float", "int", "list", "str", "tuple"}
)
"""names in annotations that mean the same in the stub"""
SPECIAL = ("__call__", "__getitem__", "__setitem__", "__iter__", "__len__")
"""methods that stubs tell of; checkers know those of dataclasses"""


def layers_text(operators: Iterable[str]) -> str:
    """The stub file of `ts.nn`, which has the `operators` as well."""
    nn = importlib.import_module("tessera.nn")
    found = {name: getattr(nn, name) for name in nn._HOME if name != "Module"}
    layers = {name: value for name, value in found.items() if isinstance(value, type) and issubclass(value, Module)}
    functions = {name: value for name, value in found.items() if inspect.isfunction(value)}
    lines = [f"from . import {name} as {name}" for name in nn._MODULES]
    lines += [f"from tessera import {name} as {name}" for name in operators if name not in found]
    others = ["Module", *(name for name in found if name not in layers and name not in functions)]
    lines += [f"from tessera.nn.{nn._HOME[name]} import {name} as {name}" for name in others]
    parts = [HEAD.format(made="\n".join(sorted(lines)))]
    known = KNOWN | layers.keys()
    parts += [_function(name, function, "", known) for name, function in functions.items()]
    parts += [_layer(cls, set(layers.values()) | {Module}, known) for cls in layers.values()]
    return "\n\n".join(parts) + "\n"


def _layer(cls: type[Module], public: set[type[Any]], known: frozenset[str]) -> str:
    """A layer, with what it inherits from bases that have no public name. Its constructor is spelled out: to a type
    checker, a dataclass without new fields has one of its own."""
    base = next(c for c in cls.__mro__[1:] if c in public)
    lines = [f"class {cls.__name__}({base.__name__}):", *_docstring(cls, "    ")]
    hidden = cls.__mro__[: cls.__mro__.index(base)]
    known_fields = {f.name for f in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set[str]()
    lines += [
        f"    {f.name}: {_type(str(f.type), known, 'Any')}"
        for f in dataclasses.fields(cls)  # type: ignore[arg-type]
        if f.name not in known_fields
    ]
    lines.append(_function("__init__", cls.__init__, "    ", known))
    members = {name: value for c in reversed(hidden) for name, value in vars(c).items()}
    for name, value in members.items():
        if name in SPECIAL or not name.startswith("_"):
            lines += _member(name, value, known)
    return "\n".join(lines)


def _member(name: str, value: Any, known: frozenset[str]) -> Iterator[str]:
    if isinstance(value, property):
        yield f"    @property\n    def {name}(self) -> Any: ..."
    elif inspect.isfunction(function := inspect.unwrap(getattr(value, "__func__", value))):
        if isinstance(value, (staticmethod, classmethod)):
            yield f"    @{type(value).__name__}"
        yield _function(name, function, "    ", known)


def _function(name: str, function: Any, indent: str, known: frozenset[str]) -> str:
    """Where a result is a tensor, it belongs to the library of the first tensor."""
    given = inspect.signature(function)
    tensors = [p.name for p in given.parameters.values() if _is_tensor(p.annotation)]
    kinds = {p.name: _type(p.annotation, known, "Array") for p in given.parameters.values()}
    result = _type(given.return_annotation, known, "Any")
    if tensors and re.fullmatch(r"Tensor(\[[^\]]*\])?", str(given.return_annotation)):
        kinds[tensors[0]], result = "A", "A"
    parameters = [_parameter(p, kinds[p.name]) for p in given.parameters.values()]
    first = next((i for i, p in enumerate(given.parameters.values()) if p.kind is p.KEYWORD_ONLY), None)
    if first is not None and not any(p.kind is p.VAR_POSITIONAL for p in given.parameters.values()):
        parameters.insert(first, "*")
    head = f"{indent}def {name}({', '.join(parameters)}) -> {result}:"
    said = _docstring(function, f"{indent}    ")
    return "\n".join((head, *said)) if said else f"{head} ..."


def _parameter(p: inspect.Parameter, kind: str) -> str:
    if p.name in ("self", "cls"):
        return p.name
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    return f"{star}{p.name}: {kind}{'' if p.default is p.empty else ' = ...'}"


def _is_tensor(annotation: Any) -> bool:
    return isinstance(annotation, str) and "Tensor" in annotation


def _type(annotation: Any, known: frozenset[str], tensor: str) -> str:
    """An annotation as the stub has it; Any where it has a name that the stub does not know."""
    if _is_tensor(annotation):
        return tensor
    text = annotation if isinstance(annotation, str) else "None" if annotation is None else "Any"
    return text if set(re.findall(r"[A-Za-z_]\w*", re.sub(r"'\w*'", "", text))) <= known else "Any"


def _docstring(value: Any, indent: str) -> list[str]:
    doc = inspect.cleandoc(value.__doc__ or "") if vars(value).get("__doc__", value.__doc__) else ""
    if not doc:
        return []
    body = "\n".join(f"{indent}{line}" if line else "" for line in doc.splitlines())
    return [f'{indent}"""{body.strip()}{f"{chr(10)}{indent}" if chr(10) in doc else ""}"""']
