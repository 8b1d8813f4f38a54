"""Family 7: metrics and what is decided by them."""
