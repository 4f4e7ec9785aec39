"""Training: `ts.train`, and `ts.progress`, `ts.log`, `ts.accumulate_gradients` for your own loops."""
