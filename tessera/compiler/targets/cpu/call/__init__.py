"""Calls of compiled code: entry points, worker threads, clocks."""
