"""Launches that hand large arrays to each other run in bands: a few rows of each at a time (docs/decisions/0137)."""
