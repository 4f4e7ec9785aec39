"""What starting the server loads, and the commands that start it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import subprocess
import sys

from lsprotocol import types as lsp
from tessera_lsp.capabilities import FEATURES
from tessera_lsp.features import create_server

from tests.browsers import PATIENCE

HEAVY = ("numpy", "llvmlite", "plotly", "torch", "rich", "typer", "websockets", "platformdirs", "html", "difflib")
NOT_NEEDED = ("tessera.runtime", "tessera.compiler.targets", "tessera.compiler.lower", "tessera.compiler.graph.passes")
ASKED_FOR = (
    "tessera.compiler.schedule",
    "tessera.compiler.graph.sharding",
    "tessera.compiler.predict",
    "tessera.editor.refactor.fuse",
)
ANALYSIS = ("tessera.compiler.graph", "tessera.compiler.frontend.evaluate.machine", "tessera.compiler.frontend.kernel")
FUNCTION = """
import tessera as ts

@ts.function
def f(x: ts.Tensor["B", "D"]):
    y = ts.softmax(x)
    return y.sum(-1)
"""


def met(server):
    """As if a client had introduced itself, one that asks for diagnostics itself."""
    from lsprotocol import types as lsp

    asks = lsp.TextDocumentClientCapabilities(diagnostic=lsp.DiagnosticClientCapabilities())
    server.protocol.server_capabilities = lsp.ServerCapabilities()
    server.protocol.client_capabilities = lsp.ClientCapabilities(text_document=asks)


def loaded(code: str, *modules: str) -> list[str]:
    """Those of `modules` that a process has loaded which runs `code` after making `server`."""
    start = "import asyncio, sys\nfrom tessera_lsp import lazy_types as quick_types\nquick_types.load()\n"
    start += "from tessera_lsp.features import create_server\nserver = create_server()\n"
    code = start + code + f"\nprint([m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


def test_the_server_starts_without_what_answers():
    answers = [f"tessera_lsp.features.{name}" for name in FEATURES]
    assert loaded("", *HEAVY, *NOT_NEEDED, *ASKED_FOR, *ANALYSIS, *answers) == []


def test_hints_load_the_analysis_and_nothing_that_others_ask_for():
    code = (
        inspect.getsource(met)
        + f"""
from lsprotocol import types as lsp
async def hints():
    met(server)
    server.open(lsp.TextDocumentItem("file:///f.py", "python", 1, {FUNCTION!r}))
    area = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
    params = lsp.InlayHintParams(lsp.TextDocumentIdentifier("file:///f.py"), area)
    return await server.protocol.fm.features[lsp.TEXT_DOCUMENT_INLAY_HINT](params)
assert asyncio.run(hints())
"""
    )
    kernels = "tessera.compiler.frontend.kernel.layer"
    others = [f"tessera_lsp.features.{name}" for name in ("completion", "code_actions", "code_lens", "rename", "hover")]
    assert loaded(code, *HEAVY, *NOT_NEEDED, *ASKED_FOR, *others, kernels) == []
    assert loaded(code, "tessera.compiler.graph") == ["tessera.compiler.graph"]


def test_each_feature_answers_what_is_announced():
    server = create_server()
    handlers = server.protocol.fm.features
    standing, options = dict(handlers), dict(server.protocol.fm.feature_options)
    for name, methods in FEATURES.items():
        for method in methods:
            del handlers[method]
        before = set(handlers)
        importlib.import_module(f"tessera_lsp.features.{name}").register(server)
        assert set(handlers) - before == set(methods)
    assert set(handlers) == set(standing)
    assert server.protocol.fm.feature_options == options
    assert {a.value for a in options[lsp.TEXT_DOCUMENT_CODE_ACTION].code_action_kinds[:1]} == {"quickfix"}


async def test_two_first_requests_load_a_feature_once():
    server = create_server()
    met(server)
    server.open(lsp.TextDocumentItem("file:///f.py", "python", 1, FUNCTION))
    handlers, method = server.protocol.fm.features, lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL
    params = lsp.SemanticTokensParams(lsp.TextDocumentIdentifier("file:///f.py"))
    first = handlers[method]
    one, two = await asyncio.gather(first(params), first(params))
    assert handlers[method] is not first
    assert one.data == two.data and one.result_id != two.result_id  # counted by one feature, not by two


def test_the_command_line_starts_it():
    done = subprocess.run([sys.executable, "-m", "tessera_lsp", "--help"], capture_output=True, text=True, check=True)
    assert "--tcp" in done.stdout
    assert (
        subprocess.run([sys.executable, "-m", "tessera_lsp"], stdin=subprocess.DEVNULL, timeout=PATIENCE).returncode
        == 0
    )


def test_tessera_lsp_starts_the_same_server():
    code = "import sys; from tessera.cli import main; sys.argv = ['tessera', 'lsp']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_tessera_lsp_takes_the_same_options():
    code = "import sys; from tessera.cli import main; sys.argv = ['tessera', 'lsp', *sys.argv[1:]]; main()"
    for given, said in (["--tcp", "1", "--ws", "2"], "not allowed with"), (["--log-level", "LOUD"], "invalid choice"):
        done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and said in done.stderr
