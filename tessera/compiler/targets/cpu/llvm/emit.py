"""Writes LLVM IR text: typed values, loops, vectors.

Two things make the text good enough to skip LLVM's mid-level passes. Every value knows the loop scope it belongs to,
the innermost scope among its operands; a pure instruction is placed in that scope, in front of the loop being written
(so invariants leave loops by themselves). And a pure instruction that was already written in a live scope is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeAlias

from tessera.compiler.targets.cpu.llvm.values import I1, I64, PTR, Index, Ty, Val, const, text, ty
from tessera.errors import Span
from tessera.immutable import mutable

Lines: TypeAlias = "list[str | Lines]"


class SpanLine(str):
    """A line of text with the source span that it was written for."""

    __slots__ = ("at",)
    at: Span


@mutable
class OpenScope:
    """A loop body or branch being written. `front` is the place just before it, in the enclosing scope."""

    front: Lines
    known: dict[str, Val] = field(default_factory=dict[str, Val])


class OpenLoop:
    """An open loop: `index` counts, `carried` holds this iteration's values; assign `next` before it closes."""

    def __init__(self, index: Val, carried: list[Val]) -> None:
        self.index, self.carried = index, carried
        self.next: Sequence[Val] = ()
        self.results: list[Val] = []


class LLVMModule:
    """The text of one compilation unit."""

    def __init__(self, attributes: str = "") -> None:
        self.declarations: dict[str, None] = {}
        self.globals: list[str] = []
        self.functions: list[LLVMFunction] = []
        self.attributes = attributes
        self.metadata = ["!0 = !{i32 1}"]
        self._names: dict[str, str] = {}

    def seldom(self) -> int:
        """The number of the metadata of a branch that is hardly ever taken."""
        text = '!1 = !{!"branch_weights", i32 1, i32 100000}'
        if text not in self.metadata:
            self.metadata.append(text)
        return 1

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    def only_one(self, fn: LLVMFunction) -> str:
        """The name under which to call a function that is finished: that of an earlier one with the same text, in whose
        favour this one is left out, or its own."""
        lines: list[str] = []
        fn.render(lines)
        text = "\n".join([lines[0].replace(f"@{fn.name}(", "@(", 1), *lines[1:]])
        if (name := self._names.setdefault(text, fn.name)) != fn.name:
            self.functions.remove(fn)
        return name

    def render(self) -> tuple[str, list[tuple[int, str, int]]]:
        """The text, and where its lines come from: [line, file, user's line] at each change, lines counted from 1."""
        lines: list[str] = [*self.globals, *self.declarations]
        for f in self.functions:
            f.render(lines)
        lines += [f"attributes #0 = {{ nounwind {self.attributes} }}", *self.metadata]
        rows: list[tuple[int, str, int]] = []
        for number, line in enumerate(lines, 1):
            if isinstance(line, SpanLine) and (not rows or rows[-1][1:] != (line.at.file, line.at.line)):
                rows.append((number, line.at.file, line.at.line))
        return "\n".join(lines) + "\n", rows


