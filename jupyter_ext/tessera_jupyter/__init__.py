"""Tessera in notebooks: magics and the panel under a cell. `%load_ext tessera_jupyter` turns them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext tessera_jupyter`."""
    from tessera_jupyter.magics import TesseraMagics  # slow: 0.5 s; JupyterLab asks this package for its assets only

    TesseraMagics.install(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%unload_ext tessera_jupyter`."""
    from tessera_jupyter.magics import TesseraMagics  # slow: 0.5 s; JupyterLab asks this package for its assets only

    TesseraMagics.remove(shell)
