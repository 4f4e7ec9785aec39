"""Attention: the operator, the steps that kernels compute, and the same as formulas."""
