"""DDP702: a logged number is one rank's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Status
from ddpify.facts.sinks import COUNTED, LAST, Part
from ddpify.facts.tree import FUNCTIONS
from ddpify.facts.values import Kind
from ddpify.names import METRICS_NAMES
from ddpify.ranks.model import RankCall
from ddpify.ranks.model import RankValue as RankValue
from ddpify.ranks.origins import DATA
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, fresh, is_local, statement_of
from ddpify.rules.examples import CORRECT, LEARNER, SINGLE, TRAINER, changed
from ddpify.rules.examples.single import METER
from ddpify.rules.metrics.kept import BOARD, TRACKED, TRACKER, WEIGHED, kept
from ddpify.rules.metrics.metrics import Evaluation, learned, reduces, shown_by_one
from ddpify.rules.shared.last_batch import shown_of_parts
from ddpify.rules.shared.last_sample import shown_of_one
from ddpify.settings import Settings
from ddpify.source import Site

_Groups = dict[Site | None, tuple[Part, ...]]


@dataclass
class _Reductions:
    """What the statements so far reduce: by block and text, the new name and the edit for it."""

    made: dict[tuple[int, str], tuple[str, Edit]] = field(default_factory=dict)
    taken: dict[tuple[int, str], str] = field(default_factory=dict)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per statement that shows numbers of this rank's samples."""
    yield from kept(facts)
    known = _Reductions()
    done: set[Site] = set()
    for call, parts in facts.sinks:
        if not parts or call.site in done:
            continue
        done.add(call.site)
        if facts.status is Status.MIGRATED and _is_redrawn(facts, call):
            continue  # it was said when it was migrated
        if not _is_redrawn(facts, call):
            parts = tuple(shown_of_parts(facts, settings, call, part) for part in parts)
            parts = tuple(each for part in parts for each in shown_of_one(facts, call, part))
        if not parts:
            continue
        groups = _groups(facts, call, parts)
        why_not = _why_not(facts, call, parts, None not in groups)
        made = (_fix(facts, at, of, known) for at, of in groups.items() if at is not None)
        fix = () if why_not else tuple(dict.fromkeys(one for edits in made for one in edits))
        message = "what is shown would be of one rank's samples only"
        severity = Severity.WARNING if fix else Severity.NOTE
        yield Finding("DDP702", call.site, message, severity, fix, why_not)


def _groups(facts: Facts, call: Call, parts: tuple[Part, ...]) -> _Groups:
    """The parts by the statement before which all ranks come by."""
    found: _Groups = {}
    for part in parts:
        place = _before(facts, call, part.made or call.site)
        found[place] = (*found.get(place, ()), part)
    return found


def _before(facts: Facts, call: Call, site: Site) -> Site | None:
    """The statement at ``site``, or what is around it, outside of `if`s on the rank."""
    on_rank = {guard.site for guard in call.where.guards if guard.test.dep(Kind.RANK)}
    statement = statement_of(facts, site)
    tree = facts.tree(statement)
    node = tree.statement(statement)
    for above in tree.ancestors(node) if node is not None else ():
        if isinstance(above, FUNCTIONS):
            break
        if isinstance(above, ast.If) and tree.site(above.test) in on_rank:
            on_rank.discard(tree.site(above.test))
            statement = tree.site(above)
    return statement if not on_rank else None


def _unknown(parts: tuple[Part, ...]) -> str:
    """All that would be of rank 0 alone: of one line all numbers are of all ranks, or none is."""
    if all(part.how for part in parts):
        return ""
    return ", ".join(dict.fromkeys(part.text for part in parts if part.how != COUNTED))


