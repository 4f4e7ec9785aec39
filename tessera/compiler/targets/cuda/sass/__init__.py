"""Machine code as data: its listing, the flow of values through it, and what became of spilled registers."""
