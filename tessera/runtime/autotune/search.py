"""Finding the best configuration: what is known is read from the store, the rest is compiled, checked and timed.

Compiling, checking and timing are passes over the configurations, and each stores what it has found, also when it is
interrupted. Times are taken in rounds, each of which measures every configuration that is still in question, so that a
machine that slows down slows all of them alike; one that is clearly slower leaves.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from time import monotonic
from typing import Any, NoReturn

from tessera.compiler.machines import HOST
from tessera.compiler.targets.base import Target
from tessera.errors import CompileError, DeviceError, Diagnostic, MissingDependency, TargetError, TesseraError
from tessera.immutable import mutable
from tessera.runtime import events
from tessera.runtime.arrays import devices
from tessera.runtime.autotune import candidates
from tessera.runtime.autotune.candidates import Candidate, Pruned, screen_for, takes_any_data, unlaunchable
from tessera.runtime.autotune.store import key_of, store_at
from tessera.runtime.autotune.trials import Status, Trial, Tuning, TuningError, seconds_text, show
from tessera.runtime.call.arguments import Bound
from tessera.runtime.code.watch import Watch

TIMEOUT_MS = 250.0
ROUNDS = 15
ENOUGH = 3
"""samples that make a median worth keeping when tuning is interrupted"""
SAMPLE = 400e-6
"""seconds that one sample should take: launches shorter than that are repeated"""
REPEATS = 500
GONE = ((3, 4.0), (5, 1.6), (8, 1.15))
"""(rounds, factor): after so many, what has its best sample so many times above the best median leaves. Not before it
has three samples, and generous at first: another process may have had the processor during each of them."""
_LASTING = (CompileError, TargetError)
"""what is wrong with a configuration itself; anything else may go well next time, and is not stored"""


@mutable
class _Entry:
    """A configuration that is being looked at."""

    text: str
    config: Mapping[str, Any]
    candidate: Candidate
    repeat: int = 1
    samples: list[float] = field(default_factory=list[float])
    spent: float = 0.0
    left: str = ""
    """why it left the rounds early"""
    twins: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, Mapping[str, Any]]])
    """configurations with the same code"""

    def trial(self) -> Trial:
        """What its samples say."""
        work, detail = self.candidate.work(), "; ".join(filter(None, (self.left, self.candidate.facts())))
        return Trial(dict(self.config), "stopped" if self.left else "timed", tuple(self.samples), detail, *work)


class Search:
    """The tuning of one function or kernel for one signature. The first configuration says what the results are.

    `device`: the machine whose timings are asked for, as `Key` spells it, where it is not this one.
    """

    def __init__(self, fn: Any, bound: Bound, target: Target, watch: Watch, device: str | None = None) -> None:
        self.fn, self.bound, self.target, self.watch = fn, bound, target, watch
        self.options: Mapping[str, Any] = fn.options["autotune"]
        self.configs: list[dict[str, Any]] = self.options["configs"]
        read = candidates.read_by(fn, watch, target)
        self.texts = [candidates.text_of(c, read) for c in self.configs]
        self.distinct: dict[str, dict[str, Any]] = {}
        for text, config in zip(self.texts, self.configs, strict=True):
            self.distinct.setdefault(text, config)
        self.fast = bool(getattr(fn.options.get("numerics"), "fast", None))
        self.key = key_of(fn, bound, target, watch, device)
        self.store = store_at(self.options["cache"])
        self.known: dict[str, Trial] = {}
        self.bits: dict[tuple[str, str], bool] = {}
        self.passing: dict[str, Trial] = {}
        """outcomes that are not stored, since they may be others next time"""
        self.findings: list[Diagnostic] = []
        self._random: dict[int, Any] = {}
        self._timed: list[_Entry] = []
        """what is being timed"""

    def run(self, measure: bool) -> Tuning:
        """The tuning as the store has it; with `measure`, what is missing is timed first.

        Raises TuningError TS609 where no configuration can be used.
        """
        self._read()
        measured = 0
        if measure and len(self.distinct) > 1 and self._incomplete():
            title = f"Tuning {self.fn.name} for {self.target.name}"
            with (
                events.paused(),
                shown(title, self._so_far) as step,
                self.store.measuring(lambda: step("waiting for another process that is tuning", 0.0)),
            ):
                self._read()  # another process may have been here while we waited
                if self._incomplete():
                    measured = self._look(step)
                    self._read()
                step("done", 1.0)
        tuning = self._tuning(measured)
        if measure and tuning.best is None and len(self.distinct) > 1:
            self._refuse(tuning)
        return tuning

    # what is known

    def _read(self) -> None:
        self.known, self.bits = self.store.trials(self.key), self.store.bits(self.key)

    def _outcome(self, text: str) -> Trial | None:
        return self.known.get(text) or self.passing.get(text)

    def _reference(self) -> str | None:
        """The first configuration that compiles, as far as is known."""
        return next((t for t in self.distinct if (o := self._outcome(t)) is None or o.samples), None)

    def _same_bits(self, text: str, reference: str | None) -> bool | None:
        return True if text == reference else self.bits.get((text, reference or ""))

    def _incomplete(self) -> bool:
        reference = self._reference()
        return any(self._lacks(text, reference) for text in self.distinct)

    def _lacks(self, text: str, reference: str | None) -> bool:
        """Whether there is anything to find out about a configuration."""
        same, outcome = self._same_bits(text, reference), self._outcome(text)
        if outcome is None:
            return bool(same) or same is None or self.fast
        return bool(outcome.samples) and same is None

    def _so_far(self) -> Tuning:
        """What is known between two measurements."""
        timed = [e for e in self._timed if e.samples]
        return self._tuning(len(timed), {e.text: e.trial() for e in timed})

    def _tuning(self, measured: int, running: Mapping[str, Trial] | None = None) -> Tuning:
        """`running`: what has not been stored yet."""
        reference = self._reference()
        trials: list[Trial] = []
        seen: dict[str, Mapping[str, Any]] = {}
        for text, config in zip(self.texts, self.configs, strict=True):
            if text in seen:
                detail = f"the same as {show(seen[text])}: nothing in {self.fn.name} reads what differs"
                trials.append(Trial(config, "same", (), detail))
                continue
            seen[text] = config
            trial = replace(self._outcome(text) or (running or {}).get(text) or Trial(config), config=config)
            same = self._same_bits(text, reference)
            if same is False:
                trial = self._other_bits(trial)
            elif same is None and trial.samples:
                trial = replace(trial, status="bits", detail="not compared with the first configuration yet")
            trials.append(trial)
        key, note = self.key, ""
        if devices.home(self.target) == HOST and not devices.cuda_devices():
            note = f"There is no GPU here: these are the times of the {key.target} target on this processor."
        return Tuning(key.name, key.target, key.device, key.arguments, self.options["metric"], tuple(trials),
                      str(self.store.path), measured, note)  # fmt: skip

    def _other_bits(self, trial: Trial) -> Trial:
        if self.fast:
            return replace(trial, detail=f"other bits than the first one (fast=True); {trial.detail}".rstrip("; "))
        why = "gives other bits than the first configuration; @ts.numerics(fast=True) would allow it"
        return replace(trial, status="bits", detail=why)

    def _refuse(self, tuning: Tuning) -> NoReturn:
        """TS609 with every configuration's reason, then what was wrong in full, each finding once."""
        reasons = [f"{show(t.config)}: {t.detail.splitlines()[0] if t.detail else t.status}" for t in tuning.trials]
        message = f"none of the {len(reasons)} configurations of {self.fn.name} can be used:\n" + "\n".join(reasons)
        own = Diagnostic("TS609", message, self.fn.definition().span, function=self.fn.name)
        raise TuningError([own, *dict.fromkeys(self.findings)])

    # finding out

    def _look(self, step: Step) -> int:
        """Compiles, checks and times what is missing; stores every outcome as soon as it stands. Gives how many were
        timed."""
        reference, entries = self._compile(step)
        if reference is None:
            return 0
        step("comparing results", 0.6)
        entries = self._check(reference, entries)
        timed = [e for e in entries if self._outcome(e.text) is None]
        self._timed = timed
        with self._keeping(timed):
            self._time(timed, step)
        return len(timed)

    def _compile(self, step: Step) -> tuple[_Entry | None, list[_Entry]]:
        """The first configuration that works, and those about which something is to be found out."""
        reference: _Entry | None = None
        entries: list[_Entry] = []
        by_code: dict[Any, _Entry] = {}
        for n, (text, config) in enumerate(self.distinct.items()):
            outcome = self._outcome(text)
            if outcome is not None and not outcome.samples:
                continue
            if reference is not None and not self._lacks(text, reference.text):
                continue
            step(show(config), 0.6 * n / len(self.distinct))
            entry = self._compiled(text, config)
            if entry is None:
                continue
            reference = reference or entry
            twin = by_code.setdefault(entry.candidate.code, entry)
            if twin is not entry and outcome is None:
                twin.twins.append((text, config))
            else:
                entries.append(entry)
        return reference, entries

    def _compiled(self, text: str, config: Mapping[str, Any]) -> _Entry | None:
        """A configuration ready to run; None where it cannot be, which is stored with the reason."""
        try:
            variant = self.fn.with_config(**config)
            candidate = Candidate(variant, self.bound, self.target, self.watch, screen_for(self.target), self._random)
            if (why := unlaunchable(candidate.resources)) is not None:
                raise Pruned(why)
            return _Entry(text, config, candidate)
        except Pruned as e:
            self._settle(text, Trial(dict(config), "pruned", (), str(e)))
        except (DeviceError, MissingDependency):  # of the machine: no configuration will do better
            raise
        except TesseraError as e:
            self._failed(text, config, e)
        return None

    def _failed(self, text: str, config: Mapping[str, Any], error: TesseraError) -> None:
        """Recorded with its diagnostic. Too much shared memory, or a number of warps that there is not, is pruning."""
        self.findings += error.diagnostics
        message = "; ".join(f"{d.code}: {d.message}" for d in error.diagnostics[:3])
        too_much = isinstance(error, TargetError) and error.code in ("TS405", "TS411", "TS602")
        status: Status = "pruned" if too_much else "failed"
        trial = Trial(dict(config), status, (), message)
        if isinstance(error, _LASTING):
            self._settle(text, trial)
        else:
            self.passing[text] = trial

    def _settle(self, text: str, trial: Trial) -> None:
        self.known[text] = trial
        self.store.add(self.key, {text: trial})

    def _check(self, reference: _Entry, entries: list[_Entry]) -> list[_Entry]:
        """Compares results; those that may be chosen."""
        kinds = (False, True) if takes_any_data(self.fn, self.bound) else (False,)
        want = [reference.candidate.bits(random) for random in kinds]
        out: list[_Entry] = []
        found: dict[tuple[str, str], bool] = {}
        for e in entries:
            try:
                same = e is reference or [e.candidate.bits(random) for random in kinds] == want
            except TesseraError as error:
                self._failed(e.text, e.config, error)
                continue
            for text in (e.text, *(text for text, _ in e.twins)):
                found[text, reference.text] = same
            if same or self.fast:
                out.append(e)
        self.bits |= found
        self.store.add(self.key, {}, found)
        return out

    @contextmanager
    def _keeping(self, entries: list[_Entry]) -> Generator[None]:
        """Stores what has been timed; after Ctrl-C, what has been timed often enough for a median."""
        least = ENOUGH
        try:
            yield
            least = 1
        finally:
            done: dict[str, Trial] = {}
            for e in (e for e in entries if len(e.samples) >= least):
                done[e.text] = trial = e.trial()
                for text, config in e.twins:
                    done[text] = replace(trial, config=config, status="same", detail=f"same code as {show(e.config)}")
            self.store.add(self.key, done)

    # timing

    def _time(self, entries: list[_Entry], step: Step) -> None:
        """Interleaved rounds, every other one backwards."""
        limit = (self.options["timeout_ms"] or TIMEOUT_MS) * 1e-3
        before = [t.seconds for text, t in self.known.items() if text in self.distinct and t.seconds is not None]
        for e in entries:
            step(show(e.config), 0.6)
            self._calibrate(e, limit)
        alive, leading = [e for e in entries if not e.left], ""
        for done in range(1, ROUNDS + 1):
            if not alive:
                break
            for e in alive if done % 2 else reversed(alive):
                step(f"{show(e.config)}{leading}", 0.6 + 0.4 * done / ROUNDS)
                seconds = e.candidate.time(e.repeat)
                e.samples.append(seconds)
                e.spent += seconds * e.repeat
            ahead = min(entries, key=lambda e: statistics.median(e.samples))
            leading = f"; so far {show(ahead.config)} in {seconds_text(statistics.median(ahead.samples))}"
            best = min([*before, statistics.median(ahead.samples)])
            for e in alive:
                ratio = min(e.samples) / best
                if any(done >= rounds and ratio > factor for rounds, factor in GONE):
                    e.left = f"{ratio:.1f} times slower than the best after {done} round{'s' * (done > 1)}"
            alive = [e for e in alive if not e.left and e.spent < limit]

    def _calibrate(self, e: _Entry, limit: float) -> None:
        """How many launches make a sample that a clock can measure."""
        once = e.candidate.time(1)
        e.spent = once
        e.repeat = max(1, min(REPEATS, int(SAMPLE / once)))
        if once > limit:
            e.samples.append(once)
            e.left = f"one launch takes {once * 1e3:.0f} ms, timeout_ms is {limit * 1e3:.0f}"


