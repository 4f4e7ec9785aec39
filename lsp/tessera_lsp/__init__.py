"""Tessera's language server: thin adapters over the compiler's front end."""

from __future__ import annotations
