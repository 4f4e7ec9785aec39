"""Plans a kernel's grid from its text: implicit coordinates, serial loops around them, accumulation in registers.

`plan` rewrites the body, statement by statement and with every node's place kept:

- `tile_k`, a free name that indexes no output, becomes `for tile_k in <serial>:` around the statements that need it;
- `C[m, n] += x` in a loop that `m`, `n` do not depend on becomes an accumulation in registers, loaded before the loop
  and stored once after it.

Nothing is evaluated here, so the same rules serve an editor.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field

from tessera.compiler.frontend.kernel.effects import called, carried, effects, flat, parts, reads, updates, writes
from tessera.compiler.frontend.syntax.assigned import base_name
from tessera.compiler.frontend.syntax.by_node import by_node
from tessera.immutable import mutable

_PLANS = 8
"""plans that are kept of one kernel"""
PREFIX = "tile_"
SERIAL = "%serial"
"""the name under which the layer finds the range of an implicit serial loop"""
REGISTER = "%register"
"""the name of the conversion to the accumulator's dtype"""


@mutable
class Plan:
    """`tree` is the rewritten function. `widths`: coordinate -> a slice `lower:upper` that it starts."""

    tree: ast.FunctionDef
    coordinates: tuple[str, ...] = ()
    serial: tuple[str, ...] = ()
    """coordinates that are loops"""
    widths: dict[str, ast.Slice] = field(default_factory=dict[str, ast.Slice])
    outer: ast.For | None = None
    """the only outermost loop over a range: a grid axis where its index tells programs apart"""
    stored: frozenset[str] = frozenset()
    """names that the kernel stores to"""
    tiles: frozenset[str] = frozenset()
    """names of tiles, which are values: what is stored to a part of one is an assignment"""
    whole: tuple[str, ...] = ()
    """names that are read without an index, in order of appearance"""
    computed: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """names of numbers that are computed from others: what they read"""
    overwritten: list[tuple[str, ast.AST]] = field(default_factory=list[tuple[str, ast.AST]])
    """stores that every step of a serial coordinate repeats, without accumulating"""


def plan(tree: ast.FunctionDef, output_dims: frozenset[str] = frozenset()) -> Plan:
    """`output_dims`: names of the dims of what is returned, for coordinates that no store mentions."""
    key = (
        output_dims,
        tree.lineno,
    )  # an editor moves trees when lines are inserted above, and the plan's own nodes follow
    found = _plans(tree)
    if key not in found:
        if len(found) == _PLANS:
            found.clear()
        found[key] = _plan(tree, output_dims)
    return found[key]


@by_node
def _plans(tree: ast.FunctionDef) -> dict[tuple[frozenset[str], int], Plan]:
    """The latest plans of a kernel: they hold its statements, and not the whole."""
    return {}


def _plan(tree: ast.FunctionDef, output_dims: frozenset[str]) -> Plan:
    tree = _without_aliases(tree)
    found, nodes = [effects(s) for s in tree.body], [n for s in tree.body for n in ast.walk(s)]
    tiles = _tiles(tree.body, nodes)
    targets = [t for e in found for t in e.targets if base_name(t) not in tiles]
    out = Plan(tree, _free_coordinates(tree), stored=frozenset(map(base_name, targets)), tiles=tiles)
    for s in (s for e in found for s in e.slices):
        assert isinstance(s.lower, ast.Name)
        out.widths.setdefault(s.lower.id, s)
    out.whole = _read_whole(nodes)
    body = tree.body
    out.computed = _computed(nodes)
    out.serial = tuple(c for c in out.coordinates if not _indexes_output(c, targets, output_dims, out.computed))
    for name in reversed(out.serial):
        body = _wrap(name, body, out)
    body = [s for statement in body for s in _promote(statement, tiles)]
    out.outer = _outermost(body, tiles)
    new = ast.FunctionDef(**{f: getattr(tree, f) for f in tree._fields if f != "body"}, body=body)
    out.tree = ast.copy_location(new, tree)
    return out


