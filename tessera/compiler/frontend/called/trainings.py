"""`ts.train` as a file calls it: the step of its loss and the update of its optimizer, from their texts.

The step is that of `tessera/training/gradient.py`, whose text is read, with the parameters of the loss as its own.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from weakref import WeakKeyDictionary

import tessera
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.called.arguments import (
    AsCalled,
    Beside,
    CalledFunction,
    MadeArgument,
    Names,
    calls_in,
    computed,
    content,
    lines,
    with_classes_of,
)
from tessera.compiler.frontend.called.inside import CalledProgram, current
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.signature import Signature, definition_signature
from tessera.compiler.frontend.names.values import Builtin, ClassRef, Namespace, Record
from tessera.compiler.frontend.result import Analysis, ArgType, changed
from tessera.compiler.frontend.syntax.parse import Source, parse_module
from tessera.errors import Diagnostic, Edit, Fix, Span
from tessera.immutable import mutable
from tessera.language.annotations import dotted_name
from tessera.language.drawing import DRAWS, held_averages, moved_averages

STEP = Path(tessera.__path__[0], "training", "gradient.py")
MODE = {"mode": "training", DRAWS: "key_"}
"""the options of the step, as its decorator gives them"""
_PARAMETERS = ("model", "optimizer", "loss", "data")
SWAPPED = "train(model, optimizer, loss, data): the optimizer comes before the loss"
NO_OPTIMIZER = "the text does not tell the optimizer"
_MENTIONS: WeakKeyDictionary[ast.stmt, frozenset[str]] = WeakKeyDictionary()
"""of statements that have been asked about: the names that they read, none where they do not call `ts.train`"""


@mutable
class Training:
    """One call of `ts.train`. `problem`: why there is no step, or no update."""

    name: str
    """of the loss"""
    call: ast.Call
    names: Names
    """what the call sees"""
    statement: ast.stmt
    """at the top of the file, in which it stands"""
    loss: Definition
    nodes: Mapping[str, ast.expr]
    """the arguments of the call"""
    problem: str = ""
    made: Mapping[str, MadeArgument] = field(default_factory=dict[str, MadeArgument])
    """the model and the optimizer"""
    found: CalledFunction | None = None
    """the loss, for the model that the text makes"""
    held: ArgType = None
    """the state of the optimizer, once it has been asked for"""
    swapped: bool = False
    """whether the call has the loss where the optimizer belongs"""

    @property
    def step(self) -> AsCalled | None:
        """The loss and its gradient."""
        return self.found.whole if self.found is not None else None

    @property
    def program(self) -> CalledProgram | None:
        """What is known of the loss and of the functions that it calls."""
        if self.found is None:
            return None
        f = self.found.known
        return CalledProgram(f.analysis, f.made, f.sizes, own=self.found.whole is None)

    def names_of(self, argument: str) -> set[str]:
        """The names that an argument is made of."""
        return {n.id for n in ast.walk(self.nodes[argument]) if isinstance(n, ast.Name)}

    def follow(self) -> None:
        """Takes the lines where its arguments stand now, after some have come or gone above."""
        self.made = {n: self.names.made_as(a.type, self.nodes[n]) for n, a in self.made.items()}
        if self.found is not None:
            self.found.follow(dict.fromkeys(self.found.forward.made, self.made["model"]))

    def findings(self, source: Source) -> list[Diagnostic]:
        """TS105 of a loss in the optimizer's place, the errors of the step, TS374 of dropout without a key, and TS354
        of layers that are trained and that the loss does not use: in this file at their lines, those about the step
        itself at the loss, where it is defined in this file or passed."""
        misplaced = [self._misplaced(source)] if self.swapped else []
        return misplaced + (self._of_step(source) if self.step is not None else [])

    def _misplaced(self, source: Source) -> Diagnostic:
        loss, optimizer = self.nodes["loss"], self.nodes["optimizer"]
        pairs = (loss, optimizer), (optimizer, loss)
        edits = [Edit(source.span(old), ast.get_source_segment(source.text, new) or "") for old, new in pairs]
        return Diagnostic(
            "TS105", SWAPPED, source.span(loss), fixes=(Fix("Put the optimizer before the loss", tuple(edits)),)
        )

    def _of_step(self, source: Source) -> list[Diagnostic]:
        assert self.step is not None
        here = self.loss.file == source.file
        place = replace(self.loss, source=source.text).span if here else source.span(self.nodes["loss"])
        said = self.step.analysis.diagnostics
        said_of, own = CalledProgram(self.step.analysis), self._own
        errors = (d for d in said if d.severity == "error" or d.code == "TS374")
        found = [said_of.placed(d, source.file, place, own) for d in errors]
        if without := [d for d in said if d.code == "TS354"]:
            state = self.state()
            idle = idle_parts(without, state.members["moments"] if state is not None else None)
            found += [idle_finding(self.name, idle, place)] if idle else []
        return found

    @property
    def _own(self) -> Span:
        """Where the step's own lines stand."""
        tree = self.loss.tree
        assert isinstance(tree, ast.FunctionDef)
        return self.loss.text.span(tree.body[0])

    def state(self) -> Record | None:
        """The optimizer's state before the first step; None where the text does not tell it."""
        if self.held is None and "optimizer" in self.made:
            made = ast.Call(ast.Attribute(self.nodes["optimizer"], "init", ast.Load()), [self.nodes["model"]], [])
            found = self.names.made(ast.fix_missing_locations(ast.copy_location(made, self.call)))
            self.held = found.type if found is not None else None
        return self.held if isinstance(self.held, Record) else None

    def update(self) -> Analysis | None:
        """The update of all parameters; None where the text does not tell the optimizer or its state."""
        state, rule = self.state(), self.made["optimizer"].type if "optimizer" in self.made else None
        if state is None or not isinstance(rule, Record) or not isinstance(rule.cls, ClassRef):
            return None
        method, model = rule.cls.members.get("update"), self.made["model"].type
        if not isinstance(method, Closure):
            return None
        given: dict[str, ArgType] = {"self": rule, "model": model, "gradient": model, "state": state, "lr": None}
        return analyse(method.definition, given, {})


