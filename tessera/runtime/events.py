"""What the runtime says about itself while it works: one event schema for every target.

The runtime publishes events, others subscribe to them. The runtime never imports the profiler, and with no
subscriber `active()` is false and a launch pays one call and one truth test.

All times are integer nanoseconds on the `time.perf_counter_ns` clock. A device with its own clock converts before it
publishes. A quantity that is not known is None, and `LaunchEvent.unavailable` says why.

Publishing a launch::

    if events.active():
        launch = events.new_launch()
        events.publish(LaunchEvent(launch, "saxpy", "cpu", "cpu:0", (64,), start, duration, flops, bytes))
        if events.tiles_wanted():                    # the instrumented variant of the kernel ran
            events.publish(TileBatch.from_columns(phases=("tile",), launch=launch, tile=ids, start=t0, duration=dt))
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple, TypedDict

from tessera.immutable import immutable
from tessera.language.lazy import np

__all__ = [
    "UNASSIGNED",
    "CallArgument",
    "CallEvent",
    "CallTime",
    "CompileEvent",
    "Event",
    "GraphEvent",
    "LaunchAttributes",
    "LaunchEvent",
    "MemoryEvent",
    "ProfilingEvent",
    "Source",
    "TileBatch",
    "TileEvent",
    "WaitEvent",
    "active",
    "add_drain",
    "details_wanted",
    "drain",
    "graphs_wanted",
    "memory_wanted",
    "new_launch",
    "paused",
    "publish",
    "publish_recording",
    "recording_time",
    "running",
    "sampled",
    "subscribe",
    "subscribe_waits",
    "tiles_wanted",
    "unfinished",
    "unsubscribe",
    "waiting",
    "waits_heard",
    "witness",
    "witnessed",
]

Source = Literal["measured", "modelled", "static"]
"""How a figure was obtained: timed on this machine, computed by a model, or read from the program without running."""

UNASSIGNED = -1
"""A residency slot that the target did not record; the profiler assigns one by interval partitioning."""


class LaunchAttributes(TypedDict, total=False):
    """Names that views and hints understand in `LaunchEvent.attributes`; others are carried along and shown."""

    file: str
    """source file of the call"""
    line: int
    """source line of the kernel or function, 1-based"""
    title: str
    """the kernel as its reader knows it: `attend:12 ts.softmax(scores)`"""
    function: str
    """the `@ts.function` or kernel that the launch belongs to"""
    run: int
    """the same for all launches of one call: the number of the first of them"""
    sizes: Mapping[str, int]
    """the dims of that function, and its whole numbers that are known when it is compiled"""
    config: Mapping[str, Any]
    """the schedule's parameters that the function or kernel ran with; absent where it has none"""
    dtype: str
    """element type that the arithmetic is done in; selects the compute ceiling"""
    copied: int
    """bytes of arguments that were copied for its call, because they are not contiguous; absent where none were"""
    copying: int
    """ns that this took, before the first launch of the call"""
    reads: Sequence[tuple[int, int]]
    """(buffer id, bytes) of every buffer read"""
    writes: Sequence[tuple[int, int]]
    """(buffer id, bytes) of every buffer written"""
    parts: Sequence[tuple[str, Sequence[tuple[str, str, str] | None], int]]
    """what each program reads: an operand, for each of its axes first index, end and extent, as dims over the sizes
    and the program's numbers, None where it is not known; and the bytes of an element"""
    resources: int
    """SMs or workers that the launch could have used"""
    slots: int
    """tiles that can be resident at once on one resource"""
    taken: int
    """parts, of neighbouring tiles, that lanes take as they become free; absent where each lane has a fixed share"""
    occupancy: float
    """resident warps over the most the SM can hold, 0..1, from the kernel's registers and shared memory"""
    occupancy_limiter: str
    """what bounds `occupancy`: registers, shared memory, threads or blocks"""
    record_ns: float
    """measured cost of one tile record on this target"""
    clock_ns: int
    """the steps of the clock that timed its tiles; absent where they are not known or below 1 ns"""
    dropped: int
    """tile records of its call for which there was no room; absent where there are none"""
    symbol: str
    """the function that other tools see run; absent on CPUs"""
    seen_by: str
    """the tool that saw it, where no call of Tessera's made it"""
    moved: int
    """bytes of a copy or fill that it is"""
    stream: int
    """the CUDA stream it ran on, as CUPTI numbers it; absent where CUPTI did not see it"""
    graph: int
    """the CUDA graph that launched it, by number; absent where no graph did"""
    replay: int
    """which of the graph's runs it belongs to, counted from 1"""


