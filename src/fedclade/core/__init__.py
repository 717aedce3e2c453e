"""The values that cross every room, and the few helpers that all of them need."""
