"""The statements of a kernel's backward: the forward pass again, then the cotangents in reverse order of the
statements."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from tessera.compiler.frontend.backward.code import name, negated, number, operation
from tessera.compiler.frontend.backward.cotangents import Pull, TileCotangent
from tessera.compiler.frontend.backward.emit import ForwardLines, Line, emitted
from tessera.compiler.frontend.backward.gathers import GatheredRows, Gathers
from tessera.compiler.frontend.backward.items import (
    AssignStatement,
    Item,
    KeptStatement,
    LoopStatement,
    ReturnStatement,
    StoreStatement,
    names,
)
from tessera.compiler.frontend.backward.moves import Moves
from tessera.compiler.frontend.backward.places import Places
from tessera.compiler.frontend.backward.recorded import KernelRecord
from tessera.compiler.frontend.backward.sites import BackwardLevel, Gradient, Key, SharedBlock, Site
from tessera.compiler.frontend.backward.statements import KernelReading
from tessera.compiler.frontend.kernel.values import Share, TileWindow, View, marks
from tessera.language.dtypes import DType


class Derivation:
    """Raises CompileError TS355 at what is not derivable. `apart`: every block that programs share has a kernel of its
    own; `all_kept`: those kernels compute nothing again of what stands before the loops."""

    def __init__(self, rec: KernelRecord, tile: str, apart: bool = False, all_kept: bool = False) -> None:
        self.rec, self.k, self.tile, self.apart, self.all_kept = rec, rec.k, tile, apart, all_kept
        self.reading = KernelReading(rec, tile)
        self.pulls = Pull(rec, tile, self)
        self.pulls.moves = Moves(self.pulls)
        self.sums = False
        """whether something is summed that the forward pass computes element by element"""
        self.pulls.named = {x.value: x.name for items in self.reading.lists for x in items
                            if isinstance(x, AssignStatement) and not x.carried}  # fmt: skip
        self.gradients: list[Gradient] = []
        self.cotangents: dict[str, str] = {}
        """of stored parameters and results: the argument that has the cotangent, for each"""
        self.returned: list[str] = []
        self.left: set[str] = set()
        """stored parameters whose cotangent goes on to what they held before"""
        self.scalars = {n: a for n, a in zip((p.name for p in self.k.arguments), self.k.arguments, strict=True)
                        if n not in self.k.views}  # fmt: skip
        self.through: list[dict[str, TileCotangent]] = []
        """of the loops that are open: cotangents of what they carry"""
        self.own: list[tuple[Line, Gradient]] = []
        """the lines that store gradients of blocks"""
        self.adding: set[Line] = set()
        """those of them that add"""
        self.shared_blocks: list[SharedBlock] = []
        self.products: set[str] = set()
        """names of cotangents that products of matrices gave"""
        self.results: dict[str, tuple[str, int]] = {}
        """arrays that the forward pass has given, by their names: which result it is, and its number"""
        self.kept: dict[str, ast.expr] = {}
        """where values stand in them, by their texts or names"""
        self.zeroed: set[str] = set()
        """cotangents that the backward overwrites"""
        self.places = Places(rec, self.reading.tree)
        self.gathers = Gathers(rec, self.reading, self.places, tile)
        stores = self.stores(self.reading.body.items)
        self.all_stores = [s.parameter for s in stores]
        self.stored = set(self.all_stores)
        self.assigned = {s.parameter for s in stores if not s.added}
        self.level = BackwardLevel(self.reading.body.items, None)
        self.run(self.level)
        self.add_up()
        self.body = self.written(self.level)

    def fresh(self, wanted: str) -> str:
        return self.reading.fresh(wanted)

    def stores(self, items: Iterable[Item]) -> list[StoreStatement]:
        found: list[StoreStatement] = []
        for x in items:
            found += (
                [x] if isinstance(x, StoreStatement) else self.stores(x.body) if isinstance(x, LoopStatement) else []
            )
        return found

    # backwards through the statements
    def run(self, level: BackwardLevel) -> None:
        outer, self.level = getattr(self, "level", None), level
        for item in reversed(level.items):
            match item:
                case ReturnStatement():
                    self.back_return(item)
                case StoreStatement():
                    self.back_store(item)
                case AssignStatement():
                    self.back_assign(item)
                case LoopStatement():
                    self.back_loop(item)
                case KeptStatement():
                    pass
        for site in level.sites.values():
            self.finish(site)
        self.level = outer or level

    def back_return(self, item: ReturnStatement) -> None:
        for i, v in enumerate(item.values):
            if isinstance(self.rec.value(v), View) and isinstance(v, ast.Name) and (
                v.id in self.stored or v.id in self.reading.body.declared
            ):  # fmt: skip
                self.cotangents.setdefault(v.id, self.fresh(f"d_{v.id}"))
                self.returned.append(v.id)
                continue
            result = "out" if len(item.values) == 1 else f"out{i}"
            self.returned.append(result)
            self.cotangents[result] = given = self.fresh(
                f"d_{self.reading.said.get(v.id, v.id)}" if isinstance(v, ast.Name) else f"d_{result}"
            )
            if self.rec.moves(v):
                place = self.places.own_block(item.node, v, given, i)
                self.keep(v, place, self.places.result(i).dtype, result, i)
                self.pulls.pull(v, TileCotangent(place))

    def back_store(self, item: StoreStatement) -> None:
        given = self.cotangents.setdefault(item.parameter, self.fresh(f"d_{item.parameter}"))
        value, target = item.value, item.target
        window = self.rec.window(target) or self.places.window_of(target)
        if window is None:
            raise self.rec.refused(item.node, "it stores to computed places")
        if not item.added and any(not self.rec.apart(window, x.marks, x.counting.step) for x in self.around()):
            raise self.rec.refused(item.node, "steps of a loop store to the same places, and only the last one counts")
        place = self.at(given, target)
        mask = item.mask
        c: ast.expr = place
        if mask is not None:
            c = self.pulls.writer().call("where", self.pulls.read(mask), place, number(0))
        read = self.places.reads(item.parameter)
        share = isinstance(self.rec.value(value), Share)
        new = item.parameter in self.reading.body.declared and self.all_stores.count(item.parameter) == 1
        before = not item.added and not share and not new and (read or not self.places.overwritten(item))
        if before or self.rec.moves(value):
            if before or (item.added and item.parameter in self.assigned):  # a 0 comes there before `c` is read
                held = name(self.fresh(f"d_{self.pulls.hint(value)}"))
                self.emit(held.id, c)
                c = held
            if before:
                kept = (
                    number(0)
                    if mask is None
                    else self.pulls.writer().call("where", self.pulls.read(mask), number(0), place)
                )
                self.store(place, kept)
                self.left.add(item.parameter)
                self.zeroed.add(given)
            if item.added < 0:
                c = negated(c)
            if self.rec.moves(value):
                shape, own = (tuple(map(self.k.tiles.known, x)) for x in (window.shape, self.rec.shape(value)))
                if shape != own:
                    raise self.rec.refused(
                        item.node, "what is stored is broadcast to its place; write it as large as that"
                    )
                if mask is None and not item.added and self.all_stores.count(item.parameter) == 1:
                    stored = [n for n in (p.name for p in self.k.arguments) if n in self.stored]
                    number_ = (self.returned or stored).index(item.parameter)
                    self.keep(value, self.at(item.parameter, target), window.view.dtype, item.parameter, number_)
                self.pulls.pull(value, TileCotangent(c, mask))
        if item.added and item.parameter not in self.reading.body.declared:
            self.left.add(item.parameter)

    def keep(self, value: ast.expr, place: ast.expr, dtype: DType, result: str, i: int) -> None:
        """What comes out of a loop is read where the forward pass has stored it, and not computed again."""
        if not isinstance(place, ast.Subscript) or self.rec.dtype(value) != dtype or not self.looped(value):
            return
        array = next((n for n, (_, number_) in self.results.items() if number_ == i), "") or self.fresh(result)
        self.results[array] = result, i
        key = value.id if isinstance(value, ast.Name) else ast.dump(value)
        self.kept[key] = ast.Subscript(name(array), place.slice, ast.Load())

    def looped(self, node: ast.expr) -> bool:
        """Whether a value is made of what a loop carries."""
        carried = {n for items in self.reading.lists for x in items if isinstance(x, LoopStatement) for n in x.carried}
        found, open_ = set[str](), names(node)
        while open_:
            n = open_.pop()
            found.add(n)
            if (item := self.reading.definition(n)) is not None:
                open_ |= names(item.value) - found
        return bool(found & carried) and not (isinstance(node, ast.Name) and node.id in carried)

    def at(self, array: str, target: ast.expr) -> ast.expr:
        """The block of another array at the place of a parameter's."""
        if isinstance(target, ast.Subscript):
            return ast.Subscript(name(array), target.slice, ast.Load())
        return name(array)

    def store(self, place: ast.expr, value: ast.expr, add: bool = False) -> None:
        if isinstance(place, ast.Name):
            call = self.pulls.writer().call("store", place, value)
            self.level.lines.append(ast.Expr(call))
            return
        assert isinstance(place, ast.Subscript)
        target = ast.Subscript(place.value, place.slice, ast.Store())
        self.level.lines.append(
            ast.AugAssign(target, ast.Add(), value) if add else ast.Assign([target], value, lineno=1)
        )

    def emit(self, target: str, value: ast.expr) -> None:
        if self.multiplied(value):
            self.products.add(target)
        self.level.lines.append(ast.Assign([ast.Name(target, ast.Store())], value, lineno=1))

    def bound(self, hint: str, node: ast.expr) -> ast.expr:
        found = self.fresh(hint if hint.startswith("d_") else f"d_{hint}")
        self.emit(found, node)
        return name(found)

    def back_assign(self, item: AssignStatement) -> None:
        if item.carried:
            assert self.level.loop is not None
            c = self.through[-1].get(item.name)
            if c is not None:
                self.pulls.pull(item.value, self.of_sum(item, c))
            return
        c = self.total(f"d_{item.name}", self.level.names.pop(item.name, []), name(item.name))
        if c is not None:
            self.alike(c, item.value)
            self.pulls.pull(item.value, c)

    def of_sum(self, item: AssignStatement, c: TileCotangent) -> TileCotangent:
        """What is added to a tile that the loop carries may have fewer axes."""
        node = negated(c.node) if item.sign < 0 else c.node
        start = self.starts[item.name]
        if self.rec.rank(item.value) != self.rec.rank(start) or self.rec.shape(item.value) != self.rec.shape(start):
            raise self.rec.refused(item.node, f"what is added to {item.name} is broadcast; write it as large as that")
        return TileCotangent(node)

    def alike(self, c: TileCotangent, node: ast.expr) -> None:
        """Says which value a cotangent that has a name belongs to."""
        if isinstance(c.node, ast.Name):
            self.pulls.like.setdefault(c.node.id, node)

    @property
    def starts(self) -> dict[str, ast.expr]:
        return {
            x.name: x.value
            for items in self.reading.lists
            for x in items
            if isinstance(x, AssignStatement) and not x.carried
        }

    def total(self, wanted: str, shares: list[TileCotangent], whole: ast.expr | None = None) -> TileCotangent | None:
        """The sum of all shares, under a name where it is more than one; as long as `whole`."""
        if not shares:
            return None
        shares = sorted(shares, key=lambda s: s.short)
        if whole is not None:
            shares[0] = self.pulls.full(shares[0], whole)
        mask = shares[0].mask
        if any(s.mask is None or mask is None or ast.dump(s.mask) != ast.dump(mask) for s in shares):
            mask = None
        spread = shares[0].spread
        if len(shares) == 1 and isinstance(shares[0].node, ast.Name):
            return shares[0]
        node = shares[0].node
        for s in shares[1:]:
            negative = isinstance(s.node, ast.UnaryOp) and isinstance(s.node.op, ast.USub)
            node = operation("sub", node, s.node.operand) if negative else operation("add", node, s.node)  # type: ignore[union-attr]
        found = self.fresh(wanted)
        self.emit(found, node)
        return TileCotangent(name(found), mask, True, False, spread)

    # what collects cotangents
    def of_name(self, node: ast.Name, c: TileCotangent) -> None:
        n = node.id
        if n in self.scalars:
            self.of_site(("scalar", n), n, node, None, c, self.top())
            return
        home = self.reading.body.home.get(n)
        if home is None:
            raise self.rec.refused(node, f"where {n} comes from is not known")
        if c.spread:
            raise self.rec.refused(node, f"rows that share {n} would be summed over programs; read it where it is used")
        level: BackwardLevel | None = self.level
        while level is not None and id(level.items) != home:
            level = level.above
        if level is None:
            raise self.rec.refused(node, f"{n} is assigned in a loop, and used behind it")
        if level is self.level:
            level.names.setdefault(n, []).append(c)
        else:
            self.level.foreign.setdefault(("name", n), (n, []))[1].append(self.pulls.full(c, node))

    def top(self) -> BackwardLevel:
        """The outermost level that each program runs: that of the grid's loop."""
        found = self.level
        while found.above is not None and not (found.loop is not None and found.loop.grid):
            found = found.above
        return found

    def of_block(self, node: ast.expr, c: TileCotangent) -> None:
        base = node.value if isinstance(node, ast.Subscript) else node
        assert isinstance(base, ast.Name)
        window = self.rec.window(node)
        if window is None:
            raise self.rec.refused(node, "it reads at computed places")
        if base.id not in {p.name for p in self.k.arguments} and base.id not in self.reading.body.declared:
            return  # an array from outside is a constant
        if base.id in self.reading.body.declared:
            raise self.rec.refused(node, f"it reads the result {base.id}, which it has stored to")
        if any(map(self.rec.of_data, window.offsets)) and not self.alone(window):
            assert isinstance(node, ast.Subscript)
            self.of_gather(node, c)
            return
        if self.rec.overlaps(window):
            raise self.rec.refused(
                node, f"programs read parts of {base.id} that overlap, and would add to the same places"
            )
        level = self.level
        moving = _moving(window)
        while (
            level.above is not None
            and level.loop is not None
            and not level.loop.grid
            and not (moving & level.loop.marks)
        ):
            level = level.above
        key = (base.id, window.offsets, window.sizes, window.kept)
        self.of_site(key, base.id, node, window, c, level)

    def alone(self, window: TileWindow) -> bool:
        """Whether a block is read by one program, in one step, wherever data put it along other axes."""
        along = replace(window, offsets=tuple(0 if self.rec.of_data(o) else o for o in window.offsets))
        if self.rec.shared(along) or self.rec.overlaps(along):
            return False
        return all(self.rec.apart(along, x.marks, x.counting.step) for x in self.around())

    def of_site(
        self,
        key: Key,
        parameter: str,
        node: ast.expr,
        window: TileWindow | None,
        c: TileCotangent,
        level: BackwardLevel,
    ) -> None:
        site = level.sites.setdefault(key, Site(parameter, node, window))
        if level is self.level:
            site.shares.append(c)
        elif c.spread:
            raise self.rec.refused(node, "what all rows share is read in a loop")
        else:
            self.level.foreign.setdefault(key, (site, []))[1].append(c)

    def of_gather(self, node: ast.Subscript, c: TileCotangent) -> None:
        assert isinstance(node.value, ast.Name)
        if node.value.id in self.stored:
            raise self.rec.refused(node, f"{node.value.id} is stored to, and read at computed places")
        if self.gathers.own(node):
            self.of_site(("own", ast.dump(node)), node.value.id, node, None, c, self.level)
            return
        rows = self.gathers.rows(node, self.around())
        key = ("rows", rows.table, ast.dump(node.slice))
        self.level.sites.setdefault(key, Site(rows.table, node, None, rows=rows)).shares.append(c)

    def of_product(self, node: ast.expr, a: ast.expr, b: ast.expr, c: TileCotangent) -> None:
        if self.rec.rank(a) != 2 or self.rec.rank(b) != 2:
            raise self.rec.refused(node, "it has no rule for products of batches of matrices")
        if not isinstance(c.node, ast.Name):
            c = TileCotangent(self.bound(self.pulls.hint(node), c.node))
            self.alike(c, node)
        g = self.pulls.writer()
        if self.rec.moves(a):
            self.pulls.pull(a, TileCotangent(g.call("mma", c.node, ast.Attribute(self.pulls.read(b), "T", ast.Load()))))
        if self.rec.moves(b):
            self.pulls.pull(b, TileCotangent(g.call("mma", ast.Attribute(self.pulls.read(a), "T", ast.Load()), c.node)))

    def back_loop(self, item: LoopStatement) -> None:
        carried = {
            n: c for n in item.carried if (c := self.total(f"d_{n}", self.level.names.pop(n, []), name(n))) is not None
        }
        for n, c in carried.items():
            self.alike(c, self.starts[n])
        if item.running is not None:
            ends = {x.name: x.value for x in item.running.items if isinstance(x, AssignStatement)}
            self.pulls.like |= {n: ends[new] for n, new in item.running.maxima.items()}
        self.through.append(carried)
        inner = BackwardLevel(item.body, self.level, item)
        self.run(inner)
        self.through.pop()
        for key, (what, shares) in inner.foreign.items():
            self.accumulated(inner, key, what, shares)
        body = [ForwardLines(item.body, True), *inner.lines]
        if inner.lines:
            within = cast("list[ast.stmt]", body)  # until `emitted` has written the forward lines
            self.level.lines.append(ast.For(item.head.target, item.head.iter, within, [], None, lineno=1))
        for n, c in carried.items():
            self.level.names.setdefault(n, []).append(c)

    def accumulated(self, inner: BackwardLevel, key: Key, what: Site | str, shares: list[TileCotangent]) -> None:
        """Shares of what is used in a loop and belongs outside are added up from step to step."""
        label = what if isinstance(what, str) else what.parameter
        held = self.fresh(f"d_{label}" if isinstance(what, str) else f"d_{label}_tile")
        like = name(what) if isinstance(what, str) else what.node
        zeros = self.pulls.writer().call("zeros_like", like)
        low = not isinstance(what, str) and what.window is not None and what.window.view.dtype.is_low_precision
        self.emit(held, self.pulls.writer().call("cast", zeros, self.f32()) if low else zeros)
        for s in shares:
            inner.lines.append(ast.AugAssign(ast.Name(held, ast.Store()), ast.Add(), s.node))
        c = TileCotangent(name(held))
        if isinstance(what, str):
            at_home = self.reading.body.home.get(what) == id(self.level.items)
            if at_home:
                self.level.names.setdefault(what, []).append(c)
            else:
                self.level.foreign.setdefault(key, (what, []))[1].append(c)
        elif key in self.level.sites:
            what.shares.append(c)
        else:
            self.level.foreign.setdefault(key, (what, []))[1].append(c)

    def finish(self, site: Site) -> None:
        """Stores the gradient of a block."""
        if not site.shares:
            return
        p = site.parameter
        if p in self.stored:
            if site.window is None:
                raise self.rec.refused(site.node, f"{p} is a number and is stored to")
            self.left.add(p)
            place = self.at(self.cotangents.setdefault(p, self.fresh(f"d_{p}")), site.node)
            if self.rec.shared(site.window):
                raise self.rec.refused(site.node, f"{p} is stored to, and read by several programs")
            c = self.total(f"d_{p}_tile", site.shares)
            assert c is not None
            if isinstance(place, ast.Name):
                raise self.rec.refused(site.node, f"{p} is read as a whole and stored to")
            self.store(place, c.node, add=True)
            return
        if site.rows is not None and site.rows.window is not None:
            self.to_kernel(site, site.rows.window)
            return
        if site.rows is not None:
            found = self.gradient(site, "gathered", f"d_{p}_rows")
            self.of_rows(found, site.rows)
            self.store(site.rows.of(found.name), self.added(site))
            return
        spread = any(s.spread for s in site.shares)
        number = isinstance(site.node, ast.Name) and site.window is None
        shared = number or (site.window is not None and bool(self.rec.shared(site.window)))
        grouped = site.window is not None and self.rec.grouped(site.window)
        if grouped and spread:
            raise self.rec.refused(site.node, f"programs of a group share {p}, and so do the rows of each")
        if shared and site.window is not None and not spread and _moving(site.window) and (
            self.around() or self.apart or grouped or any(self.multiplied(s.node) for s in site.shares)
        ):  # fmt: skip
            self.to_kernel(site, site.window)
            return
        how = "rows" if spread else "shared" if shared else "own"
        if spread and not all(s.spread for s in site.shares):
            raise self.rec.refused(site.node, f"rows share {p} in one place, and not in another")
        found, node = self.gradient(site, how, f"d_{p}"), self.added(site)
        self.sums |= how != "own"
        if how == "rows":
            self.store(name(found.name), node)
        elif how == "own":
            self.store(self.at(found.name, site.node), node, self.repeated(site))
            self.own.append((self.level.lines[-1], found))
        else:
            place = (
                ast.Subscript(name(found.name), ast.Constant(0), ast.Load())
                if number
                else self.at(found.name, site.node)
            )
            if isinstance(place, ast.Name):
                place = ast.Subscript(place, ast.Slice(), ast.Load())
            self.store(place, self.pulls.writer().call("reduce_across", node))

    def of_rows(self, found: Gradient, rows: GatheredRows) -> None:
        """Says which rows a gradient is of, by an array of their numbers where the kernel computes them."""
        found.numbers, found.dims, found.dtype = rows.numbers, rows.dims, rows.dtype
        if rows.value is not None:
            found.numbers = self.fresh(f"{rows.table}_numbers")
            self.store(rows.of_numbers(found.numbers), self.pulls.read(rows.value))

    def to_kernel(self, site: Site, window: TileWindow) -> None:
        """A block that programs share gets its gradient from a kernel of its own (`operands.py`)."""
        batches, rows = any(c.batch for c in self.rec.shared(window)), site.rows
        how, wanted = "gathered" if rows else "shared" if batches else "own", f"d_{site.parameter}"
        found = Gradient(site.parameter, self.fresh(f"{wanted}_rows" if rows else wanted), how, 1)
        self.gradients.append(found)
        if rows is not None:
            self.of_rows(found, rows)
        place = rows.of(found.name) if rows is not None else self.at(found.name, site.node)
        assert isinstance(place, ast.Subscript)
        c = self.total(f"d_{site.parameter}_part", site.shares)
        assert c is not None and isinstance(c.node, ast.Name)
        self.shared_blocks.append(SharedBlock(found, site.node, window, place, c.node.id, self.around()[::-1]))

    def multiplied(self, node: ast.AST) -> bool:
        """Whether it holds a product of matrices."""
        called = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
        if any(isinstance(f, ast.Attribute) and f.attr in ("mma", "dot") for f in called):
            return True
        return any(isinstance(n, ast.MatMult) for n in ast.walk(node)) or bool(
            self.products & {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        )

    def moving(self, window: TileWindow) -> frozenset[str]:
        return _moving(window)

    def f32(self) -> ast.expr:
        return ast.Attribute(name(self.tile.partition(".")[0]), "f32", ast.Load())

    def repeated(self, site: Site) -> bool:
        """Whether a loop comes to a block several times."""
        window, around = site.window, self.around()
        return any(window is None or not self.rec.apart(window, x.marks, x.counting.step) for x in around)

    def around(self) -> list[LoopStatement]:
        """The loops that a program runs around the present statement."""
        found: list[LoopStatement] = []
        level: BackwardLevel | None = self.level
        while level is not None:
            found += [level.loop] if level.loop is not None and not level.loop.grid else []
            level = level.above
        return found

    def add_up(self) -> None:
        """Blocks of one gradient that are stored at several places are added to what is there."""
        for line, gradient in self.own:
            if gradient.stores > 1 and isinstance(line, ast.Assign):
                self.adding.add(line)
            elif gradient.stores > 1 and isinstance(line, ast.Expr):
                raise self.rec.refused(self.reading.tree, f"all of {gradient.parameter} is read in several ways")

    def gradient(self, site: Site, how: str, wanted: str) -> Gradient:
        """The array that the gradient of a block is stored to: that of other places where each element is stored by
        one program, and otherwise one more, which the rule adds."""
        found = next((g for g in self.gradients if g.parameter == site.parameter and self.fits(site, how, g)), None)
        if found is None:
            self.gradients.append(found := Gradient(site.parameter, self.fresh(wanted), how))
        found.stores += 1
        found.windows += [site.window] if site.window is not None else []
        return found

    def fits(self, site: Site, how: str, gradient: Gradient) -> bool:
        """Whether all blocks of an array belong to one program each."""
        if how != "own" or gradient.how != "own" or gradient in (s.gradient for s in self.shared_blocks):
            return False
        return site.window is not None and all(self.within(site.window, other) for other in gradient.windows)

    def within(self, mine: TileWindow, other: TileWindow) -> bool:
        grid = frozenset[str]().union(*(marks(c.offset) for c in self.k.coordinates.grid))
        places = zip(mine.offsets, other.offsets, mine.sizes, other.sizes, strict=True)
        return all((a == b and m == n) or not (marks(a) | marks(b)) & grid for a, b, m, n in places)

    def added(self, site: Site) -> ast.expr:
        node = site.shares[0].node
        for s in site.shares[1:]:
            node = operation("add", node, s.node)
        return node

    def written(self, level: BackwardLevel) -> list[ast.stmt]:
        lines = [ForwardLines(level.items, False), *level.lines]
        roots = {s.part for s in self.shared_blocks}
        return emitted(lines, self.pulls.wanted, self.adding, roots, self.kept)


def _moving(window: TileWindow | None) -> frozenset[str]:
    """The coordinates that move a block."""
    return frozenset[str]().union(*(marks(o) for o in window.offsets)) if window is not None else frozenset()
