"""From source text to IR: scopes, the evaluator, and the analysis that editors and the compiler use."""
