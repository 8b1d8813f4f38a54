"""Family 1: processes and devices."""
