"""The language that users write: dtypes, policies, dims, annotations and decorators. It does not depend on the
compiler."""

from __future__ import annotations
