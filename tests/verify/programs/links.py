"""Writes in each way through links; each rank does, as a badly migrated program would."""

import contextlib
import os
import sqlite3

import torch

with open("emptied.txt", "w") as file:
    file.write("new")
with open("added.txt", "a") as file:
    file.write("+new")
with open("patched.txt", "r+") as file:
    file.write("N")
torch.save(torch.ones(1), "model.pt")
os.truncate("cut.txt", 1)
sqlite3.connect("known.db").close()
os.chmod("mode.txt", 0o600)
with open("data/cache/index.txt", "w") as file:
    file.write("new")
with contextlib.suppress(FileNotFoundError):  # the other rank was faster
    os.remove("data/gone.txt")
for name in ("only_read.txt", "inside_link.txt"):
    with open(name) as file:
        print(name, file.read())
with open("inside_link.txt", "a") as file:
    file.write("+new")
