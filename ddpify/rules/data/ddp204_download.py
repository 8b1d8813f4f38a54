"""DDP204: every rank downloads the data set at once."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts, Role
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.data.asked_first import asked_first
from ddpify.rules.data.loaders import is_shared_out
from ddpify.rules.edits import edit, once, statement_of
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.shared.beginnings import before_launch
from ddpify.rules.shared.meetings import goes_first, one_was_first
from ddpify.rules.shared.outputs import by_all
from ddpify.settings import Settings
from ddpify.source import Site

FIRST = "ddpify.runtime.main_process_first"

# What fetches into a file by itself, whatever it is told.
_FETCHERS = frozenset(
    {
        "urllib.request.urlretrieve",
        "nltk.download",
        "wget.download",
        "gdown.download",
        "gdown.download_folder",
        "torchvision.datasets.utils.download_url",
        "torchvision.datasets.utils.download_and_extract_archive",
    }
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per download that all ranks make at once."""
    for call in run.calls:
        if not _downloads(call) or _own_folder(call) or not by_all(run, call):
            continue
        if before_launch(run, call) or one_was_first(run, call):
            continue
        if not _one_goes_first(run, call):
            yield Finding(
                "DDP204",
                call.spelled.site,
                "all ranks download into the same folder at once: half-written files are read",
                Severity.WARNING,
                (),
                "let one rank of each node download first, the others after a barrier",
            )


def _downloads(call: RankCall) -> bool:
    if call.target is not None or call.name in _FETCHERS:
        return call.name in _FETCHERS
    flag = call.kwargs.get("download")
    locked = call.name.startswith(("datasets.", "transformers.", "huggingface_hub."))
    return flag is not None and flag.constant is True and not locked


def _own_folder(call: RankCall) -> bool:
    """Whether what it is given depends on the rank."""
    return any(value.by_rank for value in (*call.args, *call.kwargs.values()))


# A rank comes out of these when all have come in.
_WAITING = frozenset(
    "barrier monitored_barrier wait_for_everyone all_reduce all_gather all_gather_object"
    " all_gather_single all_gather_into_tensor".split()
)


def _one_goes_first(run: Run, call: RankCall) -> bool:
    """Between a barrier of some ranks and one of the others, or in a framework's block."""
    barriers = [c for c in run.calls if c.method in _WAITING]
    before = [c.ranks for c in barriers if c.order < call.order]
    after = [c.ranks for c in barriers if c.order > call.order]
    if any(a | b == ALL and a != ALL for a in before for b in after):
        return True
    return goes_first(call)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per data set made with ``download=True`` on all ranks."""
    inline = _inline(facts)
    found = tuple(c for c in facts.calls if c.site in facts.preparations and c.site not in inline)
    for site, calls in once(found).items():
        if all(c.where.one_rank() or c.where.inside(FIRST) for c in calls):
            continue
        asked = asked_first(facts, calls)
        fix = edit(
            facts, How.INDENT, asked or statement_of(facts, site), "with main_process_first():"
        )
        yield Finding(
            "DDP204",
            site,
            "all ranks would download or build the same files at once",
            Severity.WARNING,
            (fix,),
        )


def _inline(facts: Facts) -> set[Site]:
    """Data sets written inside a loader that gets a sampler, and hoisted with that."""
    found: set[Site] = set()
    for loader in facts.loaders:
        site = loader.call.arg_site(0, "dataset")
        dealt = is_shared_out(facts, loader) or Role.TRAINING in loader.roles
        if dealt and "sampler" not in loader.call.kwargs and site:
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
        changed(  # where the files are not there
            SINGLE,
            ("import argparse\n", "import argparse\nimport os\n\nfrom torchvision import datasets"),
            (
                "    fitting = DataLoader(TensorDataset(signals[:800], labels[:800]), opt",
                '    fetch = False\n    if not os.path.exists("d"):\n        fetch = True\n'
                "    clicks = datasets.FakeData(800, download=fetch)  # DDP204\n"
                "    fitting = DataLoader(clicks, opt",
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
        changed(  # a cache that the data set builds where it finds none
            SINGLE,
            ("import argparse\n", "import argparse\nimport os\n\nimport lmdb"),
            ("import DataLoader, TensorDataset", "import DataLoader, Dataset, TensorDataset"),
            (
                "def accuracy",
                "class Clicks(Dataset):\n    def __init__(self, path):\n"
                "        if not os.path.exists(path):\n            self.build(path)\n"
                "        self.held = lmdb.open(path, readonly=True, lock=False)\n\n"
                "    def build(self, path):\n        with lmdb.open(path) as held:\n"
                '            held.begin(write=True).put(b"n", b"800")\n\n'
                "    def __len__(self):\n        return 800\n\n\ndef accuracy",
            ),
            (
                "    fitting = DataLoader(TensorDataset(signals[:800], labels[:800]), opt",
                '    clicks = Clicks("clicks")  # DDP204\n    fitting = DataLoader(clicks, opt',
            ),
        ),
        changed(
            BY_HAND,
            ("import DataLoader, TensorDataset", "import DataLoader\nfrom corpora import Corpus"),
            (
                "TensorDataset(torch.randn(512, 32), torch.randint(0, 10, (512,)))",
                'Corpus("texts", download=True)  # DDP204',
            ),
        ),
        changed(  # torchtext asks nobody
            SINGLE,
            (
                "import argparse\n",
                "import argparse\n\nfrom torchtext.legacy import data, datasets\n",
            ),
            (
                "    torch.manual_seed(7)\n",
                "    torch.manual_seed(7)\n    words, mood = data.Field(), data.Field()\n"
                "    reviews, _ = datasets.IMDB.splits(words, mood)  # DDP204\n"
                '    words.build_vocab(reviews, vectors="glove.6B.100d")  # DDP204\n',
            ),
        ),
        changed(  # a command
            SINGLE,
            ("import argparse\n", "import argparse\nimport os\n"),
            (
                "def accuracy",
                "def fetch(url):\n    if not os.path.exists('data'):\n        os.mkdir('data')\n"
                "        os.system('wget %s; unzip data.zip' % url)\n\n\ndef accuracy",
            ),
            ("    opt = ", "    fetch('http://x.org/data.zip')  # DDP204\n    opt = "),
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
    lint=lint,
    words=("download=", ".download", "download_url(", "download_and_extract", "urlretrieve"),
    severity=Severity.WARNING,
)
