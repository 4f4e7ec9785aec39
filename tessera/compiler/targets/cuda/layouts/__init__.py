"""Where the elements of a tile live: layouts, swizzles, shared memory, barriers."""
