"""`@ts.function` and `@ts.kernel`: turn a Python function into a Tessera program.

The objects hold the Python function and its options, but no compiled code. They reach the compiler in one place,
`_call`, when they are called.
"""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, cast, overload

from tessera import knobs
from tessera.collector import collector_paused
from tessera.deferred import deferred
from tessera.errors import NOWHERE, CompileError, Diagnostic, LaunchError, Span, TesseraError, source_line
from tessera.language import policies
from tessera.language.absent import instead_of_method, instead_of_option
from tessera.language.policies import Policy
from tessera.language.tuning import Metric, tuning_options
from tessera.tracebacks import decorator, leave, outward

if TYPE_CHECKING:
    from tessera.language.schedule import Schedule


class Decorated:
    """A Python function that Tessera compiles when it is called. `options` are the decorators' keywords."""

    kind: ClassVar[Literal["function", "kernel"]] = "function"

    def __init__(self, python: Callable[..., Any], options: Mapping[str, Any] | None = None) -> None:
        _demand_plain_function(python, self.kind)
        functools.update_wrapper(self, python)
        self.options: dict[str, Any] = dict(options or {})
        self._definition: Any = None

    @property
    def name(self) -> str:
        return self.__wrapped__.__name__

    @property
    def __wrapped__(self) -> Any:
        return self.__dict__["__wrapped__"]

    @__wrapped__.setter
    def __wrapped__(self, python: Any) -> None:
        self.__dict__["__wrapped__"] = python

    def definition(self) -> Any:
        """The front end's `Definition`: text and tree. Raises CompileError TS109 if the source is not available."""
        found = self._definition
        if found is None:
            live_definition = deferred("compiler.frontend.names.live").live_definition
            self._definition = found = live_definition(self.__wrapped__, self.kind, self.options)
        return found

    # Not the annotated types: arrays of any library may be given where `Tensor` is written, and come back.
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return _call(self, args, kwargs)
        except TesseraError as e:
            leave(e)
            raise

    def repeated(self, *args: Any) -> Callable[..., Any]:
        """What runs calls that are like this one, which has been made before: with the same structure of arguments,
        dtypes and shapes. It gives NotImplemented for all others, and does nothing."""
        return deferred("runtime.call.dispatch").repeated(self, args)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, cast(Any, instance))

    def __getattr__(self, name: str) -> Any:
        why = instead_of_method(name)
        said = f"{self.kind} {self.__dict__['__wrapped__'].__name__!r}" if "__wrapped__" in self.__dict__ else self.kind
        raise AttributeError(f"{said} has no attribute {name!r}{why and f'; {why}'}", name=name, obj=self)

    @outward
    def vjp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates the rule for reverse mode: `rule(result, cotangent, *arguments)` returns a cotangent for each
        argument, or None. Derivatives of both modes and all orders use it."""
        return self._ruled("vjp", rule)

    @outward
    def jvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates the rule for forward mode: `rule(result, tangents, *arguments)` returns the tangent of the result;
        `tangents` is a tuple, one for each argument."""
        return self._ruled("jvp", rule)

    @outward
    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """JAX's way to write `@f.vjp`: `forward(*arguments)` returns the result and what `backward(residuals,
        cotangent)` needs, which returns a tuple of cotangents. It is compiled anew: no residual is stored that costs
        little to compute."""
        self._ruled("vjp", deferred("language.transforms").rule_of_pair(self, "defvjp", (forward, backward)))

    @outward
    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """JAX's way to write `@f.jvp`: `rule(primals, tangents)`, of tuples, returns the result and its tangent."""
        self._ruled("jvp", deferred("language.transforms").rule_of_pair(self, "defjvp", (rule,)))
        return rule

    def read_again(self) -> None:
        """Forgets the text: the rules or the code of the Python function are others."""
        self._definition = None

    def _ruled(self, name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isfunction(rule) and not isinstance(rule, Function):
            _refuse(self.__wrapped__, "TS105", f"the {name} of {self.name} is a function, not {rule!r}")
        _demand_fit(self.__wrapped__, name, rule)
        self.options[name] = rule
        self.read_again()
        for made in ("launcher", "__tessera_transformed__"):
            vars(self).pop(made, None)
        return rule

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself, as Python's functions are: a model may hold it."""
        return self

    def with_options(self, **options: Any) -> Any:
        """The same function with more options; `config` is merged with the existing one."""
        if "config" in options:
            options["config"] = {**self.config, **options["config"]}
        return type(self)(self.__wrapped__, {**self.options, **options})

    @property
    def config(self) -> dict[str, Any]:
        """The schedule's parameters; for a tuned program, those before tuning."""
        return dict(self.options.get("config", {}))

    def with_config(self, **config: Any) -> Self:
        """The program with other schedule parameters, and without tuning: `flash.with_config(BLOCK_M=128)`."""
        fixed = self.with_options(config=config)
        fixed.options.pop("autotune", None)
        return fixed

    @outward
    def with_schedule(self, schedule: Schedule) -> Self:
        """The program with a `Schedule`. Raises CompileError TS105 if it does not use the schedule's block."""
        return self.with_config(**schedule.config_for(self))

    @outward
    def tune(self, *args: Any, **kwargs: Any) -> Any:
        """Times the configurations of `@ts.kernel.autotune` that have no timing yet for such arguments. Returns the
        `Tuning`.

        Runs on copies of the arguments. Raises TuningError TS609 if no configuration runs.
        """
        return deferred("runtime.autotune").tune(self, args, kwargs)

    @outward
    def best_config(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The configuration of a call with these arguments; tunes if the call would."""
        return deferred("runtime.autotune").best_config(self, args, kwargs)

    @outward
    def tuning_report(self, *args: Any, **kwargs: Any) -> Any:
        """A table of every configuration with its time, or the reason for none, for these arguments or the last
        ones."""
        return deferred("runtime.autotune").report(self, args, kwargs)

    @property
    def tuning(self) -> Any:
        """The latest `Tuning` that a call in this process used; None before the first."""
        return deferred("runtime.autotune").latest(self)

    @outward
    def compile(self, target: str = "auto", dims: Mapping[str, int] | None = None) -> Any:
        """Compiles ahead of the first call; see `tessera.compile`."""
        return _compiled(self, target, dims)

    @outward
    def ir(
        self,
        level: str = "graph",
        target: str = "auto",
        dims: Mapping[str, int] | None = None,
        generic: bool = False,
    ) -> str:
        """The IR at `level`: graph, schedule, tile or target, for people; `generic`: as MLIR's generic text.

        Of the last call, with its sizes and values, where there was one and neither `target` nor `dims` is given.
        """
        _demand_name(self, "level", level, "graph")
        return _last_or_compiled(self, target, dims).ir(level, generic)

    @outward
    def explain(self, target: str = "auto", dims: Mapping[str, int] | None = None) -> Any:
        """What runs, where, with which kernels, and where the code came from; `print` it.

        Of the last call, with its sizes and values, where there was one and neither `target` nor `dims` is given.
        """
        return _last_or_compiled(self, target, dims).explain()

    def __repr__(self) -> str:
        return f"<tessera {self.kind} {self.__wrapped__.__qualname__}{inspect.signature(self.__wrapped__)}>"


def _call(fn: Decorated, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> Any:
    """Stands for `runtime.dispatch.call` until the first call, which puts that in its place."""
    global _call  # slow: later calls find the runtime's at once
    with collector_paused(old=True):  # modules stay
        _call = deferred("runtime.call.dispatch").call
    return _call(fn, args, kwargs)


def _demand_name(fn: Decorated, parameter: str, given: object, example: str) -> None:
    """Raises LaunchError TS105 for arguments of a call where the name of a target or a level belongs."""
    if not isinstance(given, str):
        message = f"{parameter} is a name such as {example!r}, not {type(given).__name__}"
        shown = f"to see what ran for these arguments, call {fn.name} first, then {fn.name}.ir() or {fn.name}.explain()"
        raise LaunchError(Diagnostic("TS105", f"{message}; {shown}"))


def _compiled(fn: Decorated, target: str, dims: Mapping[str, int] | None) -> Any:
    return deferred("runtime.compiled").compile(fn, target=target, dims=dims)


def _last_or_compiled(fn: Decorated, target: str, dims: Mapping[str, int] | None) -> Any:
    """What the last call ran, unless another target or other sizes are asked for."""
    _demand_name(fn, "target", target, "auto")
    last = deferred("runtime.compiled").Compiled.of_last_call(fn) if target == "auto" and dims is None else None
    return last if last is not None else _compiled(fn, target, dims)


class Function(Decorated):
    """Made by `@ts.function`: whole-tensor modelling, compiled through Graph IR."""

    source: str
    """the text of a rule that was derived: `kernel.backward()`"""


class Kernel(Decorated):
    """Made by `@ts.kernel`: a tile program. `config` holds the schedule's parameters (BLOCK_M, num_warps ...)."""

    kind = "kernel"

    def __getitem__(self, grid: object) -> NoReturn:
        grid_from = "a kernel takes no grid, which follows from its text (ts.tile.grid sets what does not)"
        raise TypeError(f"{grid_from}: call {self.name}(...)")

    @outward
    def backward(self) -> Function:
        """The rule for reverse mode, derived from the kernel's text: `kernel.vjp(kernel.backward())` binds it.

        Its `source` is the text of a kernel and of the rule that calls it, which you can copy and edit. Raises
        CompileError TS355 at the line without a derivative.
        """
        rule, source = deferred("compiler.frontend.backward.text").backward(self)
        rule.source = source
        return rule


def _demand_plain_function(python: Any, kind: str) -> None:
    name = getattr(python, "__name__", repr(python))
    if isinstance(python, Decorated):
        _refuse(python, "TS102", f"{name} is a Tessera {python.kind} already; decorate it once.")
    if inspect.iscoroutinefunction(python) or inspect.isgeneratorfunction(python) or inspect.isasyncgenfunction(python):
        _refuse(python, "TS102", f"{name} is async or a generator; a {kind} is a plain function.")
    if not inspect.isfunction(python):
        what = f"an object of {type(python).__name__}" if callable(python) and not isinstance(python, type) else name
        message = f"{what} is not a Python function, so it has no text to compile."
        if not callable(python):
            message += f" Give the {kind} that computes it."
        elif what != name:
            message += f" Write a {kind} that takes it and calls it: lambda model, x: model(x)."
        _refuse(python, "TS109", message)
    if kind == "kernel" and name == "<lambda>":
        _refuse(python, "TS102", "a lambda cannot be a kernel: write it with def, whose annotations name its dims.")


def _demand_fit(function: Callable[..., Any], kind: str, rule: Any) -> None:
    """Refuses a derivative rule that does not take what it is given, at its definition."""
    own = inspect.signature(function).parameters.values()
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty for p in own):
        return
    wanted = ("result", "cotangent" if kind == "vjp" else "tangents", *(p.name for p in own))
    plain = getattr(rule, "__wrapped__", rule)
    try:
        inspect.signature(plain).bind(*wanted)
    except TypeError:
        taken = ", ".join(inspect.signature(plain).parameters) or "nothing"
        message = f"the {kind} of {function.__name__} is called as {plain.__name__}({', '.join(wanted)})"
        _refuse(plain, "TS105", f"{message}, and takes {taken}")


def _refuse(python: Any, code: str, message: str) -> NoReturn:
    """Points to the definition where it has lines that can be shown."""
    where = getattr(inspect.unwrap(python), "__code__", None)
    line = source_line(where.co_filename, where.co_firstlineno) if where is not None else None
    span = NOWHERE
    if where is not None and line is not None:
        indent = len(line) - len(line.lstrip())
        span = Span(where.co_filename, where.co_firstlineno, indent + 1, where.co_firstlineno, len(line) + 1)
    raise CompileError(Diagnostic(code, message, span, function=getattr(python, "__name__", "")))


@overload
def function(python: Callable[..., Any], /) -> Function: ...
@overload
def function(
    *, numerics: Policy | str | None = None, open_dims: str | Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Function]: ...
@outward
def function(
    python: Callable[..., Any] | None = None,
    /,
    *,
    numerics: Policy | str | None = None,
    open_dims: str | Sequence[str] = (),
    **foreign: object,
) -> Any:
    """Compiles a function over whole tensors: shapes are checked from its text, operators fused into kernels.

    `numerics` is a policy for everything in it, e.g. `"@accum(f64)"`. `open_dims` names dims of annotations, whose
    sizes stay open in the code: `@ts.function(open_dims="S")` is compiled once for all lengths S, where it would be
    compiled for each. Works with or without keywords. Raises CompileError TS105 where `open_dims` is no name.
    """
    for name in foreign:
        why = instead_of_option(name)
        message = f"function has no parameter {name!r}; {why or 'it takes numerics= and open_dims='}"
        raise CompileError(Diagnostic("TS105", message))
    options: dict[str, Any] = {}
    if numerics:
        options["numerics"] = policies.parse(numerics) if isinstance(numerics, str) else numerics
    if open_dims:
        options["open_dims"] = _names(open_dims)
    return _function(python, options) if python is not None else decorator("function", lambda f: _function(f, options))


@overload
def custom_vjp(python: Callable[..., Any], /, *, nondiff_argnums: int | Sequence[int] = ()) -> Function: ...
@overload
def custom_vjp(*, nondiff_argnums: int | Sequence[int] = ()) -> Callable[[Callable[..., Any]], Function]: ...
@outward
def custom_vjp(python: Callable[..., Any] | None = None, /, *, nondiff_argnums: int | Sequence[int] = ()) -> Any:
    """JAX's spelling of a function with a derivative of its own, which `f.defvjp(forward, backward)` gives.

    `nondiff_argnums`: positions of arguments without a derivative. `backward` takes them first, and returns nothing
    for them.
    """
    numbers = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
    if not all(isinstance(n, int) for n in numbers):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"nondiff_argnums are positions of arguments, not {nondiff_argnums!r}")
    options = {"nondiff": numbers} if numbers else {}
    return _function(python, options) if python is not None else decorator("function", lambda f: _function(f, options))