@immutable
class TileEvent:
    """One phase of one tile: what ran where, from when, for how long. Times in ns."""

    launch: int
    tile: int
    """linear index in the launch's grid, last grid axis fastest"""
    resource: int
    """SM on a GPU, worker on a CPU"""
    slot: int
    """residency slot on that resource: tiles on one (resource, slot) never overlap"""
    phase: str
    start: int
    duration: int
    line: int
    """source line, 0 when unknown"""
    rank: int = 0
    device: int = 0

    @property
    def end(self) -> int:
        return self.start + self.duration


@immutable
class LaunchEvent:
    """One kernel launch. `start` and `duration` in ns; `flops` in operations; `bytes` is the least traffic it needs."""

    launch: int
    kernel: str
    target: str
    device: str
    """such as "cpu:0" or "cuda:1" """
    grid: tuple[int, ...]
    start: int
    duration: int | None
    """None for a launch that was analysed and not run (`source="static"`)"""
    flops: int | None = None
    bytes: int | None = None
    source: Source = "measured"
    """how `duration` was obtained"""
    attributes: LaunchAttributes | Mapping[str, Any] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """name of a missing figure -> why it is missing"""
    rank: int = 0

    @property
    def title(self) -> str:
        """The kernel as its reader knows it: where the expression stands that it computes, and its text."""
        return str(self.attributes.get("title", self.kernel))

    @property
    def tiles(self) -> int:
        """Number of tiles in the grid."""
        count = 1
        for extent in self.grid:
            count *= extent
        return count


@immutable
class CompileEvent:
    """One compilation, or one lookup that avoided it. `stages` are (name, ns) in the order they ran, end to end."""

    name: str
    target: str
    start: int
    duration: int
    stages: tuple[tuple[str, int], ...] = ()
    cache: Literal["hit", "miss", "disk"] = "miss"
    attributes: Mapping[str, Any] = field(default_factory=dict)


@immutable
class CallArgument:
    """What a call was given, without keeping it alive. `value()` is None once an array is gone."""

    value: Callable[[], Any]
    shape: tuple[int, ...] = ()
    dtype: str = ""
    host: bool = True
    """whether it lay in the host's memory"""
    strides: tuple[int, ...] = ()
    """in bytes, of an array that is not contiguous, which is copied for the call"""
    library: str = ""
    """the package that the array is of: "numpy", "torch" """


@immutable
class CallEvent:
    """A call whose launches were published, so that it can be repeated."""

    run: int
    """as in `LaunchAttributes`"""
    program: Callable[[], Any]
    """the function or kernel; None once it is gone"""
    arguments: Mapping[str, CallArgument]
    """by parameter; items of nested ones as `layers.0`"""
    fixed: Mapping[str, Any]
    """what was known when it was compiled"""


@immutable
class CallTime:
    """A call, where a listener samples: whether it was `recorded`, with launches and tiles, or not. Times in ns."""

    name: str
    """of the function or kernel"""
    sizes: Mapping[str, int]
    start: int
    duration: int
    recorded: bool


@immutable
class ProfilingEvent:
    """Time of a call, in ns, that went into recording it: the program alone would not have spent it."""

    start: int
    duration: int


@immutable
class GraphEvent:
    """A CUDA graph that holds launches: when it has been captured, and then how often it ran since it was told of."""

    graph: int
    """as in `LaunchAttributes`"""
    device: str
    launches: int
    """published ones, of a run; the graph may hold others' too"""
    replays: int | None
    """None where they cannot be seen"""
    recorded: int = 0
    """replays, of the first ones, whose launches are published: there was no room for the others"""
    reason: str = ""
    """why they cannot be seen"""


