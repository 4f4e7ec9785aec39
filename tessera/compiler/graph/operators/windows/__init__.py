"""Operators that slide over an axis: windows as views, convolution, pooling."""
