"""The passes over Graph IR; their order is in `compiler/pipeline.py`."""
