"""How long a program should take on a processor, by its figures: launches, their loops, operations, places of data."""
