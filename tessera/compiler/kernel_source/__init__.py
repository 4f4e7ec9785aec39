"""Graph IR written as the source text of a kernel."""