Held = tuple[tuple[str, int, str, int], ...]
"""values by file, forward line, name and bytes, largest first"""


@immutable
class MemoryEvent:
    """An allocation (`delta` > 0) or a release (`delta` < 0), in bytes; `total` is what is held after it."""

    time: int
    device: str
    delta: int
    total: int
    what: str
    line: int = 0
    file: str = ""
    held: Held = ()
    """of temporaries those that a backward pass reads"""
    block: int = 0
    """the same for an allocation and its release, 0 where that is not known"""
    stack: tuple[tuple[str, int, str], ...] = ()
    """of an allocation: file, line and function of the program's frames, the innermost first"""


@immutable
class WaitEvent:
    """Something that a person may have to wait for begins, goes on or ends: a compilation, a tuning.

    They may lie in one another, each on one thread. `doing` and `part` (0 to 1) tell how far it is, where it is known.
    `so_far` gives what has been found, as a result that shows itself in a notebook; a listener may call it while it is
    told of the event, when nothing is being measured.
    """

    task: int
    """the same for all events of one wait"""
    title: str
    """"Compiling saxpy for cpu" """
    state: Literal["begin", "step", "end"]
    doing: str = ""
    part: float | None = None
    so_far: Callable[[], object] | None = None


# Widest first, so that the record is 48 bytes without padding and native code can write it as a C struct.
_TILE_COLUMNS = (
    ("launch", "<i8", 0),
    ("tile", "<i8", 0),
    ("start", "<i8", 0),
    ("duration", "<i8", 0),
    ("resource", "<i4", 0),
    ("line", "<i4", 0),
    ("slot", "<i2", UNASSIGNED),
    ("phase", "<i2", 0),
    ("rank", "<i2", 0),
    ("device", "<i2", 0),
)


class TileBatch:
    """Many tile records as one structured NumPy array: 48 bytes a record, turned into `TileEvent`s only on demand.

    `records["phase"]` indexes `phases`. Iterating yields `TileEvent`s.
    """

    __slots__ = ("phases", "records")

    def __init__(self, records: np.ndarray, phases: Sequence[str]):
        if records.dtype != self.dtype():
            raise TypeError(f"tile records must have dtype {self.dtype()}, not {records.dtype}")
        self.records = records
        self.phases = tuple(phases)

    @staticmethod
    def dtype() -> np.dtype:
        """The layout of one record."""
        return np.dtype([(name, kind) for name, kind, _ in _TILE_COLUMNS])

    @classmethod
    def from_columns(cls, phases: Sequence[str], **columns: Any) -> TileBatch:
        """Builds a batch from arrays of one length; scalars are repeated, columns left out take their default."""
        unknown = columns.keys() - {name for name, _, _ in _TILE_COLUMNS}
        if unknown:
            raise TypeError(f"unknown tile columns: {', '.join(sorted(unknown))}")
        length = np.broadcast_shapes((1,), *(np.shape(column) for column in columns.values()))[0]
        records = np.empty(length, cls.dtype())
        for name, _, default in _TILE_COLUMNS:
            records[name] = columns.get(name, default)
        return cls(records, phases)

    @classmethod
    def from_events(cls, tiles: Sequence[TileEvent]) -> TileBatch:
        """The columnar form of a sequence of `TileEvent`s."""
        phases = {name: index for index, name in enumerate(dict.fromkeys(tile.phase for tile in tiles))}
        records = np.empty(len(tiles), cls.dtype())
        for name, _, _ in _TILE_COLUMNS:
            values = (getattr(tile, name) for tile in tiles)
            records[name] = [phases[value] for value in values] if name == "phase" else list(values)
        return cls(records, tuple(phases))

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[TileEvent]:
        names = [name for name, _, _ in _TILE_COLUMNS]
        for row in self.records.tolist():
            values = dict(zip(names, row, strict=True))
            values["phase"] = self.phases[values["phase"]]
            yield TileEvent(**values)


