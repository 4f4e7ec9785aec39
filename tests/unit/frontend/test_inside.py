"""What is known inside plain functions and modules by the calls that a file makes of them."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tessera.compiler.frontend.called.arguments import Names
from tessera.compiler.frontend.called.inside import Inside
from tessera.compiler.frontend.incremental import FileAnalysis

HEAD = """
from functools import partial
import tessera as ts
from tessera import Tensor, nn


class Block(nn.Module):
    def __init__(self, width, key=None):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        h = self.up(self.norm(x))
        h = ts.gelu(h)
        return x + self.down(h)


class GPT(nn.Module):
    def __init__(self, vocab, width, layers=2):
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.Stack(partial(Block, width), layers)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.tokens(ids)
        x = self.blocks(x)
        logits = self.head(x)
        return logits


def loss(model, x: Tensor["B", "S", ts.i64], y: Tensor["B", "S", ts.i64]):
    logits = model(x)
    flat = logits.reshape(-1, logits.shape[-1])
    return ts.cross_entropy(flat, y.reshape(-1))
"""
TRAIN = """

model = GPT(vocab=65, width=32)
run = ts.train(model, ts.optimizers.AdamW(1e-3), loss, batches)
"""


def read(text: str, file: FileAnalysis | None = None) -> FileAnalysis:
    file = file or FileAnalysis("/work/model.py")
    file.update(text)
    assert not [d for d in file.diagnostics if d.severity == "error"], file.diagnostics
    return file


def function(file: FileAnalysis, name: str) -> Inside:
    """By its name, of a method with that of the class."""
    line = file.text[: file.text.index(f"class {name.partition('.')[0]}(")].count("\n") if "." in name else 0
    found = [i for i in file.inside if i.analysis.name == name.rpartition(".")[2] and i.analysis.definition.line > line]
    return min(found, key=lambda i: i.analysis.definition.line)


def said(file: FileAnalysis, name: str) -> dict[str, str]:
    """`line of the text: name` of each assignment, parameter and result, with its type."""
    lines = file.text.split("\n")
    found = [e for e in function(file, name).analysis.expressions if e.kind in ("assign", "param", "return")]
    return {f"{lines[e.span.line - 1].strip()}|{e.name or e.kind}": e.text for e in found}


IN_GPT = {
    "def forward(self, ids):|ids": "[B, S] int64",
    "x = self.tokens(ids)|x": "[B, S, 32] f32",
    "x = self.blocks(x)|x": "[B, S, 32] f32",
    "logits = self.head(x)|logits": "[B, S, 65] f32",
    "return logits|return": "[B, S, 65] f32",
}
IN_BLOCK = {
    "def forward(self, x):|x": "[B, S, 32] f32",
    "h = self.up(self.norm(x))|h": "[B, S, 128] f32",
    "h = ts.gelu(h)|h": "[B, S, 128] f32",
    "return x + self.down(h)|return": "[B, S, 32] f32",
}


def test_the_step_of_train_tells_of_the_loss_and_of_all_modules() -> None:
    file = read(HEAD + TRAIN)
    assert said(file, "loss")["logits = model(x)|logits"] == "[B, S, 65] f32"
    assert said(file, "loss")["flat = logits.reshape(-1, logits.shape[-1])|flat"] == "[B*S, 65] f32"
    assert said(file, "GPT.forward") == IN_GPT
    assert said(file, "Block.forward") == IN_BLOCK
    line = (HEAD + TRAIN).count("\n", 0, (HEAD + TRAIN).index("model = GPT(")) + 1
    assert function(file, "loss").models == (f"`GPT(vocab=65, width=32)` (line {line})",)


def test_places_follow_the_text() -> None:
    """Lines that come or go anywhere, and comments."""
    text = HEAD + TRAIN
    file = read(text)
    for edited in (
        text.replace("class GPT", "\n\n# a comment\nclass GPT"),
        text.replace("    def forward(self, ids)", "\n    # what it computes\n    def forward(self, ids)"),
        text.replace("def loss", "def unused(x):\n    return x\n\n\ndef loss"),
        text.replace("        h = ts.gelu(h)", "        # as in GPT-2\n        h = ts.gelu(h)"),
        text.replace("def loss", "LIMIT = 3\n\n\ndef loss"),
        text.replace("run =", "\nrun ="),
        text,
    ):
        read(edited, file)
        assert said(file, "GPT.forward") == IN_GPT
        assert said(file, "Block.forward") == IN_BLOCK
        assert "logits = model(x)|logits" in said(file, "loss")


def test_edits_are_followed() -> None:
    file = read(HEAD + TRAIN)
    read(HEAD + TRAIN.replace("width=32", "width=48"), file)
    assert said(file, "Block.forward")["h = ts.gelu(h)|h"] == "[B, S, 192] f32"
    read((HEAD + TRAIN).replace("4 * width", "2 * width"), file)
    assert said(file, "Block.forward")["h = ts.gelu(h)|h"] == "[B, S, 64] f32"
    read((HEAD + TRAIN).replace("logits = self.head(x)", "logits = self.head(x)[..., 1:]"), file)
    assert said(file, "loss")["logits = model(x)|logits"] == "[B, S, 64] f32"
    assert said(file, "Block.forward") == IN_BLOCK


def test_models_of_different_sizes_show_what_is_equal() -> None:
    text = HEAD + TRAIN.replace("model =", "small =").replace("(model", "(small")
    text += "large = GPT(vocab=65, width=64)\nrun = ts.train(large, ts.optimizers.AdamW(1e-3), loss, batches)\n"
    file = read(text)
    assert said(file, "loss")["logits = model(x)|logits"] == "[B, S, 65] f32"
    found = function(file, "GPT.forward")
    assert said(file, "GPT.forward")["x = self.tokens(ids)|x"] == "[B, S, width] f32"
    assert [size for size, _ in found.varying["width"]] == [32, 64]
    assert [model.partition(" (")[0] for _, model in found.varying["width"]] == [
        "`GPT(vocab=65, width=32)`", "`GPT(vocab=65, width=64)`"
    ]  # fmt: skip
    block = said(file, "Block.forward")
    assert block["def forward(self, x):|x"] == block["return x + self.down(h)|return"] == "[B, S, D] f32"
    assert block["h = ts.gelu(h)|h"] == "[B, S, E] f32"


def test_names_that_a_method_gives_its_sizes_stay() -> None:
    text = (HEAD + TRAIN).replace("def forward(self, x):", 'def forward(self, x: Tensor["B", "T", "D"]):')
    block = said(read(text), "Block.forward")
    assert block["h = ts.gelu(h)|h"] == "[B, T, 128] f32"
    assert block["return x + self.down(h)|return"] == "[B, T, D] f32"


def test_a_function_tells_of_the_plain_ones_that_it_calls() -> None:
    text = """
    import tessera as ts
    from tessera import Tensor

    def scaled(x, by):
        shifted = x[:, 1:]
        return shifted * by

    @ts.function
    def f(x: Tensor["B", "D"]):
        return scaled(x, 2.0)
    """
    file = read(textwrap.dedent(text))
    assert said(file, "scaled")["shifted = x[:, 1:]|shifted"] == "[B, D-1] f32"


@pytest.mark.parametrize("width", ["", "widths: Tensor['D']"])
def test_nothing_is_said_without_a_call(width: str) -> None:
    file = read(f"import tessera as ts\nfrom tessera import Tensor\n\n\ndef f({width}):\n    return ts.zeros((3,))\n")
    assert not file.inside


CALLS = [
    "for x, y in batches:\n    value = loss(model, x, y)\n",
    "step = ts.value_and_grad(loss)\nfor x, y in batches:\n    value, gradient = step(model, x, y)\n",
    "gradient = ts.grad(loss)(model, x, y)\n",
    "def main(vocab=65):\n    net = GPT(vocab, 32)\n    return loss(net, read(), read())\n",
    "@ts.function\ndef step(model, x: Tensor['B', 'S', ts.i64], y: Tensor['B', 'S', ts.i64]):\n"
    "    return ts.value_and_grad(loss)(model, x, y)\n\n\nfor x, y in batches:\n    step(model, x, y)\n",
]  # fmt: skip
MODEL = "\n\nmodel = GPT(vocab=65, width=32)\n"


@pytest.mark.parametrize("calls", CALLS)
def test_calls_outside_of_programs_tell(calls: str) -> None:
    file = read(HEAD + MODEL + calls)
    assert said(file, "loss")["logits = model(x)|logits"] == "[B, S, 65] f32"
    assert said(file, "GPT.forward") == IN_GPT
    assert said(file, "Block.forward") == IN_BLOCK
    read((HEAD + MODEL + calls).replace("class GPT", "\n\nclass GPT"), file)
    assert said(file, "Block.forward") == IN_BLOCK
    read((HEAD + MODEL + calls).replace("flat, y.reshape(-1))", "flat * 0.5, y.reshape(-1))"), file)
    assert said(file, "GPT.forward") == IN_GPT


@pytest.mark.parametrize("call", ["model(ids)", "model.forward(ids)", "model(ids=ids)"])
def test_calls_of_a_model(call: str) -> None:
    file = read(f"{HEAD}{MODEL}ids = ts.zeros((3, 8), dtype=ts.i64)\nout = {call}\n")
    assert said(file, "GPT.forward")["logits = self.head(x)|logits"] == "[3, 8, 65] f32"
    assert said(file, "Block.forward")["h = ts.gelu(h)|h"] == "[3, 8, 128] f32"


def test_a_gradient_outside_of_programs_is_one_of_the_programs() -> None:
    file = read(HEAD + MODEL + CALLS[1])
    assert any(
        op.origin.order for root in file.programs if root.analysis.op is not None for op in root.analysis.op.walk()
    )


def test_a_model_is_made_again_only_when_something_that_makes_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = Names.made
    monkeypatch.setattr(Names, "made", lambda self, node: made.append(ast.unparse(node)) or original(self, node))
    for calls in (TRAIN.partition("32)\n")[2], *CALLS[:3]):
        text = HEAD + MODEL + calls + "model = run.model\n"
        file = read(text)
        for edited in (text.replace("flat, y", "2.0 * flat, y"), text.replace("flat, y", "3.0 * flat, y"), text):
            made.clear()
            read(edited, file)
            assert "model" not in made, (edited, made)
        made.clear()
        read(text.replace("vocab=65", "vocab=66"), file)
        assert "model" in made and said(file, "GPT.forward")["return logits|return"] == "[B, S, 66] f32"


def test_calls_without_a_model_are_left_alone() -> None:
    """A simulation with the number of its steps: evaluating it takes seconds, which nobody waits for."""
    text = "import tessera as ts\n\n\ndef run(steps):\n    x = ts.zeros((3,))\n    for _ in range(steps):\n"
    file = read(f"{text}        x = x + 1.0\n    return x\n\n\nprint(run(5000))\n")
    assert file.plain_calls and not file.inside


EDITS = {
    "in the loss": ("logits = model(x)", "logits = model(x)[:, 1:, :]\n    y = y[:, 1:]"),
    "in forward": ("return x + self.down(h)", "return x * 2 + self.down(h)"),
    "of shapes": ("h = self.up(self.norm(x))", "h = self.up(self.norm(x))[:, 1:]"),
    "of sizes": ("self.up = nn.Linear(width, 4 * width)", "self.up = nn.Linear(width, 8 * width)[0]"),
    "of a constructor": ("4 * width", "8 * width"),
    "another method": ("    def forward(self, ids):", "    def twice(self): ...\n\n    def forward(self, ids):"),
    "another name": ("    def forward(self, ids):", "    def __call__(self, ids):"),
    "of a constant": ("class GPT(nn.Module):\n", "class GPT(nn.Module):\n    scale = 3\n"),
    "a constructor that calls a layer": (
        "self.width = width\n", "self.width = nn.Linear(width, width)(ts.ones((1, width))).shape[-1]\n",
    ),
}  # fmt: skip


def told(file: FileAnalysis) -> object:
    """What an editor is told of a file."""
    inside = [
        (
            i.analysis.name,
            i.models,
            sorted((e.span.line, e.span.col, e.kind, str(e.type)) for e in i.analysis.expressions),
        )
        for i in file.inside
    ]
    return (
        inside,
        sorted((d.span.line, d.code, d.message) for d in file.diagnostics),
        [t.problem for t in file.trainings],
    )


def test_a_docstring_of_a_class_changes_nothing_inside() -> None:
    text = (
        HEAD
        + """

