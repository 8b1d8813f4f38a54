"""``ddpify check``: which files, what is wrong there, what was silenced, what is remembered.

A second run on unchanged files reads bytes and one JSON file: neither rules nor parsers are loaded.
"""