def _why_not(facts: Facts, call: Call, parts: tuple[Part, ...], together: bool) -> str:
    for guard in call.where.guards:
        if is_local(facts, guard.test) or guard.test.dep(Kind.CLOCK):
            return "ranks may differ on whether this runs: rank 0 shows its own numbers"
    if _is_redrawn(facts, call) and any(part.how != COUNTED for part in parts):
        return "rank 0's bar shows its own numbers: others would cost a message in every step"
    if unknown := _unknown(parts):
        return f"rank 0 shows its own {unknown}: reduce or gather it by hand if it matters"
    return "" if together else "reduce them on all ranks before rank 0 goes its own way"


def _is_redrawn(facts: Facts, call: Call) -> bool:
    """Whether this is a progress bar, drawn anew in every step."""
    bar, loop = call.receiver and call.receiver.of(Kind.PROGRESS), call.where.loop
    epochs = {one.epoch.site for one in facts.training if one.epoch is not None}
    if not bar or loop is None or loop.site in epochs or call.name == ".write":
        return False
    return not any(guard.site.within(loop.site) for guard in call.where.guards)


def _fix(
    facts: Facts, place: Site, parts: tuple[Part, ...], known: _Reductions
) -> tuple[Edit, ...]:
    """Reduce each part once before the statement, on all ranks, and show the result."""
    blocks = _blocks(facts, place)
    names: dict[str, str] = {}
    wanted: dict[tuple[str, str, str], list[Part]] = {}
    edits: list[Edit] = []
    for part in parts:
        if part.how == COUNTED:
            continue
        before = [known.made[b, part.text] for b in blocks if (b, part.text) in known.made]
        if before:
            names[part.text], made = before[0]
            edits.append(made)
        elif part.text not in names:
            names[part.text] = _new_name(facts, place, part.text, known)
            apart = part.text if part.how == "global_copy" else ""
            wanted.setdefault((part.how, part.given, apart), []).append(part)
    for (how, *_), group in wanted.items():
        made = edit(facts, How.BEFORE, place, _line(how, group, names))
        edits.append(made)
        for part in group:
            if not _changes_later(facts, place, part.text):
                known.made[blocks[0], part.text] = names[part.text], made
    edits += [edit(facts, How.REPLACE, p.site, _shown(p, names)) for p in parts]
    return tuple(dict.fromkeys(edits))


def _shown(part: Part, names: dict[str, str]) -> str:
    """What stands where a part stood: a name, or as many times as many as there are ranks."""
    return f"{{}} * {COUNTED}" if part.how == COUNTED else names[part.text]


def _new_name(facts: Facts, place: Site, text: str, known: _Reductions) -> str:
    """A name of its own for each text in a function: two sums must not share one."""
    tree = facts.tree(place)
    node = tree.statement(place)
    scope = id(tree.function(node)) if node is not None else 0
    wanted, number = _name(text), 2
    name = fresh(facts, place, wanted)
    while known.taken.setdefault((scope, name), text) != text:
        name, number = fresh(facts, place, f"{wanted}{number}"), number + 1
    return name


def _line(how: str, parts: list[Part], names: dict[str, str]) -> str:
    targets = ", ".join(names[p.text] for p in parts)
    if how == LAST:
        given = [f"gather_objects({p.text})[-1]" for p in parts]
        return f"{targets} = {', '.join(given)}"
    return f"{targets} = {how}({', '.join(p.text for p in parts)}{parts[0].given})"


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
    inner = [n for statement in later for n in ast.walk(statement)]
    stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    methods = (n.func for n in inner if isinstance(n, ast.Call))
    owners = (method.value for method in methods if isinstance(method, ast.Attribute))
    called = {node.id for node in owners if isinstance(node, ast.Name)}
    owner = {text.partition(".")[0]} if "." in text and not text.endswith(".item()") else set()
    return bool(stored & names or called & owner)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per number of rank 0's training samples that a migrated program shows."""
    for one in learned(run) if run.helpers else ():
        some = _some_reduced(run, one)
        for call in shown_by_one(run):
            values = [v for given in call.given for v in _numbers(given) if one.gave(v)]
            if not values or not _by_everyone(call, values) or _is_of_copies(call):
                continue
            # What is shown after a loop that reduces some of it is for other rules (DDP707).
            if some and not one.inside(call):
                continue
            yield Finding(
                "DDP702",
                call.site,
                "the numbers shown are of rank 0's samples only",
                Severity.NOTE,
                advice="reduce them on all ranks before they are shown",
                because=((one.loops[0].site, "the samples of one rank"),),
            )


