"""The layer of functions: tensors become Graph IR."""
