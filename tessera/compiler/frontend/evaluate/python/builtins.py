"""Python's builtins in functions and kernels: they run at compile time; over tensors the layer says what they mean."""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, MappingView
from typing import Any, cast

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate import undecided
from tessera.compiler.frontend.evaluate.alike.constructors import any_key
from tessera.compiler.frontend.evaluate.attributes import attribute
from tessera.compiler.frontend.evaluate.calls import BUILTINS, adopt, has_call
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.operators import compare_sizes
from tessera.compiler.frontend.evaluate.python.classes import has_attribute, is_instance
from tessera.compiler.frontend.evaluate.suggested_fixes import keyword_span
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import (
    MISSING,
    NO_GRAD,
    UNKNOWN,
    Builtin,
    ClassRef,
    Counting,
    Method,
    Namespace,
    Number,
    OperatorRef,
    Partial,
    Record,
    Several,
    Super,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    is_static,
    is_tuple,
    leaves,
    type_name,
    unshared,
)
from tessera.language import dims
from tessera.language.dims import Expr
from tessera.language.records import field_names, is_record, members

Args = list[Any]
Kwargs = dict[str, Any]
Lists = list[list[Any]]


def _owned(ev: Evaluator, args: Args, kwargs: Kwargs) -> bool:
    return any(ev.layer.owns(v) for v in (*args, *kwargs.values()))


def _plain(name: str) -> Callable[..., Any]:
    """The builtin itself where all arguments are ordinary; else the layer's meaning of that name."""

    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        args = [_listed_view(a) for a in args]
        if has_unknown(args) or has_unknown(kwargs):
            return UNKNOWN
        if is_static(args) and is_static(kwargs):
            return evaluate(ev, node, name, args, kwargs)
        given = [*leaves(args), *leaves(kwargs)]
        if any(map(ev.layer.owns, given)):
            return ev.layer.call(node, Builtin(name), args, kwargs)
        return _of_sizes(ev, node, name, args, kwargs)

    return run


def _listed_view(value: Any) -> Any:
    """The items of `d.values()` and its like, which may be tensors."""
    return list(cast("Iterable[Any]", value)) if isinstance(value, MappingView) else value


def _compared(name: str) -> Callable[..., Any]:
    """max, min and sorted: of the items themselves, or by the keys that a function gives for them."""
    plain = _plain(name)

    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        key, rest = kwargs.get("key"), {k: v for k, v in kwargs.items() if k != "key"}
        if key is None:
            return plain(ev, node, args, rest)
        items = args if len(args) > 1 else ev.iterate(node, args[0])
        if items is None or has_unknown(rest):
            return UNKNOWN
        if not items and "default" in rest:
            return rest["default"]
        keys = [ev.call(node, key, [item], {}) for item in items]
        if any(map(ev.layer.owns, keys)):
            return ev.error("TS102", f"{name} compares keys, which are not known at compile time", node)
        if not is_static(keys):
            return UNKNOWN
        order = {"reverse": rest["reverse"]} if "reverse" in rest else {}
        found = evaluate(ev, node, name, [range(len(items))], {"key": keys.__getitem__, **order})
        if isinstance(found, Unknown):
            return UNKNOWN
        return [items[i] for i in found] if name == "sorted" else items[found]

    return run


def evaluate(ev: Evaluator, node: ast.AST, name: str, args: Args, kwargs: Kwargs) -> Any:
    if name == "pow" and len(args) == 2:
        return ev.operate(node, "**", *args)
    if budget.call_explodes(name, args):
        return ev.too_large(node, name)
    ev.steps += sum(len(a) for a in args if is_sequence(a) or (isinstance(a, range) and name != "range"))
    try:
        made = getattr(builtins, name)(*args, **kwargs)
        if isinstance(made, range) and max(map(abs, (made.start, made.stop, made.step))) > sys.maxsize // 2:
            return ev.too_large(node, name)  # Python does not know the length of such a range
        return ev.weighed(node, made)
    except Exception as e:
        return ev.error("TS107", f"{name} raised {type(e).__name__}: {e}", node)


