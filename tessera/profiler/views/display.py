"""How an analysis shows itself: its figure in a notebook with Plotly, its text everywhere else."""

from __future__ import annotations

import html
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
        bundle: dict[str, Any] = {"text/plain": str(self)}
        try:
            bundle.update(self.figure()._repr_mimebundle_(include, exclude))
        except MissingDependency:
            bundle["text/html"] = f"<pre>{html.escape(str(self))}</pre>"
        return bundle
