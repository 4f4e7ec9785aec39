"""`ts.grad` and other transforms of functions.

A transformed function is a `Function` like any other: it is compiled when it is called, explained, profiled and used in
other functions. What it computes is found by the front end from the function's own text.
"""

from __future__ import annotations

import inspect
import linecache
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from numbers import Integral
from typing import Any, TypeAlias, cast

from tessera.deferred import deferred
from tessera.errors import CompileError, Diagnostic
from tessera.immutable import immutable
from tessera.language.decorators import Decorated, Function, Kernel
from tessera.language.saving import Memory, Save, bytes_of
from tessera.tracebacks import decorator, outward

Argnums: TypeAlias = "int | str | list[int | str] | tuple[int | str, ...]"
Axes: TypeAlias = "int | Sequence[Axes] | Mapping[Any, Axes] | None"


_BY_ARGNUMS = frozenset({"grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian"})
"""transforms that take `argnums`: there is no "all of them" """


@immutable
class Transform:
    """One transform. `argnums` are the parameters to differentiate by, by position or name, None for all of them; with
    `has_aux` the function returns `(value, aux)`, and `aux` is passed on."""

    name: str
    argnums: Argnums | None = 0
    has_aux: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    """further ones, by name: those in OPTIONS"""

    @property
    def wanted(self) -> tuple[int | str, ...]:
        given = () if self.argnums is None else self.argnums
        return tuple(given) if isinstance(given, list | tuple) else (given,)

    @property
    def problem(self) -> str:
        """The error message for the transform; "" if it is valid."""
        options = dict(self.options)
        if (dim := options.get("in_dims")) is not None and (not isinstance(dim, str) or options.get("in_axes", 0) != 0):
            return f"in_dims of {self.name} is the name of a dim, and in_axes is not given beside it"
        given = self.wanted
        named = self.argnums is not None or self.name in _BY_ARGNUMS
        if named and (not given or not all(type(a) is int or isinstance(a, str) for a in given)):
            return f"argnums of {self.name} are positions or names of parameters, not {self.argnums!r}"
        if len(set(given)) < len(given):
            return f"argnums of {self.name} name a parameter twice: {self.argnums!r}"
        if not isinstance(self.has_aux, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"has_aux of {self.name} is True or False, not {self.has_aux!r}"
        return self._kept_problem()

    def _kept_problem(self) -> str:
        options = dict(self.options)
        policy, memory = options.get("policy"), options.get("memory")
        if policy is not None and not isinstance(policy, Save):
            return f"policy of {self.name} is one of ts.save, such as ts.save.products, not {policy!r}"
        if policy is not None and not all(isinstance(n, str) for n in policy.of):  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"ts.save.names takes names of variables as strings, not {policy!r}"
        try:
            if memory is not None:
                bytes_of(memory)
        except ValueError as e:
            return f"{self.name}: {e}"
        return ""


PARAMETERS: dict[str, tuple[str, ...]] = {
    "jvp": ("primals", "tangents"),
    "hvp": ("primals", "tangents"),
    "pullback": ("primals", "cotangents"),
    "scan": ("init", "xs"),
    "recalled": ("primals", "named", "before"),
}
"""transforms that are called with other arguments than the function that they are of: a tuple of its arguments, and
what belongs to them; of a scan, what is carried and what is gone through; of a call that ran as `forward`, what that
has kept"""

OPTIONS: dict[str, tuple[str, ...]] = {
    "scan": ("length", "reverse"),
    "remat": ("policy", "memory"),
    "vmap": ("in_axes", "out_axes", "in_dims"),
}
"""parameters of a transform that are neither the function nor its arguments"""


def parameters_of(transforms: Sequence[Transform]) -> tuple[str, ...] | None:
    """The parameters of a function under these transforms, where they are not its own. `forward` leaves them alone."""
    steps = [t.name for t in transforms if t.name != "forward"]
    return PARAMETERS.get(steps[-1]) if steps else None


UNNAMED = ("forward", "recalled")
"""transforms that people do not write: what a function is called in them is its own name"""

RULES = ("vjp", "jvp")
"""options that hold the derivative of a function, as somebody wrote it"""

PAIRED = {"defvjp": "vjp", "defjvp": "jvp"}
"""JAX's methods that bind a derivative, and the option that holds it"""


def rule_as_jax_writes(method: str, given: Sequence[str], count: int, fixed: Sequence[int]) -> str:
    """The text of the function `_rule` for `@f.vjp` or `@f.jvp`, of the functions that `f.defvjp(forward, backward)` or
    `f.defjvp(rule)` name. `count`: how many arguments f has; `fixed`: the numbers of those without a derivative, which
    come first, and of which the result says nothing."""
    moving = [i for i in range(count) if i not in fixed]
    before = "".join(f"_arguments[{i}], " for i in fixed)
    if method == "defjvp":
        primals, tangents = ("".join(f"{of}[{i}], " for i in moving) for of in ("_arguments", "_tangents"))
        head = "def _rule(_result, _tangents, *_arguments):\n"
        return f"{head}    return {given[0]}({before}({primals}), ({tangents}))[1]\n"
    forward, backward = given
    head = "def _rule(_result, _cotangent, *_arguments):\n"
    found = f"{backward}({before}{forward}(*_arguments)[1], _cotangent)"
    if not fixed:
        return f"{head}    return {found}\n"
    each = "".join(f"_found[{moving.index(i)}], " if i in moving else "None, " for i in range(count))
    return f"{head}    _found = {found}\n    return {each}\n"


def rule_of_pair(function: Decorated, method: str, given: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """The rule for `@f.vjp` or `@f.jvp` of what JAX's method is given. Raises CompileError TS105 for what is no
    function."""
    for one in given:
        if not inspect.isfunction(one) and not isinstance(one, Function):
            message = f"{function.name}.{method} takes functions, not {one!r}"
            raise CompileError(Diagnostic("TS105", message, deferred("runtime.callsite").call_span()))
    names: dict[str, Any] = {f.__name__: f for f in given}
    if len(names) < len(given) or not all(n.isidentifier() for n in names):
        names = dict(zip(("forward", "backward"), given, strict=False))
    count = len(inspect.signature(function.__wrapped__).parameters)
    text = rule_as_jax_writes(method, tuple(names), count, function.options.get("nondiff", ()))
    scope: dict[str, Any] = {**names, "__name__": given[0].__module__}
    exec(compile(text, file_of_rule(function.name, text), "exec"), scope)
    return cast("Callable[..., Any]", scope["_rule"])


def file_of_rule(name: str, text: str) -> str:
    """What the text is called in diagnostics, which can show its lines."""
    file = f"<derivative of {name}, {zlib.crc32(text.encode()):x}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return file


class Transformed(Function):
    """A function made from another one by `options["transforms"]`, in order."""

    def __init__(self, python: Callable[..., Any], options: Mapping[str, Any] | None = None) -> None:
        super().__init__(python, options)
        own = parameters_of(self.options["transforms"])
        if own is not None:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in own])

    @property
    def name(self) -> str:
        steps = [t.name for t in self.options["transforms"] if t.name not in UNNAMED]
        return "_".join([*reversed(steps), self.__wrapped__.__name__])

    def definition(self) -> Any:
        """The definition that calls the original function with its transforms. Raises CompileError TS109."""
        if self._definition is None:
            make = deferred("compiler.frontend.evaluate.transforms").definition_of
            self._definition = make(self.__wrapped__, self.options)
        return self._definition

    def __repr__(self) -> str:
        return f"<tessera function {self.name}{inspect.signature(self)}>"


