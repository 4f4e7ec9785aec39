"""A model in a real VS Code: shapes inside its `forward`, the gradient of a value, and the members of the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vscode.window import Project, Window, write_settings

pytestmark = [pytest.mark.flaky(reruns=1), pytest.mark.timeout(600)]
MODEL = """import tessera as ts
from tessera import Tensor, nn


class Net(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.up = nn.Linear(inputs, hidden)
        self.down = nn.Linear(hidden, classes)

    def forward(self, x):
        h = ts.tanh(self.up(x))
        return self.down(h)


def loss(model, images: Tensor["B", 784], labels: Tensor["B", ts.i64]):
    logits = model(images)
    best = ts.argmax(logits, axis=-1)
    return ts.cross_entropy(logits, labels)


model = Net(784, 128, 10)
run = ts.train(model, ts.optimizers.AdamW(1e-3), loss, batches)
"""


def write(folder: Path) -> None:
    (folder / "net.py").write_text(MODEL)
    write_settings(folder, {"tessera.dims": {"B": 32}})


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(write, "net.py")


def point_at(window: Window, text: str, word: str) -> None:
    """Moves the mouse to a word, from elsewhere: a hover is shown when the mouse has moved."""
    window.page.mouse.move(5, 5)
    window.page.mouse.move(*window.point(text, word), steps=2)


def test_the_gradient_of_a_value(untrusted_window: Window) -> None:
    window = untrusted_window
    window.see("h: [B, 128] f32 = ts.tanh(self.up(x))kept 16 KiB")
    for text, word, said in (
        ("h: [B, 128] f32 = ts.tanh", "h", "Gradient: [B, 128] f32, 16 KiB"),
        ("best: [B] int64 = ts.argmax", "best", "No gradient: argmax gives int64"),
    ):
        hover = window.page.locator(".monaco-hover-content", has_text=said)
        window.until(lambda text=text, word=word: point_at(window, text, word), hover)
        window.shot(f"gradient-of-{word}")
    window.page.mouse.move(5, 5)


def test_hints_follow_an_edit_of_the_model(untrusted_window: Window) -> None:
    window = untrusted_window
    window.put_cursor("net.py", "model = Net(784, 128, 10)", "128")
    window.page.keyboard.press("End")
    for _ in range(len("128, 10)")):
        window.page.keyboard.press("ArrowLeft")
    window.page.keyboard.press("Delete")
    window.page.keyboard.type("5")
    window.see("h: [B, 528] f32 = ts.tanh(self.up(x))kept 66 KiB")
    window.shot("model-edited")
    window.revert()


def test_members_of_a_model(untrusted_window: Window) -> None:
    window = untrusted_window
    window.put_cursor("net.py", "logits = model(images)", "logits")
    window.page.keyboard.press("End")
    window.page.keyboard.press("Enter")
    window.page.keyboard.type("model.up.", delay=50)
    shown = window.page.locator(".suggest-widget .monaco-list-row", has_text="weight")
    window.until(lambda: window.page.keyboard.press("Control+Space"), shown)
    window.shot("members-of-a-model")
    window.page.keyboard.press("Escape")
    window.revert()
