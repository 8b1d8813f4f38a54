"""An outcome as a migration of two small files would give it."""

from __future__ import annotations

from pathlib import Path

from ddpify.names import HEADER_PREFIX
from ddpify.outcome import Note, Outcome
from ddpify.plan import Change, Clash, PlannedEdit
from ddpify.rules.base import Edit, Finding, How, Import, Severity
from ddpify.source import Site, Span

BODY = "".join(f"step_{number} = {number}\n" for number in range(12))
BEFORE = f"""import torch
from data import make_loader

{BODY}
for epoch in range(3):
    for batch in loader:
        train(batch)
    print(epoch)
{BODY}
torch.save(model.state_dict(), "last.pt")
"""
AFTER = BEFORE.replace(
    "from data import make_loader\n",
    "from data import make_loader\nfrom ddp_utils import is_main_process, set_epoch\n",
)
AFTER = AFTER.replace("    for batch", "    set_epoch(loader, epoch)\n    for batch")
AFTER = AFTER.replace("    print(epoch)", "    if is_main_process():\n        print(epoch)")
AFTER = AFTER.replace(
    "torch.save(model", "if is_main_process():\n    torch.save(model"
)  # one indent, as a gate gives it
HELPERS = "".join(
    [f"{HEADER_PREFIX}0.1 abc\n", *(f"def helper_{number}(): ...\n" for number in range(59))]
)


def line_of(text: str, part: str = BEFORE) -> int:
    """The line of ``part`` that holds ``text``."""
    return 1 + next(n for n, line in enumerate(part.splitlines()) if text in line)


def at(line: int, end: int | None = None, path: str = "main.py") -> Site:
    """A place that covers whole lines."""
    return Site(path, Span(line, 0, end or line, 60))


def planned(
    how: How, site: Site, rule: str, reason: str, code: str = "", needs: str = ""
) -> PlannedEdit:
    """An edit with its rule; ``needs`` is the name it imports."""
    imports = (Import("ddp_utils", needs),) if needs else ()
    return PlannedEdit(Edit(how, site, code, imports=imports), rule, reason)


LOOP = at(line_of("for batch"), line_of("for batch") + 1)
EDITS = (
    planned(How.BEFORE, LOOP, "D201", "an epoch needs its own order", "set_epoch", "set_epoch"),
    planned(How.GATE, at(line_of("print")), "D501", "every rank prints", "g", "is_main_process"),
    planned(How.GATE, at(line_of("save")), "D601", "every rank saves", "g", "is_main_process"),
)
MAIN = Change("main.py", BEFORE.encode(), AFTER.encode(), EDITS)
NEW = Change(
    "ddp_utils.py",
    None,
    HELPERS.encode(),
    (planned(How.NEW_FILE, at(1, path="ddp_utils.py"), "D002", "the helpers", HELPERS),),
)
HAND = Finding(
    "D402",
    at(20),
    "the loss is a sum over the batch",
    Severity.ERROR,
    advice="Divide it by the world size.",
    because=((at(3), "made here"),),
)
FIXED = Finding("D501", at(5), "every rank prints", Severity.WARNING, fix=(EDITS[1].edit,))


def outcome(root: Path, **overrides: object) -> Outcome:
    """The sample, with some fields replaced."""
    values: dict[str, object] = {
        "root": root,
        "entries": ("main.py",),
        "findings": (HAND, FIXED),
        "changes": (NEW, MAIN),
        "clashes": (Clash(at(7), ("D201", "D501"), "both want this line"),),
        "notes": (Note(at(9), "the model comes from a registry"),),
        "files": ("main.py", "data.py"),
    }
    return Outcome(**{**values, **overrides})  # type: ignore[arg-type]
