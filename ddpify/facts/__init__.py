"""Reading: what a training project does, found without running it."""
