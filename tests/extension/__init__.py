"""A pass, a scheduler and a target from outside the package.

Each file is the program of a page of the documentation, word for word.
"""
