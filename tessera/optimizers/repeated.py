"""Updates that are like an earlier one of their optimizer: what is named, checked and collected is known from there.

For a tiny model, naming, checking and collecting take several times as long as the update itself. All three depend on
how model, gradient and state are built and on the shapes and dtypes of their arrays. An update that is repeated takes
the trees apart as the earlier ones were, has the compiled program look at shapes and dtypes, and builds the results.
"""

from __future__ import annotations

import dis
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import tessera as ts
from tessera.errors import Diagnostic, TrainingWarning
from tessera.nn import tree
from tessera.optimizers.forms import Form, Unusual
from tessera.optimizers.memory import OptimizerState
from tessera.tracebacks import TRANSPARENT

KEPT = 4
"""updates of differently built trees that an optimizer remembers"""

_known: dict[int, _Known] = {}


class _Known:
    """What is known of an optimizer. Optimizers are found by identity: comparing their settings would take longer."""

    def __init__(self, optimizer: Any) -> None:
        key = id(optimizer)
        self.optimizer = weakref.ref(optimizer, lambda _: _known.pop(key, None))
        self.updates: list[RepeatedUpdate] = []
        self.unlike = 0
        """updates that were like none before them"""
        _known[key] = self


@tree.inside
def again(optimizer: Any, model: Any, gradient: Any, state: Any, lr: Any) -> tuple[Any, OptimizerState] | None:
    """The results of an update that is like an earlier one; None, and nothing has been done, where it is not."""
    known = _known.get(id(optimizer))
    if known is not None and known.optimizer() is optimizer:
        for update in known.updates:
            if (found := update(optimizer, model, gradient, state, lr)) is not None:
                return found
    return None


@tree.inside
def remember(optimizer: Any, model: Any, gradient: Any, names: Sequence[str], program: Any, args: Any) -> None:
    """Prepares for updates like this one, which has been checked and made: `program(*args)` was what it computed, for
    the parameters of these names. Of trees that keep changing, most updates are not worth it."""
    _warn_of_dropped()
    known = _known.get(id(optimizer))
    if known is None or known.optimizer() is not optimizer:
        try:
            known = _Known(optimizer)
        except TypeError:  # a class without weak references
            return
    known.unlike += 1
    if known.unlike < 2 or known.unlike & (known.unlike - 1):
        return
    try:
        update = RepeatedUpdate(optimizer, model, gradient, names, program, args)
    except Unusual:
        return
    known.updates = [update, *known.updates[: KEPT - 1]]


class RepeatedUpdate:
    """Raises `Unusual` where a tree holds what must be gone through anew each time."""

    def __init__(
        self, optimizer: Any, model: Any, gradient: Any, names: Sequence[str], program: Any, args: tuple[Any, ...]
    ) -> None:
        self.settings = [*vars(optimizer).values()]
        self.model, self.gradient, self.names = Form(model), Form(gradient), tuple(names)
        self.trained = [self.model.places[n] for n in names]
        self.derived = [self.gradient.places[n] for n in names]
        self.rule, self.plan, self.rate = args[0], args[1], args[-2]
        self.launch: Callable[..., Any] = program.repeated(*args)
        places = {leaf.path: leaf for leaf in tree.leaves(model) if not leaf.buffer}
        if any(getattr(leaf.array, "requires_grad", False) for leaf in places.values()):
            raise Unusual
        self.last: Callable[[], Any] = lambda: None
        """a parameter that the latest update gave, while it lives"""
        self.groups = [optimizer._group(n, leaf.array) for n, leaf in places.items() if leaf.trained]
        self.floats = [(n, self.model.places[n]) for n, leaf in places.items() if leaf.trained]
        self.others = [self.model.places[n] for n, leaf in places.items() if not leaf.trained]

    def __call__(self, optimizer: Any, model: Any, gradient: Any, state: Any, lr: Any) -> Any:
        settings = vars(optimizer).values()
        if len(settings) != len(self.settings) or not all(map(is_, settings, self.settings)):
            return None
        if state.__class__ is not OptimizerState or (*state.moments,) != self.names:
            return None
        values, derived = self.model.values(model), self.gradient.values(gradient)
        if values is None or derived is None:
            return None
        first = derived[self.derived[0]]
        if first is self.last() or tree.is_parameter(first):  # the model, in the gradient's place
            tree.note(first)
            return None
        if self.others and any(ts.asarray(values[i]).dtype.is_float for i in self.others):
            return None
        if optimizer.groups:
            groups = [optimizer._group(n, values[i]) for n, i in self.floats]
            if not all(map(is_, groups, self.groups)):
                return None
        if callable(optimizer.lr):
            if lr is not None:
                return None
            lr = self.rate
        elif lr is None:
            lr = optimizer.lr
        found = self.launch(
            self.rule, self.plan, [values[i] for i in self.trained], [derived[i] for i in self.derived],
            [*state.moments.values()], state.step, state.good, state.scale, lr, optimizer.seed,
        )  # fmt: skip
        if found is NotImplemented:
            return None
        parameters, held, step, good, scale, norm, tally = found
        for i, parameter in zip(self.trained, parameters):  # noqa: B905 - `strict` takes a microsecond
            values[i] = parameter
        self.last = tree.weak(parameters[0])
        moments = dict(zip(self.names, held))  # noqa: B905
        return self.model.tree(values), OptimizerState(moments, step, good, scale, norm, tally)


def _warn_of_dropped() -> None:
    """Warns TS373 where the statement that called `update` is that call alone: it has changed nothing. Updates that are
    repeated do not come here."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "update":
        frame = frame.f_back
    caller = frame.f_back if frame is not None else None
    while caller is not None and caller.f_code in TRANSPARENT:
        caller = caller.f_back
    if caller is None:
        return
    following = next((step for step in dis.get_instructions(caller.f_code) if step.offset > caller.f_lasti), None)
    if following is not None and following.opname == "POP_TOP":
        message = "update changes nothing, and what it returns is dropped: model, state = opt.update(model, ...)"
        text = Diagnostic("TS373", message).render()
        warnings.warn_explicit(text, TrainingWarning, caller.f_code.co_filename, caller.f_lineno)
