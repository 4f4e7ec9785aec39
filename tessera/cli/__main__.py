"""`python -m tessera.cli`."""

from __future__ import annotations

from tessera.cli import main

main()
