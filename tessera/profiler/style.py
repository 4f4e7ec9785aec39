"""The one look of all figures: readable on light and dark pages, told apart without colour vision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tessera.compiler.targets.base import PLATFORMS
from tessera.errors import MissingDependency

if TYPE_CHECKING:
    import plotly.graph_objects as go  # optional: the extra plot

# Okabe and Ito (2008), without the yellow that vanishes on white and the black that vanishes on black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
# A grey with a contrast of more than 4 to 1 against both white and JupyterLab's dark page.
TEXT = "#7a7d82"
GRID = "rgba(128,128,128,0.22)"
EDGE = "rgba(128,128,128,0.55)"
# Perceptually even, and its order survives every kind of colour blindness.
HEAT = "Cividis"
RESOURCE_NAMES: Mapping[str, str] = {p.name: p.worker for p in PLATFORMS.values()}
"""What one resource is called on a device of this kind."""


def graph_objects() -> Any:
    """plotly.graph_objects. Raises MissingDependency when Plotly is not installed."""
    try:
        import plotly.graph_objects as go  # optional: the extra plot
    except ImportError:
        raise MissingDependency("Plotly", "plot", "Drawing a profile") from None
    return go


def styled(figure: go.Figure, title: str, height: int) -> go.Figure:
    """Gives a figure the common look. Width follows the page; `height` is in pixels."""
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.0, "xref": "paper", "font": {"size": 15}, "yref": "container", "y": 0.98},
        height=height,
        margin={"l": 90, "r": 30, "t": 64, "b": 56},
        font={"color": TEXT, "size": 12, "family": "system-ui, -apple-system, Segoe UI, sans-serif"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=list(PALETTE),
        legend={"orientation": "h", "x": 1.0, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        hoverlabel={"align": "left", "namelength": -1},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": EDGE, "activecolor": TEXT, "orientation": "v"},
    )
    figure.update_xaxes(
        title_standoff=8, gridcolor=GRID, linecolor=EDGE, zeroline=False, showline=True, ticks="outside", tickcolor=EDGE
    )
    figure.update_yaxes(gridcolor=GRID, linecolor=EDGE, zeroline=False, showline=True, ticks="outside", tickcolor=EDGE)
    return figure


def empty_figure(title: str, why: str) -> go.Figure:
    """A figure that says in words why there is nothing to draw."""
    figure = styled(graph_objects().Figure(), title, 160)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.add_annotation(text=escape(why), showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
    return figure


def time_unit(span: float) -> tuple[float, str]:
    """(ns per unit, unit) so that an axis over `span` ns shows numbers of few digits."""
    for limit, scale, unit in ((2e3, 1.0, "ns"), (2e6, 1e3, "µs"), (2e9, 1e6, "ms")):
        if span < limit:
            return scale, unit
    return 1e9, "s"


def escape(name: str) -> str:
    """Text for Plotly, which reads labels and hovers as a small HTML."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shorten(name: str, most: int = 28) -> str:
    """A label of at most `most` characters; the middle gives way, since kernels differ at both ends."""
    if len(name) <= most:
        return name
    head = (most - 1) // 2
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"


class Plot:
    """Base of results that are text (`str`), a picture of a few kilobytes in a notebook (`view()`), and a Plotly figure
    (`figure()`)."""

    def figure(self) -> go.Figure:
        raise NotImplementedError

    def view(self) -> str:
        """Markup that loads nothing. Profiles and notebooks add `style_of_views` and tiles.js."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        style, script = style_of_views(), resource("tiles.js")
        shown = f'<div class="tessera-views"><style>{style}</style>{self.view()}<script>{script}</script></div>'
        return {"text/plain": str(self), "text/html": shown}


@cache
def resource(name: str, package: str = "tessera.profiler.views") -> str:
    """A style or a script without what only readers of the file need: it is in every output of a notebook."""
    source = files(package).joinpath(name).read_text(encoding="utf-8")
    lines = (part.strip() for part in source.splitlines())
    return (" " if name.endswith(".css") else "\n").join(part for part in lines if part and not part.startswith("//"))


def style_of_views() -> str:
    """That of pictures, whose images have it too, and that of what stands around them."""
    return resource("picture.css") + resource("views.css")