def _numbers(value: RankValue) -> Iterator[RankValue]:
    """What a call is given, and the elements of it; a picture is of some samples by right."""
    parts = (*(value.items or ()), *(part for _, part in value.keys or ()))
    for part in parts:
        yield from _numbers(part)
    if not parts and not any(thing.name.startswith("wandb.") for thing in value.things):
        yield value


def _is_of_copies(call: RankCall) -> bool:
    """Whether it shows copies of objects that have the numbers of all ranks, and of what loops
    bind nothing that no helper put together."""
    scope = call.function.node if call.function is not None else call.module.tree
    copies, others = set[str](), set[str]()
    for loop in (n for n in ast.walk(scope) if isinstance(n, (ast.For, ast.While))):
        for one in ast.walk(loop):
            if isinstance(one, (ast.Assign, ast.AugAssign)):
                made = one.value.func if isinstance(one.value, ast.Call) else one.value
                reduced = ast.unparse(made).rpartition(".")[2] or ast.unparse(made)
                (copies if reduced in METRICS_NAMES else others).update(_bound(one))
    shown = {n.id for n in ast.walk(call.node) if isinstance(n, ast.Name)}
    return bool(shown & copies) and not shown & (others - copies)


def _bound(statement: ast.Assign | ast.AugAssign) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = (n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
    yield from (name.id for name in names)


def _some_reduced(run: Run, of: Evaluation) -> bool:
    """Whether our helpers put together, after its loop, anything that comes from a loader."""
    helpers = (c for c in run.calls if c.target is not None and c.target.module.ours)
    after = (c for c in helpers if c.method in METRICS_NAMES and not of.inside(c))
    return any(of.loader in value.sources() for call in after for value in call.given)


def _by_everyone(call: RankCall, values: Sequence[RankValue]) -> bool:
    """Whether all ranks come by where the numbers are made, and nothing is reduced on the way."""
    if any(guard.test.has(DATA) for guard in call.guards):
        return False
    made = [thing.call for value in values for thing in value.sources() if thing.call is not None]
    return all(one.everywhere and not reduces(one) for one in made)


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
                "            count += len(run)\n"
                '            self.board.add_scalar("now", off.item())  # DDP702\n',
            ),
        ),
        changed(  # a meter whose text is made where it is shown
            SINGLE,
            ("def accuracy", f"{METER}def accuracy"),
            ("        net.train()\n", "        net.train()\n        meter = Meter()\n"),
            (
                "            adam.step()\n",
                "            adam.step()\n            meter.update(objective.item(), len(label))\n"
                "            if round_ > 2:\n"
                '                print("{m.val:.3f} ({m.avg:.3f})".format(m=meter))  # DDP702\n',
            ),
        ),
        changed(SINGLE, *TRACKER, *TRACKED),
        *(changed(SINGLE, *edits) for edits in WEIGHED),
        changed(SINGLE, *BOARD),
        changed(
            SINGLE,
            (
                "            adam.step()\n",
                "            adam.step()\n            if round_ > 2:\n"
                '                print(f"{objective:.3f}")  # DDP702\n',
            ),
        ),
    ),
    lint=lint,
    good=(
        *CORRECT,
        LEARNER,
        changed(
            TRAINER,
            ("import reduce_sum\n", "import reduce_mean, reduce_sum\n"),
            (
                "            count += len(run)\n",
                "            count += len(run)\n            shown = reduce_mean(off.item())\n"
                '            self.board.add_scalar("now", shown)\n',
            ),
        ),
    ),
)
