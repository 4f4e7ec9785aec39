"""What a kernel's text says about its grid: implicit coordinates, serial loops around them, register accumulation.

`plan` rewrites the body, statement by statement and with every node's place kept:

- `tile_k`, a free name that indexes no output, becomes `for tile_k in <serial>:` around the statements that need it;
- `C[m, n] += x` in a loop that `m`, `n` do not depend on becomes an accumulation in registers, loaded before the loop
  and stored once after it.

Nothing is evaluated here, so the same rules serve an editor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tessera.compiler.frontend.definition import Definition

PREFIX = "tile_"
SERIAL = "%serial"
"""the name under which the layer finds the range of an implicit serial loop"""
REGISTER = "%register"
"""the name of the conversion to the accumulator's dtype"""
STORES = frozenset({"store", "cp_async", "copy_async", "store_shared"})
"""tile functions that write to their first argument"""


@dataclass(slots=True)
class Plan:
    """`widths`: coordinate -> a slice `lower:upper` that it starts. `serial`: coordinates that are loops."""

    definition: Definition
    coordinates: tuple[str, ...] = ()
    serial: tuple[str, ...] = ()
    widths: dict[str, ast.Slice] = field(default_factory=dict[str, ast.Slice])
    outer: ast.For | None = None
    """the only outermost loop over a range: a grid axis where its index tells programs apart"""
    stored: frozenset[str] = frozenset()
    """names that the kernel stores to"""
    overwritten: list[tuple[str, ast.AST]] = field(default_factory=list[tuple[str, ast.AST]])
    """stores that every step of a serial coordinate repeats, without accumulating"""


def plan(definition: Definition, output_dims: frozenset[str] = frozenset()) -> Plan:
    """`output_dims`: names of the dims of what is returned, for coordinates that no store mentions."""
    tree = definition.tree
    assert isinstance(tree, ast.FunctionDef)
    out = Plan(definition, coordinates=_free_coordinates(definition), stored=frozenset(_stored_names(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Slice) and isinstance(node.lower, ast.Name) and node.upper is not None:
            out.widths.setdefault(node.lower.id, node)
    body = tree.body
    out.serial = tuple(c for c in out.coordinates if not _indexes_output(c, tree, output_dims))
    for name in reversed(out.serial):
        body = _wrap(name, body, out)
    body = [s for statement in body for s in _promote(statement)]
    out.outer = _outermost(body)
    new = ast.FunctionDef(**{f: getattr(tree, f) for f in tree._fields if f != "body"}, body=body)
    out.definition = replace(definition, tree=ast.copy_location(new, tree))
    return out


def _free_coordinates(definition: Definition) -> tuple[str, ...]:
    """Names `tile_<dim>` that are read and bound by nothing, in order of appearance."""
    tree = definition.tree
    assert isinstance(tree, ast.FunctionDef)
    bound = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)} | writes(tree.body)
    out: dict[str, None] = {}
    for node in names(tree.body):
        if node.id.startswith(PREFIX) and node.id not in bound and isinstance(node.ctx, ast.Load):
            out.setdefault(node.id)
    return tuple(out)


def _indexes_output(name: str, tree: ast.FunctionDef, output_dims: frozenset[str]) -> bool:
    """Whether a coordinate appears in the index of a store; without such stores, whether its dim is an output's."""
    indices = [t.slice for t in _store_targets(tree) if isinstance(t, ast.Subscript)]
    if indices:
        return any(n.id == name for i in indices for n in names([i]))
    return name.removeprefix(PREFIX).lower() in {d.lower() for d in output_dims}


def _store_targets(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from (t for t in node.targets if isinstance(t, ast.Subscript))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Subscript):
            yield node.target
        elif isinstance(node, ast.Call) and _callee(node) == "store" and node.args:
            yield node.args[0]


def _stored_names(tree: ast.AST) -> Iterator[str]:
    for target in _store_targets(tree):
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id


