"""Tessera: tile kernels and tensor functions, checked before you run and explained after."""

from __future__ import annotations

__version__ = "0.1.0"
