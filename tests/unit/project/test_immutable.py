"""Small records: equal and alike as keys by what they hold, with slots alone, replaced rather than changed."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import ClassVar

import pytest

from tessera.errors import Span
from tessera.immutable import immutable, mutable


@immutable
class Pair:
    left: int
    right: tuple[int, ...] = ()
    seen: int = field(default=0, compare=False)


def test_fields_decide_what_is_equal():
    assert Pair(1, (2,)) == Pair(1, (2,), seen=3) != Pair(1)
    assert len({Pair(1), Pair(1, seen=2), Pair(2)}) == 2


def test_only_what_is_declared_can_be_held():
    with pytest.raises(AttributeError):
        Pair(1).other = 2  # type: ignore[attr-defined]


def test_a_change_makes_another_one():
    old = Pair(1, (2,))
    assert replace(old, left=3) == Pair(3, (2,)) and old.left == 1


def test_it_can_be_saved():
    span = Span("a.py", 1, 2, 3, 4)
    assert pickle.loads(pickle.dumps(span)) == span  # noqa: S301 (written just here)


@immutable(eq=False)
class Place:
    name: str


@mutable(eq=False)
class Counter:
    name: str
    count: int = 0


@pytest.mark.parametrize("made", [Place, Counter])
def test_some_are_equal_to_themselves_alone(made):
    one, other = made("a"), made("a")
    assert one == one != other
    assert len({one, other, one}) == 2
    assert fields(made)[0].name == "name" and repr(replace(one, name="b")).startswith(f"{made.__name__}(name='b'")


@immutable
class Empty:
    pass


@immutable
class Loud:
    """A record with methods of its own."""

    name: str
    secret: int = field(default=0, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


@immutable
class Child(Pair):
    last: float = 0.0


def test_methods_of_the_class_are_kept():
    assert Loud("a") == Loud("A", 3) and len({Loud("a"), Loud("A")}) == 1


def test_equal_records_are_of_one_class():
    assert Child(1) != Pair(1) and Child(1, last=2.0) != Child(1) == Child(1) and Empty() == Empty()
    assert hash(Empty()) == hash(Empty()) and Empty() != Pair(1)


def test_one_value_is_equal_to_itself_as_in_a_tuple():
    nan = float("nan")
    assert Child(1, last=nan) == Child(1, last=nan) and Loud.__doc__ == "A record with methods of its own."


def test_the_text_names_class_and_fields():
    assert repr(Child(1, last=2.5)) == "Child(left=1, right=(), seen=0, last=2.5)"
    assert repr(Loud("a", 3)) == "Loud(name='a')" and repr(Empty()) == "Empty()"


def test_what_holds_itself_has_a_text():
    held: list[object] = []
    held.append(Pair(1, held))  # type: ignore[arg-type]
    assert repr(held[0]) == "Pair(left=1, right=[...], seen=0)"


@immutable
class Made:
    items: list[int] = field(default_factory=list[int])
    total: int = field(init=False, default=7)

    def __post_init__(self) -> None:
        self.items.append(self.total)  # each instance has a list of its own


@immutable
class Later(Made):
    name: str = "x"


def test_defaults_are_made_for_each_instance():
    given = [1]
    assert Made().items == Made().items == [7] and Made(given).items is given
    assert Later(name="y") == Later([], "y") != Later()
    assert Later().name == "x" and Made(items=[]).total == 7


def test_wrong_arguments_are_refused_at_the_first_instance_and_later():
    @immutable
    class Point:
        x: int
        y: int = 0

    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            Point(y=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            Point(1, z=2)  # type: ignore[call-arg]
    assert Point(1, y=2) == Point(x=1, y=2)


@mutable
class Draft:
    lines: list[str] = field(default_factory=list[str])
    open: bool = True


def test_a_mutable_record_changes_and_is_no_key():
    draft = Draft()
    draft.lines.append("a")
    draft.open = False
    assert draft == Draft(["a"], open=False) != Draft() and repr(draft) == "Draft(lines=['a'], open=False)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(draft)


def test_the_standard_library_knows_a_record_that_nobody_has_made():
    @immutable
    class Base:
        kind: ClassVar[str] = "base"
        x: int

    @immutable
    class Derived(Base):
        y: list[int] = field(default_factory=list[int], metadata={"unit": "m"})

    assert is_dataclass(Derived) and [(f.name, f.type) for f in fields(Derived)] == [("x", "int"), ("y", "list[int]")]
    assert fields(Derived)[1].metadata == {"unit": "m"} and Derived.kind == "base" and Derived.__slots__ == ("y",)

    @dataclass
    class Plain(Derived):
        z: int = 0

    assert Plain(1, [2], 3) == Plain(1, [2], 3) and asdict(Derived(1)) == {"x": 1, "y": []}


def test_records_can_be_matched_by_position() -> None:
    """As dataclasses: the fields of the classes above first, without those that no call is given."""

    @immutable
    class Above:
        a: int

    @immutable
    class Below(Above):
        b: int = 2
        c: int = field(default=3, init=False)

    assert Below.__match_args__ == ("a", "b")  # type: ignore[attr-defined]
    match Below(1):
        case Below(a, b):
            assert (a, b) == (1, 2)
