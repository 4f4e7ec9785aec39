"""Graph IR: the operator algebra and its passes."""
