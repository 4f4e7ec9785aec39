"""`tessera.compile(f, target=..., dims=...)`: code ahead of a call, and everything that can be asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.names.signature import Parameter, is_scalar, item_of
from tessera.compiler.frontend.names.values import Static, remade
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.compiler.line_costs import LineCost, line_costs
from tessera.compiler.machines import HOST, code_of
from tessera.compiler.predict import Prediction, of_program
from tessera.compiler.schedule.refusals import Refusal, refusals
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Artifact, GlobalAccess, SpilledValue, Target
from tessera.errors import CompileError, Diagnostic, LaunchError, TesseraError
from tessera.fitted import fitted
from tessera.language import dims as algebra
from tessera.language.annotations import TensorAnn
from tessera.language.decorators import Decorated, Function
from tessera.language.decorators import compile as in_mode
from tessera.language.records import Attribute, holding, members
from tessera.runtime.arrays import devices
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.autotune.trials import show
from tessera.runtime.call.arguments import Bound, Leaf, Parameters, holds_array
from tessera.runtime.call.dispatch import Launcher
from tessera.runtime.call.requests import compile_with
from tessera.runtime.code.assembly import plain_assembly, spilled_of, spilled_or_why
from tessera.runtime.code.build import Built
from tessera.runtime.code.reads import reads
from tessera.runtime.code.watch import Watch
from tessera.runtime.explanation import Explanation
from tessera.runtime.processor import measured_figures
from tessera.tracebacks import leave, outward

if TYPE_CHECKING:
    from tessera.runtime.autotune.choose import Choice

LEVELS = ("graph", "schedule", "tile", "target")


class Compiled:
    """A function or kernel compiled for one target. Callable where its target can run; never compiles again."""

    def __init__(self, fn: Decorated[Any, Any], target: Target, dims: Mapping[str, int], arguments: Any) -> None:
        self.function, self.target, self.dims = fn, target, dict(dims)
        self.configuration: Choice | None = None
        """of a tuned program: the one it is compiled under, and why this one"""
        if "autotune" in fn.options:
            from tessera.runtime.autotune.choose import choice  # slow: 30 ms, for programs with a space

            self.configuration = choice(fn, target, dims, argument_types(Launcher(fn), arguments))
            self.function = fn.with_config(**self.configuration.config)
        self._launcher = _FixedLauncher(self)
        self.arguments: Mapping[str, Any] | None = argument_types(self._launcher, arguments)
        self._sizes: Mapping[str, int] = {}
        """of the last call"""
        self.called = False
        """whether it is what the last call ran"""
        self.built: Built = self._build(profile=False)

    @classmethod
    def of_last_call(cls, fn: Decorated[Any, Any]) -> Compiled | None:
        """What the last call of a function or kernel ran, with its sizes and values; None before the first."""
        launcher: Launcher | None = vars(fn).get("launcher")
        made = launcher.ready.made if launcher is not None and launcher.ready is not None else None
        if made is None:
            return None
        found = cls.__new__(cls)
        found.function, found.target, found.dims, found.configuration = made.fn, made.target, {}, None
        if made.fn is not fn:
            from tessera.runtime.autotune.choose import Choice  # slow: loads the autotuner

            found.configuration = Choice(made.fn.config, "of the last call")
        found._launcher, found.arguments, found.built = _FixedLauncher(found), made.types.arguments, made.built
        found.called, found._sizes = True, launcher.sizes if launcher is not None else {}
        return found

    def _build(self, profile: bool) -> Built:
        parameters, watch = self._launcher.parameters, self._launcher.watch
        shown = {f"argument {name}": str(t) for name, t in (self.arguments or {}).items()}
        return compile_with(
            self.function, parameters, self.arguments, shown, self.target, watch, self.dims, profile=profile
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs it. Raises LaunchError where the arguments are not those it was compiled for, DeviceError where its
        target cannot run here."""
        try:
            return self._launcher(args, kwargs)
        except TesseraError as error:
            leave(error)
            raise

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def artifact(self) -> Artifact:
        return self.built.artifact

    @property
    def source(self) -> str:
        """What the target compiled, as a person reads it: LLVM IR, CUDA C++ or Tile IR."""
        return self.artifact.source

    @property
    def assembly(self) -> str | None:
        """The machine's instructions; None where the target has none to show.

        Raises MissingDependency where the program that disassembles is not installed (CUDA's nvdisasm), TargetError
        where it does not read code for this architecture.
        """
        return plain_assembly(self.artifact)

    @property
    def resources(self) -> dict[str, Any]:
        """Per kernel what the target's compiler tells: registers, shared memory, spills ..."""
        return self.artifact.resources

    @outward
    def ir(self, level: str = "graph", generic: bool = False) -> str:
        """The IR at `level`: graph, schedule, tile or target, for people; `generic`: as MLIR's generic text.

        Raises ValueError for another level.
        """
        if level not in LEVELS:
            raise ValueError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
        return self.source if level == "target" else self.lowered.text(level, generic)

    @property
    def lowered(self) -> Any:
        """All levels of the compilation; made again where the code came from a cache."""
        if self.built.lowered is not None:
            return self.built.lowered
        from tessera.compiler import pipeline  # slow: 70 ms for code that comes from the disk

        return pipeline.lower(self.analysis.unit(), self.target)

    @property
    def analysis(self) -> Analysis:
        """The front end's answer for these arguments and sizes."""
        return analyse(self._launcher.parameters.definition, self.arguments, self.dims)

    def explain(self) -> Explanation:
        """What runs, where, with which kernels; where the code came from and what each stage took."""
        return Explanation(
            self.built, self.target, self.configuration, self.arguments, self.called, self.refusals(), self.predicted(),
            self.line_costs(), lambda: spilled_or_why(self.artifact),
            self.accesses if hasattr(self.target, "accesses") else tuple,
        )  # fmt: skip

    def predicted(self) -> Prediction:
        """What a call should take by the model of its machine, which editors show too. Never a measurement."""
        if self.target.name == HOST:
            measured_figures()
        return of_program(self.lowered.program, self.target.name, devices.get_num_threads())

    def line_costs(self) -> list[LineCost]:
        """What each line should cost by the model of its machine, the costliest first. Never a measurement."""
        if self.target.name == HOST:
            measured_figures()
        return line_costs(self.lowered.program, self.target.name, devices.get_num_threads())

    def accesses(self, sizes: Mapping[str, int] | None = None) -> list[GlobalAccess]:
        """How many sectors of 32 bytes each load and store of global memory touches per request of a warp, and the
        fewest that would do. Static: from the layouts of tiles and the offsets of all programs, for arrays that start
        at a sector. `sizes`: of dims that the code leaves open; without them, those of the last call.

        Raises TargetError TS602 for a target that does not tell (CPUs).
        """
        known = {**self.dims, **(sizes if sizes is not None else self._sizes)}
        from tessera.compiler import pipeline  # slow: 70 ms for code that comes from the disk

        return pipeline.global_accesses(self.lowered.program, self.target, known)

    def spills(self) -> list[SpilledValue]:
        """The values that lie in memory because a kernel has too few registers (on a CPU: vector registers), by name
        where the machine code proves it; empty where nothing is spilled. A static figure.

        Raises MissingDependency without nvdisasm, TargetError TS602 for a target that does not tell.
        """
        return spilled_of(self.artifact)

    def refusals(self) -> list[Refusal]:
        """Which operators that follow one another are in two kernels, and why."""
        lowered = self.lowered if self.function.kind == "function" else None
        return refusals(lowered.schedule) if lowered is not None and lowered.schedule is not None else []

    def save(self, directory: str | Path) -> list[Path]:
        """Writes source, binaries, assembly and a JSON of the resources into `directory`; returns the files' paths."""
        return save_artifact(self.artifact, directory, self.name)

    def __repr__(self) -> str:
        under = f" under {show(self.configuration.config)}" if self.configuration else ""
        return f"<{self.name} compiled for {self.target.name}{under}>"

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


