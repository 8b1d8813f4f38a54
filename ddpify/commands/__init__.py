"""The commands that need more than a few lines, one module each."""
