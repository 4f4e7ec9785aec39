"""The abstract interpreter: the machine, and a file for each kind of node."""
