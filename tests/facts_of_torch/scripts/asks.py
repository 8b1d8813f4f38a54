"""Asks a question."""

print("you said", input("which? "), flush=True)
