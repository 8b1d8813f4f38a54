"""Configuration files of a project: read as trees with their places, never as Python objects."""
