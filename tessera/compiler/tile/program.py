"""A lowered function: buffers, and launches of tile kernels in order.

Steps run in order: launches, and branches and loops over scalars that launches have written. A target compiles a
Program as a whole; the runtime binds arguments to its buffers and runs it. Everything in it is
plain data, so that it can be printed, fingerprinted and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias, TypeVar

from tessera.compiler.ir.core import Op, original_of
from tessera.compiler.ir.types import Shape
from tessera.compiler.structure import Structure
from tessera.compiler.unit import LaunchCheck, Param
from tessera.errors import Span
from tessera.immutable import immutable
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

Role = Literal["input", "output", "temp", "constant", "packed"]
Memory = TypeVar("Memory")


@immutable
class Buffer:
    """Contiguous memory (C order). `param` is the index of its parameter; `data` holds a constant's bytes.

    An output that is one of the parameters updated in place has role "input" and is in `Program.outputs` as well.
    "packed": filled before the first call from a constant parameter, as a target wants to read it.
    """

    id: int
    name: str
    shape: Shape
    dtype: DType
    role: Role
    param: int | None = None
    data: bytes | None = field(default=None, repr=False)
    kept: tuple[str, Span] | None = field(default=None, compare=False)
    """for a temporary that a backward pass reads: its description, and where the forward pass computes it"""


@immutable
class BufferArg:
    """A launch argument: `buffer` seen from element `offset`, with the shape and strides of the kernel's view."""

    buffer: int
    offset: Dim = 0


@immutable
class ScalarArg:
    """A launch argument that is parameter number `param`, a scalar."""

    param: int
    dtype: DType


@immutable
class Launch:
    """One launch of `kernel` (a `tile.func`); `args` match the kernel's block arguments."""

    kernel: Op
    args: tuple[BufferArg | ScalarArg, ...]
    span: Span
    flops: Dim
    bytes: Dim
    label: str
    """for people: the operators it fuses, e.g. "matmul+bias+gelu", or what a kernel of Tessera's own computes"""

    @property
    def by_hand(self) -> bool:
        """Whether it is a `@ts.kernel`, whose blocks its author chose. The kernels of functions carry other labels."""
        return self.label == self.kernel.attrs["sym_name"]

    @property
    def code(self) -> Op:
        """The kernel; where it is a copy that nobody has looked into, its original, which differs in names alone."""
        return original_of(self.kernel)

    @property
    def elsewhere(self) -> bool:
        """Whether the kernel's text stands in another file than the launch: its lines are not lines of that file."""
        return self.kernel.span.file != self.span.file


@immutable
class Branch:
    """Runs `then` where the bool scalar in buffer `cond` holds, else `orelse`."""

    cond: int
    then: tuple[Step, ...]
    orelse: tuple[Step, ...]


@immutable
class Loop:
    """Runs `head`, which writes the bool scalar in buffer `cond`, then, while it holds, `body` and `head` again.

    `turns`: buffers that exchange their memory after each `body`, which moves what is in them and copies nothing. Of
    `(a, b, c)`, a gets the memory of b, b that of c, and c that of a."""

    cond: int
    head: tuple[Step, ...]
    body: tuple[Step, ...]
    turns: tuple[tuple[int, ...], ...] = ()


Step: TypeAlias = Launch | Branch | Loop


@immutable
class BandedLaunch:
    """A launch whose programs run a few at a time, between those of others. `units`: the parts that its programs are
    cut into, of `programs` each. The first unit is `start` units from the beginning of the bands.

    A unit waits for nothing that is more than `late` units further on along the bands, and for nothing that is more
    than `early` units further back, of all launches before it together. `last`: it waits for both ends of the bands,
    and runs when all but the ends is done."""

    units: int
    programs: int
    start: int
    late: int
    early: int
    last: bool = False


@immutable
class Bands:
    """Launches that follow each other from number `first` of the Program, and may run in bands: `step` units of each at
    a time. Run one after the other they do the same. The bands are `end` units long.

    `local`: temporaries, each with the bytes of a unit, of which the launches of a band touch the band's own units
    only. Later bands may use the memory of earlier ones."""

    first: int
    launches: tuple[BandedLaunch, ...]
    step: int
    end: int
    local: tuple[tuple[int, int], ...] = ()

    @property
    def ring(self) -> bool:
        """Whether what is at one end of the bands needs what is at the other."""
        return any(launch.last for launch in self.launches)

    @property
    def last(self) -> int:
        return self.first + len(self.launches) - 1


@immutable
class Program:
    """`free` names the dims that are arguments of the compiled code; all others have been substituted."""

    name: str
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    """buffer ids, in the order of the returned values"""
    free: tuple[str, ...] = ()
    checks: tuple[LaunchCheck, ...] = ()
    span: Span | None = None
    structure: Structure = None
    states: tuple[int, ...] = ()
    """buffers of parameters that hold other values when it has run"""
    bands: tuple[Bands, ...] = ()
    """in the order of their launches"""
    sides: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]], compare=False, repr=False)
    """where some of many equal layers stand for all, which of them compute a buffer (`OpOrigin.sides`)"""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, those inside branches and loops too, in order of appearance."""
        return tuple(_launches(self.steps))


@immutable
class Exchange:
    """Buffers among which loops exchange memory, all of one size. Those that are `bound` to an array of the call have
    their content there again when the Program has run (`come_home`); then nothing needs the content of the others."""

    bound: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def buffers(self) -> tuple[int, ...]:
        return (*self.bound, *self.others)


def exchanges(program: Program) -> list[Exchange]:
    """What the loops of a Program exchange: no two have a buffer in common."""
    bound = {b.id for b in program.buffers if b.role != "temp"}
    return [
        Exchange(tuple(sorted(group & bound)), tuple(sorted(group - bound))) for group in turned_together(program.steps)
    ]


def turned_together(steps: Sequence[Step]) -> list[set[int]]:
    """Buffers any of which may have the memory of any other one, as loops exchange it."""
    found: list[set[int]] = []
    for step in steps:
        match step:
            case Launch():
                continue
            case Branch():
                new = turned_together((*step.then, *step.orelse))
            case Loop():
                new = [*map(set, step.turns), *turned_together((*step.head, *step.body))]
        for group in new:
            apart = [other for other in found if not other & group]
            found = [*apart, group.union(*(other for other in found if other & group))]
    return found


def turn(memory: dict[int, Memory], turns: Sequence[Sequence[int]]) -> None:
    """Exchanges the memory of buffers after a round."""
    for buffers in turns:
        behind = [memory[b] for b in (*buffers[1:], buffers[0])]
        memory.update(zip(buffers, behind, strict=True))


def come_home(
    exchange: Exchange,
    memory: dict[int, Memory],
    home: Mapping[int, Memory],
    copy: Callable[[Memory, Memory], object],
) -> None:
    """Brings what is in bound buffers back to the memory that they began with; `copy(to, source)` copies all of it."""
    for b in exchange.bound:
        if memory[b] == home[b]:
            continue
        there = next(other for other in exchange.buffers if memory[other] == home[b])
        if there in exchange.bound:  # what is there is needed
            free = exchange.others[0]
            copy(memory[free], home[b])
            memory[there], memory[free] = memory[free], memory[there]
            there = free
        copy(home[b], memory[b])
        memory[b], memory[there] = memory[there], memory[b]


def _launches(steps: tuple[Step, ...]) -> Iterator[Launch]:
    for step in steps:
        match step:
            case Launch():
                yield step
            case Branch():
                yield from _launches(step.then)
                yield from _launches(step.orelse)
            case Loop():
                yield from _launches(step.head)
                yield from _launches(step.body)
