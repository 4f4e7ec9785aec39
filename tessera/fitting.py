"""Whether the arguments of a call fit a function's parameters: the settings of layers, optimizers and trainings.

An annotation says the kind of a setting, as its text stands, and `RANGES` the numbers that it may have. `fitted` asks
when the program runs, the front end asks in a text, and both say the same. What an annotation does not tell fits.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, cast

from tessera.deferred import deferred
from tessera.immutable import immutable
from tessera.language.absent import FOREIGN_PARAMETERS
from tessera.nearest import nearest

SOMETHING = object()
"""an argument of which a text tells nothing"""
RANGES = {
    name: interval
    for interval, names in {
        "[1, inf)": "inputs outputs kernel stride dilation rows features hidden heads groups channels window experts k "
        "layers count every largest steps at InverseSqrt.warmup input_size hidden_size output_size part pages page "
        "batch sizes named lecun_uniform.shape glorot_uniform.shape he_normal.shape keep shard interval epochs "
        "accumulate validate",
        "[0, inf)": "padding output_padding eps std bound shape fan_in lr weight_decay lr_decay clip adam_rate warmup "
        "lr_scale value start end peak max_norm most max_restarts",
        "(0, inf)": "capacity softcap base loss_scale factor power start_factor end_factor d",
        "[0, 1)": "betas momentum alpha",
        "(-inf, 0]": "Adafactor.decay",
        "[0, 1]": "p dropout BatchNorm.momentum rising decay",
        "[1, 1024]": "set_num_threads.count",
        "[2, inf)": "SwitchTransformer.layers OneCycle.steps",
    }.items()
    for name in names.split()
}
"""of numbers by the names of parameters, or of a class and its parameter"""


@immutable
class Setting:
    """`star`: "*" or "**" of one that collects arguments."""

    name: str
    annotation: str = ""
    required: bool = False
    star: str = ""
    by_name: bool = False


@immutable
class Misfit:
    """Why a call does not fit. `unknown`: a keyword that is no parameter, and `meant` the one that is near."""

    message: str
    unknown: str = ""
    meant: str = ""


@immutable
class Kind:
    """What a setting may be: in words, and whether a value is that."""

    words: str
    holds: Callable[[Any], bool]


@immutable
class Callee:
    """What is called. `owners`: the name of the function or class, and those of the classes above it; `name`: what
    messages call it. `ranged`: its numbers are those of RANGES. `operands`: what parameters without annotation and
    default take, in words; empty where that is not known. `made_with`: the parameters of the constructor of what is
    called."""

    name: str
    parameters: tuple[Setting, ...]
    owners: tuple[str, ...] = ()
    ranged: bool = False
    operands: str = ""
    made_with: tuple[str, ...] = ()

    def kind(self, p: Setting) -> Kind | None:
        """What one of its parameters may be."""
        if self.operands and p.required and not p.annotation and not p.star:
            return _OPERANDS[self.operands]
        if f"{self.name}.{p.name}" in _TOLD:
            return None
        return kind_of(p.annotation, p.name, range_of(self.owners, p.name) if self.ranged else "")

    @property
    def written(self) -> str:
        """`Linear(inputs, outputs, *, key=, bias=)`"""
        out: list[str] = []
        for p in self.parameters:
            if p.by_name and "*" not in out and not any(o.startswith("*") for o in out):
                out.append("*")
            out.append(p.star + p.name if p.star or p.required else f"{p.name}=")
        return f"{'' if ' ' in self.name else self.name}({', '.join(out)})"


def name_of(function: str, cls: str = "") -> str:
    """What messages call a function, or a method of a class."""
    if not cls or function in ("__init__", "__new__"):
        return cls or function
    return f"the call of {cls}" if function == "__call__" else f"{cls}.{function}"


def misfit(callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any], kinds: bool = True) -> Misfit | None:
    """Why these arguments do not fit; None where they do, or where it is not known. `kinds`: they are looked at, too;
    otherwise it is their number and names."""
    bound, said = _bound(callee, args, kwargs)
    if said is not None or not kinds:
        return said
    for p in callee.parameters:
        if p.name not in bound or (kind := callee.kind(p)) is None:
            continue
        for label, value in bound[p.name]:
            if not _holds(kind, value):
                other = _swapped(p.name, value, bound, {q.name: callee.kind(q) for q in callee.parameters})
                why = f"{p.name} and {other} have changed places: {callee.written}" if other else ""
                return Misfit(f"{callee.name}: {why or f'{label} is {kind.words}, not {shown(value)}'}")
    return None


def _holds(kind: Kind | None, value: Any) -> bool:
    return kind is None or value is SOMETHING or kind.holds(value)


def _swapped(name: str, value: Any, bound: Mapping[str, Any], kinds: Mapping[str, Kind | None]) -> str:
    """The parameter whose argument is one for `name`, where `value` is one for it; empty where there is none."""
    for other, kind in kinds.items():
        ((_, held), *more) = bound.get(other) or [("", SOMETHING)]
        wrong = kind is not None and not more and other != name and not _holds(kind, held)
        if wrong and _holds(kind, value) and _holds(kinds[name], held):
            return other
    return ""


def _bound(
    callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, list[tuple[str, Any]]], Misfit | None]:
    """The values of each parameter, with what messages call them; or why there are none."""
    name, parameters = callee.name, callee.parameters
    places = [p.name for p in parameters if not p.star and not p.by_name]
    known = [p.name for p in parameters if not p.star]
    rest = next((p.name for p in parameters if p.star == "*"), "")
    named = next((p.name for p in parameters if p.star == "**"), "")
    bound = {n: [(n, a)] for n, a in zip(places, args, strict=False)}
    more = args[len(places) :]
    if more and not rest:
        count = f"{len(places) or 'no'} argument{'s' * (len(places) != 1)} by position"
        return bound, Misfit(f"{name} takes {count}, not {len(args)}: {callee.written}")
    bound[rest] = [(f"{rest}[{i}]", a) for i, a in enumerate(more)]
    for key, value in kwargs.items():
        if key in bound and key in known:
            return bound, Misfit(f"{name} has two values for {key!r}: leave one of them out")
        if key not in known and not named:
            return bound, _unknown(callee, kwargs, key, known)
        bound.setdefault(key if key in known else named, []).append((key, value))
    missing = [p.name for p in parameters if p.required and p.name not in bound]
    if missing:
        return bound, Misfit(f"{name} needs {' and '.join(map(repr, missing))}: {callee.written}")
    return bound, None


def _unknown(callee: Callee, kwargs: Mapping[str, Any], key: str, known: Sequence[str]) -> Misfit:
    if said := foreign(callee.name, known, kwargs):
        return Misfit(said)
    if key in callee.made_with:
        return Misfit(f"{callee.name} has no parameter {key!r}; {key}= is given where the object is made")
    meant = nearest(key, known)
    hint = f"; did you mean {meant!r}?" if meant is not None else f": {callee.written}"
    return Misfit(f"{callee.name} has no parameter {key!r}{hint}", key, meant or "")


def foreign(name: str, known: Sequence[str], options: Mapping[str, Any]) -> str:
    """What is said of parameters that have another library's names; empty where none has."""
    ours = [f"{FOREIGN_PARAMETERS[n]} for {n}=" for n in options if n in FOREIGN_PARAMETERS and n not in known]
    return f"{name} takes {', '.join(known)}: write {', '.join(ours)}" if ours else ""


