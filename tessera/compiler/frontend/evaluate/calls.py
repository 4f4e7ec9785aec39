"""Calls: Python's argument binding, inlining by source, live functions at compile time, classes and containers."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate import undecided
from tessera.compiler.frontend.evaluate.alike.calls import evaluated, is_module_call
from tessera.compiler.frontend.evaluate.alike.constructors import constructed, split_of_any
from tessera.compiler.frontend.evaluate.inlining import inline
from tessera.compiler.frontend.evaluate.launches import launch, with_config
from tessera.compiler.frontend.evaluate.machine import Evaluator, evaluates, method
from tessera.compiler.frontend.evaluate.suggested_fixes import keyword_span, own_alias
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.frame import Closure, method_name
from tessera.compiler.frontend.names.live import live_definition, read_once, represent, run_by
from tessera.compiler.frontend.names.numbers import NumpyFunction, NumpyMember, of_numbers
from tessera.compiler.frontend.names.settings import fixes, is_fitted, is_own, made_with, misfit_of
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import (
    ABSTRACT,
    MISSING,
    UNKNOWN,
    Builtin,
    ClassRef,
    Method,
    Namespace,
    Number,
    OperatorRef,
    Partial,
    Record,
    Several,
    Unknown,
    has_unknown,
    is_collection,
    is_dict,
    is_sequence,
    is_static,
    leaves,
    remade,
    type_name,
)
from tessera.compiler.graph.operator import ALIASES
from tessera.errors import CompileError, Diagnostic, Edit, Fix, Span, TesseraError
from tessera.fitting import Misfit
from tessera.language import drawing
from tessera.language.absent import instead
from tessera.language.annotations import dotted_name
from tessera.language.dims import Expr
from tessera.language.dtypes import DType
from tessera.language.records import STATE, field_names, is_record, members
from tessera.language.transforms import RULES
from tessera.tracebacks import OWN

BUILTINS: dict[str, Callable[..., Any]] = {}
"""what builtins of Python, and a few of Tessera, do in both layers"""
NUMPY_ARRAYS: dict[tuple[str, str], Callable[..., Any]] = {}
"""by module and name, what functions of NumPy make outside of programs; `python.drawn_arrays` registers them"""
PYTHON_FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""what functions of Python's modules do with items that may be tensors; `python.modules` registers them"""
SIMPLE = (int, float, str, bool, type(None), tuple, list, dict)