def _of_sizes(ev: Evaluator, node: ast.AST, name: str, args: Args, kwargs: Kwargs) -> Any:
    """min, max, abs, sum, int, float and str of symbolic sizes, and of numbers that depend on them."""
    flat = list(args[0]) if len(args) == 1 and is_sequence(args[0]) else args
    sizes = all(isinstance(v, (int, Expr)) for v in flat)
    if name in ("min", "max") and sizes and flat and not kwargs:
        out = flat[0]
        for v in flat[1:]:
            first = compare_sizes(ev, "<=" if name == "min" else ">=", out, v)
            second = compare_sizes(ev, "<=" if name == "min" else ">=", v, out)
            if not first:
                out = v if second else (dims.dim_min if name == "min" else dims.dim_max)(out, v)
        return out
    if name == "sum":
        out = args[1] if len(args) > 1 else kwargs.get("start", 0)
        for v in flat if len(args) == 1 else args[0]:
            out = ev.operate(node, "+", out, v)
        return out
    if kwargs:
        return UNKNOWN
    if name in ("int", "abs", "round") and isinstance(flat[0], Expr):
        return flat[0]
    if name == "str":
        return str(getattr(args[0], "text", args[0]))
    if name == "divmod" and len(args) == 2:
        return (ev.operate(node, "//", *args), ev.operate(node, "%", *args))
    if name == "pow" and len(args) == 2:
        return ev.operate(node, "**", *args)
    kinds: dict[str, type] = {
        "float": float,
        "int": int,
        "bool": bool,
        "abs": float,
        "min": float,
        "max": float,
        "round": int,
    }
    if name in kinds and all(isinstance(v, (int, float, Expr, Number)) for v in flat):
        return Number(kinds[name], f"{name}({', '.join(str(getattr(v, 'text', v)) for v in flat)})")
    return UNKNOWN


def len_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and any(isinstance(args[0], kind) for kind in (list, tuple, dict, set, str, range, MappingView)):
        return len(args[0])
    if len(args) == 1 and isinstance(args[0], Record):
        found = ev.special(node, args[0], "len")
        return ev.error("TS105", f"{type_name(args[0])} has no length", node) if found is MISSING else found
    return _plain("len")(ev, node, args, kwargs)


def iter_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`iter(items)` that `__iter__` returns, of which each loop gets its own."""
    if len(args) != 1 or kwargs or has_unknown(args) or is_static(args):
        return _plain("iter")(ev, node, args, kwargs)
    if ev.frame.name.endswith("__iter__"):
        found = ev.iterate(node, args[0])
        return UNKNOWN if found is None else found
    message = f"iter() of {type_name(args[0])} would be used up by the first loop; loop over the values themselves"
    return ev.error("TS102", f"{message}, or take one, values[0]", node)


def range_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if has_unknown(args):
        return UNKNOWN
    if is_static(args):
        return evaluate(ev, node, "range", args, kwargs)
    counting = counting_of(ev, node, args, "range")
    if not isinstance(counting, Counting) or not _owned(ev, args, {}):
        return counting
    return Counting(counting.start, counting.stop, counting.step, "tessera.range")


def structured_range(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.range`: a loop that runs when the program runs, whatever its bounds."""
    return UNKNOWN if has_unknown(args) else counting_of(ev, node, args, "tessera.range")


def counting_of(ev: Evaluator, node: ast.AST, args: Args, path: str) -> Any:
    """range's one to three arguments. Each must be an integer: ordinary, a size, or a scalar of the layer."""
    if not 1 <= len(args) <= 3:
        return ev.error("TS105", f"range takes 1 to 3 arguments, {len(args)} were given", node)
    for a in args:
        if not (isinstance(a, (int, Expr, Number)) or ev.layer.owns(a)) or isinstance(a, bool):
            return ev.error("TS105", f"range counts integers, not {type_name(a)}", node)
    start, stop, step = {1: (0, *args, 1), 2: (*args, 1), 3: tuple(args)}[len(args)]
    if step == 0:
        return ev.error("TS107", "range's step must not be zero", node)
    return Counting(start, stop, step, path)


