"""One file per rule: what differs from a program that is correct under torchrun."""
