"""`ts.Schedule`: the block sizes and resources of a kernel, as an object to save, change, apply and tune from.

A schedule does not change what a program computes. Its file (`.sched`) is JSON with a format and a version, for people
to read and edit, and to keep beside the program.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn, cast

from tessera.deferred import deferred
from tessera.errors import NOWHERE, CompileError, Diagnostic, Span, TesseraError, register_source
from tessera.language.tuning import Metric, is_plain
from tessera.tracebacks import outward

FORMAT = "tessera-schedule"
VERSION = 1
"""Raised whenever a reader of the version before would misunderstand the file."""

_AXES = (("BLOCK_M", "BM"), ("BLOCK_N", "BN"), ("BLOCK_K", "BK"))
_LINE = ("BLOCK", "BLOCK_SIZE")
_VECTOR = ("vector_width", "vector")


class ScheduleError(TesseraError, ValueError):
    """A file is not a schedule, or has an invalid field."""

    default_code = "TS610"


@dataclass(frozen=True, init=False)
class Schedule:
    """`block`: elements per program along M, N, K (or along the one axis there is); `warps` and `stages`: threads and
    buffers of a GPU's program; `vector_width` and `swizzle`: for kernels that use them; further keywords: a kernel's
    own parameters by name (`BLOCK_M=64`). None keeps the kernel's value.

    Counts may be floats without a fraction, such as `stages=log2(8)`. Raises CompileError TS105 for invalid values.
    """

    name: str = ""
    block: tuple[int, ...] = ()
    warps: int | None = None
    stages: int | None = None
    vector_width: int | None = None
    swizzle: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @outward
    def __init__(
        self, name: str = "", block: int | Iterable[int] = (), warps: int | None = None, stages: int | None = None,
        vector_width: int | None = None, swizzle: str | None = None, **parameters: Any,
    ) -> None:  # fmt: skip
        block = (block,) if isinstance(block, (int, float)) else tuple(block)
        counts = (tuple(map(_whole, block)), _whole(warps), _whole(stages), _whole(vector_width))
        values = (name, *counts, swizzle, dict(parameters))
        for f, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, f.name, value)
        for key, why in _problems(self):
            raise CompileError(Diagnostic("TS105", f"a schedule's {key} {why}"))

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_json(), sort_keys=True))

    # Changed ones

    def replace(self, **changes: Any) -> Schedule:
        """A copy with other values for some fields or parameters; None removes one."""
        own = {f.name for f in fields(self)} - {"parameters"}
        given: dict[str, Any] = {**self._set_fields(), **self.parameters, **changes}
        said: dict[str, Any] = {k: v for k, v in given.items() if v is not None or k in own - {"block", "name"}}
        return Schedule(**said)

    def with_block(self, *block: int) -> Schedule:
        """With other block sizes: `with_block(64, 64)`."""
        return self.replace(block=block)

    def with_warps(self, warps: int) -> Schedule:
        return self.replace(warps=warps)

    def with_stages(self, stages: int) -> Schedule:
        return self.replace(stages=stages)

    # Files

    def to_json(self) -> dict[str, Any]:
        """The contents of a `.sched` file: only the fields that are set."""
        out: dict[str, Any] = {"format": FORMAT, "version": VERSION, **self._set_fields()}
        return out | ({"parameters": dict(self.parameters)} if self.parameters else {})

    def _set_fields(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name != "parameters" and value not in (None, "", ()):
                out[f.name] = list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
        return out

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the `.sched` file atomically and returns its path. Raises OSError if it cannot be written."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        try:
            temporary.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schedule:
        """Reads a `.sched` file. Raises ScheduleError TS610 with file, line and field; FileNotFoundError if there is
        none."""
        return _Reader(Path(path)).schedule()

    # Kernels

    def config_for(self, program: Any) -> dict[str, Any]:
        """The schedule as the parameters that a function or kernel reads: `ctx.BLOCK_M` or `ctx.BM`, `num_warps` ...

        Raises CompileError TS105 if there is a block and the kernel does not use it.
        """
        out: dict[str, Any] = dict(self.parameters)
        if program.kind == "function":
            return out | ({"block": self.block} if self.block else {})
        spoken = names_in(program.__wrapped__.__code__)
        out |= self._blocks(program.name, spoken)
        if self.warps is not None:
            out["num_warps"] = self.warps
        if self.stages is not None:
            out["num_stages"] = self.stages
        if self.vector_width is not None:
            out |= dict.fromkeys((n for n in _VECTOR if n in spoken), self.vector_width)
        if self.swizzle is not None and "swizzle" in spoken:
            out["swizzle"] = self.swizzle
        return out

    def _blocks(self, kernel: str, spoken: frozenset[str]) -> dict[str, int]:
        if len(self.block) == 1:
            (size,) = self.block
            known = [n for n in (*_LINE, *_AXES[0]) if n in spoken]
            return dict.fromkeys(known or _LINE[:1], size)
        used = {n: size for names, size in zip(_AXES, self.block, strict=False) for n in names if n in spoken}
        if self.block and not used:
            asked = ", ".join(n for names in _AXES[: len(self.block)] for n in names)
            message = f"the schedule has a block of {len(self.block)} axes, but {kernel} reads none of {asked}"
            raise CompileError(Diagnostic("TS105", f"{message}; its blocks are fixed in its text, or it has one axis"))
        return used

    def from_config(self, config: Mapping[str, Any]) -> Schedule:
        """This schedule with the values of a kernel's configuration: the inverse of `config_for`."""
        rest, block, out = dict(config), list(self.block), dict[str, Any]()
        single = [rest.pop(n) for n in _LINE if n in rest]
        for i, names in enumerate(_AXES):
            for value in [rest.pop(n) for n in names if n in rest][:1]:
                block[i : i + 1] = [value]
        if single:
            block = single[:1]
        given = rest.pop("block", None)
        block = block if given is None else [given] if isinstance(given, int) else list(given)
        for mine, theirs in (("warps", ("num_warps", "warps")), ("stages", ("num_stages", "stages"))):
            for value in [rest.pop(n) for n in theirs if n in rest][:1]:
                out[mine] = value
        return self.replace(block=block, **out, **rest)

    def autotune(
        self, kernel: Any, dataset: Iterable[Any], metric: Metric = "throughput", timeout_ms: float | None = None
    ) -> Schedule:
        """The best schedule for `kernel` near this one, measured over a `dataset` of calls.

        Each item of `dataset` is a tuple of arguments, a mapping of parameters to arguments, or a mapping of dims to
        sizes, for which random arrays are made. The candidates are this schedule first, then the kernel's own
        `autotune` space where it has one, else neighbours of this schedule. "throughput" takes the greatest geometric
        mean of the work done per second, "time" the least total. Raises TuningError TS609 where none runs on all items.
        """
        tuner = deferred("runtime.autotune")
        return cast("Schedule", tuner.tune_schedule(self, kernel, dataset, metric, timeout_ms))

    def neighbours(self) -> Iterator[Schedule]:
        """This schedule, and those with half or twice a block size or warps, or one stage more or less."""
        yield self
        for i, size in enumerate(self.block):
            for other in (size // 2, size * 2):
                if other:
                    yield self.replace(block=(*self.block[:i], other, *self.block[i + 1 :]))
        if self.warps is not None:
            yield from (self.with_warps(w) for w in (self.warps // 2, self.warps * 2) if 1 <= w <= 32)
        if self.stages is not None:
            yield from (self.with_stages(s) for s in (self.stages - 1, self.stages + 1) if s >= 1)

    def __repr__(self) -> str:
        shown = {**self._set_fields(), **self.parameters}
        if "block" in shown:
            shown["block"] = self.block
        return f"Schedule({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


def names_in(code: CodeType) -> frozenset[str]:
    """Every name and attribute in a function's code, and its strings, because `getattr` takes those."""
    out = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str):
            out.add(constant)
        elif isinstance(constant, CodeType):
            out |= names_in(constant)
    return frozenset(out)


def _whole(value: Any) -> Any:
    """A float without a fraction as the integer that it is; everything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _problems(s: Schedule) -> Iterator[tuple[str, str]]:
    """(field, what is wrong with it)."""
    checks: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
        ("name", lambda v: isinstance(v, str), "is text"),
        ("block", lambda v: len(v) <= 3 and all(map(_count, v)), "has one to three sizes of at least 1"),
        ("warps", lambda v: v is None or _count(v), "is a number of at least 1"),
        ("stages", lambda v: v is None or _count(v), "is a number of at least 1"),
        ("vector_width", lambda v: v is None or _count(v), "is a number of at least 1"),
        ("swizzle", lambda v: v is None or isinstance(v, str), 'is text, as in "xor"'),
    )
    for key, fits, wanted in checks:
        if not fits(getattr(s, key)):
            yield key, f"{wanted}, not {getattr(s, key)!r}"
    for key, value in s.parameters.items():
        if not is_plain(value):
            yield key, f"is a number, text, or a list of such, not {value!r}"


class _Reader:
    """A `.sched` file, read with a word on every mistake."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            self.text = ""
            self.fail("it is not text; a .sched file is JSON that Schedule.save writes")

    def schedule(self) -> Schedule:
        try:
            found = json.loads(self.text)
        except json.JSONDecodeError as e:
            self.fail(f"it is not JSON: {e.msg}", line=e.lineno, column=e.colno)
        except RecursionError:
            self.fail("it is not a schedule: its JSON is nested too deeply")
        if not isinstance(found, dict):
            self.fail("it holds no JSON object", line=1)
        document = cast("dict[str, Any]", found)
        if document.get("format") != FORMAT:
            self.fail(
                f'its "format" is not "{FORMAT}", so it is not a schedule; write one with Schedule.save', "format"
            )
        version = document.get("version")
        if version != VERSION:
            newer = isinstance(version, int) and version > VERSION
            fix = "a newer Tessera wrote it: update this one" if newer else f'this Tessera reads "version": {VERSION}'
            self.fail(f"its version is {version!r}; {fix}", "version")
        return self.checked({k: v for k, v in document.items() if k not in ("format", "version")})

    def checked(self, values: dict[str, Any]) -> Schedule:
        known = [f.name for f in fields(Schedule)]
        for key in values:
            if key not in known:
                self.fail(f'"{key}" is not a field of a schedule, which has {", ".join(known)}; '
                          'a kernel\'s own parameters stand under "parameters"', key)  # fmt: skip
        parameters = values.pop("parameters", {})
        if not isinstance(parameters, dict):
            self.fail(f'"parameters" is an object of names and values, not {parameters!r}', "parameters")
        block = values.get("block", [])
        if not isinstance(block, list):
            self.fail(f'"block" is a list of sizes, as in [128, 64], not {block!r}', "block")
        own = cast("dict[str, Any]", parameters)
        for key in own:
            if key in known or not key.isidentifier():
                self.fail(f'"{key}" cannot be a parameter\'s name here', key)
        made = Schedule()
        for key, value in (values | {"block": tuple(cast("list[Any]", block)), "parameters": own}).items():
            object.__setattr__(made, key, value)
        for key, why in _problems(made):
            self.fail(f'"{key}" {why}', key)
        return made

    def fail(self, why: str, key: str = "", line: int = 0, column: int = 1) -> NoReturn:
        """Points to the line, or to the first place where the key stands."""
        lines = self.text.split("\n")
        length = 1
        if key:
            quoted = json.dumps(key)
            line = next((i for i, text in enumerate(lines, 1) if quoted in text), 1)
            found = lines[line - 1].find(quoted)
            column, length = max(found, 0) + 1, len(quoted) if found >= 0 else 1
        span = NOWHERE
        if line:
            register_source(str(self.path), self.text)
            span = Span(str(self.path), line, column, line, column + length)
        raise ScheduleError(Diagnostic("TS610", f"{self.path} cannot be read as a schedule: {why}", span)) from None