custom_jvp = custom_vjp
"""Its derivative is `f.defjvp(rule)`."""


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names of dims, once each."""
    names: dict[str, None] = {}
    for name in given if isinstance(given, (tuple, list)) else (given,):
        if not isinstance(name, str) or not name.isidentifier():
            raise CompileError(Diagnostic("TS105", f'open_dims names dims, as "S" or ("B", "S"), not {given!r}'))
        names[name] = None
    return tuple(names)


def _function(python: Any, options: Mapping[str, Any]) -> Function:
    """Several decorators may say that it is a function, each with options of its own."""
    if isinstance(python, Function):
        return python.with_options(**options) if options else python
    return Function(python, options)


MODES = ("training", "inference")
"""what a function may be compiled for"""


@outward
def compile(*, mode: str) -> Callable[[Callable[..., Any]], Function]:
    """`@ts.compile(mode="training")`: a function in which `ts.is_training()` is True. With "inference" it is False.

    The mode of a function is that of what it calls. Raises CompileError TS105 for another mode.
    """
    if mode not in MODES:
        raise CompileError(Diagnostic("TS105", f"compile: mode is {' or '.join(map(repr, MODES))}, not {mode!r}"))
    return decorator("compile", lambda python: _function(python, {"mode": mode}))


@outward
def is_training() -> bool:
    """Whether the function in which it stands is compiled for training: known at compile time.

    The outermost function with a mode decides: `@ts.compile(mode="training")` or "inference". The loss of `ts.train` is
    compiled for training. Without a mode it is False; where a gradient is taken, that is an error (TS105), because
    nobody has decided: also outside of functions, where the model or its input requires a gradient.
    """
    if deferred("runtime.eager.recorded").differentiated():
        message = (
            "is_training() is not decided: this call is recorded for backward(), and no function says what it is for"
        )
        how = 'call a function under @ts.compile(mode="training"), or evaluate under ts.no_grad()'
        raise CompileError(Diagnostic("TS105", f"{message}; {how}", deferred("runtime.callsite").call_span()))
    return False


EFFECTS = ("append", "prefetch", "update")
"""what a method may do to the state that it is a method of"""


@outward
def effect(kind: str) -> Callable[[Callable[..., Any]], Function]:
    """Decorates a method of a `StatefulObject` that changes it: `@ts.effect("append")`, "update" or "prefetch".

    The method sets attributes as usual in Python. Inside of functions this gives the state a new value, in program
    order. After the call, the caller's object holds the last value, in the same memory. A direct call of the method is
    one program. Raises CompileError TS105 for another kind.
    """
    if kind not in EFFECTS:
        raise CompileError(Diagnostic("TS105", f"an effect is one of {', '.join(EFFECTS)}, not {kind!r}"))
    return decorator("effect", lambda python: Function(python, {"effect": kind}))


shape_checked = jit = autodiff = differentiable = function
"""The seeds' further spellings."""


