"""Bringing up a GPU rung by rung: smoke, device tests, compute-sanitizer, the table of times. See docs/cuda.md."""
