"""What a migration means for batch, steps and memory: derived from the source, or measured."""
