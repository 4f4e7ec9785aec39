"""What a recording tells beyond the times of its kernels: bytes by array, the critical path."""
