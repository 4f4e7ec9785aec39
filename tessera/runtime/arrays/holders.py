"""Who holds memory: the line that made a block, and the variables through which the program still reaches it.

Lines are recorded when a block is made, unless it is small and there is no listener: recording takes about as long as
a launch that fills it. Variables are searched on request: from the frames of the asking thread, inner ones first,
through attributes, lists, tuples and dicts. For the largest blocks that were not found this way, all objects that the
collector knows are searched.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from inspect import CO_OPTIMIZED
from itertools import count, islice
from types import FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from tessera.immutable import immutable
from tessera.language.decorators import Decorated
from tessera.language.lazy import np
from tessera.runtime.callsite import libraries
from tessera.tracebacks import OWN

LARGE = 1 << 20
"""bytes from which on blocks have a line outside of profiles, arrays that others made are named, and blocks that no
frame reaches are looked for"""
REACHED, DEEP = 5_000, 6
"""objects that are looked at from frames, and how far from a variable"""
_SAID = 3
"""the most objects that are reported as holders of one block"""
_WIDE = 1_000
"""items of a list or dict that are looked at"""


_PASSED_OVER = (type, ModuleType, FunctionType, Decorated, str, bytes)


class HeldBlock(NamedTuple):
    """Memory that Tessera gave out: `what` for, and the line of the program that asked."""

    nbytes: int
    what: str
    file: str
    line: int


@immutable
class Holder:
    """Memory that is held. `number` is that of Tessera's block, 0 for arrays of others, whose line is not known."""

    number: int
    nbytes: int
    paths: tuple[str, ...]
    """the variables, such as `model.layers[0] (train.py, step)`"""
    what: str = ""
    file: str = ""
    line: int = 0
    count: int = 1


blocks: dict[int, HeldBlock] = {}
"""those that are held, by their numbers: the large ones, and all that were made in a profile"""
new_number = count(1).__next__


class Bookkeeping:
    """Records of Tessera's own, such as a profile: what they reach is not held by the program."""


class Owner:
    """What arrays over a block have as the last of their bases."""

    __slots__ = ("number",)
    number: int


def _owner(array: Any) -> Any:
    """What an array's memory belongs to: a block, or the array that it is a view of."""
    while issubclass(type(array), np.ndarray) and (base := np.ndarray.base.__get__(array)) is not None:  # pyright: ignore
        array = base
    return array


def variables(frame: FrameType | None) -> dict[int, tuple[Any, list[str]]]:
    """Arrays that are reached from a frame and those that called it, with their paths, by what owns their memory.

    None of the program's code runs for it: attributes are read from where instances keep them.
    """
    out: dict[int, tuple[Any, list[str]]] = {}
    queue: deque[tuple[Any, str, str, int]] = deque()
    scopes: dict[int, Any] = {}
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((OWN, *libraries())):
            inside = "" if code.co_name == "<module>" else f", {code.co_name}"
            local = frame.f_locals
            for scope, where in ((local, inside), (frame.f_globals, "")):
                if id(scope) not in scopes:
                    scopes[id(scope)] = scope
                    place = f" ({os.path.basename(code.co_filename)}{where})"
                    queue.extend((v, n, place, 0) for n, v in list(scope.items()) if not n.startswith("__"))
            if code.co_flags & CO_OPTIMIZED and type(local) is dict:
                local.clear()  # a copy, which the frame would keep, and all that is in it, after its variables change
        frame = frame.f_back
    seen = set(scopes)  # a shell has its user's variables as an attribute too
    while queue and len(seen) < REACHED:
        value, path, place, depth = queue.popleft()
        if issubclass(type(value), np.ndarray):
            owner = _owner(value)
            out.setdefault(id(owner), (value, []))[1].append(path + place)
        elif depth < DEEP and id(value) not in seen and not issubclass(type(value), (*_PASSED_OVER, Bookkeeping)):
            seen.add(id(value))
            queue.extend((v, path + step, place, depth + 1) for step, v in _parts(value))
    return out


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if issubclass(kind, dict):
        for k, v in _first(dict.items(value)):
            yield f"[{k!r}]" if type(k) in (str, int) else "[...]", v
    elif issubclass(kind, (list, tuple, deque)):
        base = next(c for c in (list, tuple, deque) if issubclass(kind, c))
        yield from ((f"[{i}]", v) for i, v in enumerate(_first(base.__iter__(value))))
    for k, v in _first(dict.items(_attributes(value))):
        if type(k) is str:
            yield f".{k}", v
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            descriptor = base.__dict__.get(name)
            if type(descriptor) is MemberDescriptorType:
                try:
                    yield f".{name}", descriptor.__get__(value)
                except AttributeError:
                    continue


def _first(items: Iterable[Any]) -> list[Any]:
    """Copied: another thread may change what they come from. None where one just did."""
    try:
        return list(islice(items, _WIDE))
    except RuntimeError:
        return []


def _attributes(value: Any) -> dict[str, Any]:
    """Those that an instance keeps in a dict, without a call of `__getattribute__` or of a property `__dict__`."""
    for base in type(value).__mro__:
        descriptor = base.__dict__.get("__dict__")
        if descriptor is not None:
            known = type(descriptor) in (GetSetDescriptorType, MemberDescriptorType)
            held = descriptor.__get__(value) if known else None
            return held if type(held) is dict else {}
    return {}


def holders(most: int = 12, frame: FrameType | None = None, thorough: bool = True) -> list[Holder]:
    """The largest of what is held, largest first. `thorough`: also through objects that no frame reaches."""
    reached = variables(frame or sys._getframe(1))
    paths: dict[int, list[str]] = {}
    found: list[Holder] = []
    for array, names in reached.values():
        owner = _owner(array)
        if issubclass(type(owner), Owner):
            paths.setdefault(owner.number, []).extend(names)
        elif (nbytes := owner.nbytes if issubclass(type(owner), np.ndarray) else array.nbytes) >= LARGE:
            found.append(Holder(0, nbytes, tuple(names)))
    largest = sorted(blocks.copy().items(), key=lambda item: -item[1].nbytes)[:most]
    missing = [number for number, block in largest if number not in paths and block.nbytes >= LARGE]
    if missing and thorough:
        paths |= _elsewhere(missing)
    found += [Holder(n, b.nbytes, tuple(paths.get(n, ())), b.what, b.file, b.line) for n, b in largest]
    return sorted(found, key=lambda h: -h.nbytes)[:most]


def _elsewhere(numbers: Iterable[int]) -> dict[int, list[str]]:
    """What holds these blocks among all objects that the collector knows."""
    wanted, out = set(numbers), dict[int, list[str]]()
    for holder in gc.get_objects():
        for part in gc.get_referents(holder):
            if not issubclass(type(part), np.ndarray) or not issubclass(type(owner := _owner(part)), Owner):
                continue
            if owner.number in wanted:
                names = out.setdefault(owner.number, [])
                if len(names) < _SAID:
                    names.append(_described(holder, part))
    return out


def _described(holder: Any, part: Any) -> str:
    if isinstance(holder, FrameType):
        return f"a variable of {holder.f_code.co_name}"
    step = next((step for step, value in _parts(holder) if value is part), "")
    if type(holder) is dict:  # that of an instance?
        key = next((k for k, v in holder.copy().items() if v is part), "")
        for owner in gc.get_referrers(holder):
            if _attributes(owner) is holder:
                return f".{key} of a {type(owner).__name__}"
    return f"{step} of a {type(holder).__name__}" if step else f"a {type(holder).__name__}"