_KEPT = ("numerics", "mode", "open_dims", "transforms", *RULES)
"""options that a transformed function shares with the one that it is made from"""


def transformed(function: Callable[..., Any], transform: Transform) -> Transformed:
    """`function` under one more transform: the same object for the same function, so that `ts.grad(f)(x)` in a loop
    compiles once. Raises CompileError TS105, TS355 if that has no meaning."""
    if isinstance(transform.argnums, list):
        transform = replace(transform, argnums=tuple(transform.argnums))
    if transform.problem:
        raise CompileError(Diagnostic("TS105", transform.problem))
    if isinstance(function, Kernel):
        message = f"{transform.name} takes a function: the kernel {function.name} has no derivative of its own"
        raise CompileError(Diagnostic("TS355", message, function=function.name))
    made: Any = getattr(function, "__dict__", {}).get(_MADE)
    if made is None or made[0] is not function:  # another's, whose attributes a decorator has copied
        made = (function, {})
    if transform not in made[1]:
        own = _written(function) if hasattr(function, "__tessera_operator__") else function
        python, options = (own.__wrapped__, own.options) if isinstance(own, Decorated) else (own, {})
        kept = {name: value for name, value in options.items() if name in _KEPT}
        if transform.name == "vmap":  # the annotations, whose dims it names, are those of one element
            kept.pop("open_dims", None)
        made[1][transform] = Transformed(python, {**kept, "transforms": (*kept.get("transforms", ()), transform)})
        function.__dict__[_MADE] = made
    return made[1][transform]


