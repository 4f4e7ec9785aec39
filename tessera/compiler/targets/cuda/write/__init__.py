"""Writing C++ text."""
