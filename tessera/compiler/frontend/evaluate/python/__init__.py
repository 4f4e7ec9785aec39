"""What Python's own functions do in programs: its builtins, and functions of its modules."""
