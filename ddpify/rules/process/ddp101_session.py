"""DDP101: the entry neither joins nor leaves the process group."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, statement_of
from ddpify.rules.examples import CORRECT, LEGACY, SCRIPT, SINGLE, TRAINER, changed, marked
from ddpify.settings import Settings
from ddpify.source import Site

OPENS = ("ddpify.runtime.setup_distributed", "ddpify.runtime.distributed_session")


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding when nothing opens the session."""
    if facts.named(*OPENS):
        return
    guard = facts.entry.guard if not _works_before(facts) else ()
    where = guard[0] if guard else first_statement(facts)
    yield Finding(
        "DDP101",
        where,
        "no process group: under torchrun every process would train alone",
        Severity.ERROR,
        _fix(facts, guard, where),
    )


def _works_before(facts: Facts) -> bool:
    """Whether data or models are made at module level, before the guard is reached, or a name that
    all ranks have to agree on."""
    inside = {site for site in facts.entry.guard}
    made = [loader.call.where.statement for loader in facts.loaders if not loader.call.where.stack]
    made += [m.home.statement for m in facts.models if m.home is not None]
    made += [statement_of(facts, site) for site in _named_by_clock(facts)]
    tree = facts.tree(facts.entry.site)
    for site in made:
        node = tree.statement(site) if site.path == facts.entry.path else None
        if node is None or not isinstance(tree.function(node), ast.Module):
            continue
        around = {tree.site(a) for a in (node, *tree.ancestors(node)) if isinstance(a, ast.stmt)}
        if not around & inside:
            return True
    return False


def _named_by_clock(facts: Facts) -> Iterable[Site]:
    """Where what is written is named by the clock (DDP506 asks rank 0's), and who calls that."""
    writes = [e.call for e in facts.effects if e.kind is not EffectKind.CONSOLE]
    writes += [call for call in facts.calls if call.result.of(Kind.TRACKER)]
    given = [v for call in writes for v in (*call.args, *call.kwargs.values(), call.receiver) if v]
    clocks = {t.born for value in given for t in flat_deps(value) if t.kind is Kind.CLOCK}
    for call in facts.calls:
        if call.site in clocks:
            yield from (call.site, *call.where.stack)


def _fix(facts: Facts, guard: tuple[Site, ...], first: Site) -> tuple[Edit, ...]:
    if guard and _short(facts, guard):
        return tuple(edit(facts, How.INDENT, s, "with distributed_session():") for s in guard)
    last = guard[-1] if guard else facts.entry.last
    return (
        edit(facts, How.BEFORE, first, "setup_distributed()"),
        edit(facts, How.AFTER, last, "cleanup_distributed()"),
    )


def _short(facts: Facts, guard: tuple[Site, ...]) -> bool:
    """A guard of a few simple lines is indented; a whole program under it is not."""
    tree = facts.tree(guard[0])
    nodes = [tree.statement(site) for site in guard]
    simple = (ast.Expr, ast.Assign, ast.AnnAssign)
    short = len(guard) <= 4 and all(isinstance(n, simple) for n in nodes)
    return short and not any(_inside(site, guard) for site in _extended(facts))


def _extended(facts: Facts) -> list[Site]:
    """Where other rules may put statements of their own: they would stand outside the session."""
    homes = [model.home.statement for model in facts.models if model.home is not None]
    shown = [call.site for call, parts in facts.sinks if parts]
    downloads = [call.site for call in facts.calls if "download" in call.kwargs]
    return [*homes, *shown, *downloads, *(loader.call.site for loader in facts.loaders)]


def _inside(site: Site, guard: tuple[Site, ...]) -> bool:
    line = site.span.line
    return any(s.path == site.path and s.span.line <= line <= s.span.end_line for s in guard)


def first_statement(facts: Facts) -> Site:
    """Where a script without a guard starts to do something."""
    tree = facts.tree(facts.entry.site)
    for node in tree.module.body:
        if not _declares(node):
            return tree.site(node)
    return facts.entry.site


def _declares(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
        return True
    if isinstance(node, ast.Try):
        return all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in node.body)
    text = ast.unparse(node)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or text.startswith(("sys.path.", "__"))


def lint(run: Run) -> Iterable[Finding]:
    """Yield the first wrap of a migrated program that opens no session."""
    if run.unopened is not None:
        yield Finding(
            "DDP101",
            run.unopened.place,
            "no process group is open here: under torchrun this fails",
            Severity.ERROR,
            advice="run the script's work under `with distributed_session():`",
        )


RULE = Rule(
    "DDP101",
    "missing-session",
    "Under torchrun each process must join the group (init_process_group) and take its GPU"
    " (torch.cuda.set_device) before anything touches CUDA, and leave the group at the end."
    " Without the first, every rank trains a model of its own.",
    "torch.distributed.init_process_group; BUGS L01, L08, C19",
    check,
    bad=(
        changed(
            SCRIPT,
            ("setup_distributed()\ndevice = ", "device = "),
            ('else "cpu"\n', 'else "cpu"  # DDP101\n'),
            ("cleanup_distributed()\n", ""),
        ),
        changed(
            TRAINER,
            ("    with distributed_session():\n        main()\n", "    main()  # DDP101\n"),
        ),
        marked(SINGLE, "DDP101", '__main__":\n    main()'),
        changed(  # the name of the run is rank 0's, and asked for before main()
            SINGLE,
            ("import argparse\n", "import argparse\nimport os\nimport time\n"),
            (
                "\n\ndef accuracy",
                '\n\nRUN = time.strftime("%H%M%S")  # DDP101\nos.makedirs(RUN)\n\n\ndef accuracy',
            ),
        ),
        marked(LEGACY, "DDP101", "torch.randint(0, 3, (2048,)))"),
    ),
    good=CORRECT,
    lint=lint,
)
