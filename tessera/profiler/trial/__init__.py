"""Hints that are tried: the change made to the program, its results compared, its time taken beside the original's."""
