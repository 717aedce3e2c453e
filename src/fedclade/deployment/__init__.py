"""The same decisions on real devices."""
