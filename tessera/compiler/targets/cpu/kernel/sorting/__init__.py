"""`tile.sort`: lines of elements in order."""
