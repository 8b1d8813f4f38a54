"""A module of the user's that has the name of one beside observe.py."""
