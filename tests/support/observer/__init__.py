"""The parts of observe.py, imported by it inside the process that trains."""