def save_artifact(artifact: Artifact, directory: str | Path, name: str = "") -> list[Path]:
    """Writes an artefact's source, binaries, assembly and a JSON of its resources; returns the files' paths."""
    folder, name = Path(directory), name or artifact.name
    folder.mkdir(parents=True, exist_ok=True)
    code = code_of(artifact.target)
    contents: dict[str, bytes] = {f"{name}{code.suffix}": artifact.source.encode()}
    for file, data in artifact.files.items():
        contents[f"{name}.{file.removeprefix('code.')}"] = data
    try:
        assembly = plain_assembly(artifact)
    except TesseraError:  # the rest is worth saving without it
        assembly = None
    if assembly is not None:
        contents[f"{name}{code.assembly}"] = assembly.encode()
    about = {"name": name, "target": artifact.target, "resources": artifact.resources, "meta": artifact.meta}
    contents[f"{name}.json"] = json.dumps(about, indent=2, sort_keys=True, default=str).encode()
    for file, data in contents.items():
        (folder / file).write_bytes(data)
    return [folder / file for file in contents]


@fitted
def compile(
    f: Any = None,
    target: str = "auto",
    dims: Mapping[str, int] | None = None,
    arguments: Mapping[str, Any] | Sequence[Any] | None = None,
    mode: str | None = None,
) -> Any:
    """Compiles a function or kernel ahead of its first call.

    `@ts.compile(mode="training")`, or "inference", is `@ts.function` with the answer of `ts.is_training()`; it is
    compiled at its first call, and can be differentiated in both modes.

    `target`: "auto" (TESSERA_TARGET, else this machine), "cpu", "cuda", "sm_90a", "h100", "reference" ... A target that
    is not in this machine compiles all the same. `dims` fixes named sizes; those left open stay open in the code.
    `arguments`: example arrays or values, by name or in order, for parameters whose annotations leave something open.
    A tuned program is compiled under the best configuration that has been timed for such arguments on the target, the
    first one where none has; `configuration` and `explain()` say which.
    Raises CompileError with every finding, TargetError TS601 for an unknown target, LaunchError for bad sizes.
    """
    if mode is not None or f is None:
        decorate = in_mode(mode=mode)
        return decorate if f is None else decorate(f)
    if not isinstance(target, str) or not isinstance(dims, (Mapping, type(None))):
        what = target if not isinstance(target, str) else dims
        message = f"target is a name and dims a dict, not {type(what).__name__}; pass examples with arguments=(...)"
        raise LaunchError(Diagnostic("TS105", f"compile: {message}"))
    fn = f if isinstance(f, Decorated) else Function(f)
    fixed = dict(dims or {})
    for name, size in fixed.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise LaunchError(Diagnostic("TS501", f"dims[{name!r}] is {size!r}; a size is an integer of at least 0."))
    wanted = knobs.target() if target == "auto" else target
    return Compiled(fn, targets.get(devices.resolve(wanted)), fixed, arguments)