_MADE = "__tessera_transformed__"


@cache
def _written(operator: Callable[..., Any]) -> Callable[..., Any]:
    """An operator as a function with a text: `ts.grad(ts.sum)` is the gradient of one that calls `ts.sum`."""
    name, parameters = operator.__name__, inspect.signature(operator).parameters
    held = {f"_{n}": p.default for n, p in parameters.items() if p.default is not p.empty}
    declared = ", ".join(f"{n}=_{n}" if f"_{n}" in held else n for n in parameters)
    text = f"def {name}({declared}):\n    return _operator({', '.join(parameters)})\n"
    file = f"<tessera.{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {**held, "_operator": operator, "__name__": __name__}
    exec(compile(text, file, "exec"), scope)
    return scope[name]


def _builtin(function: Callable[..., Any]) -> Any:
    """Functions that use it as a name of the language: they evaluate it themselves."""
    function.__tessera_builtin__ = f"tessera.{function.__name__}"  # type: ignore[attr-defined]
    return function


@_builtin
@outward
def grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Transformed:
    """The gradient of a function whose result is one real number, by the parameters `argnums` (positions or names).

    The result has the structure, shapes and dtypes of those arguments (a tuple of them where `argnums` is one), each
    element the derivative of the value by that element. With `has_aux` the function returns `(value, aux)`, and the
    result is `(gradient, aux)`. Raises CompileError TS351 to TS355 if there is no gradient.
    """
    return transformed(function, Transform("grad", argnums, has_aux))


@_builtin
@outward
def value_and_grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Transformed:
    """As `grad`, with the value in front: `(value, gradient)`, and with `has_aux` `((value, aux), gradient)`."""
    return transformed(function, Transform("value_and_grad", argnums, has_aux))


@_builtin
@outward
def jacfwd(function: Callable[..., Any], argnums: Argnums = 0) -> Transformed:
    """The Jacobian by forward mode: for each tensor of the result, a tensor with its axes and then those of the
    argument.

    One pass for each element of the arguments. Raises CompileError TS351 to TS355 if there is no derivative.
    """
    return transformed(function, Transform("jacfwd", argnums))


@_builtin
@outward
def jacrev(function: Callable[..., Any], argnums: Argnums = 0) -> Transformed:
    """As `jacfwd`, by reverse mode: one pass for each element of the result."""
    return transformed(function, Transform("jacrev", argnums))


@_builtin
@outward
def jacobian(function: Callable[..., Any], argnums: Argnums = 0) -> Transformed:
    """As `jacrev` if the result has fewer elements than the arguments, else as `jacfwd`."""
    return transformed(function, Transform("jacobian", argnums))


@_builtin
@outward
def hessian(function: Callable[..., Any], argnums: Argnums = 0) -> Transformed:
    """The second derivatives of a function whose result is one real number: the Jacobian of its gradient."""
    return transformed(function, Transform("hessian", argnums))


@_builtin
@outward
def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`(result, tangent)`: how the result at the arguments `primals` changes when these change by `tangents`.

    Tangents have the structure of the arguments; None stands for 0. Raises CompileError TS351 to TS357.
    """
    return transformed(function, Transform("jvp", None))(_each("primals", primals), _each("tangents", tangents))


@_builtin
@outward
def hvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of a function whose result is one real number, times `tangents`, without computing the Hessian.

    For one argument the result has its structure, for several it is a tuple. Raises CompileError TS351 to TS357.
    """
    return transformed(function, Transform("hvp", None))(_each("primals", primals), _each("tangents", tangents))


def _each(name: str, given: Sequence[Any]) -> tuple[Any, ...]:
    """As a tuple; an array is no list of arguments, though it can be unpacked."""
    if hasattr(given, "dtype"):
        raise TypeError(f"{name} is a tuple with an entry for each argument of the function: (x,) for one")
    return tuple(given)


