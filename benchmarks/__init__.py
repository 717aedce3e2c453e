"""Measurements that are part of the product; each is a command: ``python -m benchmarks``."""
