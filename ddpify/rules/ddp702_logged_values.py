"""DDP702: a logged number is one rank's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Status
from ddpify.facts.sinks import Part
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, fresh, is_local, statement_of
from ddpify.rules.examples import CORRECT, LEARNER, SINGLE, TRAINER, changed
from ddpify.settings import Settings
from ddpify.source import Site

Known = dict[tuple[int, str], str]


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per statement that shows numbers of this rank's samples."""
    if facts.status is Status.DISTRIBUTED:
        return
    known: Known = {}
    done: set[Site] = set()
    for call, parts in facts.sinks:
        if not parts or call.site in done or call.where.one_rank():
            continue
        done.add(call.site)
        reducible = [p for p in parts if p.how]
        why_not = _why_not(facts, call, parts)
        fix = () if why_not or not reducible else _fix(facts, call, reducible, known)
        yield Finding(
            "DDP702",
            call.site,
            "the numbers shown would be of one rank's samples only",
            Severity.WARNING,
            fix,
            why_not,
        )


def _why_not(facts: Facts, call: Call, parts: tuple[Part, ...]) -> str:
    for guard in call.where.guards:
        if is_local(facts, guard.test) or guard.test.dep(Kind.CLOCK):
            return "ranks may differ on whether this runs: rank 0 shows its own numbers"
    unknown = ", ".join(dict.fromkeys(p.text for p in parts if not p.how))
    if unknown and not any(p.how for p in parts):
        return f"rank 0 shows its own {unknown}: reduce it by hand if it matters"
    return ""


def _fix(facts: Facts, call: Call, parts: list[Part], known: Known) -> tuple[Edit, ...]:
    """Reduce each part once before the statement, on all ranks, and show the result."""
    statement = statement_of(facts, call.site)
    blocks = _blocks(facts, statement)
    names: dict[str, str] = {}
    wanted: dict[str, list[Part]] = {}
    for part in parts:
        before = [known[b, part.text] for b in blocks if (b, part.text) in known]
        if part.text in names or before:
            names[part.text] = before[0] if before else names[part.text]
            continue
        names[part.text] = fresh(facts, call.site, _name(part.text))
        wanted.setdefault(part.how, []).append(part)
        if not _changes_later(facts, statement, part.text):
            known[blocks[0], part.text] = names[part.text]
    edits = [
        edit(facts, How.BEFORE, statement, _line(how, group, names))
        for how, group in wanted.items()
    ]
    edits += [edit(facts, How.REPLACE, p.site, names[p.text]) for p in parts]
    return tuple(edits)


def _line(how: str, parts: list[Part], names: dict[str, str]) -> str:
    targets = ", ".join(names[p.text] for p in parts)
    return f"{targets} = {how}({', '.join(p.text for p in parts)})"


def _name(text: str) -> str:
    """``loss.item()`` → ``global_loss``, ``len(data)`` → ``global_data_len``."""
    match = re.fullmatch(r"len\((\w+)\)", text)
    if match:
        return f"global_{match.group(1)}_len"
    words = [w for w in re.findall(r"[A-Za-z_]\w*", text) if w not in ("self", "item", "data")]
    return "global_" + "_".join(words[:2]).lower() if words else "global_value"


def _blocks(facts: Facts, statement: Site) -> list[int]:
    """The block a statement is in, then the blocks around it, within its function."""
    tree = facts.tree(statement)
    node: ast.AST | None = tree.statement(statement)
    found = []
    while isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        found.append(id(tree.block(node)))
        node = tree.parent(node)
    return found or [0]


def _changes_later(facts: Facts, statement: Site, text: str) -> bool:
    """Whether a name in ``text`` is assigned, or a method of it called, later in its block."""
    tree = facts.tree(statement)
    node = tree.statement(statement)
    names = set(re.findall(r"[A-Za-z_]\w*", text))
    later = tree.following(node) if node is not None else []
    stored = {
        n.id
        for s in later
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    called = {
        n.func.value.id
        for s in later
        for n in ast.walk(s)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and isinstance(n.func.value, ast.Name)
    }
    owner = {text.partition(".")[0]} if "." in text and not text.endswith(".item()") else set()
    return bool(stored & names or called & owner)


RULE = Rule(
    "DDP702",
    "logged-value-of-one-rank",
    "A training loss or accuracy that is printed or written is of one rank's share of the batch."
    " It is reduced where it is logged, on all ranks, so that steps that do not log add no"
    " collective.",
    "modded-nanogpt#2; BUGS M01, M07",
    check,
    bad=(
        changed(
            LEARNER,
            (
                "            self.solver.step()\n",
                "            self.solver.step()\n            print(off.item())  # DDP702\n",
            ),
        ),
        changed(
            TRAINER,
            (
                "            count += len(run)\n",
                '            count += len(run)\n            self.board.add_scalar("now", off.item())  # DDP702\n',
            ),
        ),
        changed(
            SINGLE,
            (
                "            adam.step()\n",
                '            adam.step()\n            if round_ > 2:\n                print(f"{objective:.3f}")  # DDP702\n',
            ),
        ),
    ),
    good=(
        *CORRECT,
        LEARNER,
        changed(
            TRAINER,
            ("import reduce_sum,", "import reduce_mean, reduce_sum,"),
            (
                "            count += len(run)\n",
                "            count += len(run)\n            shown = reduce_mean(off.item())\n"
                '            self.board.add_scalar("now", shown)\n',
            ),
        ),
    ),
)
