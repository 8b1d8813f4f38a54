"""Programs that are distributed already, taken to ``fully_shard``."""
