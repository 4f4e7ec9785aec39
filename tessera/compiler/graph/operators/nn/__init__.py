"""Operators of neural networks, each spelled in simpler ones: read a file of these to see how an operator is added.

All compute in f32 where their operands are narrower, and round once, to the operand's dtype, at the end.
"""