Event = LaunchEvent | CompileEvent | CallEvent | CallTime | ProfilingEvent | GraphEvent | MemoryEvent | TileBatch
Listener = Callable[[Event], None]
Waiter = Callable[[WaitEvent], None]
Witness = Callable[[Any, Sequence[Any], Any], None]
Choice = Callable[[str, Mapping[str, int]], bool]
"""whether a call is to be recorded, by what is called and its sizes; asked once for each call"""


class _Hearer(NamedTuple):
    token: int
    listener: Listener
    tiles: bool
    choice: Choice | None


_lock = threading.Lock()
_listeners: tuple[_Hearer, ...] = ()  # replaced, never mutated: readers need no lock
_waiters: tuple[tuple[int, Waiter], ...] = ()
_witness: ContextVar[Witness | None] = ContextVar("witness", default=None)
_quiet = threading.local()
"""the tokens that hear nothing of what this thread does"""
_recording = threading.local()
"""ns of this thread's time that recording has taken so far"""
_drains: tuple[Callable[[], None], ...] = ()
_tiles_wanted = _sampled = False
_tokens = itertools.count(1)
_launches = itertools.count(1)
_tasks = itertools.count(1)


def active() -> bool:
    """True if there is a listener for this thread. Ask before building an event."""
    return bool(_listeners) and bool(_hearing())


def tiles_wanted() -> bool:
    """True when a listener asked for tile records: the launch should run the instrumented variant of its kernel."""
    return _tiles_wanted and any(hearer.tiles for hearer in _hearing())


def graphs_wanted() -> bool:
    """The same for launches that are captured into a graph, which no listener can choose among."""
    return _tiles_wanted and any(hearer.tiles and hearer.choice is None for hearer in _hearing())


def sampled() -> bool:
    """True when a listener records some calls only, and of the others hears how long they took."""
    return _sampled


def details_wanted(name: str, sizes: Mapping[str, int]) -> bool:
    """Whether a listener wants the launches of the call that begins. Where none does, its CallTime is enough."""
    if not _sampled:
        return True
    wanted = [hearer.choice is None or hearer.choice(name, sizes) for hearer in _hearing()]  # each counts its calls
    return any(wanted)


def memory_wanted() -> bool:
    """True if a listener wants each allocation: all do that do not sample calls."""
    return bool(_listeners) and any(hearer.choice is None for hearer in _hearing())


def _hearing() -> tuple[_Hearer, ...]:
    """Who hears what this thread does."""
    quiet: frozenset[int] = getattr(_quiet, "tokens", frozenset())
    return tuple(entry for entry in _listeners if entry.token not in quiet) if quiet else _listeners


_running: dict[int, Callable[[str], list[LaunchEvent]]] = {}


@contextmanager
def running(tell: Callable[[str], list[LaunchEvent]]) -> Generator[None]:
    """Around a run that has listeners: `tell` makes its launches without a time, for the reason that it is given."""
    number = new_launch()
    _running[number] = tell
    try:
        yield
    finally:
        del _running[number]


def unfinished(why: str) -> list[LaunchEvent]:
    """The launches that other threads are in the midst of."""
    return [launch for tell in list(_running.values()) for launch in tell(why)]


def new_launch() -> int:
    """A launch id, unique in this process."""
    return next(_launches)


def subscribe(listener: Listener, *, tiles: bool = True, choice: Choice | None = None) -> int:
    """Calls `listener(event)` for every event from any thread until `unsubscribe(token)`.

    The listener runs on the publishing thread: it should store and return. With `tiles=False` it does not ask for
    tile records, though it receives those that another listener asked for. With `choice` it hears of a call that it
    does not choose only a CallTime, and nothing of memory, unless another listener wants them.
    """
    drain()  # what has run before is not for this listener
    with _lock:
        token = next(_tokens)
        _replace((*_listeners, _Hearer(token, listener, tiles, choice)))
    return token


