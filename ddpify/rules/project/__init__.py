"""Family 0: the project and how it is launched."""
