"""Functions as a file calls them: what its text tells of arguments, of the steps of `ts.train` and of what is inside
plain losses and modules. Constructors are evaluated from their texts; nothing is imported or run."""
