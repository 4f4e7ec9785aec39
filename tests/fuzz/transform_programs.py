"""Random programs of transforms of transforms (`transforms`): one program, written for Tessera and for JAX."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.fuzz.peers import Shape, Writer

KEYS = 6
LARGEST = 64
"""elements of a value"""


@dataclass(frozen=True)
class Many:
    """A structure: the parts of a dict by name, or of a tuple by number."""

    parts: tuple[tuple[str, Tree], ...]
    named: bool = False


Tree = Shape | Many


def many(*parts: Tree) -> Many:
    return Many(tuple((str(i), p) for i, p in enumerate(parts)))


def leaves(tree: Tree, name: str = "") -> Iterator[tuple[str, Shape]]:
    if not isinstance(tree, Many):
        yield name, tree
        return
    for key, part in tree.parts:
        yield from leaves(part, f'{name}["{key}"]' if tree.named else f"{name}[{key}]")


def changed(tree: Tree, change: Callable[[Shape], Tree]) -> Tree:
    """The structure with other leaves."""
    if not isinstance(tree, Many):
        return change(tree)
    return replace(tree, parts=tuple((k, changed(p, change)) for k, p in tree.parts))


def built(tree: Tree, text: Callable[[Shape], str]) -> str:
    """An expression that makes the structure."""
    if not isinstance(tree, Many):
        return text(tree)
    parts = [built(p, text) for _, p in tree.parts]
    if tree.named:
        return "{" + ", ".join(f'"{k}": {p}' for (k, _), p in zip(tree.parts, parts, strict=True)) + "}"
    return f"({', '.join(parts)},)"


@dataclass(frozen=True)
class Sig:
    """A function of the text: its name, the structures of its parameters and of its result."""

    name: str
    params: tuple[Tree, ...]
    result: Tree


@dataclass(frozen=True)
class Node:
    """A statement in both spellings. With a body, `mine` and `other` open it, and the last two close it."""

    mine: str
    other: str
    body: tuple[Node, ...] = ()
    after: str = ""
    other_after: str = ""

    def lines(self, which: str, depth: int = 0) -> Iterator[str]:
        first, last = (self.mine, self.after) if which == "mine" else (self.other, self.other_after)
        yield from ("    " * depth + line for line in first.splitlines())
        for node in self.body:
            yield from node.lines(which, depth + 1)
        yield from ("    " * depth + line for line in last.splitlines())


def plain(text: str) -> Node:
    return Node(text, text)


@dataclass
class Maker(Writer):
    """Writes programs: statements of `Writer`, functions and what is done to them."""

    nodes: list[Node] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    count: int = 0
    kinds: list[str] = field(default_factory=list)
    helpers: list[Sig] = field(default_factory=list)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def add(self, text: str, other: str = "") -> None:
        self.nodes.append(Node(text, other or text))

    def body(self, write: Callable[[], Any]) -> tuple[Node, ...]:
        """What `write` adds, with its own names."""
        before, pool = self.nodes, self.pool
        self.nodes, self.pool = [], list(pool)
        write()
        made, self.nodes, self.pool = tuple(self.nodes), before, pool
        return made

    def ids(self, shape: Shape, bound: int) -> str:
        a, _ = self.pick((0, 1, 2, 3))
        return f"L.ids({a}, {shape}, {bound})"

    def nested(self) -> tuple[str, Shape]:
        a, s = self.pick()
        if self.keys and self.rng.random() < 0.7:
            return f"{a} + L.noise({self.rng.choice(self.keys)}, {s})", s
        return f"T.stop_gradient({a}) * L.sin({a})", s

    def fit(self, shape: Shape) -> str:
        same = [n for n, s in self.pool[-6:] if s == shape]
        if same and self.rng.random() < 0.5:
            return self.rng.choice(same)
        return f"L.fit({self.pick((0, 1, 2, 3))[0]}, {shape})"

    def pick(self, rank: Any = (1, 2, 3), where: Callable[[Shape], bool] | None = None) -> tuple[str, Shape]:
        found = [p for p in self.pool if len(p[1]) in rank and (where is None or where(p[1]))]
        return self.rng.choice(found[-6:] if self.rng.random() < 0.75 else found)

    def expression(self) -> tuple[str, Shape]:
        if not any(s for _, s in self.pool):
            return f"L.fit({self.rng.choice(self.pool)[0]}, (2,))", (2,)
        return self.value()

    def small(self) -> Shape:
        return tuple(self.rng.randint(1, 3) for _ in range(self.rng.randint(1, 2)))

    def tree(self, deep: float = 0.25) -> Tree:
        if self.rng.random() > deep:
            return self.small() if self.rng.random() < 0.85 else ()
        parts = [self.tree(deep / 2) for _ in range(self.rng.randint(1, 2))]
        if self.rng.random() < 0.5:
            return Many(tuple(zip("abc", parts, strict=False)), True)
        return many(*parts)

    # Statements

    def statement(self, depth: int) -> None:
        kind = self.rng.random()
        if depth > 0 and kind < 0.35:
            self.called(depth)
        elif kind < 0.45:
            self.branch(depth)
        elif kind < 0.53:
            self.loop(depth)
        elif kind < 0.58:
            self.going()
        elif kind < 0.68:
            self.stores()
        else:
            name = self.fresh("v")
            text, shape = self.expression()
            self.add(f"{name} = {text}")
            self.pool.append((name, shape))

    def condition(self) -> str:
        a, _ = self.pick((0, 1, 2, 3))
        return f"L.sum({a}) > {self.rng.uniform(-1, 1):.2f}"

    def branch(self, depth: int) -> None:
        name, (no, shape) = self.fresh("v"), self.expression()
        yes = ""

        def write() -> None:
            nonlocal yes
            for _ in range(self.rng.randint(0, 2)):
                self.statement(depth - 1)
            yes = self.fit(shape) if self.rng.random() < 0.5 else f"L.sin({self.fit(shape)})"

        condition, inner = self.condition(), self.fresh("yes")
        made = self.body(write)
        made = (*made, Node(f"{name} = {yes}", f"return {yes}"))
        self.nodes.append(Node(f"if {condition}:", f"def {inner}():", made, f"else:\n    {name} = {no}",
                               f"{name} = L.choose({condition}, {inner}, lambda: {no})"))  # fmt: skip
        self.pool.append((name, shape))

    def loop(self, depth: int) -> None:
        name, (text, shape) = self.fresh("v"), self.expression()
        self.add(f"{name} = {text}")
        k = self.fresh("k")

        def write() -> None:
            self.pool.append((name, shape))
            for _ in range(self.rng.randint(0, 1)):
                self.statement(depth - 1)
            if self.rng.random() < 0.3:
                self.add(f"{name} = L.stored({name}, {k} % {shape[0]}, L.sin({name}[-1]), 0)")
            self.add(f"{name} = L.sin({self.fit(shape)}) * {self.fit(shape)} + 0.5 * {name}")

        body = self.body(write)
        self.nodes.append(Node(*[f"for {k} in L.range({self.rng.randint(0, 3)}):"] * 2, body))
        self.pool.append((name, shape))

    def going(self) -> None:
        """A `while`, which JAX's reading runs often enough."""
        name, (text, shape) = self.fresh("v"), self.expression()
        self.add(f"{name} = {text}")
        still = f"L.sum(L.abs({name})) > {self.rng.uniform(1, 4):.2f}"
        again = f"{name} * 0.5 * L.cos({self.fit(shape)})"
        step = Node(f"{name} = {again}", f"{name} = L.choose({still}, lambda: {again}, lambda: {name})")
        self.nodes.append(Node(f"while {still}:", "for _ in range(14):", (step,)))
        self.pool.append((name, shape))

    def stores(self) -> None:
        """Stores to parts of a tensor."""
        name, (a, shape) = self.fresh("v"), self.pick()
        self.add(f"{name} = 1.0 * {a}")  # outside of functions stores change what other names have, too
        for _ in range(self.rng.randint(1, 2)):
            if self.rng.random() < 0.2:
                c = round(self.rng.uniform(-0.5, 0.5), 2)
                self.add(f"{name}[{name} > {c}] = {c}", f"{name} = L.where({name} > {c}, {c}, {name})")
                continue
            at, inner = [], []
            for n in shape[: self.rng.randint(1, len(shape))]:
                low, step = self.rng.randrange(n), self.rng.choice((1, 1, 2))
                if self.rng.random() < 0.3:
                    at.append(str(self.rng.randrange(-n, n)))
                else:
                    high = self.rng.randint(low + 1, n)
                    at.append(f"{low}:{high}:{step}")
                    inner.append(-(-(high - low) // step))
            place, to = ", ".join(at), (*inner, *shape[len(at) :])
            value = self.fit(to) if self.rng.random() < 0.7 else f"L.sum({self.pick((0, 1, 2, 3))[0]})"
            form = self.rng.choice((("=", "set"), ("+=", "add"), ("*=", "multiply")))
            self.add(f"{name}[{place}] {form[0]} {value}", f"{name} = {name}.at[{place}].{form[1]}({value})")
        self.pool.append((name, shape))

    # Functions

    def function(self, params: tuple[Tree, ...], result: Tree | None, depth: int,
                 keys: tuple[str, ...] = ()) -> Sig:  # fmt: skip
        """Writes a function; without `result` its last values in a structure."""
        name, names = self.fresh("f"), [self.fresh("p") for _ in params]
        before, self.keys = self.keys, [*self.keys, *("keys[0]" if k == "keys" else k for k in keys)]

        def write() -> None:
            nonlocal result
            for n, p in zip(names, params, strict=True):
                self.pool += leaves(p, n)
            for _ in range(self.rng.randint(1, 3)):
                self.statement(depth - 1)
            if result is None:
                last = [self.rng.choice(self.pool[-3:]) for _ in range(self.rng.randint(1, 2))]
                if len(last) == 1 and self.rng.random() < 0.7:
                    result = last[0][1]
                    self.add(f"return L.sin({last[0][0]})")
                else:
                    named = self.rng.random() < 0.4
                    keys = "ab" if named else "01"
                    result = Many(tuple((k, s) for k, (_, s) in zip(keys, last, strict=False)), named)
                    texts = iter([n for n, _ in last])
                    self.add(f"return {built(result, lambda _: next(texts))}")
            elif result == ():
                self.add("return " + " + ".join(f"L.sum(L.sin({n}))" for n, _ in self.pool[-3:]))
            else:
                self.add(f"return {built(result, lambda s: f'L.sin({self.fit(s)})')}")

        body = self.body(write)
        self.nodes.append(Node(*[f"def {name}({', '.join((*keys, *names))}):"] * 2, body))
        self.keys = before
        assert result is not None
        return Sig(name, params, result)

    def wrapper(self, sig: Sig, params: tuple[Tree, ...], result: Tree, text: Callable[[list[str]], str]) -> Sig:
        """A function of one or several lines around another one."""
        name, names = self.fresh("g"), [self.fresh("q") for _ in params]
        *before, last = text(names).splitlines()
        body = tuple(map(plain, (*before, f"return {last}")))
        self.nodes.append(Node(*[f"def {name}({', '.join(names)}):"] * 2, body))
        return Sig(name, params, result)

    def named(self, sig: Sig, text: str, params: tuple[Tree, ...], result: Tree, mine: str = "") -> Sig:
        name = self.fresh("h")
        self.add(f"{name} = {mine or text}", f"{name} = {text}")
        return Sig(name, params, result)

    def transformed(self, sig: Sig, depth: int) -> Sig:
        rng, size = self.rng, sum(math.prod(s) for _, s in leaves(many(*sig.params)))
        self_made = [self.mapped, self.mapped, self.again, self.forward, self.backward, self.linear]
        if sig.result == ():
            self_made += [self.gradient] * 4 + [self.hessian, self.curved]
        else:
            self_made += [self.total] * 3 + [self.beside] * 2
        if size <= 12:
            self_made += [self.jacobian] * 2
        kind = rng.choice(self_made)
        found = kind(sig)
        if any(math.prod(s) > LARGEST or len(s) > 4 for _, s in leaves(found.result)):
            return sig
        self.kinds.append(kind.__name__)
        return found

    def total(self, sig: Sig) -> Sig:
        def text(names: list[str]) -> str:
            r = self.fresh("r")
            parts = " + ".join(f"L.sum(L.sin({n}))" for n, _ in leaves(sig.result, r))
            return f"{r} = {sig.name}({', '.join(names)})\n{parts or '0.0'}"

        return self.wrapper(sig, sig.params, (), text)

    def argnums(self, sig: Sig) -> tuple[str, Tree]:
        n = len(sig.params)
        if self.rng.random() < 0.6:
            i = self.rng.randrange(n)
            return str(i), sig.params[i]
        some = self.rng.sample(range(n), self.rng.randint(1, n))
        return f"({', '.join(map(str, some))},)", many(*(sig.params[i] for i in some))

    def gradient(self, sig: Sig) -> Sig:
        argnums, result = self.argnums(sig)
        if self.rng.random() < 0.4:
            return self.named(sig, f"T.value_and_grad({sig.name}, argnums={argnums})", sig.params, many((), result))
        return self.named(sig, f"T.grad({sig.name}, argnums={argnums})", sig.params, result)

    def beside(self, sig: Sig) -> Sig:
        """The gradient of a sum, and beside it what is summed."""
        r = self.fresh("r")

        def text(names: list[str]) -> str:
            parts = " + ".join(f"L.sum(L.sin({n}))" for n, _ in leaves(sig.result, r))
            return f"{r} = {sig.name}({', '.join(names)})\n({parts or '0.0'}, {r})"

        both = self.wrapper(sig, sig.params, many((), sig.result), text)
        argnums, result = self.argnums(sig)
        if self.rng.random() < 0.5:
            made = many(many((), sig.result), result)
            return self.named(both, f"T.value_and_grad({both.name}, {argnums}, has_aux=True)", sig.params, made)
        made = many(result, sig.result)
        return self.named(both, f"T.grad({both.name}, argnums={argnums}, has_aux=True)", sig.params, made)

    def jacobian(self, sig: Sig) -> Sig:
        argnums, by = self.argnums(sig)
        result = changed(sig.result, lambda out: changed(by, lambda to: (*out, *to)))
        kind = self.rng.choice(("jacfwd", "jacrev", "jacobian"))
        return self.named(sig, f"T.{kind}({sig.name}, argnums={argnums})", sig.params, result)

    def hessian(self, sig: Sig) -> Sig:
        argnums, to = self.argnums(sig)
        result = changed(to, lambda a: changed(to, lambda b: (*a, *b)))
        return self.named(sig, f"T.hessian({sig.name}, argnums={argnums})", sig.params, result)

    def curved(self, sig: Sig) -> Sig:
        n = len(sig.params)
        result = sig.params[0] if n == 1 else many(*sig.params)
        return self.wrapper(sig, sig.params * 2, result, lambda names: (
            f"T.hvp({sig.name}, ({', '.join(names[:n])},), ({', '.join(names[n:])},))"))  # fmt: skip

    def forward(self, sig: Sig) -> Sig:
        n = len(sig.params)
        return self.wrapper(sig, sig.params * 2, many(sig.result, sig.result), lambda names: (
            f"T.jvp({sig.name}, ({', '.join(names[:n])},), ({', '.join(names[n:])},))"))  # fmt: skip

    def linear(self, sig: Sig) -> Sig:
        n, r, push = len(sig.params), self.fresh("r"), self.fresh("push")

        def text(names: list[str]) -> str:
            made = f"{r}, {push} = T.linearize({sig.name}, {', '.join(names[:n])})"
            return f"{made}\n({r}, {push}({', '.join(names[n:])}))"

        return self.wrapper(sig, sig.params * 2, many(sig.result, sig.result), text)

    def backward(self, sig: Sig) -> Sig:
        r, back = self.fresh("r"), self.fresh("back")
        keep = self.rng.random() < 0.5
        result = many(sig.result, many(*sig.params)) if keep else many(*sig.params)

        def text(names: list[str]) -> str:
            first = f"{r}, {back} = T.vjp({sig.name}, {', '.join(names[:-1])})\n"
            return first + (f"({r}, {back}({names[-1]}))" if keep else f"{back}({names[-1]})")

        return self.wrapper(sig, (*sig.params, sig.result), result, text)

    def again(self, sig: Sig) -> Sig:
        policy = self.rng.choice(("", ", T.save.nothing", ", T.save.products", ", T.save.everything"))
        return self.named(sig, f"T.remat({sig.name})", sig.params, sig.result, f"T.remat({sig.name}{policy})")

    def axes(self, tree: Tree, n: int, kept: float) -> tuple[str, Tree]:
        """The text of axes for a structure, one for all or one for each part, and the structure with them. `kept`: how
        often a part has none."""
        if isinstance(tree, Many) and tree.parts and self.rng.random() < 0.4:
            parts = [(k, self.axes(p, n, kept)) for k, p in tree.parts]
            texts = [f'"{k}": {text}' if tree.named else text for k, (text, _) in parts]
            text = "{" + ", ".join(texts) + "}" if tree.named else f"({', '.join(texts)},)"
            return text, replace(tree, parts=tuple((k, p) for k, (_, p) in parts))
        if self.rng.random() < kept:
            return "None", tree
        rank = min((len(s) for _, s in leaves(tree)), default=0)
        axis = self.rng.choice((0, self.rng.randint(0, rank), -1))
        return str(axis), changed(tree, lambda s: _with(s, axis, n))

    def mapped(self, sig: Sig) -> Sig:
        n = self.rng.randint(1, 3)
        given = [self.axes(p, n, 0.25) for p in sig.params]
        if all(p == q for (_, p), q in zip(given, sig.params, strict=True)):
            i = self.rng.randrange(len(given))
            given[i] = "0", changed(sig.params[i], lambda s: (n, *s))
        out, result = self.axes(sig.result, n, 0)
        text = f"T.vmap({sig.name}, in_axes=({', '.join(t for t, _ in given)},), out_axes={out})"
        return self.named(sig, text, tuple(p for _, p in given), result)

    def ruled(self, sig: Sig) -> Sig:
        """A function with a rule of its own, which gives 1.5 times the derivative."""
        name, ahead = self.fresh("c"), self.fresh("rule")
        ps, ds = ", ".join(f"a{i}" for i in range(len(sig.params))), ", ".join(f"d{i}" for i in range(len(sig.params)))
        both = list(leaves(sig.result, "t"))
        shape = iter([f"1.5 * {n}" for n, _ in both])
        scaled = built(sig.result, lambda _: next(shape))
        if self.rng.random() < 0.5:
            mine = (f"@T.custom_jvp\ndef {name}({ps}):\n    return {sig.name}({ps})\n"
                    f"@{name}.defjvp\ndef {ahead}(primals, tangents):\n"
                    f"    r, t = T.jvp({sig.name}, primals, tangents)\n    return r, {scaled}")  # fmt: skip
        else:
            cts = ", ".join(f"1.5 * d{i}" for i in range(len(sig.params)))
            mine = (f"@T.custom_vjp\ndef {name}({ps}):\n    return {sig.name}({ps})\n"
                    f"def {ahead}_f({ps}):\n    return {sig.name}({ps}), ({ps},)\n"
                    f"def {ahead}_b(kept, ct):\n    {ds}, = T.vjp({sig.name}, *kept)[1](ct)\n    return ({cts},)\n"
                    f"{name}.defvjp({ahead}_f, {ahead}_b)")  # fmt: skip
        self.nodes.append(Node(mine, f"{name} = L.scaled({sig.name}, 1.5)"))
        return Sig(name, sig.params, sig.result)

    def helper(self) -> None:
        """A function of the module: one of Tessera, or one with a rule."""
        params = tuple(self.small() for _ in range(self.rng.randint(1, 2)))
        self.pool = []
        sig = self.function(params, () if self.rng.random() < 0.5 else None, 2)
        made = self.nodes[-1]
        if self.rng.random() < 0.6:
            sig = self.ruled(sig)
        else:
            self.nodes[-1] = replace(made, mine="@T.function\n" + made.mine)
        self.helpers.append(sig)

    # Calls

    def chain(self, sig: Sig, depth: int) -> Sig:
        for _ in range(self.rng.choice((1, 1, 2, 2, 3))):
            sig = self.transformed(sig, depth)
        return sig

    def called(self, depth: int) -> None:
        kind = self.rng.random()
        if kind < 0.15:
            return self.scanned(depth)
        if kind < 0.27 and self.keys:
            return self.keyed(depth)
        params = tuple(self.tree() for _ in range(self.rng.randint(1, 2)))
        result = () if self.rng.random() < 0.6 else None
        if self.helpers and self.rng.random() < 0.3:
            sig = self.chain(self.rng.choice(self.helpers), depth)
        else:
            sig = self.chain(self.function(params, result, depth), depth)
        self.result(sig.result, f"{sig.name}({', '.join(built(p, self.fit) for p in sig.params)})")

    def result(self, tree: Tree, text: str) -> None:
        name = self.fresh("v")
        self.add(f"{name} = {text}")
        self.pool += leaves(tree, name)

    def scanned(self, depth: int) -> None:
        carry, n = self.tree(), self.rng.randint(1, 3)
        x, y = self.small(), self.small()
        sig = self.function((carry, x), many(carry, y), depth)
        back = self.rng.choice(("", ", reverse=True"))
        text = f"T.scan({sig.name}, {built(carry, self.fit)}, {self.fit((n, *x))}{back})"
        self.result(many(carry, (n, *y)), text)

    def keyed(self, depth: int) -> None:
        """A function that draws numbers, with a key for each element."""
        key, x, n = self.fresh("key"), self.small(), self.rng.randint(1, 3)
        sig = self.function((x,), () if self.rng.random() < 0.5 else None, depth, (key,))
        axis, name = self.rng.choice(("0", "None")), sig.name
        if sig.result == () and self.rng.random() < 0.6:
            name, result = self.fresh("h"), x
            self.add(f"{name} = T.grad({sig.name}, argnums=1)")
        else:
            result = sig.result
        keys = f"keys[{self.rng.randint(0, 1)}:][:{n}]"
        given = self.fit((n, *x) if axis == "0" else x)
        self.result(changed(result, lambda s: (n, *s)), f"T.vmap({name}, in_axes=(0, {axis}))({keys}, {given})")


def _with(shape: Shape, axis: int, n: int) -> Shape:
    at = len(shape) if axis == -1 else axis
    return (*shape[:at], n, *shape[at:])


@dataclass(frozen=True)
class TransformProgram:
    seed: int
    nodes: tuple[Node, ...]
    params: tuple[Tree, ...]
    kinds: tuple[str, ...]

    def text(self, which: str) -> str:
        text = "\n".join(line for node in self.nodes for line in node.lines(which)) + "\n"
        text = re.sub(r"(?<![\w.])T\.", "ts." if which == "mine" else "L.", text)
        return text.replace("L.range(", "ts.range(" if which == "mine" else "range(")

    def arguments(self, attempt: int) -> tuple[list[Any], np.ndarray]:
        rng = np.random.default_rng((self.seed, attempt))

        def given(tree: Tree) -> Any:
            if not isinstance(tree, Many):
                return rng.normal(size=tree)
            parts = [(k, given(p)) for k, p in tree.parts]
            return dict(parts) if tree.named else tuple(p for _, p in parts)

        return [given(p) for p in self.params], rng.integers(0, KEYS, 4)


def program(seed: int) -> TransformProgram:
    """`main(keys, ...)` and, before it, what it is made of."""
    rng = random.Random(seed)
    m = Maker(rng, [])
    params = tuple(m.tree() for _ in range(rng.randint(1, 3)))
    if not any(s for _, s in leaves(many(*params))):
        params = (*params, m.small())
    for _ in range(rng.randint(0, 2)):
        m.helper()
    f = m.function(params, () if rng.random() < 0.5 else None, rng.choice((2, 2, 3)), keys=("keys",))
    names = [m.fresh("p") for _ in params]

    def write() -> None:
        plainly = m.wrapper(f, params, f.result, lambda args: f"{f.name}(keys, {', '.join(args)})")
        for n, p in zip(names, params, strict=True):
            m.pool += leaves(p, n)
        sig = m.chain(plainly, 1) if rng.random() < 0.7 else plainly
        m.add(f"return {sig.name}({', '.join(built(p, m.fit) for p in sig.params)})")

    body = m.body(write)
    m.nodes.append(Node(*[f"def main(keys, {', '.join(names)}):"] * 2, body))
    return TransformProgram(seed, tuple(m.nodes), params, tuple(m.kinds))