class _KernelDecorator:
    """`@ts.kernel`, and `@ts.kernel.autotune(...)`."""

    @overload
    def __call__(self, python: Callable[..., Any], /) -> Kernel: ...
    @overload
    def __call__(
        self, /, *, open_dims: str | Sequence[str] = (), **config: int | None
    ) -> Callable[[Callable[..., Any]], Kernel]: ...
    @outward
    def __call__(
        self, python: Callable[..., Any] | None = None, /, *, open_dims: str | Sequence[str] = (), **config: Any
    ) -> Any:
        """Compiles a tile program. Keywords (`num_warps`, `num_stages`, block sizes) are its schedule's parameters;
        `open_dims` as in `ts.function`."""
        options: dict[str, Any] = {"config": {k: v for k, v in config.items() if v is not None}} if config else {}
        if open_dims:
            options["open_dims"] = _names(open_dims)
        return Kernel(python, options) if python is not None else decorator("kernel", lambda f: Kernel(f, options))

    def autotune(
        self,
        space: Mapping[str, Sequence[Any]] | None = None,
        metric: Metric = "time",
        timeout_ms: float | None = None,
        cache: str | None = None,
    ) -> Callable[[Callable[..., Any]], Kernel]:
        """A kernel that runs with the fastest combination of `space`, measured at its first call; see `ts.autotune`."""
        decorate = autotune(space=space, metric=metric, timeout_ms=timeout_ms, cache=cache)
        return decorator("autotune", lambda f: decorate(f if isinstance(f, Decorated) else Kernel(f)))


