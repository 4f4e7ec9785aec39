"""Kinds of changes that are offered, as editors sort them."""

from __future__ import annotations

IGNORE = "quickfix.ignore"
ANNOTATE, ASSERT = "refactor.rewrite.annotate", "refactor.rewrite.assert"
DISTRIBUTE, FUSE, PRECISION = "refactor.rewrite.distribute", "refactor.rewrite.fuse", "refactor.rewrite.precision"
REMAT, TRIED = "refactor.rewrite.remat", "refactor.rewrite.tried"
EXTRACT, EXTRACT_KERNEL = "refactor.extract.function", "refactor.extract.kernel"