def argument_types(launcher: Launcher, arguments: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any] | None:
    """Example arguments as `analyse` takes them."""
    if arguments is None:
        return None
    parameters = launcher.parameters
    if not isinstance(arguments, Mapping):
        arguments = parameters.positions(tuple(arguments), {})
    defaults = {n: p.default for n, p in parameters.python.parameters.items() if p.default is not p.empty}
    given = {**arguments, **{n: v for n, v in defaults.items() if n not in arguments}}
    return {name: _of_parameter(parameters, name, value) for name, value in given.items()}


def _of_parameter(parameters: Parameters, name: str, value: Any) -> Any:
    """As `_type`; of a number that is passed at each call, as the annotation says, the type is enough."""
    p = parameters.by_name.get(name)
    typed = value is None or isinstance(value, (TensorType, TensorAnn, Static))
    if p is None or typed or not (is_scalar(p) or isinstance(value, (bool, int, float, complex))):
        return _type(value, p, parameters)
    return parameters.bind({name: value}).arguments[name]


def _type(value: Any, p: Parameter | None, parameters: Parameters) -> Any:
    if isinstance(value, (TensorType, Static)) or value is None:
        return value
    if isinstance(value, TensorAnn):
        if value.dtype is None or value.shape is None or ... in value.shape:
            raise CompileError(
                Diagnostic("TS211", f"{value} leaves the shape or dtype open; it cannot stand for an argument")
            )
        return TensorType(tuple(d for d in value.shape if d is not ...), value.dtype, value.policy)  # type: ignore[misc]
    adapter = adapter_of(value)
    if adapter is not None:
        view = adapter.view(value)
        return TensorType(view.shape if p is None else parameters.known_shape(p, view.shape), view.dtype)

    def item(key: Any, held: Any) -> Any:
        return _type(held, None if p is None else item_of(p, key), parameters)

    if isinstance(value, (tuple, list)):
        return remade(value, (item(i, v) for i, v in enumerate(value)))
    if holds_array(value):
        held = value if isinstance(value, dict) else members(value)
        types = {name: item(name, v) for name, v in held.items()}
        return types if isinstance(value, dict) else holding(type(value), types)
    return Static(value)