def _replace(listeners: tuple[_Hearer, ...]) -> None:
    global _listeners, _tiles_wanted, _sampled  # slow: a launch reads each with one look-up
    _listeners = listeners
    _tiles_wanted = any(hearer.tiles for hearer in listeners)
    _sampled = any(hearer.choice is not None for hearer in listeners)


def unsubscribe(token: int) -> None:
    """Ends a subscription; a token that has ended already is ignored."""
    global _waiters  # slow: a launch reads it with one look-up
    with _lock:
        _replace(tuple(entry for entry in _listeners if entry.token != token))
        _waiters = tuple(entry for entry in _waiters if entry[0] != token)


def subscribe_waits(listener: Waiter) -> int:
    """As `subscribe`, for `WaitEvent`s alone, which other listeners do not get: launches pay nothing for it."""
    global _waiters  # slow: a launch reads each with one look-up
    with _lock:
        token = next(_tokens)
        _waiters = (*_waiters, (token, listener))
    return token


def waits_heard() -> bool:
    """True if something displays what is being waited for."""
    return bool(_waiters)


@contextmanager
def waiting(title: str, so_far: Callable[[], object] | None = None) -> Generator[Callable[[str, float], None]]:
    """Stands around what may take long; the function that it gives tells how far it is: what is done, which part."""
    task = next(_tasks)

    def step(doing: str, part: float) -> None:
        _tell_waiters(WaitEvent(task, title, "step", doing, part, so_far))

    _tell_waiters(WaitEvent(task, title, "begin"))
    try:
        yield step
    finally:
        _tell_waiters(WaitEvent(task, title, "end"))


def _tell_waiters(event: WaitEvent) -> None:
    _tell(_waiters, event)


@contextmanager
def paused() -> Generator[None]:
    """Inside it nobody who listens now hears what this thread does: the launches of a measurement are not the
    program's own."""
    before: frozenset[int] = getattr(_quiet, "tokens", frozenset())
    _quiet.tokens = before | {hearer.token for hearer in _listeners}
    try:
        yield
    finally:
        _quiet.tokens = before


@contextmanager
def witnessed(witness: Witness | None) -> Generator[None]:
    """Inside it, `witness(launch, arguments, result)` is called after each launch of this thread; what it raises, the
    call raises. None: the launches of the block have no witness."""
    token = None if witness is None else subscribe(_ignore, tiles=False, choice=_never)
    before = _witness.set(witness)
    try:
        yield
    finally:
        _witness.reset(before)
        if token is not None:
            unsubscribe(token)


def witness() -> Witness | None:
    """Who is told of the launches of this thread."""
    return _witness.get()


def _ignore(event: Event) -> None:
    """Hears nothing: launches take the way on which they are witnessed."""


def _never(name: str, sizes: Mapping[str, int]) -> bool:
    return False


def add_drain(wait: Callable[[], None]) -> None:
    """Registers a target that learns its times late: `wait()` blocks until they are known and publishes them."""
    global _drains  # slow: a launch reads each with one look-up
    with _lock:
        _drains = (*_drains, wait)


def drain() -> None:
    """Waits until every launch made so far has been published. A listener calls it before it stops listening."""
    for wait in _drains:
        wait()


def publish_recording(since: int) -> None:
    """Tells listeners that recording has taken this thread's time since then, ns."""
    took = perf_counter_ns() - since
    _recording.ns = recording_time() + took
    publish(ProfilingEvent(since, took))


def recording_time() -> int:
    """ns of this thread's time that recording has taken so far."""
    return getattr(_recording, "ns", 0)


def publish(event: Event) -> None:
    """Hands an event to every listener. A listener that raises is removed with a warning: the launch goes on."""
    _tell([(hearer.token, hearer.listener) for hearer in _hearing()], event)


def _tell(listeners: Iterable[tuple[int, Callable[[Any], None]]], event: Event | WaitEvent) -> None:
    for token, listener in listeners:
        try:
            listener(event)
        except Exception as error:
            unsubscribe(token)
            warnings.warn(f"an event listener failed and was removed: {error!r}", RuntimeWarning, stacklevel=3)
