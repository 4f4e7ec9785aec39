"""Derivatives of Graph IR: ops in, further ops out. `reverse` and `forward` go over ops, `control` through loops."""
