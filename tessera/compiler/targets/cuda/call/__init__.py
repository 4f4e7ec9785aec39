"""Launches: devices, modules, prepared steps."""
