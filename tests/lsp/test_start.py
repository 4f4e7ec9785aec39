"""What starting the server loads, and the commands that start it."""

from __future__ import annotations

import subprocess
import sys

from tests.lsp.conftest import PATIENCE


def test_the_server_loads_no_heavy_library():
    code = """
import sys
from tessera_lsp.server import create_server
create_server()
heavy = ("numpy", "llvmlite", "plotly", "torch", "rich", "typer", "websockets", "platformdirs")
later = ("tessera.runtime", "tessera.compiler.targets", "tessera.compiler.lower", "tessera.compiler.graph.passes")
print([m for m in (*heavy, *later) if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
