"""The backward of a kernel, derived from its text and written as text: `kernel.backward()`."""
