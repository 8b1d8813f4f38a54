"""What both readers know of Python: pure functions, whatever a value is to them."""