def _tiles(body: list[ast.stmt], nodes: list[ast.AST]) -> frozenset[str]:
    """The names that the kernel assigns, but for those that it assigns other names: they may stand for tensors."""
    assigned = frozenset[str]().union(*(effects(s).assigned for s in body))
    others: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.IfExp, ast.Attribute, ast.Tuple)):
            for name in (n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                others.setdefault(name, set()).update(effects(node.value).reads)
    declared = {n.target.id for n in nodes
                if isinstance(n, ast.AnnAssign) and n.value is None and isinstance(n.target, ast.Name)}  # fmt: skip
    assigned -= declared
    while True:  # a name of a tile is one, too
        tensors = {n for n, given in others.items() if not given <= assigned}
        if assigned.isdisjoint(tensors):
            return assigned
        assigned -= tensors


_DESCRIBING = frozenset({"shape", "dtype", "ndim"})
_WITH_INDEX = frozenset({"gather", "scatter", "store", "len"})
"""functions whose first argument they do not read as a whole"""


def _read_whole(nodes: list[ast.AST]) -> tuple[str, ...]:
    """The names that are read without an index. `nodes`: in an order in which a node comes before those in it."""
    found: dict[str, None] = {}
    other: set[int] = set()
    for node in nodes:
        match node:
            case ast.Subscript(value=ast.Name() as name):
                other.add(id(name))
            case ast.Attribute(value=ast.Name() as name, attr=attr) if attr in _DESCRIBING:
                other.add(id(name))
            case ast.Call(args=[ast.Name() as name, *_]) if called(node) in _WITH_INDEX or any(
                k.arg == "shape" for k in node.keywords
            ):
                other.add(id(name))
            case ast.Name(id=name, ctx=ast.Load()) if id(node) not in other:
                found[name] = None
            case _:
                pass
    return tuple(found)


def _free_coordinates(tree: ast.FunctionDef) -> tuple[str, ...]:
    """Names `tile_<dim>` that are read and bound by nothing, in order of appearance."""
    bound = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)} | writes(tree.body) | _dims(tree)
    loads = (name for s in tree.body for name in effects(s).loads)
    return tuple(dict.fromkeys(n for n in loads if n.startswith(PREFIX) and n not in bound))


