"""What slides over an axis: windows as views, convolution, pooling."""
