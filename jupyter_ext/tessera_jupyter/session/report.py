"""`%tessera functions`: the cards of the session where no side panel shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.profiler.views.markup import hinted, origin, table, table_alone
from tessera.profiler.views.markup import text as escaped
from tessera_jupyter.session.cards import Card, Figure

_HEADS = ("function", "sizes", "predicted time", "bound by", "memory", "last profile, a call", "last edit")


@dataclass(frozen=True, slots=True)
class SessionReport:
    """One row for each function and kernel."""

    cards: Sequence[Card]

    def __str__(self) -> str:
        if not self.cards:
            return "No functions or kernels yet."
        rows = [_HEADS, *([value for value, _, _ in _row(card)] for card in self.cards)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.cards:
            return f"<p>{escaped(self)}</p>"
        rows = [
            tuple(hinted(escaped(v), why) + (f" {origin(source)}" if source else "") for v, source, why in _row(card))
            for card in self.cards
        ]
        return table_alone("tessera-functions", table(tuple(map(escaped, _HEADS)), rows))


def _row(card: Card) -> list[tuple[str, str, str]]:
    """The text of each column, its source, and the reason where it is not known."""
    figures = {f["label"]: f for f in card["figures"]}
    sizes = next((f["value"] for label, f in figures.items() if label.endswith("sizes")), "")
    profile, edits = card["profile"], card["edits"]
    took = ("-", "", "not profiled yet")
    if profile is not None:
        took = (profile["time"] or "-", profile["source"], "of an earlier version" if profile["earlier"] else "")
    return [
        (f"{card['kind']} {card['name']}", "", ""),
        (sizes, "", ""),
        *(_known(figures[label]) for label in ("predicted time", "bound by", "memory")),
        took,
        (edits[0]["text"] if edits else "", "", ""),
    ]


def _known(figure: Figure) -> tuple[str, str, str]:
    return figure["value"] or "-", figure["source"], figure["reason"]