class _FixedLauncher(Launcher):
    """Launches code that exists already: arguments of other types are refused instead of compiled for."""

    def __init__(self, owner: Compiled) -> None:
        super().__init__(owner.function)
        self.owner = owner
        self.watch = Watch(reads(owner.function))

    def bind(self, values: Mapping[str, Any]) -> Bound:
        bound = self.parameters.bind(values, self.owner.dims)
        for leaf in bound.leaves:  # an integer that was left open is a size of the code
            if leaf.kind == "static" and isinstance(leaf.value, int):
                bound.sizes.setdefault(leaf.name, leaf.value)
        return bound

    def guard(self, watch: Watch) -> Callable[[], bool]:
        return watch.arrays_unchanged

    def build(self, bound: Bound, watch: Watch, target: Target, profile: bool = False) -> Built:
        return self.owner._build(profile=True) if profile else self.owner.built

    def target(self, bound: Bound) -> Target:
        self.demand_home(self.owner.target, bound)
        return self.owner.target

    def check(self, bound: Bound, built: Built) -> None:
        span = self.parameters.definition.span
        fixed = [leaf for leaf in bound.leaves if leaf.kind in ("static", "record")]
        findings = [self._other_value(leaf) for leaf in fixed if self._differs(leaf, built)]
        given = {leaf.name for leaf in bound.leaves} | {name for name, _ in built.captures} | built.held.keys()
        for p in built.plan.params:
            if p.name not in given:  # an item of a tuple
                message = f"{p.name} is not given, but {self.fn.name} was compiled for {shape_text(p.shape)} {p.dtype}"
                findings.append(Diagnostic("TS501", message, span, function=self.fn.name))
            view = bound.views.get(p.name)
            if view is None or p.shape is None:
                continue
            want = tuple(algebra.substitute(d, bound.sizes) for d in p.shape)
            if want != view.shape or p.dtype.numpy != view.dtype.numpy:
                message = (
                    f"{p.name} is {shape_text(view.shape)} {view.dtype}, but {self.fn.name} was compiled for "
                    f"{shape_text(want)} {p.dtype}"
                )
                findings.append(Diagnostic("TS209", message, span, function=self.fn.name))
        if findings:
            raise LaunchError(findings)

    def _differs(self, leaf: Leaf, built: Built) -> bool:
        """Whether a compile-time argument is not what the code was compiled for."""
        if leaf.name in built.plan.free:
            return False
        given: Any = self.owner.arguments
        if given is not None and leaf.path[0] in given:
            compiled = given[leaf.path[0]]
            for step in leaf.path[1:]:
                compiled = getattr(compiled, step) if isinstance(step, Attribute) else compiled[step]
            if leaf.kind == "record":
                return type(compiled) is not type(leaf.value)
            return fingerprint(compiled.value if isinstance(compiled, Static) else compiled) != fingerprint(leaf.value)
        default = self.parameters.python.parameters[leaf.path[0]].default
        return fingerprint(default) != fingerprint(leaf.value)

    def _other_value(self, leaf: Leaf) -> Diagnostic:
        message = f"{leaf.name} is {leaf.value!r}, but {self.fn.name} was compiled for another value of it"
        return Diagnostic("TS501", message, self.parameters.by_name[leaf.path[0]].span, function=self.fn.name)
