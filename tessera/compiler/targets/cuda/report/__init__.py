"""What a kernel needs: registers, shared memory, notes for people."""
