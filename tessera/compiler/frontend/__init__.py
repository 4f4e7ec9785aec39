"""From source text to IR: scopes, the evaluator, and what editors and the compiler read from it."""
