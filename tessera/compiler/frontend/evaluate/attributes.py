"""`value.name` for every kind of value."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import types
from typing import Any, cast

import tessera
from tessera.compiler.frontend.evaluate import states, undecided
from tessera.compiler.frontend.evaluate.calls import adopt, call, live_call
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.suggested_fixes import own_alias
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.numbers import NumpyGenerator, NumpyMember
from tessera.compiler.frontend.names.values import (
    ABSTRACT,
    MISSING,
    UNKNOWN,
    Builtin,
    ClassRef,
    FileModule,
    Method,
    Namespace,
    Number,
    Partial,
    Property,
    Record,
    Several,
    Super,
    Unknown,
    type_name,
)
from tessera.errors import Edit, Fix, Span
from tessera.language import drawing
from tessera.language.absent import instead, instead_inside, instead_of_attribute
from tessera.language.dims import Expr
from tessera.tracebacks import OWN

CONTAINERS = (list, dict, set, tuple, str, bytes, frozenset, range)


def attribute(ev: Evaluator, node: ast.Attribute, value: Any, name: str) -> Any:
    if isinstance(value, Unknown):
        return undecided.attribute(value, name) if isinstance(value, Several) else UNKNOWN
    if isinstance(value, NumpyGenerator):
        return NumpyMember(name, "numpy.random")
    if ev.layer.owns(value):
        found = ev.layer.attribute(node, value, name)
        if found is MISSING and not ev.layer.functions and name in vocabulary.made_methods():
            return Partial(_member(ev, node, Namespace("tessera"), name), (value,), {})
        return _no_method(ev, node, value, name) if found is MISSING else found
    if isinstance(value, Namespace):
        return _member(ev, node, value, name)
    if isinstance(value, (Record, ClassRef)):
        return _of_record(ev, node, value, name)
    if isinstance(value, Super):
        return _of_classes_above(ev, node, value, name)
    if isinstance(value, Closure):
        return Method(value, name) if name == "with_config" else value.name if name == "__name__" else UNKNOWN
    if value == Builtin("object") and name == "__setattr__":
        return Builtin("object.__setattr__")
    if isinstance(value, (Expr, Number)):
        return unknown_attribute(ev, node, value, name, ())
    if isinstance(value, ABSTRACT):
        space, _, own = value.path.rpartition(".") if isinstance(value, Builtin) else ("", "", "")
        why = instead(own, space)
        return ev.error("TS104", f"{type_name(value)} has no attribute {name!r}{why and f'; {why}'}", node)
    if any(type(value) is kind for kind in CONTAINERS):
        return Method(value, name) if hasattr(value, name) else unknown_attribute(ev, node, value, name, dir(value))
    return _of_object(ev, node, value, name)


def _no_method(ev: Evaluator, node: ast.Attribute, value: Any, name: str) -> Unknown:
    """Of a tensor: `x.vstack()`, where there is only `ts.vstack(x)`, and `x.float()`, as other libraries have it."""
    if why := instead_of_attribute("tensor", name):
        return ev.error("TS104", f"{type_name(value)} has no attribute {name!r}; {why}", node)
    if not ev.layer.has_function(name):
        return unknown_attribute(ev, node, value, name, ev.layer.attributes(value))
    ours = f"{own_alias(ev) or 'tessera'}{ev.layer.functions}.{name}({ast.unparse(node.value)}, ...)"
    return ev.error("TS104", f"{type_name(value)} has no attribute {name!r}; call {ours}", node)


def _asked_at(ev: Evaluator, node: ast.AST) -> Span:
    """The place of a node, or of the author's call of what it stands in, where that is a function of Tessera."""
    span, frame = ev.span(node), ev.frame
    while frame.caller is not None and frame.call_span is not None and span.file.startswith(OWN):
        span, frame = frame.call_span, frame.caller
    return span


def unknown_attribute(ev: Evaluator, node: ast.Attribute, value: Any, name: str, known: Any) -> Unknown:
    hint, fixes = ev.suggest(name, known, name_span(ev, node))
    return ev.error("TS104", f"{type_name(value)} has no attribute {name!r}{hint}", node, fixes=fixes)


def name_span(ev: Evaluator, node: ast.Attribute) -> Span:
    """The place of the attribute's name alone."""
    span = ev.span(node)
    return Span(span.file, span.end_line, span.end_col - len(node.attr), span.end_line, span.end_col)


def _member(ev: Evaluator, node: ast.Attribute, module: Namespace, name: str) -> Any:
    if ev.live and _is_text(module.path, name):
        live = importlib.import_module(module.path)
        if hasattr(live, name):
            return adopt(ev, node, getattr(live, name))
    found = vocabulary.member_of(module, name)
    if isinstance(module, FileModule):
        ev.depend(ast.unparse(node), found)
    if found is not MISSING:
        return found
    if module.path == "tessera" and name in dir(tessera):
        if name == "random_key":  # outside of programs a text decides sizes, for which any key will do
            return Builtin("tessera.random_key") if ev.outside else ev.error("TS105", drawing.WHY, _asked_at(ev, node))
        if name in ("rand", "randn") and ev.outside:
            return Builtin(f"tessera.{name}")
        kind = ev.definition.kind
        return ev.error("TS104", f"tessera.{name} cannot be used in a {kind}; {instead_inside(name)}", node)
    if module.path == "tessera" and ev.layer.functions and ev.layer.has_function(name):
        ours = f"{ast.unparse(node.value)}{ev.layer.functions}.{name}"
        fix = Fix(f"Use {ours}", (Edit(name_span(ev, node), f"{ev.layer.functions[1:]}.{name}"),))
        message = f"tessera has no {name!r}; use {ours} here"
        return ev.error("TS104", message, node, fixes=(fix,))
    message = f"{module.path} has no {name!r} that can be used in a {ev.definition.kind}"
    if why := instead(name, module.path):
        return ev.error("TS104", f"{message}; {why}", node)
    known = module.scope.names() if isinstance(module, FileModule) else vocabulary.members(module.path)
    hint, fixes = ev.suggest(name, known, name_span(ev, node))
    return ev.error("TS104", f"{message}{hint}", node, fixes=fixes)


