"""Measurements that are part of the product; each is a command and writes JSON under benchmarks/results/."""