class LLVMFunction:
    """One function being written, at its current end. Numbers may be ints wherever an `Index` is taken."""

    def __init__(self, module: LLVMModule, name: str, params: Sequence[tuple[str, Ty]], result: str = "void") -> None:
        self.module, self.name, self.params, self.result = module, name, list(params), result
        self.body: Lines = []
        self.entry: list[str] = []
        self.out: Lines = self.body
        self.scopes: list[OpenScope] = [OpenScope([])]
        self.label = "entry"
        self.at: Span | None = None
        """the source that instructions are written for"""
        self.attributes = ""
        self._n = 0
        module.functions.append(self)

    # -- values ------------------------------------------------------------------------------------------------------
    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def param(self, i: int) -> Val:
        return Val(f"%{self.params[i][0]}", self.params[i][1])

    def fresh(self, prefix: str = "%v") -> str:
        self._n += 1
        return f"{prefix}{self._n}"

    def op(self, rhs: str, t: Ty, deps: Sequence[Val]) -> Val:
        """A pure instruction: reused where known, else placed in the innermost scope of its operands."""
        scope = 0
        for d in deps:
            if d.scope > scope:
                scope = d.scope
        scopes = self.scopes
        known = scopes[scope].known
        if (found := known.get(rhs)) is not None:
            return found
        self._n += 1
        v = Val(f"%v{self._n}", t, scope)
        place = self.out if scope == len(scopes) - 1 else scopes[scope + 1].front
        place.append(self.line(f"  {v.ref} = {rhs}"))
        known[rhs] = v
        return v

    def effect(self, rhs: str, t: Ty) -> Val:
        """An instruction that must stay where it is (a load, a call), with a result."""
        self._n += 1
        v = Val(f"%v{self._n}", t, len(self.scopes) - 1)
        self.out.append(self.line(f"  {v.ref} = {rhs}"))
        return v

    def line(self, text: str) -> str:
        if self.at is None:
            return text
        line = SpanLine(text)
        line.at = self.at
        return line

    def do(self, line: str) -> None:
        self.out.append(self.line("  " + line))

    def here(self, v: Val) -> Val:
        """The same value, seen as defined in the current scope (so that what depends on it stays here)."""
        return Val(v.ref, v.ty, self.depth, v.const)

    # -- control flow ------------------------------------------------------------------------------------------------
    def place(self, label: str) -> None:
        self.out.append(f"{label}:")
        self.label = label

    def _push(self) -> None:
        front: Lines = []
        self.out.append(front)
        self.scopes.append(OpenScope(front))

    @contextmanager
    def loop(self, lo: Index, hi: Index, step: Index = 1, carried: Sequence[Val] = ()) -> Generator[OpenLoop]:
        """for index in range(lo, hi, step), tested at the top, signed; `results` are the last carried values."""
        self._n += 1
        k = self._n
        head, body, done = f"h{k}", f"b{k}", f"x{k}"
        before = self.label
        self._push()
        self.do(f"br label %{head}")
        self.place(head)
        phis: list[str] = []
        self.out.append(phis)  # type: ignore[arg-type]
        depth = self.depth
        o = OpenLoop(Val(f"%i{k}", I64, depth), [Val(f"%c{k}_{j}", c.ty, depth) for j, c in enumerate(carried)])
        self.do(f"%t{k} = icmp slt i64 {o.index.ref}, {text(hi)}")
        self.do(f"br i1 %t{k}, label %{body}, label %{done}")
        self.place(body)
        yield o
        self.do(f"%n{k} = add nsw i64 {o.index.ref}, {text(step)}")
        end = self.label
        self.do(f"br label %{head}")
        phis.append(self.line(f"  {o.index.ref} = phi i64 [ {text(lo)}, %{before} ], [ %n{k}, %{end} ]"))
        for c, init, nxt in zip(o.carried, carried, o.next, strict=True):
            phis.append(self.line(f"  {c.ref} = phi {c.ty.text} [ {init.ref}, %{before} ], [ {nxt.ref}, %{end} ]"))
        self.scopes.pop()
        self.place(done)
        o.results = [Val(c.ref, c.ty, self.depth) for c in o.carried]

    @contextmanager
    def when(self, condition: Val | bool) -> Generator[None]:
        """Runs the body if `condition` holds; no code for a condition known here."""
        if condition is True or (isinstance(condition, Val) and condition.const is True):
            yield
            return
        self._n += 1
        k = self._n
        self._push()
        self.do(f"br i1 {condition.ref}, label %y{k}, label %n{k}")  # type: ignore[union-attr]
        self.place(f"y{k}")
        yield
        self.do(f"br label %n{k}")
        self.scopes.pop()
        self.place(f"n{k}")

    def while_loop(
        self, carried: Sequence[Val], test: Callable[[list[Val]], Val], body: Callable[[list[Val]], Sequence[Val]]
    ) -> list[Val]:
        """while test(values): values = body(values). `test` may write blocks of its own."""
        self._n += 1
        k = self._n
        before = self.label
        self._push()
        self.do(f"br label %h{k}")
        self.place(f"h{k}")
        phis: list[str] = []
        self.out.append(phis)  # type: ignore[arg-type]
        values = [Val(f"%c{k}_{j}", c.ty, self.depth) for j, c in enumerate(carried)]
        go = test(values)
        self._push()  # before the branch: code that is hoisted out of the body is placed in front of it
        self.do(f"br i1 {go.ref}, label %b{k}, label %x{k}")
        self.place(f"b{k}")
        # The test decides whether there is another step: no code of the body, above all no load, may precede it.
        nexts = body([self.here(v) for v in values])
        end = self.label
        self.do(f"br label %h{k}")
        self.scopes.pop()
        for v, init, nxt in zip(values, carried, nexts, strict=True):
            phis.append(self.line(f"  {v.ref} = phi {v.ty.text} [ {init.ref}, %{before} ], [ {nxt.ref}, %{end} ]"))
        self.scopes.pop()
        self.place(f"x{k}")
        return [Val(v.ref, v.ty, self.depth) for v in values]

    def choose(self, condition: Val, then: Any, otherwise: Any) -> list[Val]:
        """Calls one of two writers, each returning a list of values; gives the values of the one that ran."""
        self._n += 1
        k = self._n
        self._push()
        second = OpenScope([])
        self.out.append(second.front)
        self.do(f"br i1 {condition.ref}, label %y{k}, label %n{k}")
        self.place(f"y{k}")
        a: list[Val] = then()
        ya = self.label
        self.do(f"br label %e{k}")
        self.scopes[-1] = second
        self.place(f"n{k}")
        b: list[Val] = otherwise()
        yb = self.label
        self.do(f"br label %e{k}")
        self.scopes.pop()
        self.place(f"e{k}")
        return [
            self.effect(f"phi {x.ty.text} [ {x.ref}, %{ya} ], [ {y.ref}, %{yb} ]", x.ty)
            for x, y in zip(a, b, strict=True)
        ]

    def either(self, condition: Val, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Calls one of two writers that give no values."""

        def no_values(write: Callable[[], None]) -> list[Val]:
            write()
            return []

        self.choose(condition, lambda: no_values(then), lambda: no_values(otherwise))

    # -- index numbers -----------------------------------------------------------------------------------------------
    def integer(self, name: str, a: Index, b: Index) -> Val:
        """An i64 instruction with no constants folded."""
        return self.op(f"{name} i64 {text(a)}, {text(b)}", I64, [v for v in (a, b) if isinstance(v, Val)])

    def add(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.integer("add nsw", a, b)

    def sub(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.integer("sub nsw", a, b)

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.integer("mul nsw", a, b)

    def div(self, a: Index, b: Index) -> Index:
        """Floor division by a divisor that is positive."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        if b == 1:
            return a
        if isinstance(b, int) and b & (b - 1) == 0:
            return self.integer("ashr", a, b.bit_length() - 1)
        q, r = self.integer("sdiv", a, b), self.integer("srem", a, b)
        return self.sub(q, self.op(f"lshr i64 {r.ref}, 63", I64, [r]))

    def mod(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        if isinstance(b, int) and b & (b - 1) == 0:
            return self.integer("and", a, b - 1)
        return self.sub(a, self.mul(self.div(a, b), b))

    def smin(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("smin", I64, self.index(a), self.index(b))

    def smax(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.intrinsic("smax", I64, self.index(a), self.index(b))

    def icmp(self, predicate: str, a: Index, b: Index) -> Val:
        if isinstance(a, int) and isinstance(b, int):
            known = {"slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b, "eq": a == b, "ne": a != b}[predicate]
            return const(known, I1)
        return self.op(f"icmp {predicate} i64 {text(a)}, {text(b)}", I1, [v for v in (a, b) if isinstance(v, Val)])

    def index(self, a: Index) -> Val:
        return a if isinstance(a, Val) else const(a, I64)

    # -- memory ------------------------------------------------------------------------------------------------------
    def gep(self, p: Val, i: Index, elem: str) -> Val:
        if i == 0:
            return p
        deps = [p, i] if isinstance(i, Val) else [p]
        return self.op(f"getelementptr {elem}, ptr {p.ref}, i64 {text(i)}", PTR, deps)

    def load(self, p: Val, t: Ty, align: int | None = None) -> Val:
        return self.effect(f"load {t.text}, ptr {p.ref}, align {align or max(1, t.bits // 8)}", t)

    def load_pure(self, p: Val, t: Ty, align: int | None = None) -> Val:
        """A load of memory that does not change while this function runs."""
        return self.op(f"load {t.text}, ptr {p.ref}, align {align or max(1, t.bits // 8)}", t, [p])

    def load_once(self, rhs: str, t: Ty, deps: Sequence[Val], floor: int) -> Val:
        """A load of memory that does not change inside scope `floor`: as far out as its address and that allow."""
        scope = max([floor, *(d.scope for d in deps)])
        self._n += 1
        v = Val(f"%v{self._n}", t, scope)
        place = self.out if scope == self.depth else self.scopes[scope + 1].front
        place.append(self.line(f"  {v.ref} = {rhs}"))
        return v

    def store(self, v: Val, p: Val, align: int | None = None, *, nontemporal: bool = False) -> None:
        tail = ", !nontemporal !0" if nontemporal else ""
        self.do(f"store {v.ty.text} {v.ref}, ptr {p.ref}, align {align or max(1, v.ty.bits // 8)}{tail}")

    def prefetch(self, p: Val, level: int = 1) -> None:
        """Asks memory for the line at `p`, to be kept in that level of cache. To ask for what does not exist does
        nothing."""
        self.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {p.ref}, i32 0, i32 {4 - level}, i32 1)")

    def alloca(self, elem: str, count: int, align: int = 64) -> Val:
        ref = self.fresh()
        self.entry.append(f"  {ref} = alloca [{count} x {elem}], align {align}")
        return Val(ref, PTR)

    # -- vectors -----------------------------------------------------------------------------------------------------
    def any_lane(self, mask: Val) -> Val:
        """Whether a mask holds in some lane."""
        n = mask.ty.lanes
        if n == 1:
            return mask
        packed = self.op(f"bitcast {mask.ty.text} {mask.ref} to i{n}", ty("i", n), (mask,))
        return self.op(f"icmp ne i{n} {packed.ref}, 0", I1, (packed,))

    def unseen(self, v: Val) -> Val:
        """The same vector, of which LLVM does not know how it was made: it stays in a register. For AVX-512."""
        return self.op(f'call {v.ty.text} asm "", "=v,0"({v!r})', v.ty, (v,))

    def splat(self, v: Val, lanes: int) -> Val:
        if v.ty.lanes == lanes:
            return v
        t = v.ty.wide(lanes)
        if v.const is not None:
            return const(v.const, t)
        one = self.op(f"insertelement {t.text} poison, {v.ty.text} {v.ref}, i64 0", t, [v])
        return self.op(f"shufflevector {t.text} {one.ref}, {t.text} poison, <{lanes} x i32> zeroinitializer", t, [one])

    def align_lanes(self, *values: Val) -> list[Val]:
        """The same values with as many lanes each as the widest has."""
        lanes = max(v.ty.lanes for v in values)
        return [v if v.ty.lanes == lanes else self.splat(v, lanes) for v in values]

    def binary(self, name: str, a: Val, b: Val) -> Val:
        if a.ty.lanes != b.ty.lanes:
            a, b = self.align_lanes(a, b)
        return self.op(f"{name} {a.ty.text} {a.ref}, {b.ref}", a.ty, (a, b))

    def compare(self, name: str, a: Val, b: Val) -> Val:
        if a.ty.lanes != b.ty.lanes:
            a, b = self.align_lanes(a, b)
        return self.op(f"{name} {a.ty.text} {a.ref}, {b.ref}", ty("i", 1, a.ty.lanes), (a, b))

    def select(self, c: Val, a: Val, b: Val) -> Val:
        if c.const is not None:
            return a if c.const else b
        a, b = self.align_lanes(a, b)
        if c.ty.lanes > a.ty.lanes:
            a, b = self.splat(a, c.ty.lanes), self.splat(b, c.ty.lanes)
        return self.op(f"select {c.ty.text} {c.ref}, {a.ty.text} {a.ref}, {b.ty.text} {b.ref}", a.ty, (c, a, b))

    def convert(self, name: str, v: Val, t: Ty) -> Val:
        """`name` is an LLVM conversion (zext, fptosi, bitcast ...); the result keeps v's lanes."""
        t = t.wide(v.ty.lanes)
        return v if t is v.ty else self.op(f"{name} {v.ty.text} {v.ref} to {t.text}", t, (v,))

    def intrinsic(self, name: str, t: Ty, *args: Val) -> Val:
        """llvm.<name>.<t>(args), pure; arguments keep their own types."""
        kinds = ", ".join(a.ty.text for a in args)
        self.module.declare(f"declare {t.text} @llvm.{name}.{t.suffix}({kinds})")
        return self.op(f"call {t.text} @llvm.{name}.{t.suffix}({', '.join(map(repr, args))})", t, args)

    def call_pure(self, name: str, t: Ty, *args: Val) -> Val:
        self.module.declare(f"declare {t.text} @{name}({', '.join(a.ty.text for a in args)})")
        return self.op(f"call {t.text} @{name}({', '.join(map(repr, args))})", t, args)

    def shuffle(self, a: Val, b: Val | None, lanes: Sequence[int]) -> Val:
        """Lanes of a then b, by number; -1 is any."""
        t = a.ty.wide(len(lanes))
        mask = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in lanes)
        other = b.ref if b else "poison"
        return self.op(
            f"shufflevector {a.ty.text} {a.ref}, {a.ty.text} {other}, <{len(lanes)} x i32> <{mask}>",
            t,
            (a, b) if b else (a,),
        )

    def extract(self, v: Val, lane: int) -> Val:
        if v.ty.lanes == 1:
            return v
        return self.op(f"extractelement {v.ty.text} {v.ref}, i64 {lane}", v.ty.scalar, (v,))

    def lane_numbers(self, t: Ty) -> Val:
        """0, 1, 2 ... in the lanes of integer type `t`."""
        if t.lanes == 1:
            return const(0, t)
        return Val("<" + ", ".join(f"{t.elem} {i}" for i in range(t.lanes)) + ">", t)

    # -- text --------------------------------------------------------------------------------------------------------
    def render(self, lines: list[str]) -> None:
        """Appends the function's lines."""
        head = ", ".join(f"{t.text} %{n}" for n, t in self.params)
        lines += [f"define {self.result} @{self.name}({head}) #0{self.attributes} {{", "entry:", *self.entry]
        _flatten(self.body, lines)
        if not lines[-1].lstrip().startswith("ret "):
            lines.append("  ret void")
        lines.append("}")


def _flatten(lines: Lines, out: list[str]) -> None:
    for item in lines:
        if isinstance(item, str):
            out.append(item)
        else:
            _flatten(item, out)
