"""The kernel layer of the evaluator: tile programs. Start with `layer.py`; `builtins.py` is what `ts.tile.*` means."""
