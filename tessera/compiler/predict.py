"""What functions took when they were last profiled: the measured counterpart of the cost model.

The profiler writes one small JSON file for each source file into the cache folder; editors read it as data.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.budget import pause
from tessera.compiler.frontend.called.arguments import AsCalled, MadeArgument, called
from tessera.compiler.frontend.called.trainings import Training
from tessera.compiler.frontend.names.values import leaves
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.frontend.sizes import defaults, usual_sizes
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TensorType
from tessera.compiler.levels import NoIR, schedule, unit
from tessera.compiler.machines import MACHINES, predicted_machine
from tessera.compiler.schedule.cost import LaunchTime
from tessera.compiler.schedule.refusals import Refusal, refusals
from tessera.compiler.tile.lifetimes import held, peak
from tessera.compiler.tile.program import Branch, Launch, Program, Step
from tessera.compiler.timing.launches import launch_times
from tessera.errors import TesseraError
from tessera.files import read_record, write_record
from tessera.immutable import immutable
from tessera.language.dims import prod

_SCHEMA = 3


@immutable
class Measured:
    """All launches of a function during one profile: their time in ns, and when it was (seconds since the epoch).

    `text` is the digest of the source file at that time, `sizes` what its dims were: None where launches differ in one.
    """

    ns: int
    launches: int
    target: str
    when: float
    text: str
    sizes: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])


def common(sizes: Iterable[Mapping[str, int]]) -> dict[str, int | None]:
    """The sizes of several launches as one: None for a dim in which they differ."""
    found: dict[str, int | None] = {}
    for each in sizes:
        found = {name: size if found.get(name, size) == size else None for name, size in {**found, **each}.items()}
    return found


def sizes_text(sizes: Mapping[str, int | None]) -> str:
    """`B=8, S=D=1024, several N`; empty where there are none."""
    alike: dict[int | None, list[str]] = {}
    for name, size in sizes.items():
        alike.setdefault(size, []).append(name)
    several = alike.pop(None, [])
    said = ["=".join([*names, str(size)]) for size, names in alike.items()]
    return ", ".join([*said, *(f"several {name}" for name in several)])


def digest(text: str) -> str:
    """Of a source file: whether it is still the one that was measured."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def record(file: str, functions: Mapping[str, Measured]) -> None:
    """Replaces what is known of these functions. A folder that cannot be written costs the record, nothing else."""
    write_record(_path(file), _what(file), {name: asdict(m) for name, m in (last(file) | dict(functions)).items()})


def last(file: str) -> dict[str, Measured]:
    """Function -> what it took; empty where nothing has been measured, or the record cannot be read."""
    try:
        found: dict[str, Any] = read_record(_path(file), _what(file)) or {}
        return {name: Measured(**m) for name, m in found.items()}
    except (ImportError, ValueError, TypeError, AttributeError):
        return {}


def _what(file: str) -> str:
    return f"profile of {file}, schema {_SCHEMA}"


def _path(file: str) -> Path:
    return knobs.cache_dir() / "profiles" / f"{hashlib.sha256(file.encode()).hexdigest()[:16]}.json"


# What a function should cost on a target, from its lowered program. A model, never a measurement.

LARGEST = 2000
"""operators of a program that is lowered while its author types: as many take up to a second, in turns with all else"""
SHOWN = 40
"""characters of an expression that makes an argument"""
WIDEST = 80
"""characters of a reason; the rest is in the diagnostics"""
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@immutable
class Prediction:
    """`us` and `bytes` None: not known, and `why` says it. `us`: where a launch's arithmetic and its memory traffic
    overlap wholly; `most_us`: where they do not. `bytes`: arguments, results and what is needed between.
    `flops` and `moved`: operations, and the least bytes that launches read and write; None with branches and loops.
    `bound`: what most of the predicted time goes into, "compute", "memory" or "launches"; empty where not known.
    `assumed`: dims without a given size, and the size that is assumed. `defaults`: those that parameters
    have by default, and numbers."""

    target: str
    launches: int
    us: float | None = None
    bytes: int | None = None
    why: str = ""
    flops: int | None = None
    moved: int | None = None
    bound: str = ""
    assumed: Mapping[str, int] = field(default_factory=dict[str, int])
    defaults: Mapping[str, int] = field(default_factory=dict[str, int])
    made: Mapping[str, MadeArgument] = field(default_factory=dict[str, MadeArgument])
    """arguments that the file's text makes, for which it is predicted"""
    most_us: float | None = None
    arguments: int = 0
    """bytes of the arguments, as far as their sizes are known"""
    at_least: bool = False
    """whether kernels are in it whose blocks their author chose: the model takes them for as good as any"""

    @property
    def text(self) -> str:
        """`modelled on sm_90a at B=S=1024, k=3 (default): 12 to 14 µs in 2 launches, 3.1 MB`; with sizes that nobody
        gave."""
        sizes = [sizes_text(self.assumed)] if self.assumed else []
        sizes += [f"{name}={size} (default)" for name, size in self.defaults.items()]
        sizes += [f"{name}={_short(m.text)} (line {m.line})" for name, m in self.made.items()]
        at = f" at {', '.join(sizes)}" if sizes else ""
        launches = f"{self.launches} launch" + ("es" if self.launches != 1 else "")
        said = [f"{self.time} in {launches}"] if self.us is not None else []
        said += [quantity(self.bytes, "B")] if self.bytes is not None else []
        if not said:
            return f"no prediction for {self.target}: {textwrap.shorten(self.why, WIDEST, placeholder=' ...')}"
        return f"modelled on {self.target}{at}: " + ", ".join([*said, *([self.why] if self.why else [])])

    @property
    def time(self) -> str:
        """`12 to 14 µs`, `at least 12 µs`; "" where it is not known."""
        return "" if self.us is None else time_text(self.us, self.most_us or self.us, self.at_least)