def idle_parts(found: Iterable[Diagnostic], trained: Iterable[str] | None) -> list[str]:
    """The parts of a model that TS354 is said of in a step of `ts.train`, by path: `model.blocks.0` for
    `model.blocks[0]`. `trained`: the names of what is; None: all of the model."""
    said = [d.message.partition(" depend on ")[2].partition(":")[0] for d in found if d.code == "TS354"]
    paths = [re.sub(r"\[['\"]?(.*?)['\"]?\]", r".\1", place.replace("<model>", "model")) for place in said]
    if trained is None:
        return [path for path in paths if path.startswith("model.")]
    names = [f"model.{name}." for name in trained]
    return [path for path in paths if any(name.startswith(f"{path}.") for name in names)]


def idle_finding(name: str, idle: Iterable[str], span: Span) -> Diagnostic:
    """TS354 of parts of a model that the loss of this name does not use."""
    more = "freeze them, groups=(ts.optimizers.Group(..., frozen=True),), or take them out"
    return Diagnostic("TS354", f"{name} does not depend on {', '.join(idle)}: {more}", span, "warning")


def trainings(
    scope: TextScope,
    before: Sequence[Training],
    unchanged: Callable[[str, Scope], bool],
    made_alike: Callable[[str, Scope], bool],
) -> Iterator[Training | None]:
    """Each call of `ts.train` in a file, and None between two of them. `before`: those of an earlier text of the file,
    which are taken where they still hold; `unchanged` says whether a name is surely as it was in another scope,
    `made_alike` whether what it makes is."""
    names = Names(scope, scope, scope.tree)
    for statement in scope.tree.body:
        if statement not in _MENTIONS:
            read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            _MENTIONS[statement] = frozenset(read if any(_is_train(n) for n in ast.walk(statement)) else ())
        if not _MENTIONS[statement]:
            continue
        old = [t for t in before if t.statement is statement]
        if old and all(unchanged(name, old[0].names.file) for name in _MENTIONS[statement]):
            for training in old:
                training.follow()
            yield from old
            continue
        for call, inside in calls_in(ast.Module([statement], []), names):
            if _is_train(call) and means_train(call.func, inside):
                yield from _training(call, inside, statement, before, made_alike)


