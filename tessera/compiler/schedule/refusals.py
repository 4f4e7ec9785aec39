"""Why two operators do not share a kernel, although one reads what the other computes.

`graph_to_schedule` keeps the reasons with the ops that they are about, as plain data (attr `apart`); `refusals` reads
them. Schedule IR, `explain` and editors show them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from tessera.compiler.ir.core import Attr, Op
from tessera.errors import Span
from tessera.immutable import immutable

CAUSES: dict[str, str] = {
    "product reads": "a product reads each element of its operands many times, so they are in memory before it starts",
    "computed places": "it reads at computed places, so all that it may read is in memory before it starts",
    "segments": "a segment may have elements anywhere, so they are in memory before it starts, as it is when it ends",
    "put": "slices are put at computed places of a tensor, whose memory is changed when all that reads it has ended",
    "sorted lines": "any element may come first, so lines are in memory before they are sorted, and when they are",
    "transformed lines": "a result depends on its whole line, so lines are in memory before their transform and after",
    "table": "the numbers are in memory already: the compiler has computed them",
    "random": "random numbers are drawn in a kernel of their own, whose elements are numbered in one order",
    "parts": "a concatenation or padding puts what other kernels compute, each in its order, into one result",
    "loop or branch": "a loop or branch runs kernels of its own",
    "called kernel": "a kernel that is called runs by itself, on arguments in memory",
    "sum of everything": "a reduction of everything is known only when all programs of its kernel have ended",
    "whole rows": "it needs whole rows, and a program of the product has only a block of its result",
    "axes": "they reduce or scan different axes, and a program keeps whole lines of one axis",
    "order": "a view between them moves elements, so another program needs an element than computes it",
    "pieces": "to compute it for each part would take more time for launches and rows than it saves of memory",
    "dear": "it reads slices of the first, and to compute each of them again would take longer than memory does",
    "transposed": "it transposes the axis along which blocks of the first are stored, so each element would be a store",
    "shape": "they run over different shapes, so another program needs an element than computes it",
    "between": "a kernel between them needs the first and is needed by the second",
    "epilogue": "what is done with the product walks memory in an order that its rows and columns do not have",
    "reduced": "a reduction computes it from what is in memory anyway, so that it need not be stored as well",
    "later": "the product would wait for what is computed after it, and its operands in memory, which are larger",
    "two kernels": "the kernel of a product takes in operators that follow it, and no other kernel",
    "other results": "others read what is computed on the way, and a program of a long reduction gives one value alone",
    "size": "together they have more operators or read more arrays than a kernel keeps in registers",
    "number": "a number is all that they have in common, so one kernel would save no memory and have fewer programs",
    "computed again": "it is computed again so that its result need not be kept until then",
    "scheduler": "the scheduler keeps them apart",
}
"""cause -> the reason, for people; "it" is the second operator"""


class Apart(Exception):
    """An operator or group does not come into a group. `cause`: one of CAUSES."""

    def __init__(self, cause: str) -> None:
        super().__init__(CAUSES[cause])
        self.cause = cause


@immutable
class Refusal:
    """The operator that reads (`second`) is not in the kernel of the one that computes (`first`)."""

    first: str
    at: Span
    second: str
    to: Span
    cause: str

    @property
    def why(self) -> str:
        return CAUSES[self.cause]

    def __str__(self) -> str:
        """`contract (line 9) and max (line 10) are in two kernels: it needs whole rows, ...`"""
        return (
            f"{self.first} (line {self.at.line}) and {self.second} (line {self.to.line}) are in two kernels: {self.why}"
        )

    @staticmethod
    def of(first: Op, second: Op, cause: str, before: Collection[Op | None] = ()) -> Refusal:
        while first.name == "graph.cast" and _named(first) == "cast":
            behind = first.operands[0].op
            if behind is None or behind not in before:
                break
            first = behind  # of a conversion behind an operator people say the operator
        return Refusal(_named(first), first.span, _named(second), second.span, cause)

    def attribute(self) -> Attr:
        return (self.first, _plain(self.at), self.second, _plain(self.to), self.cause)

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first, "first_line": self.at.line, "second": self.second, "second_line": self.to.line,
            "file": self.to.file, "cause": self.cause, "why": self.why,
        }  # fmt: skip


def _plain(s: Span) -> Attr:
    return (s.file, s.line, s.col, s.end_line, s.end_col)


def _named(op: Op) -> str:
    """As the labels of kernels say it."""
    name = op.name.partition(".")[2]
    return "copy" if name == "cast" and op.result.type == op.operands[0].type else name


def own_refusals(op: Op) -> list[Refusal]:
    """The refusals to fuse one op of Schedule IR with others."""
    found = cast("tuple[tuple[Any, ...], ...]", op.attrs.get("apart", ()))
    return [Refusal(a, Span(*at), b, Span(*to), cause) for a, at, b, to, cause in found]


def notes(op: Op) -> list[str]:
    """For the reader of Schedule IR, above the op."""
    return [str(r) for r in own_refusals(op)]


def refusals(schedule: Op) -> list[Refusal]:
    """All of a `schedule.func`, in order."""
    return [r for op in schedule.walk() for r in own_refusals(op)]
