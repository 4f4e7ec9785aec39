"""Nests whose vector axis is innermost: elementwise work, and reductions along it.

A vector loop has two parts: the main part, in which every access is known to stay inside its view and all lanes count,
and the rest, the same body with masks. Where the main part ends is computed once per loop from all accesses in it. If
stores of the main part are to bypass the caches, vectors with masks come first, so that whole lines are stored: half a
line that bypasses the caches, beside a half that does not, takes as long as several lines.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera.compiler.targets.cpu.llvm.values import I64, Index, Val, const, text
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Coord
from tessera.compiler.targets.cpu.loops.nest_body import NestBody
from tessera.compiler.targets.cpu.loops.prefetch import LINE
from tessera.compiler.targets.cpu.loops.reduce import power_of_two
from tessera.language.order import CHUNK

_SEARCHED = 8
"""vectors in which the largest element is searched at once: each waits for the masks of the one before"""
_SHORT = 16
"""vectors below which stores bypass the caches only where they happen to be aligned"""
Body = Callable[[Coord, int, list[Val]], None]
"""writes one vector: its position, which of the unrolled ones it is, and the carried values it may replace"""


def plain(body: NestBody) -> Body:
    """Steps that carry nothing."""

    def write(coord: Coord, u: int, values: list[Val]) -> None:
        body.step()

    return write


class VectorLoop:
    """A vector loop over [lo, hi) of one axis; `limit` is where accesses may leave their views."""

    def __init__(self, body: NestBody, axis: int, lanes: int, unroll: int, write: Body) -> None:
        self.body, self.ev, self.fn = body, body.ev, body.fn
        self.axis, self.lanes, self.unroll, self.write = axis, lanes, unroll, write

    def run(self, lo: Index, hi: Index, limit: Index, carried: list[Val]) -> list[Val]:
        """All parts; gives the carried values behind them."""
        fn = self.fn
        step = self.lanes * self.unroll
        top = fn.smin(hi, limit) if text(hi) != text(limit) else hi
        whole = top if lo == 0 and isinstance(top, int) else fn.smax(fn.sub(top, lo), 0)
        main = fn.add(lo, fn.sub(whole, fn.mod(whole, step)))
        if not (isinstance(main, int) and main == lo):
            head = None if carried else self._head()
            if head is not None:
                main = self._aligned(lo, whole, *head)
            else:
                carried = self._part(lo, main, step, carried, None)
        if isinstance(main, int) and isinstance(hi, int) and main >= hi:
            return carried
        if not carried:
            step, self.unroll = self.lanes, 1
        return self._part(main, hi, step, carried, hi)

    def _aligned(self, lo: Index, whole: Index, ok: Val, head: Index, line: int) -> Index:
        """Does the main part of `whole` elements with stores that are aligned, and bypass the caches if they should,
        after `head` elements with a mask, and gives where the rest begins. Plainly where they are not aligned
        together. `line`: elements of a line of the cache."""
        fn, step, unroll = self.fn, self.lanes * self.unroll, self.unroll
        if short := isinstance(whole, int) and whole < _SHORT * self.lanes:  # a vector with a mask costs too much
            ok, head = fn.binary("and", ok, fn.icmp("eq", head, 0)), 0
        first = fn.select(ok, fn.index(fn.smin(head, whole)), const(0, I64))
        begin = fn.add(lo, first)
        left = fn.sub(whole, first)
        lines = fn.sub(left, fn.mod(left, line if line % step == 0 else step))
        end = fn.select(ok, fn.index(fn.add(begin, lines)), fn.index(lo))
        if not short:
            self.unroll = 1
            self._part(lo, begin, self.lanes, [], begin)
        self.unroll, self.body.streaming = unroll, bool(self.body.streamed())
        self.ev.has_streamed |= self.body.streaming
        self._part(begin, end, step, [], None)
        self.body.streaming = False
        if not short:
            return end
        main = fn.add(lo, fn.sub(whole, fn.mod(whole, step)))
        self._part(end, main, step, [], None)
        return main

    def _part(self, lo: Index, hi: Index, step: int, carried: list[Val], rest: Index | None) -> list[Val]:
        """One part: `rest` is the extent to mask against, None in the main part."""
        fn, ev = self.fn, self.ev
        trusting, ev.trusting = ev.trusting, frozenset({self.axis} if rest is None else ())
        if rest is not None:
            ev.limits[self.axis] = rest
        if isinstance(lo, int) and isinstance(hi, int) and hi - lo <= step:
            results = self._steps(lo, carried)
        else:
            with fn.loop(lo, hi, step, carried) as loop:
                loop.next = self._steps(loop.index, loop.carried)
            results = loop.results
        ev.trusting = trusting
        ev.limits.pop(self.axis, None)
        ev.env.pop(self.axis, None)
        ev.memo = {}
        return results

    def _steps(self, index: Index, carried: list[Val]) -> list[Val]:
        values, ev = list(carried), self.ev
        along, rows = self.body.rows
        row = ev.env[along] if along is not None else Coord(0)
        for u in range(self.unroll):
            coord = ev.env[self.axis] = Coord(index, u * self.lanes, self.lanes)
            for r in range(rows):
                if along is not None:
                    ev.env[along] = Coord(row.index, row.shift + r)
                self.write(coord, u, values)
            if self.axis in ev.trusting:
                self.body.ask(u * self.lanes)
        if along is not None:
            ev.env[along] = row
        return values

    def _head(self) -> tuple[Val, Index, int] | None:
        """For stores that are to be aligned: whether a number of elements lies in front of the first line of each of
        them, this number, and the elements of a line. None without such stores."""
        fn, ev = self.fn, self.ev
        ok: Val | None = None
        head: Index | None = None
        line = 1
        for op, root in self.body.aligned():
            d = dtype_of(op.operands[0])
            p, strides, _, _ = ev.window(op)
            ev.env[self.axis] = Coord(0, 0, self.lanes)
            at, step, _ = ev.mem.address(p, d, [ev.coord(c) for c in root.classes], strides)
            ev.env.pop(self.axis)
            if step != 1 or op.attrs.get("masked"):
                return None
            number = fn.op(f"ptrtoint ptr {at.ref} to i64", I64, (at,))
            line = max(line, LINE // d.itemsize)
            before = fn.mod(fn.sub(0, number), max(LINE, self.lanes * d.itemsize))
            ok = ev.mem.both(ok, fn.icmp("eq", fn.mod(before, d.itemsize), 0))
            elements = fn.div(before, d.itemsize)
            ok = ok if head is None else ev.mem.both(ok, fn.icmp("eq", elements, head))
            head = elements
        return None if ok is None or head is None else (ok, head, line)


class Along:
    """Writes one nest along its vector axis."""

    def __init__(self, body: NestBody) -> None:
        self.body, self.ev, self.fn, self.reductions = body, body.ev, body.fn, body.reductions

    def write(self, vector: int) -> None:
        body = self.body
        extent, lanes = body.extent(vector), body.lanes(vector)
        pairs = not self.reductions and body.in_pairs(vector)
        lanes *= 1 + pairs
        if isinstance(extent, int) and not self.reductions:
            lanes = min(lanes, power_of_two(max(extent, 1)))
        unroll = max((r.partials // lanes for r in self.reductions), default=max(1, self._unroll() >> pairs))
        if self._searches(extent, lanes):
            unroll = max(unroll, _SEARCHED)
        if isinstance(extent, int):
            unroll = max(1, min(unroll, power_of_two(-(-extent // lanes))))
        limit = body.limit(vector, extent)
        if not self.reductions:
            VectorLoop(body, vector, lanes, unroll, plain(body)).run(0, extent, limit, [])
            return
        short = isinstance(extent, int) and extent <= CHUNK
        if short or not any(r.ordered for r in self.reductions):
            results = self._fold(vector, 0, self._end(vector, extent), limit, lanes, unroll)
        else:
            results = self._chunks(vector, extent, limit, lanes, unroll)
        for r, acc in zip(self.reductions, results, strict=True):
            body.finish(r, acc)

    def _end(self, vector: int, extent: Index) -> Index:
        """Where the elements end that change something: a load alone may read identities behind its array."""
        roots = [root for root in self.body.nest.roots if root.op not in self.body.found]
        if any(root.op is None or root.reduced is None for root in roots):
            return extent  # what is stored beside reaches further
        ends: dict[str, Index] = {}
        for root, r in zip(roots, self.reductions, strict=True):
            op = root.value.op
            if op is None or op.name != "tile.load" or op.attrs["fill"] != r.identity(1)[0].const:
                return extent
            lo, hi = self.ev.extents(op)[root.classes.index(vector)]
            if lo is not None or hi is None:
                return extent
            ends[text(hi)] = hi
        (end,) = ends.values() if len(ends) == 1 else (extent,)
        return self.fn.smax(self.fn.smin(extent, end), 0)

    def _searches(self, extent: Index, lanes: int) -> bool:
        """Whether only places of elements are looked for, for which any order will do, along an axis that may be long,
        and there are registers for more of them at once."""
        isa = self.body.ev.isa
        vectors = sum(-(-t.bits * t.lanes // isa.bits) for r in self.reductions for t in r.types(lanes))
        long = not isinstance(extent, int) or extent >= 4 * _SEARCHED * lanes
        return long and all(r.indexed for r in self.reductions) and 0 < vectors * _SEARCHED <= isa.registers // 2

    def _unroll(self) -> int:
        if self.body.rows[1] > 1:
            return 1
        price = self.body.price()
        return 4 if price <= 8 else 2 if price <= 20 else 1

    def _fold(self, vector: int, lo: Index, hi: Index, limit: Index, lanes: int, unroll: int) -> list[list[Val]]:
        """The reductions of [lo, hi), each as one accumulator in one lane."""
        widths = [len(r.types(lanes)) for r in self.reductions]
        starts = [unroll * sum(widths[:i]) for i in range(len(widths))]

        def write(coord: Coord, u: int, values: list[Val]) -> None:
            def take(i: int, x: list[Val]) -> None:
                at = starts[i] + u * widths[i]
                values[at : at + widths[i]] = self.reductions[i].append(values[at : at + widths[i]], x)

            self.body.step(take, coord)

        start = [v for r in self.reductions for _ in range(unroll) for v in r.identity(lanes)]
        flat = VectorLoop(self.body, vector, lanes, unroll, write).run(lo, hi, limit, start)
        out: list[list[Val]] = []
        for r, at, n in zip(self.reductions, starts, widths, strict=True):
            out.append(r.fold([flat[at + u * n : at + (u + 1) * n] for u in range(unroll)]))
        return out

    def _chunks(self, vector: int, extent: Index, limit: Index, lanes: int, unroll: int) -> list[list[Val]]:
        """Chunks of fixed size, combined in ascending order."""
        fn = self.fn
        widths = [len(r.types(1)) for r in self.reductions]
        start = [fn.here(v) for r in self.reductions for v in r.identity(1)]

        def split(flat: list[Val]) -> list[list[Val]]:
            rest = iter(flat)
            return [[next(rest) for _ in range(n)] for n in widths]

        with fn.loop(0, extent, CHUNK, start) as loop:
            end = fn.smin(fn.add(loop.index, CHUNK), extent)
            parts = self._fold(vector, loop.index, end, limit, lanes, unroll)
            before = split(loop.carried)
            loop.next = [v for r, a, b in zip(self.reductions, before, parts, strict=True) for v in r.combine(a, b)]
        return split(loop.results)