def _is_train(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == "train"


def means_train(function: ast.expr, names: Names) -> bool:
    """Whether it is Tessera's, however it was imported."""
    if isinstance(function, ast.Attribute):
        return names.meaning(function.value) == Namespace("tessera")
    bound = names.file.bound.get(dotted_name(function))
    return isinstance(bound, ast.ImportFrom) and bound.module == "tessera"


def _training(
    call: ast.Call, names: Names, statement: ast.stmt, before: Sequence[Training],
    made_alike: Callable[[str, Scope], bool],
) -> Iterator[Training | None]:  # fmt: skip
    given = {**dict(zip(_PARAMETERS, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
    if not {"model", "optimizer", "loss"} <= given.keys() or not STEP.is_file():
        return
    loss = names.value(given["loss"])
    swapped = not isinstance(loss, Closure) and isinstance(names.value(given["optimizer"]), Closure)
    if swapped:
        given = {**given, "loss": given["optimizer"], "optimizer": given["loss"]}
        loss = names.value(given["loss"])
    if not isinstance(loss, Closure) or not isinstance(loss.node, ast.FunctionDef) or loss.frame is not None:
        return
    signature, name = definition_signature(loss.definition), loss.name
    found = Training(name, call, names, statement, loss.definition, given, swapped=swapped)
    old = next((t for t in before if t.call is call), None)
    old = old if old is not None and _unmoved(old, names) else None
    made: dict[str, MadeArgument] = {}
    same = 0
    for argument in ("model", "optimizer"):
        was = old.made.get(argument) if old is not None else None
        if old is not None and was and all(names.renews(old.names, n, made_alike) for n in found.names_of(argument)):
            same += 1
            made[argument] = names.made_as(with_classes_of(names.file, was.type), given[argument])
            names.file.ran_layers |= old.names.file.ran_layers
        elif one := names.made(given[argument]):
            made[argument] = one
            yield None
    found.made, found.held = made, old.held if old is not None and same == 2 else None
    open_ = [p.name for p in signature.parameters[1:] if not p.annotated and p.default is None]
    if "model" not in made:
        found.problem = _missing("the text does not tell what the model holds", names.error(given["model"]))
    elif not signature.parameters or any(p.variadic for p in signature.parameters):
        found.problem = f"the text does not tell what {name} is given"
    elif open_:
        found.problem = f"{name} has no annotation of {', '.join(open_)}"
    else:
        found.found = yield from _called(
            names, loss, signature, made["model"], next((t for t in before if t.name == name), None)
        )
        found.problem = "" if "optimizer" in made else _missing(NO_OPTIMIZER, names.error(given["optimizer"]))
    yield found


def _missing(what: str, error: Diagnostic | None) -> str:
    """Why a value is not known: the error in making it, where there is one."""
    if error is None:
        return what
    return f"line {error.span.line} fails: {error.message.partition(chr(10))[0]}"


def _unmoved(old: Training, names: Names) -> bool:
    """Whether the lines are those that they were: classes and functions have the text that they were read from."""
    return old.names.file.text.count("\n") == names.file.text.count("\n")


def _called(
    names: Names, loss: Closure, signature: Signature, model: MadeArgument, before: Training | None
) -> Generator[None, None, CalledFunction]:
    program = step_of(loss, signature)
    made = {signature.parameters[0].name: model}
    old = before.found if before is not None else None
    if before is not None and old is not None and old.whole is not None:
        unmoved = lines(before.loss) == lines(loss.definition) and content(old.whole.made) == content(made)
        if unmoved and not changed(old.whole.analysis, program.scope):
            analysis = current(old.whole.analysis, names.file)
            if analysis is not None:
                found = CalledFunction(old.forward, program, replace(old.whole, analysis=analysis))
                found.follow(made)
                return found
    yield None
    given: dict[str, ArgType] = {name: m.type for name, m in made.items()}
    trained = replace(loss.definition, options=MODE)
    analysis, sizes = computed(trained, signature, given, old.forward.sizes if old is not None else None)
    return CalledFunction(AsCalled(analysis, sizes, made), program)


def step_of(loss: Closure, signature: Signature) -> Definition:
    """The step as a definition that stands where the loss does. Its own names are in <>, so that none is the user's."""
    own, original = loss.definition, loss.node
    assert isinstance(original, ast.FunctionDef)
    first, *others = [p.name for p in signature.parameters]
    arguments = copy.copy(original.args)
    scale = ast.arg("<scale>", ast.Attribute(ast.Name("<ts>", ast.Load()), "f32", ast.Load()))
    arguments.kwonlyargs = [*original.args.kwonlyargs, scale]
    arguments.kw_defaults = [*original.args.kw_defaults, None]
    given = {"model": first, "given": "()", "named": f"{{{', '.join(f'{n!r}: {n}' for n in others)}}}"}
    body: list[ast.stmt] = [
        ast.Assign([ast.Name(f"<{n}>", ast.Store())], ast.parse(value, mode="eval").body) for n, value in given.items()
    ]
    body += [_Own().visit(copy.deepcopy(s)) for s in _text()]
    at = original.body[0]
    for node in (scale, *body):
        for inner in ast.walk(node):
            ast.copy_location(inner, at)
    tree = ast.FunctionDef(original.name, arguments, body, [], None)
    ast.copy_location(tree, original)
    known = {"<loss>": loss, "<ts>": Namespace("tessera")}
    known |= {f"<{f.__name__}>": Builtin(f"{f.__module__}.{f.__name__}") for f in (held_averages, moved_averages)}
    return replace(own, kind="function", tree=tree, scope=Beside(own.scope, known), options=MODE, problems=())


@lru_cache(maxsize=1)
def _text() -> list[ast.stmt]:
    """The body of the step that `ts.train` compiles."""
    text = STEP.read_text("utf-8")
    tree = parse_module(text, str(STEP))[0]
    own = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "gradient_of")
    return own.body[1:]  # behind its documentation


class _Own(ast.NodeTransformer):
    """Puts all names but Python's in <>."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return node if node.id in ("isinstance", "tuple", "list", "dict") else ast.Name(f"<{node.id}>", node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(f"<{node.arg}>")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = f"<{node.name}>"
        return self.generic_visit(node)
