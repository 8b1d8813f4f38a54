"""Family 8: collectives and control flow."""
