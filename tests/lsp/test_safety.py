"""What a file or folder that somebody else has made must not get an editor to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from lsprotocol import types as lsp

from tests.browsers import PATIENCE

ROOT = Path(__file__).parents[2]
PLANTED = "open('planted', 'w').write('a file of the folder was run')\n"
MARKDOWN = '''"""![](https://elsewhere.example/pixel.png) [run](command:workbench.action.quit)
<img src="https://elsewhere.example/pixel.png">
```
![](https://elsewhere.example/second.png)
````python
![](https://elsewhere.example/third.png)
"""'''
DOCUMENTED = f"""import tessera as ts


@ts.function
def documented(x: ts.Tensor["N"], mark="```"):
    {MARKDOWN}
    return x + 1.0


@ts.function
def caller(x: ts.Tensor["N"]):
    return documented(x)
"""
pytestmark = pytest.mark.asyncio(loop_scope="module")


def outside_of_fences(markdown: str) -> str:
    """What a client draws: the lines that stand in no fenced block, as CommonMark tells them."""
    drawn, fence = [], ""
    for line in markdown.split("\n"):
        marks = re.match(r" {0,3}(`{3,})([^`]*)$", line)
        if not fence and marks is not None:
            fence = marks[1]
        elif fence and marks is not None and len(marks[1]) >= len(fence) and not marks[2].strip():
            fence = ""
        elif not fence:
            drawn.append(line)
    assert not fence
    return "\n".join(drawn)


async def test_docstrings_are_shown_as_text(editor):
    doc = editor.open(DOCUMENTED, "documented.py")
    for mark in ("def docu|mented", "return docu|mented"):
        found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, mark)))
        assert "third.png" in found.contents.value
        drawn = outside_of_fences(found.contents.value)
        assert "elsewhere" not in drawn and "command:" not in drawn and "<img" not in drawn, drawn
    params = lsp.SignatureHelpParams(doc, editor.at(doc, "return documented(|x)"))
    given = await editor.client.text_document_signature_help_async(params)
    assert given.signatures[0].documentation.kind is lsp.MarkupKind.PlainText
    params = lsp.CompletionParams(doc, editor.at(doc, "return docu|mented(x)"))
    items = (await editor.client.text_document_completion_async(params)).items
    own = next(i for i in items if i.label == "documented")
    assert isinstance(own.documentation, str)  # which clients show as it is


async def test_operators_keep_their_markdown(editor):
    doc = editor.open(
        'import tessera as ts\n\n@ts.function\ndef f(x: ts.Tensor["N"]):\n    return ts.softmax(x)\n', "o.py"
    )
    found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "ts.soft|max")))
    assert outside_of_fences(found.contents.value).strip()


@pytest.mark.parametrize("name", ["typing.py", "argparse.py", "tessera_lsp.py", "json.py"])
async def test_jupyter_starts_the_server_without_files_of_its_folder(tmp_path, name):
    """As jupyter-lsp does it: the command of the entry point, in the folder that Jupyter was started in."""
    from tessera_jupyter.bridge import language_servers

    (tmp_path / name).write_text(PLANTED, encoding="utf-8")
    argv = language_servers(Mock())["tessera"]["argv"]
    done = subprocess.run(argv, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    assert not (tmp_path / "planted").exists()


async def test_without_that_option_the_file_would_have_run(tmp_path):
    (tmp_path / "argparse.py").write_text(PLANTED, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "tessera_lsp", "--help"], cwd=tmp_path, capture_output=True, timeout=PATIENCE)
    assert (tmp_path / "planted").exists()


async def test_every_python_that_is_started_for_a_module_has_that_option():
    files = [f for place in ("tessera", "lsp", "jupyter_ext/tessera_jupyter") for f in (ROOT / place).rglob("*.py")]
    files += (ROOT / "vscode/src").rglob("*.ts")
    starts = [(f, m) for f in files for m in re.finditer(r"""(.{0,40})["']-m["'],""", f.read_text(encoding="utf-8"))]
    assert len(starts) >= 6
    for file, start in starts:
        assert re.search(r"""["']-P["'],\s*$""", start[1]), (file, start[0])
