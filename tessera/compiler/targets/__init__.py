"""Targets: each turns a Program into an artefact and, where it can, runs it on this machine."""
