"""Family 3: the model and its wrapper."""
