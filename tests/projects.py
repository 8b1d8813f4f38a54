"""Put small projects on disk, read them, and judge them as `migrate` does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ddpify import vendor
from ddpify.facts.link import analyze
from ddpify.facts.model import Facts
from ddpify.names import HEADER_PREFIX
from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.plan import Change
from ddpify.project import Project
from ddpify.rules.base import Example, Finding, Rule
from ddpify.rules.registry import all_rules
from ddpify.settings import Settings

FIXTURES = Path(__file__).parents[1] / "fixtures"
VISION = ("segmentation", "detection", "classification")
# The comment that says what has to be found on its line: `loss.item()  # DDP702`.
_MARK = re.compile(
    r"[ \t]*(?:#|<!--)[ \t]*DDP\d{3}(?: \| DDP\d{3})*(?: \(\w+\))?(?: -->)?[ \t]*$", re.MULTILINE
)
# What hangs on one script, by the folder and the script.
ENTRIES = {
    "classification": ("classification", "main_classification.py"),
    "classification_dataparallel": ("classification_dataparallel", "train_digits.py"),
    **{f"vision-{task}": ("vision_project", f"main_{task}.py") for task in VISION},
    "gan": ("gan", "main.py"),
    "vae": ("vae", "main.py"),
    "trainer_class": ("trainer_class", "main.py"),
    "text_classification": ("text_classification", "train_text.py"),
    "language_model": ("language_model", "main.py"),
    "ladder-full": ("toy_ladder", "10_full.py"),
    "ct_volumes": ("ct_volumes", "train.py"),
}
# The rungs below, of which each adds one thing to a toy loop.
RUNGS = {
    f"ladder-{name}": ("toy_ladder", f"{name}.py")
    for name in """02_epochs 03_accum 04_accum_end 05_amp 06_clip 07_lr_schedule 08_logging
    09_checkpoint_resume""".split()
}


def put(files: Mapping[str, str], folder: Path) -> Path:
    """Write a project; where a file imports the helpers, with a copy such as migrate adds."""
    files = {"requirements.txt": "torch\n", **files}
    if any(re.search("from ddp_(utils|metrics) import", text) for text in files.values()):
        files = {**files, "ddp_utils.py": vendor.core_text()}
    if any("from ddp_metrics import" in text for text in files.values()):
        files = {**files, "ddp_metrics.py": vendor.metrics_text()}
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return folder


def unmarked(text: str) -> str:
    """A text without its marks, as a user has it: `DDP` is a word that the reading looks for."""
    return _MARK.sub("", text)


def put_example(example: Example, folder: Path) -> Path:
    """Write an example, without its marks; its entry script."""
    return put({path: unmarked(text) for path, text in example.files}, folder) / example.entry


def put_fixture(name: str, folder: Path) -> Path:
    """Copy a fixture; the entry script of this name in it."""
    source, entry = (ENTRIES | RUNGS)[name]
    shutil.copytree(FIXTURES / source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "requirements.txt").touch()
    return folder / entry


def write(changes: Iterable[Change], root: Path) -> None:
    """Carry out changes."""
    for change in changes:
        (root / change.path).write_bytes(change.after)


def read(entry: Path) -> Facts:
    """The facts of an entry, as the pipeline hands them to the rules."""
    project = Project.of(entry)
    facts = analyze(project)
    assert facts is not None, project.unreadable
    return replace(facts, runtime=vendor.place(project, Settings()))


def judged(facts: Facts, rules: Iterable[Rule] | None = None) -> list[Finding]:
    """What these rules (all, by default) find."""
    return [
        finding
        for rule in (all_rules() if rules is None else rules)
        for finding in rule.check(facts, Settings())
    ]


def migrated(entry: Path, settings: Settings | None = None) -> None:
    """Migrate a project in place; it must not be refused."""
    outcome = migrate([entry], settings or Settings())
    assert not outcome.refusals, [refusal.message for refusal in outcome.refusals]
    write(outcome.changes, outcome.root)


def helper_lines(outcome: Outcome) -> int:
    """All lines of the copy of the helpers that a migration adds, of both of its files."""
    texts = [change.after.decode() for change in outcome.changes if change.before is None]
    return sum(len(text.splitlines()) for text in texts if text.startswith(HEADER_PREFIX))


def marked(files: Mapping[str, str], code: str) -> set[tuple[str, int]]:
    """(file, line) of the lines that a comment marks with a rule's code."""
    return {
        (path, number)
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(rf"#.*\b{code}\b", line)
    }


def places(findings: Iterable[Finding]) -> set[tuple[str, int]]:
    """(file, line) of findings."""
    return {(finding.site.path, finding.site.span.line) for finding in findings}
