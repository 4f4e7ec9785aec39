"""Control flow of kernels: masked statements and uniform branches, loops, and how they are left."""