@_builtin
@outward
def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """`(result, pullback)`: `pullback(cotangent)` is a tuple of the cotangents of the arguments.

    The cotangent has the structure of the result; None stands for 0. Outside of functions each call of `pullback`
    computes the result again. Raises CompileError TS351 to TS357.
    """
    back = transformed(function, Transform("pullback", None))
    return called(function, primals), lambda cotangent: back(primals, cotangent)


@_builtin
@outward
def linearize(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`(result, pushforward)`: `pushforward(*tangents)` is the tangent of the result, at these arguments.

    Outside of functions each call of `pushforward` computes the result again. Raises CompileError TS351 to TS357.
    """
    ahead = transformed(function, Transform("jvp", None))
    return called(function, primals), lambda *tangents: ahead(primals, tangents)[1]


@_builtin
@outward
def vmap(
    function: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0, in_dims: str | None = None
) -> Transformed:
    """Maps a function of one element over a batch of elements.

    `in_axes` is the batch axis: one number for all arguments, or a tuple with one for each; None passes an argument
    unchanged. In a structure it applies to each tensor, and a structure of axes to its parts: `({"w": 0, "b": None},
    1)`. `out_axes` is the batch axis of the results. `in_dims="B"`, in a function whose annotations name its dims,
    selects the axis of that name in each tensor. If a condition differs between elements, both branches are computed; a
    loop runs until all elements have finished. The same key gives the same random numbers to all elements. Raises
    CompileError TS105, TS204, TS213.
    """
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not _are_axes(axes):
            message = f"vmap: {name} is the number of an axis, None, or a tuple, list or dict of them, not {axes!r}"
            raise CompileError(Diagnostic("TS105", message))
    options = (("in_axes", hashable(in_axes)), ("out_axes", hashable(out_axes)), ("in_dims", in_dims))
    return transformed(function, Transform("vmap", options=options))


def _are_axes(axes: Any) -> bool:
    if isinstance(axes, Mapping):
        return all(map(_are_axes, cast("Mapping[Any, Any]", axes).values()))
    if isinstance(axes, (tuple, list)):
        return all(map(_are_axes, cast("Sequence[Any]", axes)))
    return axes is None or isinstance(axes, Integral)


def hashable(option: Any) -> Any:
    """An option as the key of what is made with it: lists as tuples, dicts as sets of pairs."""
    if isinstance(option, Mapping):
        return frozenset((k, hashable(v)) for k, v in cast("Mapping[Any, Any]", option).items())
    if isinstance(option, (list, tuple)):
        return tuple(map(hashable, cast("Sequence[Any]", option)))
    return option


@_builtin
@outward
def scan(
    function: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """`(carry, ys)`: calls `function(carry, x)`, which returns `(carry, y)`, for each slice of `xs` in order.

    `init` is the first carry, any structure of tensors and numbers; it keeps its shapes and dtypes (TS212). `xs` are
    tensors of one length in any structure, sliced along their first axis, from the end with `reverse`; without any,
    `length` is the number of rounds. `ys` has the results, stacked along a new first axis, at the index of their
    slices. It is one loop at run time: slices are read and results stored in place, and derivatives keep a fixed number
    of states. Raises CompileError TS105, TS212, TS213.
    """
    made = transformed(function, Transform("scan", None, options=(("length", length), ("reverse", reverse))))
    return made(init, xs)


@_builtin
@outward
def remat(
    function: Callable[..., Any] | None = None, policy: Save | None = None, memory: Memory | None = None
) -> Callable[..., Any]:
    """The same function with less memory for its derivatives: they recompute values instead, to the same bits.

    `policy` selects the saved values: `ts.save.nothing` (only the arguments, the default), `ts.save.products`,
    `ts.save.names("attn")` or `ts.save.everything`. `memory` limits the peak memory of the whole program that contains
    the call, with its arguments and results: bytes, or text such as "1.5GiB"; the compiler then saves the values of the
    fastest choice that fits. Without a function it is a decorator with these settings. Raises CompileError TS105 for
    invalid settings, and TS358 at compile time if nothing fits into `memory`.
    """

    def decorate(function: Callable[..., Any]) -> Transformed:
        options = ("policy", policy), ("memory", memory)
        return transformed(function, Transform("remat", None, options=options))

    return decorator("remat", decorate) if function is None else decorate(function)


def called(function: Callable[..., Any], primals: tuple[Any, ...]) -> Any:
    """The result of the function, decorated or plain."""
    if isinstance(function, Decorated):
        return function(*primals)
    return Function(_written(function) if hasattr(function, "__tessera_operator__") else function)(*primals)