def _without_aliases(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The kernel with `tile_h` itself where it reads `i` after `i = tile_h`, the only assignment of that name."""
    coordinates = _free_coordinates(tree)
    assigned = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    found: dict[str, str] = {}
    body: list[ast.stmt] = []
    for statement in tree.body:
        for part in _parted(statement, {*coordinates, *found}):
            match part:
                case ast.Assign([ast.Name(id=name)], ast.Name(id=value)) if assigned[name] == 1:
                    found |= {name: given} if (given := found.get(value, value)) in coordinates else {}
                case _:
                    pass
            body.append(part)
    if not found:
        return tree
    new = ast.FunctionDef(**{f: getattr(tree, f) for f in tree._fields if f != "body"}, body=copy.deepcopy(body))
    return _Renaming(found).visit(ast.copy_location(new, tree))


def _parted(statement: ast.stmt, coordinates: Set[str]) -> Iterator[ast.stmt]:
    """`i, j = tile_h, tile_w` as two assignments; others, such as `a, b = b, a`, stay whole."""
    match statement:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if all(
            isinstance(v, ast.Name) and v.id in coordinates for v in values
        ):
            for target, value in zip(targets, values, strict=False):
                yield ast.copy_location(ast.Assign([target], value), statement)
        case _:
            yield statement


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if isinstance(node.ctx, ast.Load):
            node.id = self.names.get(node.id, node.id)
        return node


def _dims(tree: ast.FunctionDef) -> set[str]:
    """The names of dims in annotations, which may begin as coordinates do."""
    texts = (a.value for a in ast.walk(tree.args) if isinstance(a, ast.Constant) and isinstance(a.value, str))
    return {name for text in texts for name in re.findall(r"\w+", text)}


def _indexes_output(
    name: str, targets: Sequence[ast.expr], output_dims: frozenset[str], computed: Mapping[str, frozenset[str]]
) -> bool:
    """Whether a coordinate appears in the index of a store; without such stores, whether its dim is an output's."""
    indices = [t.slice for t in targets if isinstance(t, ast.Subscript)]
    if indices:
        return any(name in _behind(i, computed) for i in indices)
    return name.removeprefix(PREFIX).lower() in {d.lower() for d in output_dims}


def _computed(nodes: list[ast.AST]) -> dict[str, frozenset[str]]:
    """What each name reads that is assigned once, and is computed from names alone: nothing is loaded for it."""
    found: dict[str, frozenset[str]] = {}
    again: set[str] = set()
    for node in nodes:
        for name in effects(node).assigned if isinstance(node, ast.stmt) and not hasattr(node, "body") else ():
            if name in found:
                again.add(name)
            loads = isinstance(node, ast.Assign) and not any(isinstance(n, ast.Subscript) for n in ast.walk(node.value))
            found[name] = effects(node.value).reads if loads and isinstance(node, ast.Assign) else frozenset()
    return {name: read for name, read in found.items() if name not in again and name not in read}


def _behind(index: ast.AST, computed: Mapping[str, frozenset[str]]) -> set[str]:
    """The names that an index reads, and those that they are computed from."""
    seen: set[str] = set()
    waiting = [*reads(index)]
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            waiting += computed.get(name, ())
    return seen


# implicit serial loops


def _wrap(name: str, body: list[ast.stmt], out: Plan) -> list[ast.stmt]:
    """Puts `for name in <serial>` around the statements that depend on the coordinate, and on values made of it.

    What accumulates over the loop (`acc += ...`, `m = maximum(m, ...)`) has its final value after it, so statements
    that only read such values stand after the loop; independent ones before it.
    """
    inside = _dependent(name, body, out.tiles)
    if not inside:
        return body
    state = carried([body[i] for i in inside], out.tiles)
    first, last = inside[0], inside[-1]
    before, after = body[:first], body[last + 1 :]
    loop: list[ast.stmt] = []
    late: list[ast.stmt] = []
    for i in range(first, last + 1):
        statement = body[i]
        if i in inside or _synchronises(statement):
            loop.append(statement)
        elif reads(statement) & state:
            late.append(statement)
        else:
            before.append(statement)
    for statement in loop:
        _note_overwrite(name, statement, out)
    start = loop[0]
    call = ast.Call(ast.Name(SERIAL, ast.Load()), [ast.Constant(name)], [])
    loop_node = ast.For(ast.Name(name, ast.Store()), call, loop, [], None)
    for node in (loop_node, loop_node.target, call, call.func, call.args[0]):
        ast.copy_location(node, start)
    return [*before, loop_node, *late, *after]


def _dependent(name: str, body: list[ast.stmt], tiles: frozenset[str]) -> list[int]:
    inside: set[int] = set()
    while True:
        state = carried([body[i] for i in sorted(inside)], tiles)
        tainted, found = {name}, set[int]()
        for i, statement in enumerate(body):
            needed = any(writes([statement]) & reads(body[j]) for j in inside if j > i)
            if reads(statement) & tainted or (reads(statement) & state and needed and i > min(inside, default=i)):
                found.add(i)
                tainted |= writes([statement]) - state - updates(statement) - parts(statement, tiles)
        if found <= inside:
            return sorted(inside)
        inside |= found


def _synchronises(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and called(statement.value) == "barrier"
    )


def _note_overwrite(name: str, statement: ast.stmt, out: Plan) -> None:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if not isinstance(target, ast.Subscript) or base_name(target) in out.tiles:
                continue
            if name not in _behind(target.slice, out.computed):
                out.overwritten.append((name, statement))


# accumulation in registers


def _promote(statement: ast.stmt, tiles: frozenset[str]) -> list[ast.stmt]:
    """`for ...: C[i] += x` with an invariant place becomes `t = C[i]; for ...: t += x; C[i] = t`."""
    if not isinstance(statement, ast.For):
        return [statement]
    body = [s for inner in statement.body for s in _promote(inner, tiles)]
    changing = (
        writes([statement.target, *body])
        if not isinstance(statement.target, ast.Name)
        else writes(body) | {statement.target.id}
    )
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    for i, inner in enumerate(body):
        place = _accumulated(inner, body, changing)
        if place is None or base_name(place) in tiles:
            continue
        assert isinstance(inner, ast.AugAssign)
        register = f"{ast.unparse(place)}"
        load = ast.Subscript(place.value, place.slice, ast.Load())
        call = ast.Call(ast.Name(REGISTER, ast.Load()), [load], [])
        pre = ast.Assign([ast.Name(register, ast.Store())], call)
        update = ast.AugAssign(ast.Name(register, ast.Store()), inner.op, inner.value)
        post = ast.Assign([ast.Subscript(place.value, place.slice, ast.Store())], ast.Name(register, ast.Load()))
        for node in (
            load,
            call,
            call.func,
            pre,
            pre.targets[0],
            update,
            update.target,
            post,
            post.targets[0],
            post.value,
        ):
            ast.copy_location(node, place if isinstance(node, ast.expr) else inner)
        body[i] = update
        before.append(pre)
        after.append(post)
    new = ast.copy_location(ast.For(statement.target, statement.iter, body, statement.orelse, None), statement)
    return [*before, new, *after]


def _accumulated(inner: ast.stmt, body: list[ast.stmt], changing: set[str]) -> ast.Subscript | None:
    """The place of `C[i] op= x` where nothing else in the loop touches C and the index stays."""
    if not (
        isinstance(inner, ast.AugAssign)
        and isinstance(inner.target, ast.Subscript)
        and isinstance(inner.target.value, ast.Name)
    ):
        return None
    base = inner.target.value.id
    if reads(inner.target.slice) & changing:
        return None
    touched = sum(effects(s).loads.count(base) for s in body)
    return inner.target if touched == 1 else None


# the outermost range


def _outermost(body: list[ast.stmt], tiles: frozenset[str]) -> ast.For | None:
    """The only loop over `tile.range` that stands outermost.

    It stays serial where it carries values from step to step *and* stores in each step (a running sum over rows):
    only then is reading it in order meaningful. Where results leave the loop, as in the quick-start attention, they
    can only be meant per program.
    """
    loops = [
        s
        for s in body
        if isinstance(s, ast.For) and isinstance(s.iter, ast.Call) and called(s.iter) in ("range", SERIAL)
    ]
    if len(loops) != 1 or called(loops[0].iter) == SERIAL:  # type: ignore[arg-type]
        return None
    loop = loops[0]
    earlier = writes(body[: body.index(loop)])
    state = carried(flat(loop.body), tiles) & earlier
    stores = any(base_name(t) not in tiles for s in loop.body for t in effects(s).targets)
    return None if state and stores else loop
