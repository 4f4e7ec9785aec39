"""Tensors and operators without a function around them."""
