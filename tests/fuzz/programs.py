"""Random `@ts.function` programs: source text that means the same with Tessera and, through the oracle, with NumPy.

A program is grown statement by statement, each tried on the oracle first, so that every program has a result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.oracle import MEANING
from tests.fuzz.values import FLOATS, INTEGERS, KINDS, Unfit, Wanted

Scope = dict[str, Any]
ARRAYS = {"np": np, "ml_dtypes": ml_dtypes}
HELD = {name: "ml_dtypes.bfloat16" if name == "bf16" else f"np.{np.dtype(k.held).name}" for name, k in KINDS.items()}
HELD["bool_"] = "np.bool_"
SIZES = (1, 2, 3, 3, 4, 5, 5, 7, 9, 16, 17, 33, 70)


@dataclass(frozen=True)
class Program:
    """`arguments` are (name, text of the value, annotation or ""); `blocks` the statements, indented by one level."""

    seed: int
    arguments: tuple[tuple[str, str, str], ...]
    blocks: tuple[str, ...]
    returns: tuple[str, ...]

    @property
    def text(self) -> str:
        """The function alone."""
        parameters = ", ".join(f"{n}: {a}" if a else n for n, _, a in self.arguments)
        returned = f"    return {', '.join(self.returns)}\n"
        return f"def f({parameters}):\n" + "".join(self.blocks) + returned

    def values(self) -> list[Any]:
        """The arguments, made anew."""
        return [eval(text, dict(ARRAYS)) for _, text, _ in self.arguments]  # texts of our own

    def wanted(self) -> list[Wanted]:
        """What the oracle says it returns. Raises Unfit, or what Python raises for a program that is none."""
        names: dict[str, Any] = {"ts": MEANING}
        plain = replace(self, arguments=tuple((n, v, "") for n, v, _ in self.arguments))
        exec(compile(plain.text, "<program>", "exec"), names)
        found = names["f"](*map(held, self.values()))
        out = list(found) if isinstance(found, tuple) else [found]
        if not all(isinstance(v, Wanted) for v in out):
            raise Unfit("no tensor")
        return out


def held(value: Any) -> Any:
    """An argument as the oracle sees it."""
    if not isinstance(value, np.ndarray):
        return value
    name = "bool_" if value.dtype == np.bool_ else {"float64": "f64", "float32": "f32", "float16": "f16",
            "bfloat16": "bf16"}.get(value.dtype.name, value.dtype.name)  # fmt: skip
    return Wanted(value.astype(KINDS[name].wide), KINDS[name])


@dataclass
class Writer:
    """Grows a program. `scope` holds what its names are by now."""

    r: random.Random
    scope: Scope
    depth: int = 1
    blocks: list[str] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def tensors(self, fits: Callable[[Wanted], bool] = lambda v: True) -> list[str]:
        return [n for n, v in self.scope.items() if isinstance(v, Wanted) and fits(v)]

    def tensor(self, fits: Callable[[Wanted], bool] = lambda v: True) -> str:
        """A name, rather a late one. Raises Unfit if there is none."""
        found = self.tensors(fits)
        if not found:
            raise Unfit("no such value")
        return found[max(self.r.randrange(len(found)), self.r.randrange(len(found)))]

    def __getitem__(self, name: str) -> Wanted:
        return self.scope[name]

    def run(self, text: str) -> Scope:
        """The scope after these lines."""
        names = {"ts": MEANING, **self.scope}
        exec(compile("if True:\n" + text, "<lines>", "exec"), names)
        return {n: v for n, v in names.items() if isinstance(v, (Wanted, int, float)) and not n.startswith("__")}

    def value(self, expression: str) -> Any:
        return eval(expression, {"ts": MEANING, **self.scope})

    def add(self, lines: list[str]) -> None:
        """Appends lines that stand at this depth. Raises Unfit if they do not run."""
        text = "".join("    " * self.depth + line + "\n" for line in lines)
        with np.errstate(all="ignore"):
            self.scope = self.run(text)
        self.blocks.append(text)

    def child(self) -> Writer:
        return Writer(self.r, dict(self.scope), self.depth + 1, [], self.names)

    def statement(self) -> None:
        """One more statement; tries until one fits."""
        for _ in range(40):
            rules, weights = zip(*(CONTROL if self.depth < 3 and self.r.random() < 0.12 else RULES), strict=True)
            rule = self.r.choices(rules, weights)[0]
            try:
                made = rule(self)
                if isinstance(made, list):  # names that only some ways through it have are not looked at again
                    before = set(self.scope)
                    self.add(made)
                    self.scope = {n: v for n, v in self.scope.items() if n in before}
                else:
                    self.assign(made)
                return
            except (Unfit, ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError, AttributeError):
                continue

    def assign(self, expression: str) -> None:
        with np.errstate(all="ignore"):
            if not isinstance(self.value(expression), Wanted):
                raise Unfit("no tensor")
        again = self.tensors()
        name = self.r.choice(again) if again and self.r.random() < 0.05 and self.depth == 1 else f"v{next(self.names)}"
        self.add([f"{name} = {expression}"])


RULES: list[tuple[Callable[[Writer], Any], float]] = []
CONTROL: list[tuple[Callable[[Writer], Any], float]] = []


def rule(weight: float, table: list[tuple[Callable[[Writer], Any], float]] = RULES) -> Callable[[Any], Any]:
    def keep(f: Callable[[Writer], Any]) -> Any:
        table.append((f, weight))
        return f

    return keep


def number(w: Writer, kind: str) -> str:
    """A Python number that the dtype holds."""
    if KINDS[kind].letter == "f" and w.r.random() < 0.5:
        return w.r.choice(["0.5", "2.0", "-1.5", "0.25"])
    return w.r.choice(["1", "2", "3"] if KINDS[kind].letter in "ub" else ["1", "2", "3", "-1", "-2"])


def anything(v: Wanted) -> bool:
    return True


def axis_of(w: Writer, x: str) -> int:
    rank = len(w[x].shape)
    if not rank:
        raise Unfit("no axes")
    return w.r.randrange(-rank, rank)


# Elementwise


@rule(3)
def unary(w: Writer) -> str:
    x = w.tensor()
    letter = w[x].kind.letter
    names = {
        "f": ["exp", "log", "sqrt", "tanh", "sin", "cos", "atan", "sigmoid", "softplus", "silu", "expm1", "log1p",
              "rsqrt", "floor", "ceil", "round", "trunc", "neg", "abs", "sign", "square", "relu", "isnan"],
        "c": ["neg", "abs", "square"],
        "b": ["logical_not"],
    }.get(letter, ["neg", "abs", "sign", "square", "relu", "exp", "tanh", "logical_not"])  # fmt: skip
    name = w.r.choice(names)
    if name in ("log", "sqrt", "rsqrt", "log1p"):
        return f"ts.{name}(ts.abs({x}) + 1)"
    if letter in "iub" and w.r.random() < 0.2:
        return f"~{x}"
    return f"ts.{name}({x})"


def beside(w: Writer, x: str) -> str:
    """Another operand: of the same dtype mostly, or a number, or what else there is."""
    kind = w[x].kind
    if w.r.random() < 0.25:
        return number(w, kind.name)
    same = w.tensors(lambda v: v.kind is kind)
    return w.r.choice(same) if w.r.random() < 0.85 else w.tensor()


@rule(5)
def binary(w: Writer) -> str:
    x = w.tensor()
    y = beside(w, x)
    letter = w[x].kind.letter
    symbols = {"f": "+ - * * /", "c": "+ - *", "b": "+ * & | ^"}.get(letter, "+ - * // % & | ^")
    a, b = (x, y) if w.r.random() < 0.8 else (y, x)
    symbol = w.r.choice(symbols.split())
    if symbol in ("//", "%", "/") and b in w.scope:
        b = f"(ts.abs({b}) % 5 + 1)" if symbol != "/" else f"(ts.abs({b}) + 1)"
    return f"{a} {symbol} {b}"


@rule(1)
def extremes(w: Writer) -> str:
    x = w.tensor()
    y = beside(w, x)
    return w.r.choice([f"ts.maximum({x}, {y})", f"ts.minimum({x}, {y})", f"ts.clip({x}, {number(w, 'int8')}, 3)"])


@rule(1)
def compared(w: Writer) -> str:
    x = w.tensor(lambda v: not v.error)
    symbol = w.r.choice(["<", "<=", ">", ">=", "==", "!="])
    return f"{x} {symbol} {beside(w, x)}"


@rule(1)
def logic(w: Writer) -> str:
    x = w.tensor(lambda v: not v.error)
    return f"ts.logical_{w.r.choice(['and', 'or'])}({x}, {w.tensor(lambda v: not v.error)})"


@rule(2)
def selected(w: Writer) -> str:
    c = w.tensor(lambda v: not v.error)
    x = w.tensor()
    condition = c if w[c].kind.letter == "b" else f"{c} != 0" if w[c].kind.letter == "c" else f"{c} > 0"
    return f"ts.where({condition}, {x}, {beside(w, x)})"


@rule(1.5)
def converted(w: Writer) -> str:
    return f"ts.cast({w.tensor()}, ts.{w.r.choice([*KINDS, *FLOATS])})"


# Views and copies


@rule(3)
def subscript(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape))
    parts: list[str] = []
    for n in w[x].shape[: w.r.randint(1, len(w[x].shape))]:
        a, b = sorted((w.r.randint(0, n), w.r.randint(0, n)))
        parts.append(w.r.choice([":", "::-1", f"{a}:{b}", f"{a}:", f":{b}", "::2", f"{a}::3", f"{w.r.randrange(-n, n)}",
                                 f"{b}:{a}:-1", "::-2", "None, :", "1:", ":-1", ":1"]) if n else ":")  # fmt: skip
    if w.r.random() < 0.2:
        parts.insert(w.r.choice([0, len(parts)]), "...")
    return f"{x}[{', '.join(parts)}]"


@rule(3)
def view(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape))
    shape = w[x].shape
    rank = len(shape)
    order = w.r.sample(range(rank), rank)
    a, b = w.r.randrange(rank), w.r.randrange(rank)
    total = int(np.prod(shape))
    factors = [d for d in range(1, min(total, 40) + 1) if total % d == 0] or [1]
    d = w.r.choice(factors)
    shapes = [(total,), (d, total // max(d, 1)), (total // max(d, 1), d), (*shape, 1), (1, *shape)]
    stretched = tuple(w.r.choice([2, 3, 5]) if n == 1 else n for n in shape)
    return w.r.choice([
        f"{x}.T", f"ts.transpose({x}, {tuple(order)})", f"ts.swapaxes({x}, {a}, {b})", f"ts.flip({x}, {a})",
        f"ts.flip({x})", f"{x}.reshape{w.r.choice(shapes)}", f"ts.broadcast_to({x}, {stretched})",
        f"ts.broadcast_to({x}, {(w.r.choice([2, 3]), *stretched)})", f"ts.unsqueeze({x}, {a})", f"ts.flatten({x})",
    ])  # fmt: skip


@rule(0.3)
def stretched_scalar(w: Writer) -> str:
    return f"ts.broadcast_to({w.tensor(lambda v: not v.shape)}, {w.r.choice([(3,), (2, 3), (5, 1)])})"


@rule(2)
def joined(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape))
    a, n = axis_of(w, x), len(w[x].shape)
    rest = [d for i, d in enumerate(w[x].shape) if i != a % n]
    others = w.tensors(
        lambda v: v.kind is w[x].kind and len(v.shape) == n and [d for i, d in enumerate(v.shape) if i != a % n] == rest
    )
    y = w.r.choice(others)
    same = w.r.choice(w.tensors(lambda v: v.kind is w[x].kind and v.shape == w[x].shape))
    widths = tuple((w.r.randint(0, 2), w.r.randint(0, 2)) for _ in range(n))
    fill = 1 if w[x].kind.letter in "ub" else w.r.choice([0, 2, -1])
    return w.r.choice([
        f"ts.concat([{x}, {y}], axis={a})", f"ts.concat([{x}, {y}, {x}], axis={a})",
        f"ts.stack([{x}, {same}], axis={a})",
        f"ts.pad({x}, {widths}, value={fill})", f"ts.roll({x}, {w.r.randint(-3, 3)}, {a})",
        f"ts.repeat({x}, {w.r.randint(1, 3)}, {a})",
        f"ts.split({x}, ({w.r.randint(0, w[x].shape[a])},), {a})[{w.r.randint(0, 1)}]",
    ])  # fmt: skip


@rule(0.7)
def triangle(w: Writer) -> str:
    return f"ts.{w.r.choice(['tril', 'triu'])}({w.tensor(lambda v: len(v.shape) > 1)}, {w.r.randint(-2, 2)})"


# Computed indices


def indices(w: Writer, n: int, fits: Callable[[Wanted], bool] = anything) -> str:
    """Positions along an axis of size n, some counted from the end."""
    if not n:
        raise Unfit("nothing to index")
    found = w.tensors(lambda v: v.kind.letter in "iu" and not v.error and 0 < v.value.size <= 4096 and fits(v))
    if w.r.random() < 0.1 and fits is anything:
        return f"ts.cast({w.r.choice(found)}, ts.int64)"  # some may lie outside
    within = [i for i in found if w[i].value.min() >= -n and w[i].value.max() < n]
    if within and w.r.random() < 0.5:
        return w.r.choice(within)
    i = w.r.choice(found)
    if n > np.iinfo(w[i].kind.held).max:
        i = f"ts.cast({i}, ts.int64)"
    return f"{i} % {n} - {n}" if w.r.random() < 0.2 and i in w.scope and w[i].kind.letter == "i" else f"{i} % {n}"


@rule(4)
def taken(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape))
    a, shape = axis_of(w, x), w[x].shape
    i = indices(w, shape[a])
    options = [
        f"ts.take({x}, {i}, axis={a})",
        f"{x}[{indices(w, shape[0])}]",
        f"ts.take({x}, {indices(w, w[x].value.size)})",
    ]
    if len(shape) > 1:
        j = indices(w, shape[1])
        options += [f"{x}[:, {j}]", f"{x}[{indices(w, shape[0])}, {j}]", f"{x}[::-1, {j}]", f"ts.embedding({i}, {x})"]
    if len(shape) > 2:
        options += [f"{x}[{indices(w, shape[0])}, :, {indices(w, shape[2])}]", f"{x}[0, :, {indices(w, shape[2])}]"]
    return w.r.choice(options)


@rule(1)
def along(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape))
    a, rank = axis_of(w, x), len(w[x].shape)
    i = indices(w, w[x].shape[a], lambda v: len(v.shape) == rank)
    return f"ts.take_along_axis({x}, {i}, axis={a})"


@rule(0.7)
def made(w: Writer) -> str:
    i = w.tensor(lambda v: v.kind.letter in "iu" and not v.error and v.value.size < 200)
    shape = w.r.choice([(3,), (2, 5), (4, 1), (17,)])
    kind = w.r.choice([*FLOATS, *INTEGERS])
    return w.r.choice([
        f"ts.one_hot({i} % 4, {w.r.randint(1, 6)}, dtype=ts.{kind})",
        f"ts.iota({shape}, axis={w.r.randrange(len(shape))}, dtype=ts.{kind})",
        f"ts.full({shape}, 2, dtype=ts.{kind})",
    ])  # fmt: skip


# Folds and products


@rule(4)
def reduced(w: Writer) -> str:
    x = w.tensor()
    rank = len(w[x].shape)
    name = w.r.choice(["sum", "sum", "sum", "mean", "max", "min", "prod", "var", "any", "all", "argmax", "argmin"])
    axes: list[Any] = [None, None, *range(-rank, rank)]
    if rank > 1 and "arg" not in name:
        axes += [tuple(w.r.sample(range(rank), 2)), tuple(range(rank))]
    keep = ", keepdims=True" if w.r.random() < 0.4 else ""
    return f"ts.{name}({x}, axis={w.r.choice(axes)}{keep})"


@rule(1)
def running(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape))
    return f"ts.cumsum({x}, axis={axis_of(w, x)})"


@rule(1)
def normed(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape) and v.kind.letter == "f")
    return f"ts.{w.r.choice(['softmax', 'softmax', 'log_softmax', 'logsumexp'])}({x}, axis={axis_of(w, x)})"


@rule(0.5)
def centred(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape) and v.kind.letter in "fc")
    a = axis_of(w, x)
    return f"{x} - ts.{w.r.choice(['mean', 'sum'])}({x}, axis={a}, keepdims=True)"


@rule(2)
def product(w: Writer) -> str:
    x = w.tensor(lambda v: bool(v.shape) and v.kind.letter != "b")
    kind, shape = w[x].kind, w[x].shape
    y = w.r.choice(w.tensors(lambda v: v.kind is kind and bool(v.shape)))
    options = [f"{x} @ {y}", f"{x} @ {y}.T", f"{x}.T @ {y}", f"ts.outer({x}, {y})"]
    if len(shape) == 2:
        options += [f"{x} @ {x}.T", f"{x}.T @ {x}", f"{x}[:, :1] @ {x}[:1]"]
        options += [f"ts.einsum('{e}', {x}, {y})" for e in ("ij,jk->ki", "ij,kj->ik", "ij,ij->i", "ij,k->kij")]
    if len(shape) == 3:
        options += [
            f"ts.einsum('{e}', {x}, {y})" for e in ("bij,bjk->bik", "bij,bkj->bik", "bij,jk->bik", "bij,bij->b")
        ]
    return w.r.choice(options)


# Control flow


def condition(w: Writer) -> str:
    c = w.tensor(lambda v: not v.error and v.kind.letter != "c" and v.value.size > 0)
    if w[c].kind.letter == "b":
        return f"ts.{w.r.choice(['any', 'all'])}({c})"
    return (
        f"ts.{w.r.choice(['max', 'min'])}({c}) > {w.r.randint(-1, 3) if w[c].kind.letter != 'u' else w.r.randint(0, 3)}"
    )


def body(w: Writer, target: str, more: Callable[[Writer], None] = lambda w: None) -> list[str]:
    """Lines that end with a new value for `target`, of its shape and dtype."""
    inner = w.child()
    more(inner)
    for _ in range(w.r.randint(0, 2)):
        inner.statement()
    old = w[target]
    fits = inner.tensors(lambda v: v.kind is old.kind and v.shape == old.shape)
    other = w.r.choice(fits)
    options = [other, f"ts.where({other} == {target}, {target}, {other})", f"{target} * {other}", f"{target} + {other}",
               f"{target} - {other}", f"{target}[::-1]", f"ts.maximum({target}, {other})"]  # fmt: skip
    inner.add([f"{target} = {w.r.choice(options)}"])
    new = inner[target]
    if new.kind is not old.kind or new.shape != old.shape:
        raise Unfit("another type")
    return [line for block in inner.blocks for line in block.splitlines()]


def cut(w: Writer, lines: list[str]) -> list[str]:
    """Lines without the indentation that `add` puts before them."""
    return [line[4 * w.depth :] for line in lines]


@rule(3, CONTROL)
def branch(w: Writer) -> list[str]:
    target = w.tensor()
    lines = [f"if {condition(w)}:", *cut(w, body(w, target))]
    return [*lines, "else:", *cut(w, body(w, target))] if w.r.random() < 0.6 else lines


@rule(1, CONTROL)
def branch_of_python(w: Writer) -> list[str]:
    target = w.tensor()
    lines = [f"if k > {w.r.randint(0, 4)}:", *cut(w, body(w, target))]
    return [*lines, "else:", *cut(w, body(w, target))] if w.r.random() < 0.6 else lines


def counted(w: Writer, i: str, n: int) -> Callable[[Writer], None]:
    """Reads a row at the counter, where there is something to read."""

    def more(inner: Writer) -> None:
        inner.scope[i] = Wanted(np.int64(0), KINDS["int64"])
        x = inner.tensor()
        if len(inner[x].shape) and inner[x].shape[0] >= n and w.r.random() < 0.7:
            inner.add([f"v{next(w.names)} = {x}[{i}]"])
        inner.scope.pop(i)

    return more


def kept(w: Writer, lines: list[str], target: str) -> list[str]:
    """A loop, if `target` is what it was after all rounds as well."""
    after = w.run("".join("    " * w.depth + line + "\n" for line in lines))[target]
    if after.kind is not w[target].kind or after.shape != w[target].shape:
        raise Unfit("another type")
    return lines


@rule(1.5, CONTROL)
def while_loop(w: Writer) -> list[str]:
    target, i, n = w.tensor(), f"n{next(w.names)}", w.r.randint(0, 3)
    end = str(n)
    if w.r.random() < 0.4:
        c = w.tensor(lambda v: v.kind.letter in "iu" and not v.error and v.value.size > 0)
        end = f"ts.max({c}) % {n + 1}"
    lines = cut(w, body(w, target, counted(w, i, 3)))
    return kept(
        w, [f"{i} = ts.full((), 0, dtype=ts.int64)", f"while {i} < {end}:", *lines, f"    {i} = {i} + 1"], target
    )


@rule(1.5, CONTROL)
def for_loop(w: Writer) -> list[str]:
    target, i, n = w.tensor(), f"i{next(w.names)}", w.r.randint(0, 3)
    counts = w.r.choice([f"ts.range({n})", f"range({n})", "range(k)"])
    lines = cut(w, body(w, target, counted(w, i, 3 if counts != "range(k)" else 4)))
    return kept(w, [f"for {i} in {counts}:", *lines], target)


def several(w: Writer) -> list[str]:
    """Names of two or three tensors of one type; some are made for it, as other names of the same values too."""
    states = [w.tensor(lambda v: v.value.size > 0)]
    first = w[states[0]]
    others = [n for n in w.tensors(lambda v: v.kind is first.kind and v.shape == first.shape) if n != states[0]]
    while len(states) < w.r.choice([2, 3]):
        if others and w.r.random() < 0.6:
            states.append(others.pop(w.r.randrange(len(others))))
        else:
            made = w.r.choice(["{}", "{}[::-1]", "{} * {}"] if first.shape else ["{}", "{} * {}"])
            states.append(f"v{next(w.names)}")
            w.add([f"{states[-1]} = {made.format(states[0], states[0])}"])
    return states


def exchange(w: Writer, states: list[str]) -> str:
    """States that change places, stay, follow one another or are computed from each other, all at once."""
    pick = [*states, *(f"{a} {w.r.choice('+-*')} {b}" for a, b in [w.r.choices(states, k=2)]), f"{states[0]}"]
    turned = [states[1:] + states[:1], states[::-1], w.r.choices(pick, k=len(states)), [*states[1:], pick[-2]]]
    return f"{', '.join(states)} = {', '.join(w.r.choice(turned))}"


@rule(3, CONTROL)
def states_change_places(w: Writer) -> list[str]:
    """A loop or a branch of several states, which ends early at times."""
    states, i, n = several(w), f"i{next(w.names)}", w.r.randint(0, 4)
    kind = w.r.choice(["ts.range", "ts.range", "range", "while", "if"])
    more = counted(w, i, 5) if kind not in ("while", "if") else lambda inner: None
    lines = cut(w, body(w, w.r.choice(states), more)) if w.r.random() < 0.4 else []
    lines.insert(w.r.choice([0, len(lines)]), f"    {exchange(w, states)}")
    if kind in ("ts.range", "while") and w.r.random() < 0.4:
        lines[(at := w.r.choice([0, len(lines)])) : at] = [f"    if {condition(w)}:", "        break"]
    if kind in ("ts.range", "range") and w.r.random() < 0.3:
        lines[:0] = [f"    if {condition(w)}:", "        continue"]
    head = [f"for {i} in {kind}({n}):"]
    if kind == "if":
        head = [f"if {condition(w)}:"]
        lines += ["else:", f"    {exchange(w, states)}"] if w.r.random() < 0.5 else []
    elif kind == "while":
        head = [f"{i} = ts.full((), 0, dtype=ts.int64)", f"while {i} < {n}:", f"    {i} = {i} + 1"]
    for state in states:
        kept(w, [*head, *lines], state)
    return [*head, *lines]


# Whole programs


def array(r: random.Random, shape: tuple[int, ...], kind: str) -> str:
    """The text of an array: plain, or a view of another."""
    letter = KINDS[kind].letter

    def plain(shape: tuple[int, ...]) -> str:
        low, high = (0, 2) if letter == "b" else (0, 9) if letter == "u" else (-8, 9)
        made = f"np.random.default_rng({r.randrange(1000)}).integers({low}, {high}, {shape})"
        if letter in "fc":
            made = f"({made} / 4)"
        if letter == "c":
            made = f"({made} + {made[:-1].replace('default_rng(', 'default_rng(1')}) * 1j)"
        return f"{made}.astype({HELD[kind]})"

    if letter == "f" and r.random() < 0.06 and shape:
        special = f"np.random.default_rng({r.randrange(1000)}).choice([0.5, -0.0, 1, np.inf, -np.inf, np.nan], {shape})"
        return f"{special}.astype({HELD[kind]})"
    return viewed(r, shape, plain)


def viewed(r: random.Random, shape: tuple[int, ...], plain: Callable[[tuple[int, ...]], str]) -> str:
    """The text of an array of that shape: what `plain` gives of it, or a view of what it gives of another shape."""
    views: list[Callable[[], str]] = [lambda: plain(shape)] * 4
    if shape:
        views += [
            lambda: f"{plain(shape[::-1])}.T",
            lambda: f"{plain((shape[0] + 1, *shape[1:]))}[1:]",
            lambda: f"{plain((*shape[:-1], shape[-1] * 2))}[..., ::2]",
            lambda: f"{plain(shape)}[::-1]",
            lambda: f"{plain((2, *shape))}[1]",
            lambda: f"np.broadcast_to({plain((1, *shape[1:]))}, {shape})",
        ]
    return r.choice(views)()


def program(seed: int) -> Program:
    """The program of that seed."""
    r = random.Random(seed)
    w = Writer(r, {"k": (k := r.randint(0, 4))})
    sizes = r.sample(SIZES, 3)
    kinds = [*r.sample(list(KINDS), 2), r.choice(["f32", "f32", "f64", "bf16", "f16"])]
    symbolic = r.random() < 0.2
    arguments: list[tuple[str, str, str]] = []
    long = r.random() < 0.02
    for name in ("x", "y", "z")[: r.randint(1, 3)]:
        shape = tuple(r.choice(sizes) for _ in range(r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])))
        if len(shape) > 2:
            shape = tuple(min(d, 7) for d in shape)
        if r.random() < 0.02 and shape:
            shape = (0, *shape[1:])
        if long and name == "x":
            shape = r.choice([(300, 257), (70000,), (7, 100, 101)])
        kind = r.choice(kinds)
        sized = ", ".join(f'"N{n}"' if n > 1 else str(n) for n in shape) + ", " if shape else ""
        arguments.append((name, array(r, shape, kind), f"ts.Tensor[{sized}ts.{kind}]" if symbolic and shape else ""))
    arguments.append(("i", array(r, r.choice([(3,), (2, 2), (), (5,)]), r.choice(INTEGERS)), ""))
    if r.random() < 0.2:
        arguments.append(("s", r.choice(["0.5", "2.0", "-1.5"]), ""))
    arguments.append(("k", str(k), "int"))
    for name, text, _ in arguments:
        w.scope[name] = held(eval(text, dict(ARRAYS)))  # texts of our own
    for _ in range(r.randint(1, 7)):
        w.statement()
    names = [n for n in w.tensors() if n[0] == "v"] or w.tensors()
    last = [n for n in names if n == names[-1]]
    returns = last + [r.choice(w.tensors()) for _ in range(r.choice([0, 0, 1, 1, 2, 3]))]
    early = returned_early(w, returns) if r.random() < 0.1 else []
    return Program(seed, tuple(arguments), (*w.blocks, *early), tuple(returns))


def returned_early(w: Writer, returns: list[str]) -> list[str]:
    """A branch that returns other values of the same types."""
    others: list[str] = []
    for name in returns:
        old = w[name]
        others.append(w.r.choice(w.tensors(lambda v, k=old.kind, s=old.shape: v.kind is k and v.shape == s)))
    try:
        return [f"    if {condition(w)}:\n        return {', '.join(others)}\n"]
    except Unfit:  # there is nothing to decide by
        return []
