"""Family 6: checkpoints."""