@evaluates(ast.Call)
def call_node(ev: Evaluator, node: ast.Call) -> Any:
    callee = ev.eval(node.func)
    args = ev.items(node.args)
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = ev.eval(keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif is_dict(value) and all(isinstance(k, str) for k in value):
            kwargs |= {k: adopt(ev, keyword.value, v) for k, v in value.items()}
        elif not isinstance(value, Unknown):
            ev.error("TS105", f"** needs a dict with string keys, not {type_name(value)}", keyword.value)
            return UNKNOWN
        else:
            return UNKNOWN
    return call(ev, node, callee, args, kwargs)


@method
def call(ev: Evaluator, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if isinstance(callee, NumpyMember) and (tensors := _tensors(ev, args, kwargs)):
        return _use_ours(ev, node, callee.__name__, callee, tensors[0])
    if isinstance(callee, NumpyMember) and ev.outside and not has_unknown((args, [*kwargs.values()])):
        made = NUMPY_ARRAYS.get((callee.__module__, callee.__name__))
        return UNKNOWN if made is None else made(ev, node, args, kwargs)
    if isinstance(callee, Unknown):
        return _unknown(ev, node, args)
    if isinstance(callee, Closure):
        return call_closure(ev, node, callee, args, kwargs)
    if isinstance(callee, ClassRef):
        return constructed(ev, callee, args, kwargs, functools.partial(_instance, ev, node, callee, args, kwargs))
    if isinstance(callee, Partial):
        return call(ev, node, callee.function, [*callee.args, *args], {**callee.keywords, **kwargs})
    if isinstance(callee, TransformedRef):
        return ev.layer.transformed(node, callee, args, kwargs)
    if isinstance(callee, Record) and has_call(callee):
        return _record_method(ev, node, Method(callee, "__call__"), args, kwargs)
    if isinstance(callee, Method) and isinstance(callee.owner, Record):
        return _record_method(ev, node, callee, args, kwargs)
    if isinstance(callee, Method) and isinstance(callee.owner, Closure):
        return with_config(callee.owner, kwargs)
    if isinstance(callee, Method) and isinstance(callee.owner, Several):
        return undecided.called(callee)
    if callee == Namespace("tessera.tile") and ev.definition.kind == "function":
        callee = OperatorRef("tile")
    if callee == Namespace("tessera.tensor") and ev.definition.kind == "function":
        callee = Builtin("tessera.tensor")
    if isinstance(callee, Builtin) and callee.path in BUILTINS:
        return BUILTINS[callee.path](ev, node, args, kwargs)
    if isinstance(callee, (Namespace, Record, Number, Expr)) or ev.layer.owns(callee):
        hint = _of_size(node)
        if callee == Namespace("tessera.tensor"):
            hint = "; make tensors from data outside of functions, then pass them or close over them"
        return ev.error("TS105", f"{type_name(callee)} is not a function{hint}", node)
    if isinstance(callee, (Builtin, OperatorRef)) or (isinstance(callee, Method) and ev.layer.owns(callee.owner)):
        if has_unknown(args) or has_unknown(kwargs):
            return UNKNOWN
        if isinstance(callee, Method):
            return ev.layer.method(node, callee, args, kwargs)  # type: ignore[arg-type]
        return ev.layer.call(node, callee, args, kwargs)
    if isinstance(callee, Method):
        return _container_method(ev, node, callee, args, kwargs)
    return live_call(ev, node, callee, args, kwargs)


# inlining


def call_closure(ev: Evaluator, node: ast.AST, closure: Closure, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Evaluates the callee's body in place. A plain live function of ordinary values is simply called."""
    if is_own(closure) and not _fits(ev, node, misfit_of(closure, args, kwargs)):
        return UNKNOWN
    plain = closure.live is not None and not hasattr(closure.live, "definition")
    if plain and ev.live and is_static(args) and is_static(kwargs):
        return invoke(ev, node, closure.live, args, kwargs)
    other = closure.definition.kind != ev.definition.kind and closure.decorated
    if other and closure.definition.kind == "function":
        fix = "use the functions of ts.tile here, or put the lines that both need into a plain function"
        return ev.error("TS401", f"the function {closure.name} cannot be called from a kernel; {fix}", node)
    own = closure.frame is None  # a nested function has none of the options of the one around it
    if own and ev.differentiating and not closure.definition.options.keys().isdisjoint(RULES):
        return ev.layer.ruled(node, closure, args, kwargs, functools.partial(_bound_call, ev, node, closure))
    return _bound_call(ev, node, closure, args, kwargs)


def _bound_call(ev: Evaluator, node: ast.AST, closure: Closure, args: list[Any], kwargs: dict[str, Any]) -> Any:
    other = closure.definition.kind != ev.definition.kind and closure.decorated
    bound = bind(ev, node, closure, args, kwargs)
    if bound is None:
        return UNKNOWN
    places = _argument_nodes(node, closure)
    if not ev.live and closure.frame is None and not closure.decorated and is_static(args) and is_static(kwargs):
        return _as_python(ev, node, closure, bound, places)
    if other:
        return launch(ev, node, closure, bound, places)
    if closure.frame is None and (closure.definition.options.get("alike") or is_module_call(ev, closure, bound)):
        return evaluated(ev, node, closure, bound, lambda: inline(ev, node, closure, bound, places))
    return inline(ev, node, closure, bound, places)


def _as_python(ev: Evaluator, node: ast.AST, closure: Closure, bound: dict[str, Any], places: Any) -> Any:
    """A plain function of ordinary values in a text: where it takes too long here, its value is merely not known, for
    the compiler will have Python run it."""
    if (keys := split_of_any(closure, bound)) is not None:
        return keys
    if ev.as_python:
        return inline(ev, node, closure, bound, places)
    before, most, endless = len(ev.findings.items), ev.most, set(ev.endless)
    ev.most, ev.as_python = min(most, ev.steps + budget.CONSTANT_STEPS), True
    value: Any = UNKNOWN
    try:
        value = inline(ev, node, closure, bound, places)
    except budget.ExhaustedError:
        if ev.most == most:  # the function's own steps are used up
            raise
    finally:
        ev.most, ev.as_python = most, False
    if not any(d.code in ("TS108", "TS111") for d in ev.findings.items[before:]):
        return value
    ev.endless = endless
    ev.findings.forget(before)
    message = f"what {closure.name} gives is not known here: computing it takes too long"
    ev.error("TS111", message, node, severity="note")
    return ev.undecide(message, node, "TS111")


def _fits(ev: Evaluator, node: ast.AST, found: Misfit | None) -> bool:
    """Whether a call of Tessera's own fits; what does not is said (TS105) where the user's text calls it."""
    if found is None:
        return True
    offered = () if ev.frame.source.file.startswith(OWN) else fixes(found, node, ev.span)
    say_outside(ev, "TS105", found.message, ev.span(node), offered)
    return False


def say_outside(
    ev: Evaluator, code: str, message: str, place: Span, offered: tuple[Fix, ...] = (), otherwise: Span | None = None
) -> None:
    """A finding at the line that called the first of Tessera's own functions; `otherwise`: of one that no function of
    the user's has called."""
    within, frame = ev.frame, ev.frame
    while frame.source.file.startswith(OWN) and frame.caller is not None and frame.call_span is not None:
        place, frame = frame.call_span, frame.caller
    ev.frame = frame
    ev.error(code, message, otherwise if otherwise and frame.source.file.startswith(OWN) else place, fixes=offered)
    ev.frame = within


def own_function(ev: Evaluator) -> str:
    """The name of the first of Tessera's own functions, which the user's text calls; empty where none runs."""
    name, frame = "", ev.frame
    while frame.source.file.startswith(OWN) and frame.caller is not None:
        name, frame = frame.name, frame.caller
    return name


def said_by(ev: Evaluator, node: ast.expr) -> Any:
    """An argument of what is raised; in a text of Tessera's own, the diagnostic that it makes."""
    own = ev.frame.source.file.startswith(OWN)
    if own and isinstance(node, ast.Call) and len(node.args) == 2 and dotted_name(node.func) == "Diagnostic":
        code, message = map(ev.eval, node.args)
        if isinstance(code, str) and isinstance(message, str):
            return Diagnostic(code, message)
    return ev.eval(node)


def _argument_nodes(node: ast.AST, closure: Closure) -> dict[str, ast.AST]:
    """The nodes of a call's arguments, by parameter; none where they are spread out."""
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return {}
    a = closure.node.args
    named = {k.arg: k.value for k in node.keywords if k.arg is not None}
    return {**dict(zip((p.arg for p in (*a.posonlyargs, *a.args)), node.args, strict=False)), **named}


def defaults_of(ev: Evaluator, node: ast.FunctionDef | ast.Lambda) -> dict[str, Any]:
    """Default values, evaluated where the function is made."""
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    out = {p.arg: ev.eval(d) for p, d in zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True)}
    out |= {p.arg: ev.eval(d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    return out


def bind(
    ev: Evaluator, node: ast.AST, closure: Closure, args: list[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Python's rules for matching arguments to parameters; None after a finding (TS105)."""
    a = closure.node.args
    positional = [p.arg for p in (*a.posonlyargs, *a.args)]
    by_name = {p.arg for p in (*a.args, *a.kwonlyargs)}
    bound: dict[str, Any] = dict(zip(positional, args, strict=False))
    problem, fixes = "", ()
    if len(args) > len(positional) and a.vararg is None:
        arguments = "argument" if len(positional) == 1 else "arguments"
        problem = (
            f"takes {len(positional)} positional {arguments}, {len(args)} {'was' if len(args) == 1 else 'were'} given"
        )
    if a.vararg is not None:
        bound[a.vararg.arg] = tuple(args[len(positional) :])
    extra: dict[str, Any] = {}
    own = closure.definition.file.startswith(OWN)
    for key, value in kwargs.items():
        if own and key not in by_name and ALIASES.get(key) in by_name:
            key = ALIASES[key]
        if key in by_name and key in bound:
            problem = f"got {key!r} twice"
        elif key in by_name:
            bound[key] = value
        elif a.kwarg is not None:
            extra[key] = value
        else:
            meant, fixes = ev.suggest(key, by_name, keyword_span(ev, node, key))
            made = bound.get("self")
            if isinstance(made, Record) and key in made_with(made.cls):
                meant, fixes = f"; {key}= is given where the object is made", ()
            problem = f"has no parameter {key!r}{meant}"
    if a.kwarg is not None:
        bound[a.kwarg.arg] = extra
    missing: list[str] = []
    for name in (*positional, *(p.arg for p in a.kwonlyargs)):
        if name not in bound and name in closure.defaults:
            bound[name] = adopt(ev, node, closure.defaults[name])
            if closure.frame is None:  # one that the program makes has defaults of its own
                ev.keep_unchanged(bound[name])
        elif name not in bound:
            missing.append(name)
    if missing and not problem:
        problem = f"needs {' and '.join(map(repr, missing))}"
    if problem:
        ev.error("TS105", f"{method_name(closure.name, bound)} {problem}", node, fixes=fixes)
        return None
    return bound


# live objects


def adopt(ev: Evaluator, node: ast.AST, value: Any) -> Any:
    """A live object that was read from another one, as the evaluator's value."""
    found: Any = value
    if isinstance(value, (*SIMPLE, *ABSTRACT)):
        return found
    found = represent(value)
    if isinstance(found, ABSTRACT):
        return found
    adopted = ev.layer.adopt("", found, node)
    return found if adopted is MISSING else adopted


@method
def whole(ev: Evaluator, node: ast.AST, value: Any) -> Any:
    """A value whose parts all count, as those of a tree do: arrays from outside that lists, dicts and dataclasses hold
    are tensors. The same object where none does."""

    def inside(items: dict[Any, Any]) -> dict[Any, Any] | None:
        made = {k: whole(ev, node, v) for k, v in items.items()}
        return made if any(made[k] is not v for k, v in items.items()) else None

    if is_sequence(value):
        made = inside(dict(enumerate(value)))
        return value if made is None else remade(value, made.values())
    if is_dict(value):
        made = inside(value)
        return value if made is None else made
    if isinstance(value, Record):
        made = None if value.is_state else inside(value.members)
        return value if made is None else dataclasses.replace(value, members=made)
    if is_record(value) and not isinstance(value, ABSTRACT):
        made = None if getattr(value, STATE, False) is True else inside(members(value))
        return value if made is None else Record(type(value).__name__, made, type(value), outside=True)
    return adopt(ev, node, value)


def closure_of(value: Any) -> Closure | None:
    """A live function, decorated or plain, as something to inline; None where it is not a function with source text."""
    return read_once(value, lambda: _closure_of(value))


def _closure_of(value: Any) -> Closure | None:
    definition = getattr(value, "definition", None)
    if callable(definition) and hasattr(value, "__wrapped__"):
        found: Any = definition()
    elif isinstance(value, types.FunctionType):
        found = live_definition(value)
    else:
        return None
    signature = inspect.signature(run_by(value), follow_wrapped=False)
    defaults = {p.name: represent(p.default) for p in signature.parameters.values() if p.default is not p.empty}
    return Closure(found.tree, found, None, defaults, value)


def live_call(ev: Evaluator, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a live object: by source where tensors are involved, directly where all arguments are ordinary values."""
    if callee is functools.partial:
        return call(ev, node, Builtin("functools.partial"), args, kwargs)
    if isinstance(callee, (types.BuiltinFunctionType, types.FunctionType, type)) and callee in PYTHON_FUNCTIONS:
        return _of_python(ev, node, callee, args, kwargs)
    if isinstance(callee, functools.partial):
        return call(ev, node, represent(callee.func), [*callee.args, *args], {**callee.keywords, **kwargs})
    plain = is_static(args) and is_static(kwargs)
    if not plain and _library(callee) and (given := _of_program(ev, args, kwargs)) is not None:
        known = not (has_unknown(args) or has_unknown(kwargs))
        return _use_ours(ev, node, callee.__name__, callee, given) if known else UNKNOWN
    if (
        isinstance(callee, types.MethodType)
        and isinstance(callee.__func__, types.FunctionType)
        and not (plain and (ev.live or is_pure(callee)))
    ):
        return live_call(ev, node, callee.__func__, [callee.__self__, *args], kwargs)
    if isinstance(callee, types.FunctionType) or (hasattr(callee, "__wrapped__") and hasattr(callee, "definition")):
        try:
            closure = closure_of(callee)
        except CompileError as e:
            if is_static(args) and is_static(kwargs):
                return invoke(ev, node, callee, args, kwargs)
            return ev.error(e.code, e.diagnostics[0].message, node)
        if closure is not None:
            ev.depend(closure.name, callee)
            return call_closure(ev, node, closure, args, kwargs)
    if (what := _of_caller(callee, args)) is not None:
        return ev.error("TS102", what.format(name=ev.frame.name), node)
    if not callable(callee):
        hint = f"; x.astype(ts.{callee})" if isinstance(callee, DType) else _of_size(node)
        return ev.error("TS105", f"{type_name(callee)} is not a function{hint}", node)
    if has_unknown(args) or has_unknown(kwargs):
        return UNKNOWN
    args = [ev.layer.settle(a) for a in args]
    callee = (None if kwargs else of_numbers(callee, args)) or callee
    if is_static(args) and is_static(kwargs):
        return invoke(ev, node, callee, args, kwargs)
    return _abstract_call(ev, node, callee, args, kwargs)


_NAMESPACES = {builtins.globals: "globals", builtins.locals: "locals", builtins.vars: "vars", builtins.dir: "dir"}
_TEXTS = {builtins.eval: "eval", builtins.exec: "exec"}


def _of_caller(callee: Any, args: Sequence[Any]) -> str | None:
    """Why a builtin that looks at the Python code which calls it cannot be called: that code is the compiler's."""
    known = isinstance(callee, types.BuiltinFunctionType)
    if known and not args and callee in _NAMESPACES:
        found = _NAMESPACES[callee]
        return f"{found}() has no meaning in {{name}}, which is read and not run; write the names, or pass a dict"
    if known and len(args) < 2 and callee in _TEXTS:
        return f"{_TEXTS[callee]} cannot see the names of {{name}}, which is read and not run; write the code itself"
    return None


def _unknown(ev: Evaluator, node: ast.AST, args: Sequence[Any]) -> Any:
    """In a text, other builtins than those that functions may call are not known."""
    function = node.func if isinstance(node, ast.Call) else None
    named = isinstance(function, ast.Name) and function.id in (*_NAMESPACES.values(), *_TEXTS.values())
    if isinstance(function, ast.Name) and named and not ev.live:
        own = ev.frame.lookup(function.id) is not MISSING or function.id in ev.frame.scope.names()
        if not own and (what := _of_caller(getattr(builtins, function.id), args)) is not None:
            return ev.error("TS102", what.format(name=ev.frame.name), node)
    return UNKNOWN


def _of_python(ev: Evaluator, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function of Python's modules whose arguments may be abstract."""
    if has_unknown(args) or has_unknown(kwargs):
        return UNKNOWN
    rule = PYTHON_FUNCTIONS[callee]
    try:
        inspect.signature(rule).bind(ev, node, *args, **kwargs)
    except TypeError as e:
        return ev.error("TS105", f"{callee.__name__}: {e}", node)
    return rule(ev, node, *args, **kwargs)


def invoke(ev: Evaluator, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Really calls it. In a file that is only read, that is allowed for pure functions of Python and Tessera alone."""
    pure = is_pure(callee)
    if not ev.live and not pure:
        return UNKNOWN
    own = getattr(callee, "__name__", "")
    name = own or str(callee)
    if drawing.draws(callee, args, kwargs) and _owner(callee) not in ev.seeded:
        return ev.error("TS105", f"{name}: {drawing.WHY}", node)
    ev.invoked += not pure
    if pure and (budget.call_explodes(name, args) or budget.method_explodes(_owner(callee), name, args)):
        return ev.too_large(node, name)
    try:
        with nullcontext() if pure else drawing.refused():
            made = callee(*args, **kwargs)
        if drawing.is_generator(made):
            ev.seeded.append(made)
        return adopt(ev, node, ev.weighed(node, made) if pure else made)
    except TesseraError as e:
        said = e.diagnostics[0].message
        return ev.error(e.code, said if said.startswith(own) else f"{own}: {said}", node)
    except Exception as e:
        return ev.error("TS107", f"{name} raised {type(e).__name__} at compile time: {e}", node)


def _owner(callee: Any) -> Any:
    """What a bound method is of."""
    return getattr(callee, "__self__", None)


def is_pure(callee: Any) -> bool:
    owner = _owner(callee).__class__
    module = getattr(callee, "__module__", None) or owner.__module__
    return module in ("math", "builtins", "_operator", "tessera.language.policies", "tessera.language.dims",
                      "tessera.language.saving")  # fmt: skip


def _abstract_call(ev: Evaluator, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A live callable without Python source meets tensors or symbolic sizes."""
    tensors = _tensors(ev, args, kwargs)
    name = getattr(callee, "__name__", type(callee).__name__)
    if getattr(callee, "__module__", "") == "math" and not tensors:
        whole = name in ("floor", "ceil", "isqrt", "gcd", "lcm", "comb", "perm", "factorial")
        text = f"{name}({', '.join(map(_text, args))})"
        return Number(int if whole else float, text, ("sqrt", *args) if name == "sqrt" else ())
    kind = callee.__class__
    if issubclass(kind, type):
        return _construct(ev, node, callee, args, kwargs)
    method = inspect.getattr_static(kind, "__call__", None)
    written = isinstance(method, types.FunctionType) and not isinstance(callee, NumpyFunction)
    if written and not (tensors and _library(method)):
        return live_call(ev, node, method, [callee, *args], kwargs)
    if not tensors:
        if (own := _of_program(ev, args, kwargs)) is None:
            return ev.undecide(f"{name} needs sizes that are known", node)
        message = f"{name} is Python's own and cannot work with {type_name(own)} of a program; write a loop"
        return ev.error("TS102", message, node)
    return _use_ours(ev, node, name, callee, tensors[0])


def _tensors(ev: Evaluator, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    return [v for v in (*leaves(args), *leaves(kwargs)) if ev.layer.owns(v) and not isinstance(v, Expr)]


def _of_program(ev: Evaluator, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The first tensor, or else the first value that Python has no object for and that is no size; None without one."""
    given = (*leaves(args), *leaves(kwargs))
    others = (v for v in given if isinstance(v, ABSTRACT) and not isinstance(v, (Expr, Number)))
    return next(iter((*_tensors(ev, args, kwargs), *others)), None)


def _library(callee: Any) -> str:
    """The package of arrays whose Python code this function is, which knows no arrays but its own; "" for others."""
    home = str(callee.__globals__.get("__name__", "")) if isinstance(callee, types.FunctionType) else ""
    package = home.partition(".")[0]
    return package if package in ("numpy", "scipy", "torch", "jax") else ""


def _use_ours(ev: Evaluator, node: ast.AST, name: str, callee: Any, value: Any) -> Any:
    """`np.exp(x)` or `math.sqrt(x)` of a tensor: the operator of that name is meant."""
    module = (getattr(callee, "__module__", "") or type(callee).__module__ or "").partition(".")[0]
    by = _library(callee)
    said = f"what {by} makes of {name}" if by not in ("", module) else f"{f'{module}.' if module else ''}{name}"
    message = f"{said} cannot be called with {type_name(value)}"
    fixes: tuple[Fix, ...] = ()
    space = ev.layer.functions if ev.layer.has_function(name) else _counterpart(ev, name, callee)
    if space is not None:
        alias = own_alias(ev)
        ours = f"{alias or 'tessera'}{space}.{name}"
        message += f"; use {ours}"
        if alias and isinstance(node, ast.Call):
            fixes = (Fix(f"Use {ours}", (Edit(ev.span(node.func), ours),)),)
    elif how := "" if ev.layer.functions else instead(name):
        message += f"; {how}"
    return ev.error("TS105", message, node, fixes=fixes)


def _counterpart(ev: Evaluator, name: str, callee: Any) -> str | None:
    """`.fft` for functions of `numpy.fft` that `tessera.fft` has, in functions."""
    space = (getattr(callee, "__module__", "") or "").removeprefix("numpy.")
    created = space == "numpy" and name in vocabulary.CREATION
    if not ev.layer.functions and (created or isinstance(vocabulary.member("tessera", name), (Builtin, OperatorRef))):
        return ""
    return f".{space}" if not ev.layer.functions and name in vocabulary.of_space(space) else None


def _text(value: Any) -> str:
    return value.text if isinstance(value, Number) else str(value)


# classes and containers


def _construct(ev: Evaluator, node: ast.AST, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if tuple in cls.__mro__ and hasattr(cls, "_fields"):
        return invoke(ev, node, cls, args, kwargs)
    declared: dict[str, Any] | None = getattr(cls, "__dataclass_fields__", None)
    if declared is None:
        return ev.error(
            "TS102", f"{cls.__name__} cannot be made of tensors; use a dataclass, tuple, list or dict", node
        )
    own = run_by(inspect.getattr_static(cls, "__init__"))
    if isinstance(own, types.FunctionType) and own.__code__.co_filename != "<string>":  # not made by `dataclass`
        made = Record(cls.__name__, {}, cls)
        live_call(ev, node, own, [made, *args], kwargs)
        return made
    if cls.__module__.startswith("tessera.") and not _fits(ev, node, misfit_of(cls, args, kwargs)):
        return UNKNOWN
    names = [n for n in field_names(cls) if declared[n].init]
    try:
        given = inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as e:
        return ev.error("TS105", f"{cls.__name__}: {e}", node)
    fresh = {n for n in names if n not in given.arguments and declared[n].default_factory is not dataclasses.MISSING}
    given.apply_defaults()
    made = Record(cls.__name__, {}, cls)
    for name in names:
        value = declared[name].default_factory() if name in fresh else given.arguments[name]
        made.members[name] = adopt(ev, node, value)
    after = inspect.getattr_static(cls, "__post_init__", None)
    if isinstance(after, types.FunctionType):
        live_call(ev, node, after, [made], {})
    return made


def _of_size(node: ast.AST) -> str:
    """The remark for `x.size(i)`, as PyTorch has it."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size"
    return "; x.size is the number of elements, x.shape[i] the size of an axis" if called else ""


def _instance(ev: Evaluator, node: ast.AST, cls: ClassRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """An instance of a class of the file, if that is a dataclass; an `__init__` of its own is evaluated."""
    if not cls.data:
        return UNKNOWN
    if "__init__" in cls.members:
        made = Record(cls.name, {}, cls)
        call(ev, node, cls.members["__init__"], [made, *args], kwargs)
        return made if all(n in made.members for n in cls.fields) else UNKNOWN
    if is_fitted(cls) and not _fits(ev, node, misfit_of(cls, args, kwargs)):
        return UNKNOWN
    positional = [n for n in cls.fields if n not in cls.by_name]
    if len(args) > len(positional) or any(k not in cls.fields for k in kwargs):
        return ev.error("TS105", f"{cls.name} takes {', '.join(cls.fields)}", node)
    members = {n: cls.members[n] for n in cls.fields if n in cls.members}
    members |= dict(zip(positional, args, strict=False)) | kwargs
    missing = [n for n in cls.fields if n not in members]
    if missing:
        return ev.error("TS105", f"{cls.name} needs {' and '.join(map(repr, missing))}", node)
    made = Record(cls.name, members, cls)
    if "__post_init__" in cls.members:
        call(ev, node, cls.members["__post_init__"], [made], {})
    return made


def has_call(record: Record) -> bool:
    """Whether an instance can be called."""
    cls = record.cls
    return (
        "__call__" in cls.members
        if isinstance(cls, ClassRef)
        else inspect.getattr_static(cls, "__call__", None) is not None
    )


def _record_method(ev: Evaluator, node: ast.AST, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
    owner: Record = method.owner
    found = (
        owner.cls.members.get(method.name) if isinstance(owner.cls, ClassRef) else getattr(owner.cls, method.name, None)
    )
    if isinstance(found, types.FunctionType):
        return live_call(ev, node, found, [owner, *args], kwargs)
    return call(ev, node, UNKNOWN if found is None else found, [owner, *args], kwargs)


_CHANGING = frozenset(
    ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update", "setdefault", "popitem",
     "add", "discard")
)  # fmt: skip
"""methods that change a container"""


def _container_method(ev: Evaluator, node: ast.AST, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`items.append(x)`, `config.get("key")`, `"".join(...)`: methods of Python's own containers run now."""
    owner, name = method.owner, method.name
    if name in _CHANGING and not ev.may_change(owner, node):
        return UNKNOWN
    if has_unknown(args) and name not in ("append", "extend", "insert", "setdefault", "update"):
        return UNKNOWN
    if isinstance(owner, (str, bytes)) and not (is_static(args) and is_static(kwargs)):
        return UNKNOWN if name != "format" else str(owner)
    if name in ("index", "count", "remove") and not is_static((owner, args)):
        return ev.error("TS102", f"{name} compares elements, which are not known at compile time", node)
    if name == "extend" and args and not is_sequence(args[0]):
        args = [ev.iterate(node, args[0]) or []]
    if name == "sort" and kwargs.get("key") is not None:
        ordered = BUILTINS["sorted"](ev, node, [owner], kwargs)
        if isinstance(ordered, Unknown):
            return UNKNOWN
        cast("list[Any]", owner)[:] = ordered
        return None
    if name == "sort" and not is_static(owner):
        return ev.error("TS102", "sort compares elements, which are not known at compile time", node)
    if budget.method_explodes(owner, name, args):
        return ev.too_large(node, name)
    ev.steps += len(owner) if name in ("index", "count", "remove", "sort", "copy", "insert", "reverse") else 0
    try:
        made = ev.weighed(node, getattr(owner, name)(*args, **kwargs))
    except Exception as e:
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)
    for held in (*args, *kwargs.values()):
        if is_collection(held) or is_dict(held):
            ev.held(node, held)
    return adopt(ev, node, made)
