"""Equalities that the compiler could neither prove nor refute; they are decided when sizes are known, at launch."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.language.dims import Dim


@dataclass(frozen=True, slots=True)
class Check:
    """`left == right`, said because of `why`."""

    left: Dim
    right: Dim
    why: str
