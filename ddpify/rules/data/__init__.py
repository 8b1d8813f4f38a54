"""Family 2: samples, samplers and loaders."""
