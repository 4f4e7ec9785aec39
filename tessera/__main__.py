"""`python -m tessera`."""

from __future__ import annotations

from tessera.cli import main

main()
