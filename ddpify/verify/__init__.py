"""Proof by running: the original in one process against the distributed program on N ranks."""
