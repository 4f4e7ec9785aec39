"""How an analysis shows itself: its figure in a notebook with Plotly, its text everywhere else."""

from __future__ import annotations

import contextlib
import html
import json
from typing import TYPE_CHECKING, Any

from tessera.errors import MissingDependency

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Plot:
    """Base of results that are both text (`str`) and a Plotly figure (`figure()`)."""

    def figure(self) -> go.Figure:
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        # JupyterLab and VS Code draw Plotly's own type; whoever cannot takes the text.
        text = str(self)
        bundle: dict[str, Any] = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
        with contextlib.suppress(MissingDependency):
            bundle["application/vnd.plotly.v1+json"] = json.loads(self.figure().to_json() or "{}")
        return bundle
