"""DDP302: nn.DataParallel in one process per GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Thing
from ddpify.ranks.run import Run
from ddpify.ranks.words import DATA_PARALLEL
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, LEARNER, LEGACY, SINGLE, changed, marked
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per ``nn.DataParallel(...)`` call."""
    yield from _functional(facts)
    yield from _own(facts)
    seen: set[Site] = set()
    for model in facts.models:
        for call in model.data_parallel:
            if call.site in seen:
                continue
            seen.add(call.site)
            fix = _fix(facts, call.site)
            yield Finding(
                "DDP302",
                call.site,
                "nn.DataParallel would spread each process over all GPUs",
                Severity.ERROR,
                fix,
                "" if fix else "remove it: one process drives one GPU",
            )


def _own(facts: Facts) -> Iterable[Finding]:
    """A class that inherits ``nn.DataParallel``, and functions that insist on one."""
    for site, calls in once(facts.calls).items():
        if any(_inherits(t, site) for call in calls for t in call.result.things):
            message = "a DataParallel of the project's own would spread each process over all GPUs"
            advice = "call the module itself, without it, then run again"
        elif any(_insists(call) for call in calls):
            message = "this asserts that the model is an nn.DataParallel, as it is no more"
            advice = (
                "remove the call: one process holds one replica; for batch norm over the global"
                " batch use wrap_model(model, sync_batchnorm=True)"
            )
        else:
            continue
        yield Finding("DDP302", site, message, Severity.ERROR, (), advice)


def _inherits(thing: Thing, site: Site) -> bool:
    bases = thing.ref.external_bases() if isinstance(thing.ref, ClassInfo) else ()
    return thing.born == site and any(b.endswith(".DataParallel") for b in bases)


def _insists(call: Call) -> bool:
    if call.target is None or isinstance(call.target.node, ast.Lambda):
        return False
    tests = [ast.unparse(n.test) for n in call.target.node.body if isinstance(n, ast.Assert)]
    return any(t.startswith("isinstance(") and t.endswith("DataParallel)") for t in tests)


def _functional(facts: Facts) -> Iterable[Finding]:
    """``nn.parallel.data_parallel(module, input, ids)`` inside a model's own forward."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("data_parallel"):
                plain = len(node.args) > 1
                code = f"{tree.text(node.args[0])}({tree.text(node.args[1])})" if plain else ""
                site = tree.site(node)
                yield Finding(
                    "DDP302",
                    site,
                    "data_parallel would spread each process over several GPUs",
                    Severity.ERROR,
                    _without(facts, tree, node, code) if plain else (),
                    "" if plain else "call the module itself",
                )


def _without(facts: Facts, tree: Tree, node: ast.Call, code: str) -> tuple[Edit, ...]:
    """The plain call; where that makes both branches of an ``if`` one, it stays alone."""
    site = tree.site(node)
    statement = tree.statement(site)
    around = tree.parent(statement) if statement is not None else None
    if not isinstance(around, ast.If) or around.body != [statement] or len(around.orelse) != 1:
        return (edit(facts, How.REPLACE, site, code),)
    written, called = tree.text(around.body[0]), tree.text(node)
    other = around.orelse[0]
    calls = any(isinstance(part, ast.Call) for part in ast.walk(around.test))
    if calls or isinstance(tree.parent(around), ast.If) or not _alike(written, called, code, other):
        return (edit(facts, How.REPLACE, site, code),)
    whole = tree.site(around)
    plain = edit(facts, How.BEFORE, whole, tree.text(other))
    return (plain, edit(facts, How.DELETE, whole, ""))


def _alike(written: str, called: str, code: str, other: ast.stmt) -> bool:
    return ast.dump(ast.parse(written.replace(called, code))) == ast.dump(ast.Module([other], []))


def _fix(facts: Facts, site: Site) -> tuple[Edit, ...]:
    tree = facts.tree(site)
    node = tree.expression(site)
    if not isinstance(node, ast.Call) or not node.args:
        return ()
    inner = tree.text(node.args[0])
    statement = tree.statement(site)
    if statement is not None and ast.unparse(statement) == f"{inner} = {ast.unparse(node)}":
        return (edit(facts, How.DELETE, tree.site(_whole(tree, statement)), ""),)
    return (edit(facts, How.FIRST, site, ""),)


def _whole(tree: Tree, statement: ast.stmt) -> ast.stmt:
    """The ``if`` around it, when removing the statement would leave that empty."""
    parent = tree.parent(statement)
    if isinstance(parent, ast.If) and parent.body == [statement] and not parent.orelse:
        return parent
    return statement


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per nn.DataParallel that a migrated program makes under some condition.

    One that is sure to be there is a wrapper in a wrapper (DDP310), or in none (DDP312).
    """
    for call in run.named(DATA_PARALLEL) if run.helpers else ():
        if call.everywhere and any(not guard.test.known for guard in call.conditions):
            yield Finding(
                "DDP302",
                call.place,
                "nn.DataParallel spreads each process over all GPUs",
                Severity.WARNING,
                advice="remove it: each process has a GPU of its own",
            )


RULE = Rule(
    "DDP302",
    "data-parallel",
    "nn.DataParallel scatters one process's batch over all visible GPUs. With one process per GPU"
    " the processes would fight for the same devices; DistributedDataParallel replaces it.",
    "torch.nn.DataParallel (its own note recommends DistributedDataParallel); BUGS L19",
    check,
    bad=(
        marked(LEGACY, "DDP302", "nn.DataParallel(judge)"),
        changed(
            LEARNER,
            (
                "self.core.to(place)\n",
                "self.core = nn.DataParallel(self.core.to(place))  # DDP302\n",
            ),
        ),
        changed(
            SINGLE,
            (
                "    net.eval()\n",
                "    net = torch.nn.DataParallel(net, device_ids=[0, 1])  # DDP302\n"
                "    net.eval()\n",
            ),
        ),
        changed(  # one of the project's own
            LEGACY,
            ("judge = nn.DataParallel(judge)\n", "judge = Split(judge)  # DDP302\n"),
            ("samples = ", "class Split(nn.DataParallel):\n    pass\n\n\nsamples = "),
        ),
        changed(  # what was removed is asked for
            LEGACY,
            (
                "= nn.DataParallel(judge)\n",
                "= nn.DataParallel(judge)  # DDP302\npatch(judge)  # DDP302\n",
            ),
            (
                "samples = ",
                "def patch(split):\n    assert isinstance(split, nn.DataParallel)\n\n\nsamples = ",
            ),
        ),
    ),
    lint=lint,
    good=(*CORRECT, SINGLE, LEARNER),
)