# Says what tuning is doing, when it takes longer than a second.

PATIENCE = 1.0
"""seconds before anything is shown"""
Step = Callable[[str, float], None]
"""what is being done, and which part of everything is done (0 to 1)"""


@contextmanager
def terminal(title: str) -> Generator[Step]:
    """A bar on a terminal's standard error; nothing anywhere else, and nothing that stays."""
    if not sys.stderr.isatty():
        yield lambda text, part: None
        return
    from rich.console import Console  # slow: 20 ms, for a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # slow: 20 ms, for a terminal

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task: Any = progress.add_task(title, total=1.0, doing="")
    begin, shown = monotonic(), False

    def step(text: str, part: float) -> None:
        nonlocal shown
        progress.update(task, completed=part, doing=text)
        if not shown and monotonic() - begin > PATIENCE:
            shown = True
            progress.start()

    try:
        yield step
    finally:
        if shown:
            progress.stop()


@contextmanager
def shown(title: str, so_far: Callable[[], object]) -> Generator[Step]:
    """Reports the progress of a tuning to the listeners of waits; without one, a terminal shows a bar."""
    alone = contextlib.nullcontext() if events.waits_heard() else terminal(title)
    with events.waiting(title, so_far) as tell, alone as bar:

        def step(text: str, part: float) -> None:
            tell(text, part)
            if bar is not None:
                bar(text, part)

        yield step
