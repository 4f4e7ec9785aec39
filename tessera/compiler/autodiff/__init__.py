"""Derivatives of Graph IR, as further ops. `reverse` and `forward` differentiate ops, `control` branches and loops."""
