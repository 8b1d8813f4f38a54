"""``ddpify init``: what a project is, and the files that say how ddpify is to treat it."""
