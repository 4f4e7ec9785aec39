"""What starting the server loads, and how long what is ours of it takes."""

from __future__ import annotations

import subprocess
import sys


def test_the_server_loads_no_heavy_library():
    code = """
import sys
from tessera_lsp.server import create_server
create_server()
print([m for m in ("numpy", "llvmlite", "plotly", "torch", "rich", "typer", "tessera.runtime") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_server_itself_loads_quickly():
    """What is ours of the start: all but the protocol library, in processor time, the best of three."""
    code = """
import time
import pygls.lsp.server
start = time.process_time()
from tessera_lsp.server import create_server
create_server()
print(time.process_time() - start)
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(r.stdout) for r in runs) < 0.3


def test_the_command_line_starts_it():
    done = subprocess.run([sys.executable, "-m", "tessera_lsp", "--help"], capture_output=True, text=True, check=True)
    assert "--tcp" in done.stdout
    assert subprocess.run([sys.executable, "-m", "tessera_lsp"], stdin=subprocess.DEVNULL, timeout=30).returncode == 0


def test_tessera_lsp_starts_the_same_server():
    code = "import sys; from tessera.cli import main; sys.argv = ['tessera', 'lsp']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
