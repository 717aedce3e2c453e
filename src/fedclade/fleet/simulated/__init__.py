"""Simulated devices: local SGD on their data in this process or in workers, and the fleet made of it."""