def static_range(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.static_range`: unrolled, so its bounds must be known when it is compiled."""
    if has_unknown(args):
        return UNKNOWN
    if is_static(args):
        return evaluate(ev, node, "range", args, kwargs)
    if _owned(ev, args, kwargs):
        return ev.error("TS102", "static_range is unrolled and needs bounds known at compile time; use ts.range", node)
    return counting_of(ev, node, args, "range")


def cdiv(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.cdiv(a, b)`: a / b rounded up."""
    if len(args) != 2 or kwargs:
        return ev.error("TS105", "cdiv takes 2 arguments", node)
    raised = ev.operate(node, "-", ev.operate(node, "+", args[0], args[1]), 1)
    return ev.operate(node, "//", raised, args[1])


def _sequences(name: str) -> Callable[..., Any]:
    """zip, enumerate, list, tuple, reversed, map and filter over items that may be abstract."""

    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
        skip = 1 if name in ("map", "filter") else 0
        lists: list[list[Any]] = []
        given = args[skip : 1 if name == "enumerate" else None]
        if any(isinstance(a, (Several, Counting)) for a in given):
            return undecided.sequence(name, given)
        for a in given:
            items = ev.iterate(node, a)
            if items is None:
                return UNKNOWN
            lists.append(items)
        return _SEQUENCES[name](ev, node, args, kwargs, lists)

    return run


def _zip(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs, lists: Lists) -> Any:
    if kwargs.get("strict") and len({len(x) for x in lists}) > 1:
        return ev.error("TS107", f"zip(strict=True): lengths {', '.join(str(len(x)) for x in lists)} differ", node)
    return list(zip(*lists, strict=False))


def _map(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs, lists: Lists) -> Any:
    return [ev.call(node, args[0], list(items), {}) for items in zip(*lists, strict=False)]


def _filter(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs, lists: Lists) -> Any:
    out: list[Any] = []
    for item in lists[0]:
        kept = item if args[0] is None else ev.call(node, args[0], [item], {})
        truth = None if ev.layer.owns(kept) or isinstance(kept, (Unknown, Number, Expr)) else bool(kept)
        if truth is None:
            return ev.error("TS102", "filter's condition must be known at compile time", node)
        out += [item] if truth else []
    return out


def _enumerate(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs, lists: Lists) -> Any:
    return evaluate(ev, node, "list", [enumerate(lists[0], *args[1:], **kwargs)], {})


def _listed(kind: Callable[..., Any]) -> Callable[..., Any]:
    """list, tuple, set and frozenset of the items."""

    def run(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs, lists: Lists) -> Any:
        try:
            return ev.weighed(node, kind(itertools.chain(*lists)))
        except TypeError as e:
            return ev.error("TS107", f"TypeError: {e}", node)

    return run


def _reversed(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs, lists: Lists) -> Any:
    return lists[0][::-1]


_SEQUENCES: dict[str, Callable[..., Any]] = {
    "zip": _zip, "map": _map, "filter": _filter, "enumerate": _enumerate, "reversed": _reversed,
    "list": _listed(list), "tuple": _listed(tuple), "set": _listed(set), "frozenset": _listed(frozenset),
}  # fmt: skip


def dict_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if has_unknown(args[:1]):
        return UNKNOWN
    ev.steps += sum(len(a) for a in args if is_sequence(a) or is_dict(a))
    try:
        return ev.weighed(node, dict(*args, **kwargs))
    except Exception as e:
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)


_KINDS = (int, float, bool, complex, str, list, tuple, dict, set, frozenset, slice, range, object)


def isinstance_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or has_unknown(args):
        return UNKNOWN if has_unknown(args) else ev.error("TS105", "isinstance takes 2 arguments", node)
    value, wanted = args[0], args[1] if is_tuple(args[1]) else (args[1],)
    names: dict[Any, type] = {Builtin(t.__name__): t for t in _KINDS}
    if ev.layer.owns(value):
        return any(isinstance(w, Builtin) and w.path in ("tessera.Tensor", "tessera.Tile") for w in wanted)
    kinds = tuple(names.get(w, w) if isinstance(w, Builtin) else w for w in wanted)
    if isinstance(value, Expr):
        return int in kinds
    if isinstance(value, Number):
        return value.type in kinds
    if isinstance(value, Record):
        return is_instance(value, kinds)
    try:
        return isinstance(value, tuple(k for k in kinds if isinstance(k, type)))
    except TypeError as e:
        return ev.error("TS107", f"TypeError: {e}", node)


def print_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if _owned(ev, args, kwargs):
        return ev.layer.call(node, Builtin("print"), args, kwargs)
    ev.error(
        "TS102",
        "print does nothing in a compiled function; print outside of it, or return what it would show",
        node,
        severity="warning",
    )
    return None


def getattr_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if has_unknown(args[:2]) or len(args) < 2 or not isinstance(args[1], str) or not isinstance(node, ast.Call):
        return UNKNOWN
    if len(args) > 2 and is_static(args[0]) and not hasattr(args[0], args[1]):
        return args[2]
    if len(args) > 2 and isinstance(args[0], Record) and not has_attribute(args[0], args[1]):
        return args[2]
    access = ast.copy_location(ast.Attribute(node.args[0], args[1], ast.Load()), node)
    return attribute(ev, access, args[0], args[1])


def type_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    one = args[0] if len(args) == 1 and not kwargs else None
    return one.cls if isinstance(one, Record) else _plain("type")(ev, node, args, kwargs)


def hasattr_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if has_unknown(args) or len(args) != 2:
        return UNKNOWN
    if ev.layer.owns(args[0]):
        return args[1] in ev.layer.attributes(args[0])
    if isinstance(args[0], Record) and isinstance(args[1], str):
        return has_attribute(args[0], args[1])
    if isinstance(args[0], Namespace) and isinstance(args[1], str) and args[0].path.split(".")[0] == "tessera":
        return vocabulary.member_of(args[0], args[1]) is not MISSING
    return hasattr(args[0], args[1]) if is_static(args[0]) else UNKNOWN


def is_training(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.is_training()`: the mode of the outermost function that has one."""
    if args or kwargs:
        return ev.error("TS105", "is_training takes no arguments", node)
    if ev.definition.kind == "kernel":
        return ev.error("TS104", "is_training() is for functions; give the kernel a parameter, training: bool", node)
    mode = mode_of(ev)
    if not mode and ev.differentiating:
        message = "is_training() is not decided: a gradient is taken here, and no function says what it is compiled for"
        return ev.error(
            "TS105", f'{message}; write @ts.compile(mode="training") for @ts.function, or "inference"', node
        )
    return mode == "training"


def mode_of(ev: Evaluator) -> str:
    """What the outermost function that says so is compiled for, "training" or "inference"; "" if none does."""
    mode, frame = "", ev.frame
    while frame is not None:
        mode = frame.definition.options.get("mode", mode)
        frame = frame.caller
    return mode


def no_grad(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.no_grad()`, which a `with` enters."""
    if args or kwargs:
        return ev.error("TS105", "no_grad takes no arguments", node)
    if ev.definition.kind == "kernel":
        return ev.error("TS104", "no_grad() is for functions; a kernel's derivative is its rule, @kernel.vjp", node)
    return NO_GRAD


def monitored(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """A function under `@ts.monitor_numerics`: whoever calls the program looks at its results."""
    return ev.call(node, args[0], args[1:], kwargs)


def replace_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`ts.replace(record, **changes)`."""
    record = args[0] if len(args) == 1 else None
    if record is None or not (isinstance(record, (Record, Unknown)) or is_record(record)):
        text = ", ".join(map(type_name, args)) or "nothing"
        return ev.error("TS105", f"replace takes an instance of a dataclass, and fields by name, not {text}", node)
    if isinstance(record, Unknown):
        return UNKNOWN
    if not isinstance(record, Record):
        held = {n: adopt(ev, node, v) for n, v in members(record).items()}
        record = Record(type(record).__name__, held, type(record))
    fields = record.cls.fields if isinstance(record.cls, ClassRef) else field_names(record.cls)
    known = list(dict.fromkeys((*fields, *record.members)))
    for name in kwargs:
        if name not in known:
            hint, fixes = ev.suggest(name, known, keyword_span(ev, node, name))
            return ev.error("TS105", f"{record.type_name} has no field {name!r}{hint}", node, fixes=fixes)
    return Record(record.type_name, unshared(record.members) | kwargs, record.cls)


def setattr_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`object.__setattr__(self, name, value)`, by which the `__post_init__` of a frozen dataclass sets a field."""
    if len(args) != 3 or not isinstance(args[0], Record) or args[0].outside or not isinstance(args[1], str):
        return ev.error("TS102", "only an object that is made here can be given attributes by object.__setattr__", node)
    args[0].members[args[1]] = args[2]
    return None


def callable_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or has_unknown(args):
        return UNKNOWN if args else ev.error("TS105", "callable takes one argument", node)
    if isinstance(args[0], Record):
        return has_call(args[0])
    if isinstance(args[0], (Builtin, ClassRef, Closure, OperatorRef, Partial, Method)):
        return True
    return not ev.layer.owns(args[0]) and callable(args[0])


def partial_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`functools.partial(function, ...)`."""
    if not args:
        return ev.error("TS105", "partial needs a function", node)
    return UNKNOWN if isinstance(args[0], Unknown) else Partial(args[0], tuple(args[1:]), kwargs)


def super_(ev: Evaluator, node: ast.AST, args: Args, kwargs: Kwargs) -> Any:
    """`super()` in a method: what the classes above the one with the method have."""
    parameters = getattr(ev.frame.key, "args", None)
    first = parameters.args[0].arg if isinstance(parameters, ast.arguments) and parameters.args else ""
    record = ev.frame.names.get(first)
    if args or kwargs or not isinstance(record, Record):
        return ev.error("TS102", f"super() is not supported in a {ev.definition.kind} here; name the class", node)
    if isinstance(record.cls, type):
        order, own = inspect.getmro(record.cls), ev.frame.scope.lookup("__class__")  # of the class that has the method
        return Super(record, order[order.index(own) + 1 :]) if own in order else UNKNOWN
    classes = [record.cls] if isinstance(record.cls, ClassRef) else []
    for cls in classes:
        classes += cls.bases
    name = ev.frame.name
    has = [c for c in classes if getattr(c.members.get(name), "node", None) is ev.frame.key]
    return Super(record, has[-1].bases) if has else UNKNOWN


_PLAIN = ("abs", "all", "any", "bool", "complex", "divmod", "float", "int", "pow", "repr", "round", "slice", "str",
          "sum")  # fmt: skip
BUILTINS.update({
    **{n: _plain(n) for n in _PLAIN},
    **{n: _compared(n) for n in ("max", "min", "sorted")},
    **{n: _sequences(n) for n in _SEQUENCES},
    "len": len_, "iter": iter_, "range": range_, "dict": dict_, "isinstance": isinstance_, "print": print_,
    "getattr": getattr_, "hasattr": hasattr_, "tessera.range": structured_range,
    "tessera.static_range": static_range, "tessera.cdiv": cdiv,
    "tessera.replace": replace_, "tessera.is_training": is_training,
    "tessera.no_grad": no_grad, "tessera.random_key": any_key,
    "tessera.monitored": monitored, "functools.partial": partial_, "super": super_,
    "type": type_, "callable": callable_, "object.__setattr__": setattr_,
})  # fmt: skip
