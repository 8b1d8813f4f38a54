"""Family 5: what is written, printed and drawn."""
