"""DDP103: a GPU is named by its number, the same on every rank."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Thing
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, PROJECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.shared.options import is_fixed, is_option
from ddpify.rules.shared.outputs import by_all
from ddpify.rules.shared.placing import (
    by_number,
    choices,
    chosen,
    elsewhere,
    may_be_nccl,
    moves,
    names_one,
    sees_own,
    used,
)
from ddpify.settings import Settings
from ddpify.source import Site

MOVES = (".to", ".cuda", "torch.cuda.set_device")
FOLLOWING = "local_device() if is_distributed()"
MESSAGE = "every rank would use this one GPU"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per device index that does not follow the local rank."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            if isinstance(node, ast.Constant) and node.value == "cuda:0":
                yield _finding(
                    tree.site(node), (edit(facts, How.REPLACE, tree.site(node), '"cuda"'),)
                )
    moving = tuple(c for c in facts.calls if c.name in MOVES and c.args)
    numbers = {t for c in moving if c.name != ".to" for t in c.args[0].of(Kind.ARGUMENT)}
    for site, calls in once(moving).items():
        argument = calls[0].arg_sites[0] if calls[0].arg_sites else None
        if argument is None or _follows(facts, argument):
            continue
        if _is_index(calls[0], numbers):
            yield _finding(site, (_follow(facts, argument),))
    for site, calls in once(facts.named("torch.device")).items():
        if _numbered(facts, calls[0]):
            yield _finding(site, (_follow(facts, site),))


def _finding(site: Site, fix: tuple[Edit, ...]) -> Finding:
    return Finding("DDP103", site, MESSAGE, Severity.ERROR, fix)


def _follow(facts: Facts, site: Site) -> Edit:
    """One process keeps the user's choice; a rank has a GPU of its own."""
    return edit(facts, How.REPLACE, site, f"{FOLLOWING} else {{}}")


def _follows(facts: Facts, site: Site) -> bool:
    """Whether it was written so before: only one process comes to the other choice."""
    node = facts.tree(site).expression(site)
    return node is not None and ast.unparse(node).startswith(FOLLOWING)


def _is_index(call: Call, numbers: Collection[Thing]) -> bool:
    """Whether it is a GPU's number; what ``.to`` is given, if it is one elsewhere."""
    value = call.args[0]
    if value.dep(Kind.RANK) or value.of(Kind.DEVICE):
        return False
    if value.known:
        return isinstance(value.const, int) and not isinstance(value.const, bool)
    options = value.of(Kind.ARGUMENT)
    if call.name == ".to":
        return bool(options) and all(one in numbers for one in options)
    return bool(options or value.dep(Kind.ARGUMENT))  # `gpus = range(args.gpus)`, `gpus[0]`


def _numbered(facts: Facts, call: Call) -> bool:
    """``torch.device("cuda:1")``, ``torch.device(f"cuda:{n}")``, ``torch.device("cuda", n)``."""
    if not call.arg_sites or any(v.dep(Kind.RANK) for v in call.args):
        return False
    if any("is_distributed()" in facts.text(guard.site) for guard in call.where.guards):
        return False
    text = facts.text(call.arg_sites[0])
    return ("cuda:" in text and "cuda:0" not in text) or len(call.args) > 1


def lint(run: Run) -> Iterable[Finding]:
    """Yield the first device that is the same on all ranks."""
    if run.session is None or run.frameworks or not may_be_nccl(run) or sees_own(run):
        return
    alone = not chosen(run) and not by_number(run)
    for choice in choices(run):
        if not by_all(run, choice.call) or elsewhere(run, choice.call) or not used(run, choice):
            continue
        fixed = is_fixed(run, choice.index)
        if run.helpers:  # torchrun gives all ranks the same options
            fixed = fixed or is_option(run, choice.index) or names_one(choice)
        if fixed or (choice.index is None and alone and moves(choice)):
            yield Finding(
                "DDP103",
                choice.call.site,
                "every rank uses this one GPU: out of memory, or NCCL's `Duplicate GPU detected`",
                Severity.ERROR,
                advice="call torch.cuda.set_device(local_rank) first, and say plain `cuda`",
            )
            return


RULE = Rule(
    "DDP103",
    "fixed-device-index",
    "With one process per GPU a literal index puts every rank on the same device: out of memory,"
    " or NCCL's 'Duplicate GPU detected'. After torch.cuda.set_device(local_rank) plain \"cuda\" is"
    " the rank's own.",
    "BUGS L01, L02; PATTERNS A3",
    check,
    bad=(
        changed(
            SCRIPT,
            ('"cuda" if torch.cuda.is_available() else "cpu"\n', '"cuda:0"  # DDP103\n'),
        ),
        changed(
            TRAINER,
            ("        self.pupil.to(local_device())\n", "        self.pupil.cuda(1)  # DDP103\n"),
        ),
        changed(
            PROJECT,
            (
                '"--batch", type=int, default=32)\n',
                '"--batch", type=int)\n    parser.add_argument("--gpu")\n',
            ),
            (
                'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
                'torch.device(f"cuda:{config.gpu}")  # DDP103',
            ),
        ),
        changed(  # one of so many numbers
            SINGLE,
            ('"--bs"', '"--gpus", type=int, default=1)\n    parser.add_argument("--bs"'),
            (
                "    net = nn.Sequential",
                "    gpus = range(opt.gpus)\n    net = nn.Sequential",
            ),
            ("nn.Linear(32, 4)).cuda()\n", "nn.Linear(32, 4)).cuda(gpus[0])  # DDP103\n"),
        ),
        changed(  # a number for `.cuda` is one for `.to`
            SINGLE,
            ('"--bs"', '"--gpu", type=int)\n    parser.add_argument("--bs"'),
            ("nn.Linear(32, 4)).cuda()\n", "nn.Linear(32, 4)).cuda(opt.gpu)  # DDP103\n"),
            (
                "        net.train()\n",
                "        best = torch.zeros(1).to(opt.gpu)  # DDP103\n        net.train()\n",
            ),
        ),
    ),
    good=CORRECT,
    lint=lint,
    words=(".cuda(", "set_device", "torch.device("),
)
