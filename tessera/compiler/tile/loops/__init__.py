"""Which loops over elements a block of a tile kernel becomes on a CPU, and how lines are sorted: plans, not code."""
