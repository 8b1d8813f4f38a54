"""`ddpify check` as a tool: files, choices, comments, fixes, formats, cache."""
