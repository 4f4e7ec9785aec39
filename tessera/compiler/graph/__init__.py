"""Graph IR: the operator algebra, one family of operators a file, and the passes over it."""

from __future__ import annotations

from tessera.compiler.graph import operators as operators
