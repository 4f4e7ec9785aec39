"""Text into trees: the dialect, and texts that do not parse."""
