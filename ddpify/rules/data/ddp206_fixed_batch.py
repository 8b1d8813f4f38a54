"""DDP206: a tensor of the training step has the whole batch size as its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Role
from ddpify.facts.values import Kind, Thing
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import FunctionDefinition as RankFunction
from ddpify.ranks.run import Run
from ddpify.ranks.values import same
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, changed
from ddpify.settings import Settings
from ddpify.source import Site

SHAPED = frozenset(
    """.view .reshape .expand .repeat torch.randn torch.rand torch.zeros torch.ones torch.full
    torch.empty torch.eye torch.arange torch.randint numpy.random.normal""".split()
)
_SUFFIXES = frozenset(f".{name.rpartition('.')[2]}" for name in SHAPED)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per use of the batch size as a shape inside a training loop."""
    if settings.batch_size == "per-rank":
        return
    sizes = tuple(_sizes(facts))
    loops = {loop.batch.site for loop in facts.training}
    shaped = (c for c in facts.calls if c.name in SHAPED)
    inside = tuple(c for c in shaped if any(x.site in loops for x in c.where.loops()))
    for calls in once(inside).values():
        for site in _uses(facts, calls[0], sizes):
            yield Finding(
                "DDP206",
                site,
                "each rank's batch is smaller than this shape",
                Severity.ERROR,
                (edit(facts, How.REPLACE, site, "per_rank_batch_size({})"),),
            )


def _sizes(facts: Facts) -> Iterator[tuple[str, frozenset[Thing]]]:
    """How each training loader's batch size is written, and what it is."""
    for loader in facts.loaders:
        site = loader.call.arg_site(1, "batch_size")
        value = loader.call.arg(1, "batch_size")
        if Role.TRAINING in loader.roles and site is not None and value is not None:
            node = facts.tree(site).expression(site)
            if isinstance(node, ast.Call) and node.args:  # per_rank_batch_size(x)
                node = node.args[0]
            if isinstance(node, (ast.Name, ast.Attribute)):
                yield ast.unparse(node), frozenset(value.dep(Kind.ARGUMENT))


def _uses(facts: Facts, call: Call, sizes: tuple[tuple[str, frozenset[Thing]], ...]) -> list[Site]:
    tree = facts.tree(call.site)
    node = tree.expression(call.site)
    if not isinstance(node, ast.Call):
        return []
    found = []
    for argument in (*node.args, *[k.value for k in node.keywords]):
        for part in ast.walk(argument):
            if isinstance(part, (ast.Name, ast.Attribute)) and _is_size(
                facts, tree.site(part), sizes
            ):
                above = tree.parent(part)
                done = isinstance(above, ast.Call) and "per_rank" in ast.unparse(above.func)
                found += [] if done else [tree.site(part)]
    return found


def _is_size(facts: Facts, site: Site, sizes: tuple[tuple[str, frozenset[Thing]], ...]) -> bool:
    value = facts.values.get(site)
    if value is None or value.dep(Kind.BATCH):
        return False
    return any(
        facts.text(site) == text and set(value.dep(Kind.ARGUMENT)) == things
        for text, things in sizes
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per shape in a training loop that is the batch size before it was divided."""
    sizes = [c for c in run.calls if c.target is not None and _divides(c.target)]
    done: set[Site] = set()
    for call in run.calls if sizes else ():
        inside = any(one.loop in call.loops for one in run.passes)
        if not inside or call.site in done or f".{call.method}" not in _SUFFIXES:
            continue
        if any(_is_whole(call, number, size) for number in range(len(call.args)) for size in sizes):
            done.add(call.site)
            yield Finding(
                "DDP206",
                call.site,
                "each rank's batch is smaller than this shape",
                Severity.WARNING,
                advice="take the size from the batch itself, or per_rank_batch_size(…)",
            )


def _divides(function: RankFunction) -> bool:
    return function.module.ours and function.name == "per_rank_batch_size"


def _is_whole(call: RankCall, number: int, size: RankCall) -> bool:
    """Whether an argument is what was divided: the same option, or a number of the same name."""
    node, whole = call.node_of(number, ""), size.node_of(0, "batch_size")
    if not size.args or not isinstance(node, ast.Name | ast.Attribute) or whole is None:
        return False
    value = call.args[number]
    equal = all(same(a, b) for a, b in zip(value.atoms, size.args[0].atoms, strict=True))
    return equal and (not value.known or ast.unparse(node) == ast.unparse(whole))


RULE = Rule(
    "DDP206",
    "fixed-batch-shape",
    "Noise, labels and reshapes written with the batch size fit the global batch only: a rank's"
    " share is a N-th of it. Where they do not crash they silently mix samples.",
    "PATTERNS B3.34",
    check,
    bad=(
        changed(
            SINGLE,
            (
                "            adam.zero_grad()\n",
                "            signal = signal.view(opt.bs, 16)  # DDP206\n"
                "            adam.zero_grad()\n",
            ),
        ),
        changed(
            SCRIPT,
            ("per_rank_batch_size(256)", "per_rank_batch_size(many)"),
            ("setup_distributed()\ndev", "setup_distributed()\nmany = 256\ndev"),
            (
                "        solver.zero_grad()\n",
                "        x = x + torch.randn(many, 20)  # DDP206\n        solver.zero_grad()\n",
            ),
        ),
    ),
    lint=lint,
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            (
                "        solver.zero_grad()\n",
                "        x = x + torch.randn(len(x), 20)\n        solver.zero_grad()\n",
            ),
        ),
    ),
)
