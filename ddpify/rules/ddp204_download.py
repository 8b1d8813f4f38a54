"""DDP204: every rank downloads the data set at once."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts, Role, Status
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once, statement_of
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, TRAINER, changed
from ddpify.settings import Settings
from ddpify.source import Site

FIRST = "ddpify.runtime.main_process_first"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per data set made with ``download=True`` on all ranks."""
    inline = _inline(facts)
    found = tuple(c for c in facts.calls if c.site in facts.preparations and c.site not in inline)
    for site, calls in once(found).items():
        if all(c.where.one_rank() or c.where.inside(FIRST) for c in calls):
            continue
        statement = statement_of(facts, site)
        ours = facts.status is not Status.DISTRIBUTED
        fix = (edit(facts, How.INDENT, statement, "with main_process_first():"),) if ours else ()
        yield Finding(
            "DDP204",
            site,
            "all ranks would download into the same folder at once",
            Severity.WARNING,
            fix,
            "" if ours else "let rank 0 download first, the others after a barrier",
        )


def _inline(facts: Facts) -> set[Site]:
    """Data sets written inside an unsharded training loader: hoisted with their sampler."""
    found: set[Site] = set()
    for loader in facts.loaders:
        site = loader.call.arg_site(0, "dataset")
        if Role.TRAINING in loader.roles and "sampler" not in loader.call.kwargs and site:
            found.add(site)
    return found


RULE = Rule(
    "DDP204",
    "download-on-every-rank",
    "N processes that download and unpack into one folder overwrite each other's half-written"
    " files. Rank 0 goes first, the others after a barrier find the files there.",
    "composer#1201, mmpretrain#273; BUGS K09",
    check,
    bad=(
        changed(
            SCRIPT,
            (
                "import DataLoader, TensorDataset",
                "import DataLoader\nfrom torchvision import datasets",
            ),
            (
                "TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))",
                "datasets.FakeData(4096, download=True)  # DDP204",
            ),
        ),
        changed(
            TRAINER,
            (
                'Series("past.pt"), Series("future.pt")',
                'Series("past.pt", download=True), Series("future.pt")  # DDP204',
            ),
            ("def __init__(self, path):", "def __init__(self, path, download=False):"),
        ),
        changed(
            BY_HAND,
            ("import DataLoader, TensorDataset", "import DataLoader\nfrom corpora import Corpus"),
            (
                "TensorDataset(torch.randn(512, 32), torch.randint(0, 10, (512,)))",
                'Corpus("texts", download=True)  # DDP204',
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            (
                "import DataLoader, TensorDataset",
                "import DataLoader\nfrom torchvision import datasets",
            ),
            ("is_main_process,\n", "is_main_process, main_process_first,\n"),
            (
                "rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))",
                "with main_process_first():\n    rows = datasets.FakeData(4096, download=True)",
            ),
        ),
    ),
)
