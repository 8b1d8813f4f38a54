"""What a Python program is: known alike to all readers, whatever a value is for them."""
