"""The kernel layer of the evaluator: tile programs. Start with `layer.py`; `builtins/` defines `ts.tile.*`."""
