"""Which layer of a model something is about: `model.blocks[2].mlp[0]: Linear(30, 5)`.

The callers of a layer hold the model in their variables. The outermost one that does names it. The text of the
constructors on the way says where it was made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from tessera.compiler.frontend.names.constructor import values_set
from tessera.compiler.frontend.names.frame import Closure, Frame
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.frontend.names.values import ClassRef, Record, is_dict, is_sequence
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.errors import CompileError, Note, Span
from tessera.immutable import immutable
from tessera.language.records import is_record, members
from tessera.tracebacks import OWN

LONGEST = 1_000
"""items of a list that may be layers; a longer one is data"""


@immutable
class LayerPlace:
    """`path`: `model.blocks[2].up`; `made`: what makes it in a constructor of the user's."""

    path: str
    layer: str
    made: Span | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.layer}"

    @property
    def inner(self) -> bool:
        """Whether it is a part of a model, and not the model itself."""
        return not self.path.isidentifier()

    @property
    def notes(self) -> tuple[Note, ...]:
        return () if self.made is None else (Note(f"{self.path} is made here", self.made),)


def layer_named(layer: Any, frames: Iterable[Mapping[str, Any]]) -> LayerPlace | None:
    """The layer by its path in a model; None where there is none. `frames`: the variables of its callers, the outermost
    first."""
    for names in frames:
        models = ((n, v, None) for n, v in names.items() if n.isidentifier() and _members(v) is not None)
        found = _path(layer, models)
        if found is not None:
            return LayerPlace(found[0], described(layer), found[1])
    return None


def layer_in(frame: Frame, called: Frame | None = None) -> LayerPlace | None:
    """The same of the method that is evaluated in a frame, or is `called` from there."""
    frames, inner = list[Frame](), called or frame
    while "self" not in inner.names and inner.caller is not None:
        inner = inner.caller
    layer, outer = inner.names.get("self"), frame
    while outer.caller is not None:
        frames.append(outer)
        outer = outer.caller
    if not isinstance(layer, Record):
        return None
    return layer_named(layer, (f.names for f in (outer, *reversed(frames)) if not f.source.file.startswith(OWN)))


def described(layer: Any) -> str:
    """`Linear(30, 5)`: its class, and the sizes of its weight."""
    held = _members(layer) or {}
    weight = held.get("weight")
    shape: Any = getattr(weight.type if isinstance(weight, Value) else weight, "shape", ())
    sizes = [str(n) for n in shape] if len(shape) <= 2 and all(isinstance(n, int) for n in shape) else []
    name = layer.type_name if isinstance(layer, Record) else type(layer).__name__
    return f"{name}({', '.join(sizes)})" if sizes else name


_Attributes: TypeAlias = "tuple[Any, str, _Attributes] | None"
"""an object and an attribute of it, and those before it on a path"""


def _path(wanted: Any, models: Iterable[tuple[str, Any, _Attributes]]) -> tuple[str, Span | None] | None:
    """The shortest path from one of the models, and where its last part is made."""
    waiting, seen = deque(models), set[int]()
    while waiting:
        path, value, steps = waiting.popleft()
        if value is wanted:
            return path, _made(steps)
        if id(value) not in seen:
            seen.add(id(value))
            for step, v in parts(value):
                waiting.append((path + step, v, (value, step[1:], steps) if step[0] == "." else steps))
    return None


def _made(steps: _Attributes) -> Span | None:
    """What the innermost constructor of the user's sets the attribute to; one of Tessera's says nothing of the model
    that it is in."""
    while steps is not None:
        owner, name, steps = steps
        cls = owner.cls if isinstance(owner, Record) else owner.__class__
        try:
            found = cls.members.get("__init__") if isinstance(cls, ClassRef) else live_definition(cls.__init__)
        except CompileError:  # a dataclass's
            continue
        text = found.definition if isinstance(found, Closure) else found
        if text is None or text.file.startswith(OWN):
            continue
        values = values_set(found.node if isinstance(found, Closure) else text.tree, name)
        return text.text.span(values[0]) if len(values) == 1 else None
    return None


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object, list or dict holds, and how that is written: `.up`, `[0]`, `['a']`."""
    held = _members(value)
    if held is not None:
        row = held.get("layers") if _has_items(value) else None
        yield from parts(row)
        yield from ((f".{n}", v) for n, v in held.items() if v is not row or row is None)
    elif is_sequence(value) and len(value) <= LONGEST:
        yield from ((f"[{i}]", v) for i, v in enumerate(value))
    elif is_dict(value) and len(value) <= LONGEST:
        yield from ((f"[{k!r}]", v) for k, v in value.items())


def _members(value: Any) -> Mapping[str, Any] | None:
    """What an object holds by name; None for what is not an object of a dataclass."""
    if isinstance(value, Record):
        return value.members
    if isinstance(value, (type, Value, TensorType)) or not is_record(value):
        return None
    return members(value)


def _has_items(value: Any) -> bool:
    """Whether `value[0]` is its first layer."""
    cls: Any = value.cls if isinstance(value, Record) else value.__class__
    return "__getitem__" in cls.members if isinstance(cls, ClassRef) else hasattr(cls, "__getitem__")
