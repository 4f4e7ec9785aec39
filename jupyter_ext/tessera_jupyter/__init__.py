"""Tessera in notebooks: magics and the panel under a cell."""

from __future__ import annotations