def time_text(us: float, most_us: float, at_least: bool) -> str:
    """`12 to 14 µs`; of what may take longer than the model can say, `at least 12 µs`."""
    least, most = (quantity(each * 1e-6, "s") for each in (us, most_us))
    if at_least or least == most:
        return f"at least {least}" if at_least else least
    unit = least.partition(" ")[2]
    return f"{least.removesuffix(f' {unit}') if most.endswith(f' {unit}') else least} to {most}"


def _short(text: str) -> str:
    """An expression by its beginning: `GPT(width=64, layers=2)`, `GPT(nn.Embedding(256 ...)`."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 5].rstrip(' ,')} ...)"


def program(analysis: Analysis, dims: Mapping[str, int], target: str, largest: float = LARGEST) -> Program:
    """The launches of a function or kernel with some of its sizes known. Raises NoIR, of more than `largest` operators
    too, and TesseraError."""
    from tessera.compiler.pipeline import Run, to_program  # slow: the passes are loaded by the first prediction

    made = unit(analysis, dims)
    _bounded(made.op, largest)
    return to_program(made, target, Run(lambda name, op: pause())).program


def predict(
    analysis: Analysis, dims: Mapping[str, int], target: str, as_called: AsCalled | None = None,
    largest: float = LARGEST,
) -> Prediction:  # fmt: skip
    """For the sizes that are given. A model is as the file's text constructs it: `as_called`, where that is known."""
    found = as_called or called(analysis)
    said = defaults(analysis, dims)
    sized = _predicted(found.analysis, {**dims, **found.sizes}, target, largest)
    return replace(sized, defaults=said, made=found.made)


def predict_training(training: Training, dims: Mapping[str, int], target: str, largest: float = LARGEST) -> Prediction:
    """A step of `ts.train`: the loss with its gradient, then the update, which are two programs. While one runs, what
    the other one takes and gives is in memory too: the optimizer's state, and the batch."""
    name, step, update = predicted_machine(target), training.step, training.update()
    if step is None or update is None:
        return Prediction(name, 0, why=training.problem or "the text does not tell the optimizer's state")
    if wrong := next((d for d in step.analysis.diagnostics if d.severity == "error"), None):
        return Prediction(name, 0, why=wrong.message.partition("\n")[0])
    if "accumulate" in training.nodes:
        return Prediction(name, 0, why="steps of several batches (accumulate=) are not predicted")
    first = predict(step.analysis, dims, target, step, largest)
    second = predict(update, {}, target, AsCalled(update), largest)
    if first.bytes is None or second.bytes is None:
        return first if first.bytes is None else second
    batch = first.arguments - _bytes(training.made["model"].type)
    return replace(
        first,
        launches=first.launches + second.launches,
        us=_sum(first.us, second.us),
        at_least=first.at_least or second.at_least,
        most_us=_sum(first.most_us, second.most_us),
        bytes=max(first.bytes + _bytes(training.state()), second.bytes + batch),
        arguments=first.arguments + _bytes(training.state()),
        flops=_sum(first.flops, second.flops),
        moved=_sum(first.moved, second.moved),
        made=training.made,
    )


def _bytes(type: Any) -> int:
    """Of all tensors that it holds."""
    tensors = (t for t in leaves(type) if isinstance(t, TensorType))
    return sum(size * t.dtype.itemsize for t in tensors if isinstance(size := prod(t.shape), int))


