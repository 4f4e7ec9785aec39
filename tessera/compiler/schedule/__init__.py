"""Schedule IR: which operators run together, over which axes, in which blocks; and the model that decides."""
