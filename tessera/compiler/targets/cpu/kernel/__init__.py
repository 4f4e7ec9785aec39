"""A kernel as a function: products, scans, control flow, tile records."""
