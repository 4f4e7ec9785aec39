"""From one level to the next: the only files that see two dialects."""
