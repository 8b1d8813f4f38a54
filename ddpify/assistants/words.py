"""What an assistant is told: when to use which tool, in which order, and what an answer means."""

from __future__ import annotations

from typing import Any, Final

ABOUT: Final = """\
ddpify takes a PyTorch training project from one GPU (or nn.DataParallel) to \
DistributedDataParallel or FSDP under torchrun, and proves that the training is the same.

Order: plan (what it means) -> diff (what would change) -> migrate (write it) -> do what \
`by_hand` says -> check (no findings left) -> verify (one process against several, compared step \
by step). Do not write distributed code yourself where migrate does it. Done is what verify \
passes: `passed` is true.

If diff or migrate refuses, nothing is written. `by_hand` then says for each place: file, line, \
what is not certain, what to write, and the commands that prove it. Either change the program so \
that it can be followed and call migrate again; or, if the line is right, give `accept`; or write \
the distributed program by hand. In each case call verify with `baseline` set to the original \
(HEAD, if it is committed there, or a folder with a copy of it).

An answer with is_error says in one line why nothing was done."""

_READS: Final = {"read_only_hint": True, "open_world_hint": False}
# Name: what it is for, and hints for the client. A program that is run may do anything.
TOOLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "plan": (
        "First: say what migrating a script to several GPUs means. Which files change, the batch "
        "size on each rank, steps, learning rate, memory per GPU, what is left to do by hand. "
        "Nothing is written, nothing is run.",
        _READS,
    ),
    "diff": (
        "After plan: the changes that migrate would make, with rule and reason for each hunk, and "
        "`by_hand`: what is left to you. Nothing is written. The text of ddpify's own helper files "
        "(ddp_utils.py, ddp_metrics.py) is left out.",
        _READS,
    ),
    "migrate": (
        "After diff: write the changes into the project (files with uncommitted changes are "
        "refused unless force), or with output into another folder. All files or none. Then do "
        "what `by_hand` says (its lines are those of the written files), call check, and verify.",
        {"read_only_hint": False, "destructive_hint": True, "idempotent_hint": True}
        | {"open_world_hint": False},
    ),
    "check": (
        "After migrate, and after each change by hand: find distributed-training bugs (hangs, "
        "wrong numbers, damaged files) in programs that are distributed already, whoever wrote "
        "them. Reads only. `advice` says what to write; rule explains a code.",
        _READS,
    ),
    "verify": (
        "Last: the proof. Runs the original in one process and the distributed program on several, "
        "in scratch copies, and compares samples, gradients, parameters, numbers and files step by "
        "step. Works for programs that ddpify did not write: name the original as baseline (git "
        "revision or folder). `passed` is the answer; `causes` name the likely rule if not. Where "
        "a check is undecided, repeat with the neutralise that it names. Give arguments that make "
        "a short run, or steps: it trains, and takes minutes.",
        {"read_only_hint": False, "destructive_hint": False, "open_world_hint": True},
    ),
    "rule": (
        "Explain a rule's code (DDP401): what happens if it is broken, with wrong and right "
        "programs.",
        _READS,
    ),
}