@ts.function
def twice(block: Block, x: Tensor["B", "D"]):
    return block(x) * 2
"""
    )
    file = read(text)
    now = text.replace("class Block(nn.Module):\n", 'class Block(nn.Module):\n    """A part."""\n')
    file.update(now)
    assert "forward" in [i.analysis.name for i in file.inside] and told(file) == told(read(now))


LOOP = """

model = GPT(vocab=65, width=32)
step = ts.value_and_grad(loss)
for x, y in batches:
    value, gradient = step(model, x, y)
"""
NAMED = (
    (HEAD + TRAIN)
    .replace("def loss(model, x", "def loss(model, w: Tensor['D', 'D'], x")
    .replace("flat = logits", "logits = logits + ts.sum(model.head.weight.T @ w)\n    flat = logits")
)
"""a loss whose model decides the size of one of its dims"""


@pytest.mark.parametrize("text", [HEAD + TRAIN, HEAD + LOOP, NAMED], ids=["train", "loop", "named"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_tells_what_a_new_file_does(edit: str, text: str) -> None:
    """Models are made anew only if their constructors have changed: nothing that is said depends on that."""
    for second in ("in forward", "of a constructor"):
        file = FileAnalysis("/work/model.py")
        file.update(text)
        now = text
        for name in (edit, second):
            old, new = EDITS[name]
            now = now.replace(old, new)
            file.update(now)
            fresh = FileAnalysis("/work/model.py")
            fresh.update(now)
            assert told(file) == told(fresh), (edit, second)


@pytest.mark.parametrize("text", [HEAD + TRAIN, HEAD + LOOP, NAMED], ids=["train", "loop", "named"])
def test_shapes_are_known_before_gradients_and_stay(text: str) -> None:
    file = FileAnalysis("/work/model.py")
    for now in (text, *(text.replace(*EDITS[name]) for name in EDITS)):
        early: object = None
        for _ in file.steps(now):
            if early is None and file.shapes_of == now:
                early = shapes(file)
        assert early == shapes(file) or "nn.Linear(width, 8 * width)[0]" in now  # which cannot be made


def shapes(file: FileAnalysis) -> object:
    return {(i.analysis.name, e.span, e.kind): str(e.type) for i in file.inside for e in i.analysis.expressions}


def test_an_edit_that_comes_before_the_gradients_is_followed() -> None:
    """What is typed quickly finds the gradients of an earlier text, and shapes of the last one."""
    file = read(HEAD + TRAIN)
    for name in ("in forward", "of a constructor", "in the loss"):
        now = (HEAD + TRAIN).replace(*EDITS[name])
        for _ in file.steps(now):
            if file.shapes_of == now:
                break
    file.update(now)
    fresh = FileAnalysis("/work/model.py")
    fresh.update(now)
    assert told(file) == told(fresh)


def test_models_are_made_once_for_edits_of_their_calls(monkeypatch) -> None:
    """A model that layers compute a part of is made again."""
    made: list[str] = []
    evaluate = Names.value

    def counted(self: Names, node: ast.expr) -> object:
        made.extend([ast.unparse(node)] if isinstance(node, ast.Call) else [])
        return evaluate(self, node)

    monkeypatch.setattr(Names, "value", counted)
    for constructor in ("in forward", "a constructor that calls a layer"):
        text = HEAD + TRAIN
        if constructor != "in forward":
            text = text.replace(*EDITS[constructor])
        file = read(text)
        made.clear()
        read(text.replace(*EDITS["in forward"]), file)
        assert ("GPT(vocab=65, width=32)" in made) == (constructor != "in forward")
