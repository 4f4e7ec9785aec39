"""The text of a derived backward: kernels, and the rule that calls them; `kernel.backward()`."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable
from typing import Any

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.backward.edges import Edges
from tessera.compiler.frontend.backward.inlined import library_of
from tessera.compiler.frontend.backward.operands import KeptTile, planned
from tessera.compiler.frontend.backward.recorded import KernelRecord, refused_at
from tessera.compiler.frontend.backward.sites import Gradient
from tessera.compiler.frontend.kernel.broadcasting import BroadcastError
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.names.definition import Definition
from tessera.immutable import immutable
from tessera.language.dtypes import DType

_WORD = re.compile(r"[A-Za-z_]\w*")
_WIDEST = 100


@immutable
class Derived:
    """`rule`: the name of the rule in `text`, which is what `@kernel.vjp` takes. `tessera`: the name of the library
    that the text needs."""

    text: str
    rule: str
    kernels: tuple[str, ...]
    tessera: str


def backward(kernel: Any) -> tuple[Any, str]:
    """The rule, decorated, and its text. Raises CompileError TS355 where it cannot be derived."""
    definition = kernel.definition()
    found = derived(definition)
    python = kernel.__wrapped__
    cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=True)
    names = {**python.__globals__, **{n: c.cell_contents for n, c in cells}}
    file = f"<backward of {definition.name}, {abs(hash((found.text, definition.file))):x}>"
    lines = found.text.splitlines(keepends=True)
    linecache.cache[file] = len(found.text), None, lines, file
    exec(compile(found.text, file, "exec"), names)
    made = [names[k].definition() for k in found.kernels]
    problems = [d for k in made for d in analyse(k).diagnostics if d.severity == "error"]
    if problems:
        raise refused_at(definition, definition.span, f"the result is not a kernel ({problems[0].message})")
    return names[found.rule], found.text


def text_of(node: ast.AST) -> str:
    """With the quotes that most texts have."""
    text = ast.unparse(node)
    return text.replace("'", '"') if '"' not in text else text


def derived(definition: Definition) -> Derived:
    """The backward of a kernel. Raises CompileError TS355 at the line that is not derivable, or what is wrong with the
    kernel itself."""
    rec = KernelRecord(definition)
    root = library_of(definition)
    try:
        edges = Edges(rec)
        text = _Text(rec, root)
        if text.made.sums and (counted := edges.counted(f"{root}.tile")) is not None:
            rec = KernelRecord(counted)
            text = _Text(rec, root)
        return text.written()
    except (KernelFault, BroadcastError) as e:
        raise rec.refused(definition.tree, str(e)) from None


@immutable
class _KernelText:
    """`call`: the line of the rule that calls it."""

    name: str
    lines: list[str]
    call: str


class _Text:
    def __init__(self, rec: KernelRecord, root: str) -> None:
        self.rec, self.root = rec, root
        self.definition = rec.definition
        assert isinstance(self.definition.tree, ast.FunctionDef)
        tree = self.definition.tree
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs:
            raise rec.refused(tree, "it has parameters of no fixed number, or by name only")
        self.parameters = {a.arg: a.annotation for a in (*tree.args.posonlyargs, *tree.args.args)}
        for a in (*tree.args.posonlyargs, *tree.args.args):
            if a.annotation is None:
                raise rec.refused(a, f"{a.arg} has no annotation, and the backward needs its type")
            if any(p.name == a.arg and p.optional for p in rec.k.arguments):
                raise rec.refused(a, f"{a.arg} may be absent")
        self.operands = planned(rec, f"{root}.tile")
        self.made = self.operands.made
        self.kernel = f"{tree.name}_backward"
        self.rule = f"{tree.name}_vjp"

    # parts
    def annotation(self, parameter: str) -> str:
        said = self.parameters[parameter]
        assert said is not None
        return text_of(said)

    def tensor(self) -> str:
        """How the file calls Tensor."""
        for said in self.parameters.values():
            if isinstance(said, ast.Subscript):
                return text_of(said.value)
        return f"{self.root}.Tensor"

    def wide(self, dtype: DType) -> str:
        """What sums of numbers of a dtype are."""
        return f"{self.root}.{'f64' if dtype.name == 'f64' else 'f32'}"

    def in_f32(self, parameter: str, but: int = 0) -> str:
        """The annotation of a parameter, with f32 (f64 for f64) for its dtype, without its last axes."""
        said, view = self.parameters[parameter], self.rec.k.views[parameter]
        if (
            not isinstance(said, ast.Subscript)
            or not isinstance(said.slice, ast.Tuple)
            or isinstance(said.slice.elts[-1], ast.Constant)
        ):
            raise self.rec.refused(self.definition.tree, f"the annotation of {parameter} does not say its dtype")
        dims = ", ".join(text_of(d) for d in said.slice.elts[: -1 - but])
        return f"{text_of(said.value)}[{dims}, {self.wide(view.dtype)}]"

    def of_gradient(self, g: Gradient) -> str:
        if g.parameter in self.made.scalars:
            if g.how == "rows":
                return self.in_f32(self.widest(), but=1)
            return f"{self.tensor()}[1, {self.wide(self.made.scalars[g.parameter].dtype)}]"
        if g.how == "rows":
            return self.in_f32(self.widest())
        if g.how == "gathered":
            return self.of_rows(g)
        return self.in_f32(g.parameter) if self.rounded(g) else self.typed(g.parameter)

    def of_rows(self, g: Gradient) -> str:
        """The dims of the numbers, and those of a row."""
        table = self.parameters[g.parameter]
        wide = self.in_f32(g.parameter)
        assert isinstance(table, ast.Subscript) and isinstance(table.slice, ast.Tuple)
        last = wide.rpartition(", ")[2] if self.rounded(g) else f"{text_of(table.slice.elts[-1])}]"
        own = _quoted(g.dims) if g.dims else self.dims(g.numbers)
        dims = [*own, *(text_of(d) for d in table.slice.elts[1:-1])]
        return f"{text_of(table.value)}[{', '.join(dims)}, {last}"

    def dims(self, parameter: str) -> list[str]:
        """As the annotation of a parameter says them, which has a dtype too."""
        said = self.parameters[parameter]
        if not isinstance(said, ast.Subscript) or not isinstance(said.slice, ast.Tuple):
            raise self.rec.refused(self.definition.tree, f"the annotation of {parameter} does not say its dtype")
        return [text_of(d) for d in said.slice.elts[:-1]]

    def of_numbers(self, g: Gradient) -> str:
        return f"{self.tensor()}[{', '.join(_quoted(g.dims))}, {self.root}.{g.dtype}]"

    def of_kept(self, kept: KeptTile) -> str:
        return f"{self.tensor()}[{', '.join(_quoted(kept.dims))}, {self.root}.{'f64' if kept.wide else 'f32'}]"

    def typed(self, parameter: str) -> str:
        said = self.parameters[parameter]
        self.in_f32(parameter)
        assert said is not None
        return text_of(said)

    def rounded(self, g: Gradient) -> bool:
        """Whether sums of it are made in f32, and rounded at the end."""
        if g.parameter in self.made.scalars:
            return False
        summed = g.how != "own" or g.stores > 1 or sum(x.parameter == g.parameter for x in self.made.gradients) > 1
        return self.rec.k.views[g.parameter].dtype.is_low_precision and summed

    def widest(self) -> str:
        """The parameter read as a whole that has the most axes."""
        views = {n: self.rec.k.views[n] for n in self.rec.k.plan.whole if n in self.rec.k.views}
        return max(views, key=lambda n: len(views[n].shape))

    def of_result(self, name: str, i: int) -> str:
        """The annotation of what is returned."""
        if name in self.parameters:
            return self.annotation(name)
        if name in self.made.reading.body.declared:
            return text_of(self.made.reading.body.declared[name])
        assert isinstance(self.definition.tree, ast.FunctionDef)
        said = self.definition.tree.returns
        if isinstance(said, ast.Subscript) and text_of(said.value) in ("tuple", "Tuple"):
            said = said.slice.elts[i] if isinstance(said.slice, ast.Tuple) else said.slice
        if said is None:
            raise self.rec.refused(
                self.definition.tree, "what it returns has no annotation, and its cotangent needs a type"
            )
        return text_of(said)

    def results(self) -> list[str]:
        """What the rule is given cotangents of: what is returned, or what is stored to, as the caller names it."""
        stored = [n for n in self.parameters if n in self.made.stored]
        returned = self.made.returned
        if returned and stored and returned != stored:
            raise self.rec.refused(self.definition.tree, "it both returns a value and stores to parameters")
        found = returned or stored
        if not found:
            raise self.rec.refused(self.definition.tree, "it gives nothing")
        return found

    # the whole
    def written(self) -> Derived:
        made, results = self.made, self.results()
        cots = [made.cotangents.setdefault(r, made.fresh(f"d_{r}")) for r in results]
        gradients = sorted(made.gradients, key=lambda g: [*self.parameters].index(g.parameter))
        if not gradients and not made.left:
            raise self.rec.refused(self.definition.tree, "no argument of it moves its result")
        given = {c: self.of_result(r, i) for i, (r, c) in enumerate(zip(results, cots, strict=True))}
        apart = [g for k in self.operands.kernels for g in k.gradients]
        first: dict[str, str] = {}
        for g in (g for g in gradients if g not in apart):
            first |= {g.name: self.of_gradient(g)} | ({g.numbers: self.of_numbers(g)} if g.dims else {})
        first |= {k.array: self.of_kept(k) for k in self.operands.kept.values()}
        made_before = {n: self.of_result(r, i) for n, (r, i) in made.results.items()}
        kernels: list[_KernelText] = []
        if first or _gives(self.operands.body):
            kernels.append(self.kernel_text(self.kernel, self.operands.body, first, given, made_before))
        made_before = given | made_before | {k.array: self.of_kept(k) for k in self.operands.kept.values()}
        for k in self.operands.kernels:
            gives = {g.name: self.of_gradient(g) for g in k.gradients}
            called = "_".join((self.kernel, *(n.removeprefix("d_") for n in gives)))
            kernels.append(self.kernel_text(called, k.body, gives, {}, made_before))
        text = [line for k in kernels for line in (*k.lines, "", "")]
        text += [*self.rule_text(results, cots, gradients, kernels), ""]
        return Derived("\n".join(text), self.rule, tuple(k.name for k in kernels), self.root)

    def kernel_text(
        self, called: str, body: list[ast.stmt], gives: dict[str, str], given: dict[str, str], more: dict[str, str]
    ) -> _KernelText:
        """`given`: the types of arrays beside the parameters; `more`: those of arrays that it may read."""
        lines = [*(f"{n}: {t}" for n, t in gives.items()), *_lines(body)]
        if gives:
            lines.append(f"return {', '.join(gives)}")
        read = _names(lines)
        given = given | {n: t for n, t in more.items() if n in read}
        needed = self.needed(read, given, [*gives.values()])
        types = [*gives.values()]
        signature = [*(f"{p}: {self.annotation(p)}" for p in needed), *(f"{n}: {t}" for n, t in given.items())]
        arrow = [] if not types else [f"{types[0]}"] if len(types) == 1 else ["tuple[", *types, "]"]
        note = f'"""Cotangents for the arguments of {self.definition.name}, derived from its text."""'
        text = [f"@{self.root}.kernel{self.config()}", *_head(called, signature, arrow), f"    {note}"]
        text += [f"    {line}" for s in lines for line in s.splitlines()]
        call = f"{called}({', '.join((*needed, *given))})"
        return _KernelText(called, text, f"{', '.join(gives)} = {call}" if gives else call)

    def config(self) -> str:
        config: dict[str, Any] = self.definition.options.get("config") or {}
        text = ", ".join(f"{k}={v!r}" for k, v in config.items())
        return f"({text})" if text else ""

    def needed(self, read: set[str], given: dict[str, str], types: list[str]) -> list[str]:
        """The parameters that a kernel reads, and those that say what its dims are."""
        found = [p for p in self.parameters if p in read]
        declared = set[str]().union(*(_dims(t) for t in types))
        every = set[str]().union(*(_dims(self.annotation(p)) for p in self.parameters))
        wanted = declared | (read & every)
        known = set[str]().union(*map(_dims, given.values()))
        known = known.union(*(_dims(self.annotation(p)) for p in found))
        for p in self.parameters:
            if p not in found and _dims(self.annotation(p)) & (wanted - known):
                found.append(p)
                known |= _dims(self.annotation(p))
        return [p for p in self.parameters if p in found]

    def rule_text(
        self, results: list[str], cots: list[str], gradients: list[Gradient], kernels: list[_KernelText]
    ) -> list[str]:
        taken = set(self.parameters)
        one = len(results) == 1
        texts = "\n".join(line for k in kernels for line in k.lines)
        arrays = {i: n for n, (_, i) in self.made.results.items() if re.search(rf"(?<!\w){n}: ", texts)}
        result = arrays[0] if one and arrays else "result"
        while result in taken:
            result += "_"
        given = cots[0] if one else "cotangents"
        out = [f"@{self.root}.function", f"def {self.rule}({', '.join((result, given, *self.parameters_of_rule()))}):"]
        if not one:
            out.append(f"    {', '.join(cots)} = cotangents")
            out += [f"    {n} = {result}[{i}]" for i, n in arrays.items()]
        out += [f"    {k.call}" for k in kernels]
        found = {g.parameter: self.of_rule([x for x in gradients if x.parameter == g.parameter]) for g in gradients}
        for p in self.parameters:
            if p in self.made.left:
                found[p] = self.made.cotangents[p]
        values = [found.get(p, "None") for p in self.parameters]
        out.append(f"    return {', '.join(values)}")
        return out

    def parameters_of_rule(self) -> list[str]:
        """With the defaults that they have."""
        assert isinstance(self.definition.tree, ast.FunctionDef)
        defaults = [text_of(d) for d in self.definition.tree.args.defaults]
        bare = len(self.parameters) - len(defaults)
        return [p if i < bare else f"{p}={defaults[i - bare]}" for i, p in enumerate(self.parameters)]

    def of_rule(self, parts: list[Gradient]) -> str:
        """What the rule makes of what the kernels give of one parameter."""
        total = " + ".join(map(self.of_part, parts))
        if not any(map(self.rounded, parts)):
            return total
        return (
            f"({total}).to({parts[0].parameter}.dtype)" if len(parts) > 1 else f"{total}.to({parts[0].parameter}.dtype)"
        )

    def of_part(self, g: Gradient) -> str:
        p = g.parameter
        if p in self.made.scalars:
            return f"{self.root}.sum({g.name})" if g.how == "rows" else f"{g.name}[0]"
        sizes = ", ".join(f"{p}.shape[{i}]" for i in range(g.how == "gathered", len(self.rec.k.views[p].shape)))
        if g.how == "gathered":
            rows, numbers = g.name, g.numbers
            if len(g.dims or self.rec.k.views[numbers].shape) > 1 or "..." in g.dims:
                rows, numbers = f"{rows}.reshape((-1, {sizes}))", f"{numbers}.reshape((-1,))"
            return f"{self.root}.segment_sum({rows}, {numbers}, {p}.shape[0])"
        return f"{self.root}.sum({g.name}.reshape((-1, {sizes})), 0)" if g.how == "rows" else g.name


def _head(name: str, signature: list[str], gives: list[str]) -> list[str]:
    """`gives`: the result's type, with its parts where it has several."""
    opened, *parts = gives or [""]
    arrow = f" -> {opened}{', '.join(parts[:-1])}{''.join(parts[-1:])}" if opened else ""
    line = f"def {name}({', '.join(signature)}){arrow}:"
    if len(line) <= _WIDEST:
        return [line]
    end = [f"){arrow}:"]
    if len(end[0]) > _WIDEST:
        end = [f") -> {opened}", *(f"    {p}," for p in parts[:-1]), "]:"]
    return [f"def {name}(", *(f"    {s}," for s in signature), *end]


def _lines(body: Iterable[ast.stmt]) -> list[str]:
    return [text_of(ast.fix_missing_locations(s)) for s in body]


def _quoted(dims: Iterable[str]) -> list[str]:
    """Dims as an annotation says them."""
    return [d if d.isdecimal() else f'"{d}"' for d in dims]


def _gives(body: Iterable[ast.stmt]) -> bool:
    """Whether statements store to an array."""
    nodes = [n for s in body for n in ast.walk(s)]
    stored = any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) for n in nodes)
    return stored or any(isinstance(n, ast.Expr) for n in nodes)


def _names(lines: Iterable[str]) -> set[str]:
    """The names in a kernel's body."""
    text = "\n".join(line for line in lines if not line.startswith("return "))
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


def _dims(annotation: str) -> set[str]:
    """The names of the dims in an annotation."""
    strings = (n.value for n in ast.walk(ast.parse(annotation)) if isinstance(n, ast.Constant))
    return {w for s in strings if isinstance(s, str) for w in _WORD.findall(s)}
