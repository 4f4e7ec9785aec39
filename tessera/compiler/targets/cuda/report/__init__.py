"""The resources of a kernel: registers, shared memory, notes for people."""