def _sum(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def _predicted(analysis: Analysis, dims: Mapping[str, int], target: str, largest: float) -> Prediction:
    name = predicted_machine(target)
    errors = sum(d.severity == "error" for d in analysis.diagnostics)
    if errors:  # they are underlined where they are
        return Prediction(name, 0, why=f"it has {errors} error{'s' if errors > 1 else ''}")
    try:
        if analysis.op is not None:
            _bounded(analysis.op, largest)
        if missing := tuple(dim for dim in analysis.dims if dim not in dims):
            return _assuming(missing, analysis, dims, target, largest)
        made = program(analysis, dims, name, largest)
    except NoIR as e:
        return Prediction(name, 0, why=str(e))
    except TesseraError as e:
        return Prediction(name, 0, why=e.diagnostics[0].message)
    return of_program(made, name)


def of_program(made: Program, name: str, threads: int | None = None) -> Prediction:
    """The prediction for a lowered program on a machine of this name; on a processor, on that many threads."""
    count, machine = len(made.launches), MACHINES.get(name)
    if made.free:
        return Prediction(name, count, why=f"its arguments decide about {', '.join(made.free)}")
    work = _work(made.steps)
    flops, moved = (sum(each) for each in zip(*work, strict=True)) if work else (None, None)
    if machine is None or machine.peaks is None:
        return Prediction(name, count, None, peak(made), f"there is no model of {name}", flops, moved)
    given = sum(size for buffer, size in held(made).items() if made.buffers[buffer].role == "input")
    times = launch_times(made, machine, threads)
    total = _time(made.steps, times)
    if total is None:
        why = "how often it loops depends on its data"
        return Prediction(name, count, None, peak(made), why, flops, moved, arguments=given)
    least, most = (us * 1e6 for us in total)
    bound, by_hand = _bound(times.values()), any(launch.by_hand for launch in made.launches)
    return Prediction(
        name, count, least, peak(made), "", flops, moved, bound, most_us=most, arguments=given, at_least=by_hand
    )


def refused(analysis: Analysis, dims: Mapping[str, int], target: str) -> list[Refusal]:
    """Which operators of a function are in two kernels although one reads the other, and why; none of what has errors
    or is too large."""
    try:
        if analysis.op is None or analysis.op.name == "tile.func":
            return []
        _bounded(analysis.op, LARGEST)
        return refusals(schedule(analysis, dims, predicted_machine(target)))
    except (NoIR, TesseraError):
        return []


def _bounded(op: Op, largest: float) -> None:
    operators = sum(1 for _ in op.walk())
    if operators > largest:
        raise NoIR(
            f"it has {operators:,} operators; up to {largest:,} are predicted here, more by `tessera check --costs`"
        )


def _assuming(
    missing: tuple[str, ...], analysis: Analysis, dims: Mapping[str, int], target: str, largest: float
) -> Prediction:
    """The prediction under the sizes that `tessera profile` would take."""
    usual, why = usual_sizes(analysis, dims), f"set a size for {', '.join(missing)}"
    if all(dim in usual for dim in missing):
        sizes = {**dims, **{dim: usual[dim] for dim in missing}}
        found = _predicted(analysis, sizes, target, largest)
        if found.us is not None or found.bytes is not None:
            preset = defaults(analysis, dims)
            return replace(found, assumed={dim: usual[dim] for dim in missing if dim not in preset})
        if still := analyse(analysis.definition, analysis.arguments, sizes).undecided:  # no size would help
            why = still[0].message
    return Prediction(predicted_machine(target), 0, why=why)


def _time(steps: tuple[Step, ...], times: Mapping[int, LaunchTime]) -> tuple[float, float] | None:
    """The least and the most seconds. Of two branches the longer one; None with a loop, whose trips only a running
    program knows."""
    least = most = 0.0
    for step in steps:
        if isinstance(step, Launch):
            found = times.get(id(step))
            took = (found.least, found.most) if found is not None else None
        elif isinstance(step, Branch):
            sides = [_time(side, times) for side in (step.then, step.orelse)]
            took = max((t for t in sides if t is not None), default=None) if None not in sides else None
        else:
            took = None
        if took is None:
            return None
        least, most = least + took[0], most + took[1]
    return least, most


def _work(steps: tuple[Step, ...]) -> list[tuple[int, int]]:
    """Operations and least bytes of each launch; none where what runs depends on data."""
    found = [(s.flops, s.bytes) for s in steps if isinstance(s, Launch)]
    known = [(flops, moved) for flops, moved in found if isinstance(flops, int) and isinstance(moved, int)]
    return known if len(known) == len(steps) else []


def _bound(times: Iterable[LaunchTime]) -> str:
    shares = dict.fromkeys(("compute", "memory", "launches"), 0.0)
    for each in times:
        shares["compute" if each.compute >= each.memory else "memory"] += max(each.compute, each.memory)
        shares["launches"] += each.launch
    return max(shares, key=shares.__getitem__) if any(shares.values()) else ""


def quantity(value: float, unit: str) -> str:
    """Three digits: `5.12 ms`."""
    if unit == "s":
        value, unit = next(((value / s, u) for s, u in ((1, "s"), (1e-3, "ms")) if value >= s), (value / 1e-6, "µs"))
        return f"{value:.3g} {unit}"
    scale, prefix = next(((s, p) for s, p in _PREFIXES if value >= s), (1, ""))
    return f"{value / scale:.3g} {prefix}{unit}"
