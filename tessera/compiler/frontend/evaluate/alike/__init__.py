"""What is evaluated once for arguments that are alike: calls of functions and layers, and objects that are made."""
