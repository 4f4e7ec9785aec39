"""The notebook's session: its functions and kernels, the facts known about each, and the messages to pages."""
