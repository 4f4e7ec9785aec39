"""`ts.scan`: one loop at run time, which reads slices and stores results in place.

It is a `graph.for` that carries, beside what the function carries, the stacked results and the state that its effects
change. Nothing else knows of it: its derivatives are those of a loop, of `take` and of `put`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from typing import Any

from tessera.compiler.frontend.evaluate.control import Carried, finish
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.states import NUMBERS
from tessera.compiler.frontend.evaluate.undecided import Snapshot
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.function.gradient_arguments import Refused, each, each_number, marked, parts
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import has_unknown, is_dict, is_sequence, is_static, paired, type_name
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import COUNTER
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Block, Region, Value
from tessera.compiler.unit import LaunchCheck
from tessera.language import dims, dtypes
from tessera.language.dims import Dim, Expr

ATTEMPTS = 5
"""evaluations of the function in which numbers that are carried are found, and their dtypes"""


class ScanCall:
    """One call: `args` are what is carried at first, and what is gone through."""

    def __init__(
        self, ev: Evaluator, emission: Emission, node: ast.AST, callee: TransformedRef, args: list[Any]
    ) -> None:
        self.ev, self.emission, self.node, self.function = ev, emission, node, callee.function
        self.span = ev.span(node)
        self.first, self.xs = (*args, None)[:2]
        options = dict(callee.transform.options)
        self.reverse = options.get("reverse", False)
        self.length = self._length(options.get("length"))
        pairs = enumerate(marked(self.first))
        self.places = {i for i, (v, held) in pairs if isinstance(v, Value) or (self._carried(v) and not held)}
        """which parts of the structure are carried: tensors and numbers"""

    @property
    def g(self) -> GraphBuilder:
        return self.emission.g

    def run(self) -> Any:
        """(what is carried at last, the results one after the other)."""
        given, first = self._start()
        outside = Carried(self.ev, self.node, ())  # of it, state that effects change
        for _ in range(ATTEMPTS):
            block = Block([COUNTER, *(v.type for v in first)], ["i", *(v.hint for v in first)])
            outside.enter(block)
            try:
                carry, ys = self._step(block)
                more = self._changing(carry)
                with self.ev.builder.inside(block):
                    last = [] if more else self._next(carry, first)
            except Refused:
                outside.restore()
                raise
            # a number has no dtype of its own: it takes that which it has after a round
            changed = [i for i, v in enumerate(last) if v.type != first[i].type]
            if outside.leave(block) and not changed and not more:
                break
            for i in changed:
                first[i] = self._retyped(given[i], first[i], last[i])
            if more:
                self.places |= more
                given, first = self._start()
            Carried.discard(block)
        else:
            outside.restore()
            raise self._refused("TS212", "a number that scan carries has another dtype after each round")
        last += outside.next
        with self.ev.builder.inside(block):
            ys = each_number(ys, lambda v: self._lifted(v, None))
        results = [v for v in parts(ys) if isinstance(v, Value)]
        stacks = [self.g.zeros((self.length, *tensor(v).shape), dtype=tensor(v).dtype) for v in results]
        with self.ev.builder.inside(block):
            at = self._at(block.args[0])
            for stack, v in zip(stacks, results, strict=True):
                last.append(self.g.put(block.add_arg(stack.type, v.hint), at, v))
        finish(self.ev, block, last, self.node)
        zero, one = (self.g.constant(i, dtypes.int64) for i in (0, 1))
        operands = [zero, self.g.size(self.length, dtypes.int64), one, *first, *outside.initial, *stacks]
        regions = [Region([block])]
        types = [v.type for v in operands[3:]]
        made = self.ev.builder.op("graph.for", operands, types, regions=regions, span=self.span).results
        at_last = len(first) + len(outside.initial)
        outside.after(made[len(first) : at_last], set())
        stacked = iter(made[at_last:])
        carry = self._with(made[: len(first)])
        return carry, each(ys, lambda v: next(stacked) if isinstance(v, Value) else v)

    # what is given

    def _length(self, given: Any) -> Dim:
        if not isinstance(self.reverse, bool):
            raise self._refused("TS105", f"reverse of scan is True or False, not {type_name(self.reverse)}")
        if given is not None and (isinstance(given, bool) or not isinstance(given, (int, Expr))):
            message = f"length of scan is a number or a size that is known before the loop, not {type_name(given)}"
            raise self._refused("TS105", message)
        found: Dim | None = given
        if isinstance(found, int) and found < 0:
            raise self._refused("TS105", f"length of scan is at least 0, not {found}")
        for v, held in marked(self.xs):
            if v is None or (held and not isinstance(v, Value)):
                continue
            if not isinstance(v, Value) or not tensor(v).rank:
                how = "; ts.array makes a tensor of a list of numbers" if isinstance(v, NUMBERS) else ""
                message = f"scan goes through tensors along their first axis, not {type_name(v)}{how}"
                raise self._refused("TS105", message)
            size = tensor(v).shape[0]
            found = size if found is None else found
            answer = dims.compare(found, size, self.ev.facts)
            if answer == "no":
                message = f"scan goes through tensors of one length, and there are {found} and {size}"
                raise self._refused("TS213", message)
            if answer == "unknown":
                self.ev.checks.append(LaunchCheck(found, size, "scan: tensors of one length"))
        if found is None:
            raise self._refused("TS105", "scan without anything to go through needs length=, the number of rounds")
        return found

    # what is carried

    def _start(self) -> tuple[list[Any], list[Value]]:
        """What is carried at first: as it is given, and as tensors."""
        given = [v for i, v in enumerate(parts(self.first)) if i in self.places]
        return given, [self._lifted(v, None) for v in given]

    def _with(self, carried: Sequence[Value]) -> Any:
        """The structure of what is carried, with these tensors."""
        places, found = itertools.count(), iter(carried)
        return each(self.first, lambda v: next(found) if next(places) in self.places else v)

    def _changing(self, carry: Any) -> set[int]:
        """Where a round changes a number that a dataclass holds. It is carried; the others are configuration."""
        pairs = enumerate(paired(self.first, carry) or ())
        return {i for i, (old, new) in pairs if i not in self.places and self._carried(old) and old != new}

    def _carried(self, value: Any) -> bool:
        return isinstance(value, (Value, *NUMBERS))

    def _lifted(self, value: Any, like: Any) -> Value:
        found = self.ev.layer.lift(value, like, self.span)
        assert found is not None
        return found

    # one round

    def _step(self, block: Block) -> tuple[Any, Any]:
        """What the function gives in the block of the loop."""
        ev, saved = self.ev, Snapshot(self.ev.frame)
        with ev.builder.inside(block):
            at = self._at(block.args[0])
            carry = self._with(block.args[1:])
            slices = each(self.xs, lambda v: self.g.take(v, at, axis=0) if isinstance(v, Value) else v)
            found = ev.call(self.node, self.function, [carry, slices], {})
        if saved.changed():
            saved.restore()
            message = "a list or dict from outside is changed in the function of a scan, which runs once for each slice"
            raise self._refused("TS102", f"{message}; carry it")
        if has_unknown(found):
            raise Refused
        if not is_sequence(found) or len(found) != 2:
            raise self._refused("TS105", f"the function of a scan gives (carry, result), not {_summary(found)}")
        return found[0], found[1]

    def _at(self, counter: Value) -> Value:
        return self.g.sub(self.g.size(self.length - 1, dtypes.int64), counter) if self.reverse else counter

    def _next(self, carry: Any, first: list[Value]) -> list[Value]:
        """What is carried on."""
        pairs = paired(self.first, carry)
        if pairs is None or any(not self._fits(i, old, new) for i, (old, new) in enumerate(pairs)):
            message = f"the function of a scan carries {_summary(self.first)} and gives {_summary(carry)}"
            raise self._refused("TS212", f"{message}; its structure stays, and what is not a tensor in it too")
        new = [v for i, (_, v) in enumerate(pairs) if i in self.places]
        return [self._lifted(v, like.type) for v, like in zip(new, first, strict=True)]

    def _fits(self, place: int, old: Any, new: Any) -> bool:
        """Whether `new` may take the place of `old` in a round."""
        if place in self.places:
            return self._carried(new)
        return (
            old is new
            or (self._carried(old) and old == new)
            or (is_static(old) and is_static(new) and type(old) is type(new) and old == new)
        )

    def _retyped(self, given: Any, first: Value, last: Value) -> Value:
        value = self._lifted(given, last.type) if isinstance(given, NUMBERS) and not tensor(last).rank else first
        if value.type != last.type:
            message = f"a scan carries {first.type.pretty()} and its function gives {last.type.pretty()}"
            raise self._refused("TS212", f"{message}; what is carried keeps its shape and dtype")
        return value

    def _refused(self, code: str, message: str) -> Refused:
        self.ev.error(code, message, self.node)
        return Refused()


def _summary(value: Any) -> str:
    """What a message calls a structure."""
    if is_sequence(value):
        return f"({', '.join(map(_summary, value))}{',' * (len(value) == 1)})"
    if is_dict(value):
        return "{" + ", ".join(f"{k!r}: {_summary(v)}" for k, v in value.items()) + "}"
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else type_name(value)