kernel = _KernelDecorator()


class _Autotune:
    """`@ts.autotune(space=...)` and `@ts.autotune.space(configs=[...])`, for functions and kernels."""

    @outward
    def __call__(
        self,
        space: Mapping[str, Sequence[Any]] | None = None,
        *,
        configs: Sequence[Mapping[str, Any]] | None = None,
        metric: Metric = "time",
        timeout_ms: float | None = None,
        cache: str | None = None,
    ) -> Callable[[Any], Any]:
        """A program that runs under the quickest of its configurations, found at the first call with new shapes.

        `space` maps parameters to the values they may take; `configs` lists whole configurations. The first one says
        what the results are: one that gives other bits is never chosen. `metric` is "time", "throughput", or a function
        of a `Trial` whose least value wins; `timeout_ms` is the most that measuring one configuration may take (250 by
        default); `cache` is the file of the timings, by default in TESSERA_CACHE_DIR. Stands above `@ts.kernel` or
        `@ts.function`, or alone on a plain function. Raises CompileError TS105 where the space makes no sense.
        """
        options = tuning_options(space, configs, metric, timeout_ms, cache)

        def decorate(f: Any) -> Decorated:
            program = f if isinstance(f, Decorated) else Function(f)
            given, first = program.config, options["configs"][0]
            return program.with_options(
                config=first, autotune={**options, "configs": [{**given, **c} for c in options["configs"]]}
            )

        return decorator("autotune", decorate)

    def space(self, configs: Sequence[Mapping[str, Any]], **rest: Any) -> Callable[[Any], Any]:
        """The same with `configs` alone: `@ts.autotune.space(configs=[{"block": 64}, {"block": 128}])`."""
        return self(configs=configs, **rest)

    def off(self) -> AbstractContextManager[None]:
        """Inside a `with` block no configuration is timed, and programs run with their first one."""
        return knobs.autotune.override("0")


