"""The passes over Graph IR; their order stands in `compiler/pipeline.py`."""
