"""Programs beside changed ones: hints that are tried, and versions that are compared line by line."""
