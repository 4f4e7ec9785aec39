"""What users write: dtypes, policies, dims, annotations and decorators. Knows nothing of compiling."""

from __future__ import annotations