def _is_text(path: str, name: str) -> bool:
    """Whether a member of Tessera is written as programs are: layers, and functions that are made of operators."""
    own = path == "tessera" and (name in vocabulary.made() or name in vocabulary.OF_TREES)
    inside = f"{path}.".startswith(("tessera.kernels.", "tessera.nn.", "tessera.optimizers."))
    return own or inside or path.removeprefix("tessera.") in vocabulary.SPACES


def _of_record(ev: Evaluator, node: ast.Attribute, value: Record | ClassRef, name: str) -> Any:
    if name in value.members:
        if isinstance(value, Record):
            states.read(ev, value)
        return value.members[name]  # of an instance, a function too, which is no method
    if isinstance(value, Record) and name == "__class__":
        return value.cls
    if isinstance(value, ClassRef) and name in ("__name__", "__qualname__"):
        return value.name
    if isinstance(value, Record) and isinstance(value.cls, ClassRef) and name in value.cls.members:
        found = value.cls.members[name]
        if isinstance(found, Property):
            return call(ev, node, found.getter, [value], {})
        bound = isinstance(found, Closure) and name not in value.cls.static
        return Method(value, name) if bound else found
    if isinstance(value, Record) and isinstance(value.cls, type) and hasattr(value.cls, name):
        return _of_class(ev, node, value, name)
    cls = value.cls if isinstance(value, Record) else value
    if isinstance(cls, ClassRef) and cls.named_tuple and name in _OF_NAMED_TUPLES:
        return _of_named_tuple(value, cls, name)
    known = list(value.members)
    if isinstance(value, Record):
        known += value.cls.members if isinstance(value.cls, ClassRef) else dir(value.cls)
    label = value.type_name if isinstance(value, Record) else value.name
    if "named_parameters" in known and (why := instead_of_attribute("module", name)):
        return ev.error("TS104", f"{label} has no attribute {name!r}; {why}", node)
    hint, fixes = ev.suggest(name, known, name_span(ev, node))
    return ev.error("TS104", f"{label} has no attribute {name!r}{hint}", node, fixes=fixes)


_OF_NAMED_TUPLES = ("_replace", "_asdict", "_fields", "_make", "_field_defaults")


def _of_named_tuple(value: Record | ClassRef, cls: ClassRef, name: str) -> Any:
    """What Python gives each named tuple, of one that is known by its text."""
    if name == "_fields":
        return cls.fields
    if isinstance(value, Record) and name == "_replace":
        return Partial(Builtin("tessera.replace"), (value,), {})
    if isinstance(value, Record) and name == "_asdict":
        return Partial(Builtin("dict"), ({n: value.members[n] for n in cls.fields},), {})
    return UNKNOWN


def _of_classes_above(ev: Evaluator, node: ast.Attribute, value: Super, name: str) -> Any:
    found = value.member(name)
    if found is MISSING:
        if name == "__init__":  # of `object`
            return Partial(Builtin("tuple"), (), {})
        return ev.error("TS104", f"no class above {value.record.type_name} has {name!r}", node)
    if isinstance(found, (Property, property)):
        getter = found.getter if isinstance(found, Property) else found.fget
        return call(ev, node, getter, [value.record], {})
    if isinstance(found, (staticmethod, classmethod)):
        return adopt(ev, node, cast("Any", found).__get__(None, value.record.cls))
    method = isinstance(found, (Closure, types.FunctionType)) or hasattr(found, "__wrapped__")
    return Partial(found, (value.record,), {}) if method else adopt(ev, node, found)


def _of_class(ev: Evaluator, node: ast.Attribute, value: Record, name: str) -> Any:
    """What an instance has from its live class: a method, a property's value, a constant."""
    found = inspect.getattr_static(value.cls, name)
    if isinstance(found, (staticmethod, classmethod)):
        return adopt(ev, node, getattr(value.cls, name))
    if isinstance(found, functools.cached_property):
        return live_call(ev, node, found.func, [value], {})
    if isinstance(found, types.FunctionType) or hasattr(found, "__wrapped__"):
        return Method(value, name)
    if isinstance(found, property):
        return live_call(ev, node, found.fget, [value], {})
    return adopt(ev, node, getattr(value.cls, name))


def _of_object(ev: Evaluator, node: ast.Attribute, value: Any, name: str) -> Any:
    """A live object: its attribute as it is now. What it holds becomes part of what the result depends on."""
    try:
        found = getattr(value, name)
    except AttributeError:
        return unknown_attribute(ev, node, value, name, dir(value))
    except Exception as e:  # a property of the user's class failed
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)
    adopted = adopt(ev, node, found)
    if adopted is found:
        ev.depend(ast.unparse(node), found)
        ev.keep_unchanged(found)
    return adopted
