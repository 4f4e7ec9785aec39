"""The figures Tessera is measured by: `python -m benchmarks [NAME ...]`."""