autotune = _Autotune()


@outward
def numerics(fast: bool | None = None, policy: Policy | str | None = None) -> Callable[[Any], Any]:
    """Numerics for a whole function: `fast=True` allows reductions in the fastest order.

    Use it above `@ts.function`. Everything else stays deterministic; panels label what ran fast.
    """
    found = policies.parse(policy) if isinstance(policy, str) else policy or Policy()
    if fast is not None:
        found = found.merge(policies.PolicyPart("fast", fast))

    def decorate(f: Any) -> Any:
        return f.with_options(numerics=found) if isinstance(f, Decorated) else Function(f, {"numerics": found})

    return decorator("numerics", decorate)


@outward
def accumulate(dtype: Any) -> Callable[[Any], Any]:
    """Sums and products of a whole function accumulate in `dtype`: the policy `accum(dtype)`. Use it like
    `ts.numerics`, or alone above a plain function."""
    return numerics(policy=Policy().merge(policies.accum(dtype)))


@outward
def static_range(*bounds: int) -> builtins.range:
    """`range` that is unrolled at compile time inside functions and kernels; plain `range` anywhere else."""
    return _counted("static_range", bounds)


@outward
def range(*bounds: Any) -> Iterable[Any]:  # in a function, what it counts are no Python numbers
    """What a loop counts that runs when the program runs, `for i in ts.range(n)`, inside functions and kernels; plain
    `range` anywhere else, so that layers with loops can be called by themselves."""
    return _counted("range", bounds)


def _counted(name: str, bounds: tuple[Any, ...]) -> builtins.range:
    try:
        return builtins.range(*bounds)
    except (TypeError, ValueError) as error:
        raise LaunchError(Diagnostic("TS105", f"{name}: {error}")) from None
