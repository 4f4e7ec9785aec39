"""Finds groups that give equal kernels, such as the layers of a model. One kernel is written; the others are copies.

Equal groups may differ only in the names of their inputs. Source positions are part of a kernel, so layers are equal
only if the same lines of source make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from tessera.compiler.ir.core import Op, RenamedCopy, Value
from tessera.compiler.lower.kernel_writer import Argument
from tessera.immutable import mutable
from tessera.language.dims import Dim


@mutable
class LoweredGroup:
    """A group's kernel, what a launch of it passes, and its floating-point operations."""

    group: Op
    kernel: Op
    arguments: list[Argument]
    flops: Dim


@mutable
class RepeatedGroups:
    """The groups that a function has had so far."""

    known: dict[tuple[Any, ...], LoweredGroup] = field(default_factory=dict[tuple[Any, ...], LoweredGroup])

    def lowered(
        self, group: Op, scalars: set[Value], places: object, taken: Sequence[Value | None], name: str,
        write: Callable[[], LoweredGroup],
    ) -> LoweredGroup:  # fmt: skip
        """The result of `write` for a group, whose kernel is called `name` and stores to `places`; a copy of an earlier
        result where there was an equal group. `taken`: the group's values to whose memory it stores its results."""
        numbers = {v: i for i, v in enumerate(_values(group))}
        key = (repr(places), tuple(v and numbers.get(v, v) for v in taken), *_shape(group, scalars))
        first = self.known.get(key)
        if first is None:
            self.known[key] = made = write()
            return made
        return _copied(first, group, name)


def _copied(first: LoweredGroup, group: Op, name: str) -> LoweredGroup:
    now: dict[Value | str, Value] = dict(zip(_values(first.group), _values(group), strict=True))
    arguments = [
        Argument(now.get(a.base, a.base), a.offset, a.type, now.get(a.named, a.named), a.changed)
        for a in first.arguments
    ]
    names: list[str] = []
    for a in arguments:
        names.append(a.name(names, a.named))
    return LoweredGroup(group, RenamedCopy(first.kernel, name, names), arguments, first.flops)


def _values(group: Op) -> Iterator[Value]:
    block = group.region.block
    yield from block.args
    for op in block.ops:
        yield from op.results


def _shape(group: Op, scalars: set[Value]) -> Iterator[Any]:
    """Equal for groups whose kernels differ in names of arguments alone. Attributes as text: there 0.0 is not -0.0."""
    block = group.region.block
    numbers: dict[Value, int | Value] = {v: i for i, v in enumerate(_values(group))}
    yield group.span
    yield tuple(repr(group.attrs[name]) for name in ("kind", "space", "inner"))
    yield tuple((a.type, a in scalars) for a in block.args)
    for op in block.ops:
        yield op.name
        yield op.span
        yield tuple(numbers.get(v, v) for v in op.operands)  # one from around a group is the same in both
        yield tuple((r.type, r.hint) for r in op.results)
        yield repr(sorted(op.attrs.items(), key=_first))


def _first(item: tuple[str, Any]) -> str:
    return item[0]
