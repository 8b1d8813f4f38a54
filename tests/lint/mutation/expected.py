"""What is expected of the mutants: how many of each class are reported, which are still correct."""

from __future__ import annotations

# The least number of mutants reported, of each class: what was measured.
FLOORS = {
    "barrier": 4,
    "broadcast": 1,
    "full-state": 2,
    "gate": 19,
    "map-location": 2,
    "module": 9,
    "no-sync": 1,
    "reduction": 7,
    "sampler": 8,
    "set-device": 5,
    "set-epoch": 8,
    "unscale": 1,
}

# Mutants that train, print and save the same, and why.
EQUIVALENT = {
    "download barrier download.py:46": "only rank 0 writes into the folder that rank 0 has made",
    "download gate download.py:44": "exist_ok=True: all ranks may make the folder",
    "evaluation map-location evaluation.py:40": "a script for CPUs",
    "functions set-device functions.py:32": "every tensor and device_ids say which device",
    "module map-location module.py:29": "the file holds tensors that were made on the CPU",
    "resume barrier checkpoint.py:18": "nobody reads the checkpoint in this run",
    "resume barrier session.py:32": "the same barrier, in the helper",
    "resume set-device session.py:17": "every tensor says which device",
    "sharded map-location sharded.py:63": "rank 0 alone reads what it saved from the CPU",
    "trainer module trainer.py:49": "the model has no buffers: its forward does not communicate",
}

# Mutants that only print the training loss (or accuracy) of rank 0 in place of the mean: no rule
# reports that, since it is for information (BUGS M01).
INFORMATION = {
    "functions reduction functions.py:52",
    "mixed reduction mixed.py:48",
    "resume reduction session.py:27",
}