def shown(value: Any) -> str:
    """A value for a message, by its class where its text is long."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value)
    brief = len(text) <= 60 and "\n" not in text and " at 0x" not in text
    return text if brief else f"a value of the class {type(value).__name__}"


def range_of(owners: Sequence[str], name: str) -> str:
    return next((RANGES[n] for n in (*(f"{o}.{name}" for o in owners), name) if n in RANGES), "")


# kinds

_TOLD = frozenset({"train.optimizer", "train.loss", "compile.target", "compile.dims"})
"""what a function itself refuses, with more to say"""
_CLASSES = {
    "Group": "a Group",
    "Optimizer": "an optimizer",
    "OptimizerState": "what opt.init(model) gives",
}
"""in annotations, and what messages call their objects"""


@functools.lru_cache(maxsize=1024)
def kind_of(annotation: str, name: str, interval: str) -> Kind | None:
    """What the text of an annotation tells; None where that is nothing."""
    if name == "dtype" and annotation.startswith("Any"):
        wide = annotation != "Any"
        found = Kind("a dtype" if wide else "a dtype of floats", _is_dtype if wide else _is_float_dtype)
        return _either([found, Kind("None", _is_none)]) if wide else found
    try:
        return _kind(ast.parse(annotation, mode="eval").body, interval)
    except SyntaxError:
        return None


def _kind(node: ast.expr, interval: str) -> Kind | None:
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            kinds = [_kind(left, interval), _kind(right, interval)]
            return None if None in kinds else _either(cast("list[Kind]", kinds))
        case ast.Constant(None):
            return Kind("None", _is_none)
        case ast.Name("int"):
            return _number("a whole number", is_whole, interval)
        case ast.Name("float"):
            return _number("a number", is_number, interval)
        case ast.Name("bool"):
            return Kind("True or False", is_bool)
        case ast.Name("str"):
            return Kind("a string", lambda v: isinstance(v, str))
        case ast.Attribute(attr="Tensor") | ast.Name("Tensor") | ast.Subscript(ast.Name("Tensor")):
            return Kind("a tensor", _is_tensor)
        case ast.Name("Place"):
            return _kind(ast.parse("str | Path", mode="eval").body, interval)
        case ast.Name("Path") | ast.Subscript(ast.Attribute(attr="PathLike")):
            return Kind("a path", lambda v: hasattr(v, "__fspath__"))
        case ast.Subscript(ast.Name("Sequence" | "Iterable"), item):
            each = _kind(item, interval)
            fits = each.holds if each else lambda v: True
            words = f"a tuple or list{(each and f', each {each.words}') or ''}"
            return Kind(
                words, lambda v: all(map(fits, v)) if _is_row(v) else hasattr(v, "__iter__") and v.__class__ is not str
            )
        case ast.Subscript(ast.Name("Mapping" | "dict")):
            return Kind("a dict", lambda v: isinstance(v, Mapping))
        case ast.Name(name) if name in _CLASSES:
            return Kind(_CLASSES[name], lambda v: any(c.__name__ == name for c in type(v).__mro__))
        case ast.Name("Callable") | ast.Subscript(ast.Name("Callable")):
            return Kind("a function", callable)
        case ast.Subscript(ast.Name("Literal"), items):
            values = ast.literal_eval(items)
            values = cast("tuple[Any, ...]", values if isinstance(values, tuple) else (values,))
            return Kind(
                " or ".join(map(repr, values)), lambda v: any(type(v) is type(o) and bool(v == o) for o in values)
            )
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([item, ast.Constant(value)])) if value is ...:
            each = _kind(item, interval)
            if each is None:
                return None
            row = Kind(f"a tuple, each {each.words}", lambda v: _is_row(v) and all(map(each.holds, v)))
            alone = not isinstance(item, ast.Name) or item.id in _CLASSES  # one function or group needs no tuple
            return _either([each, row]) if alone else row
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)):
            each = _kind(items[0], interval)
            words = f"a tuple of {len(items)}"
            return each and Kind(
                f"{words}, each {each.words}", lambda v: _is_row(v) and len(v) == len(items) and all(map(each.holds, v))
            )
        case _:
            return None


def _either(kinds: Sequence[Kind]) -> Kind:
    return Kind(" or ".join(k.words for k in kinds), lambda v: any(k.holds(v) for k in kinds))


def _number(words: str, holds: Callable[[Any], bool], interval: str) -> Kind:
    """A number in an interval as mathematics writes it: `[0, 1)` has 0 and not 1."""
    if not interval:
        return Kind(words, lambda v: holds(v) and bool(v == v))  # no NaN
    least, most = (float(end) for end in interval[1:-1].split(","))
    open_, closed = interval.startswith("("), interval.endswith("]")
    above = "" if least == -math.inf else f"more than {least:g}" if open_ else f"at least {least:g}"
    below = "" if most == math.inf else f"at most {most:g}" if closed else f"less than {most:g}"
    within = " and ".join(filter(None, (above, below)))
    within = f"from {least:g} to {most:g}" if closed and not open_ else within

    def fits(value: Any) -> bool:
        if not holds(value):
            return False
        v: float = value if isinstance(value, int) else float(value)
        return bool((v > least if open_ else v >= least) and (v <= most if closed else v < most))

    return Kind(f"{words}{' ' if within.startswith('from') else ' of ' if within else ''}{within}", fits)


def is_whole(value: Any) -> bool:
    """Whether it is an integer, also one of NumPy's; True is none."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def is_number(value: Any) -> bool:
    """Whether it is a real number, also NumPy's or an array without axes."""
    if isinstance(value, (bool, str, bytes, Real)):
        return isinstance(value, Real) and not isinstance(value, bool)
    dtype = str(getattr(value, "dtype", "bool"))
    strange = dtype.startswith(("bool", "comp", "date", "time", "obj", "<", ">", "|"))
    return getattr(value, "shape", None) == () and hasattr(value, "__float__") and not strange


def is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_row(value: Any) -> bool:
    return isinstance(value, (tuple, list))


def _is_none(value: Any) -> bool:
    return value is None


def _is_dtype(value: Any) -> bool:
    return deferred("language.dtypes").of(value) is not None


def _is_float_dtype(value: Any) -> bool:
    found = deferred("language.dtypes").of(value)
    return found is not None and found.is_float


_OPERANDS = {
    "tensors": Kind("a tensor", _is_tensor),
    "numbers": Kind("a tensor", lambda v: _is_tensor(v) or isinstance(v, (bool, complex, Real, list, tuple))),
}


@functools.lru_cache(maxsize=1024)
def parameters_of(function: Callable[..., Any]) -> tuple[Setting, ...]:
    """Those of a function or constructor, without `self`."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return tuple(
        Setting(
            p.name,
            "" if p.annotation is p.empty else str(p.annotation),
            p.default is p.empty and p.kind not in stars,
            stars.get(p.kind, ""),
            p.kind is p.KEYWORD_ONLY,
        )
        for p in inspect.signature(function).parameters.values()
        if p.name not in ("self", "cls")
    )
