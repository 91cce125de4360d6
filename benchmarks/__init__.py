"""Benchmarks, run by `make bench` or `python -m benchmarks`, never by pytest (docs/performance.md)."""
