"""Ops that go along an axis and leave their results in scratch memory: prefixes, folds."""
