"""The parts of observe.py, imported by it inside the process that trains.

They know torch and the standard library only, so that they work in any interpreter the user has;
read_events.py asks for tensorboard, where there is one.
"""
