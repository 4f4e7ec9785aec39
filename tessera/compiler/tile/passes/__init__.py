"""Passes on Tile IR. `tessera.compiler.pipeline` says in which order they run, and why."""
