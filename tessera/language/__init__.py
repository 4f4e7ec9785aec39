"""What users write: dtypes, numerics policies, the dimension algebra, annotations and decorators. Knows nothing of compiling."""
