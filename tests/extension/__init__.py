"""A pass, a scheduler, a target and functions of kernels from outside the package.

Each file is the program of a page of the documentation, word for word.
"""
