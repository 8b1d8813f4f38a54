"""The journal: writes that are cut off, and those that are undone."""