def _callee(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def names(nodes: Sequence[ast.AST]) -> Iterator[ast.Name]:
    """Every name in reading order."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node
        else:
            yield from names(list(ast.iter_child_nodes(node)))


def reads(statement: ast.AST) -> set[str]:
    out = {n.id for n in names([statement]) if isinstance(n.ctx, ast.Load)}
    for node in ast.walk(statement):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            out.add(node.target.id)
    return out


def writes(statements: Sequence[ast.AST]) -> set[str]:
    """Names that are assigned, and shared tiles or tensors that are stored to."""
    out = {n.id for n in names(list(statements)) if isinstance(n.ctx, ast.Store)}
    for statement in statements:
        out |= set(_stored_names(statement))
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Call)
                and _callee(node) in STORES
                and node.args
                and isinstance(node.args[0], ast.Name)
            ):
                out.add(node.args[0].id)
    return out


# implicit serial loops


def _wrap(name: str, body: list[ast.stmt], out: Plan) -> list[ast.stmt]:
    """Puts `for name in <serial>` around the statements that depend on the coordinate, and on values made of it.

    What accumulates over the loop (`acc += ...`, `m = maximum(m, ...)`) has its final value after it, so statements
    that only read such values stand after the loop; independent ones before it.
    """
    inside = _dependent(name, body)
    if not inside:
        return body
    carried = _carried([body[i] for i in inside])
    first, last = inside[0], inside[-1]
    before, after = body[:first], body[last + 1 :]
    loop: list[ast.stmt] = []
    late: list[ast.stmt] = []
    for i in range(first, last + 1):
        statement = body[i]
        if i in inside or _synchronises(statement):
            loop.append(statement)
        elif reads(statement) & carried:
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


def _dependent(name: str, body: list[ast.stmt]) -> list[int]:
    inside: set[int] = set()
    while True:
        carried = _carried([body[i] for i in sorted(inside)])
        tainted, found = {name}, set[int]()
        for i, statement in enumerate(body):
            needed = any(writes([statement]) & reads(body[j]) for j in inside if j > i)
            if reads(statement) & tainted or (reads(statement) & carried and needed and i > min(inside, default=i)):
                found.add(i)
                tainted |= writes([statement]) - carried - _updated(statement)
        if found == inside:
            return sorted(found)
        inside = found | inside


def _updated(statement: ast.stmt) -> set[str]:
    """What a statement accumulates into: `x += y`, `C[...] += y`, `x = f(x, y)`."""
    if isinstance(statement, ast.AugAssign):
        return writes([statement])
    return writes([statement]) & reads(statement) if isinstance(statement, ast.Assign) else set()


def _carried(body: Sequence[ast.stmt]) -> set[str]:
    """Names that a run of statements reads before it assigns them, and assigns: the state of a loop over them."""
    assigned: set[str] = set()
    early: set[str] = set()
    for statement in body:
        early |= reads(statement) - assigned
        assigned |= {n.id for n in names([statement]) if isinstance(n.ctx, ast.Store)}
    return early & assigned


def _synchronises(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and _callee(statement.value) == "barrier"
    )


def _note_overwrite(name: str, statement: ast.stmt, out: Plan) -> None:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Subscript) and all(n.id != name for n in names([target.slice])):
                out.overwritten.append((name, statement))


# accumulation in registers


def _promote(statement: ast.stmt) -> list[ast.stmt]:
    """`for ...: C[i] += x` with an invariant place becomes `t = C[i]; for ...: t += x; C[i] = t`."""
    if not isinstance(statement, ast.For):
        return [statement]
    body = [s for inner in statement.body for s in _promote(inner)]
    changing = (
        writes([statement.target, *body])
        if not isinstance(statement.target, ast.Name)
        else writes(body) | {statement.target.id}
    )
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    for i, inner in enumerate(body):
        place = _accumulated(inner, body, changing)
        if place is None:
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
    if any(n.id in changing for n in names([inner.target.slice])):
        return None
    touched = sum(n.id == base for s in body for n in names([s]))
    return inner.target if touched == 1 else None


# the outermost range


def _outermost(body: list[ast.stmt]) -> ast.For | None:
    """The only loop over `tile.range` that stands outermost.

    It stays serial where it carries values from step to step *and* stores in each step (a running sum over rows):
    only then is reading it in order meaningful. Where results leave the loop, as in the quick-start attention, they
    can only be meant per program.
    """
    loops = [
        s
        for s in body
        if isinstance(s, ast.For) and isinstance(s.iter, ast.Call) and _callee(s.iter) in ("range", SERIAL)
    ]
    if len(loops) != 1 or _callee(loops[0].iter) == SERIAL:  # type: ignore[arg-type]
        return None
    loop = loops[0]
    earlier = writes(body[: body.index(loop)])
    carried = _carried(_flat(loop.body)) & earlier
    stores = any(isinstance(t, (ast.Subscript, ast.Name)) for s in loop.body for t in _store_targets(s))
    return None if carried and stores else loop


def _flat(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements with those of nested loops and branches in place of them, in order."""
    out: list[ast.stmt] = []
    for statement in body:
        inner = [s for f in ("body", "orelse") for s in getattr(statement, f, [])]
        if inner:
            head = [getattr(statement, f) for f in ("iter", "test") if hasattr(statement, f)]
            out += [ast.copy_location(ast.Expr(h), statement) for h in head]
            if isinstance(statement, ast.For):
                out.append(ast.copy_location(ast.Assign([statement.target], ast.Constant(0)), statement))
            out += _flat(inner)
        else:
            out.append(statement)
    return out
