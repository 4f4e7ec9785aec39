"""Products on tensor cores and the copies that feed them."""
