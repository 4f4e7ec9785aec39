"""Packs the JupyterLab extension, where `make labextension` has built it.

Building it needs Node. Where there is none, an installation from a checkout lacks only the hints while typing in
notebook cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = "jupyter_ext/tessera_jupyter/labextensions/tessera-jupyterlab"
PLACE = "share/jupyter/labextensions/tessera-jupyterlab"


class LabExtension(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if not (root / BUILT / "package.json").is_file():
            self.app.display_warning("Without the JupyterLab extension (make labextension): cells show no hints")
            return
        build_data["shared_data"] |= {
            str(root / BUILT): PLACE,
            str(root / "jupyter_ext/labextension/install.json"): f"{PLACE}/install.json",
        }
