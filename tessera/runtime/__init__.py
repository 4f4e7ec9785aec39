"""Arrays in and out, prepared launches, eager tensors, the disk cache and devices."""
