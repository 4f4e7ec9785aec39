"""Equal layers of a function: a few are lowered, and what is made of them stands for all."""
