"""DDP220: each rank numbers what is in a set in an order of its own."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import HASH
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, How, Rule, Severity
from ddpify.rules.data.set_orders import Ordered, cannot_meet, set_orders, while_training
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, changed
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.exchanges import exchanges
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per place that goes by the order of a set before training begins."""
    found: dict[Site, list[Ordered]] = {}
    for one in set_orders(facts):
        found.setdefault(one.site, []).append(one)
    for site, ways in found.items():
        if any(while_training(facts, one.use) for one in ways):
            continue  # of a batch, or of what is shown
        if all(one.use.where.one_rank() for one in ways):
            continue
        apart = any(cannot_meet(facts, one.use) for one in ways)
        taken = "{}" if ways[0].is_list else "list({})"
        code = "sorted({}, key=repr)" if apart else f"broadcast({taken})"
        yield Finding(
            "DDP220",
            site,
            "each rank has another order of this set: what it numbers means other things there",
            Severity.ERROR,
            (edit(facts, How.REPLACE, site, code),),
        )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loop over a set of texts in which ranks meet."""
    over = {loop: loop.over for loop in run.loops if loop.over is not None and _of_texts(loop.over)}
    met = [call for call in exchanges(run) if call.method != "barrier"] if over else []
    for loop in over:
        call = next((call for call in met if loop in call.loops), None)
        if call is not None:
            yield Finding(
                "DDP220",
                loop.site,
                "each rank goes through this set in an order of its own: what they send each other"
                " belongs to other elements",
                Severity.ERROR,
                advice="go through sorted(…) of it",
                because=((call.site, "they meet here"),),
            )
    yield from _dealt_by_hash(run)


def _dealt_by_hash(run: Run) -> Iterable[Finding]:
    """What is dealt by ``hash(name) % world_size``: each process hashes texts its own way."""
    for value, site in run.dealt:
        if any(origin.what == HASH for origin in value.origins):
            yield Finding(
                "DDP220",
                site,
                "each process hashes texts to numbers of its own: what is dealt by them goes to"
                " several ranks, or to none",
                Severity.WARNING,
                advice="deal by position, or by a hash that is the same everywhere: zlib.crc32",
            )


def _of_texts(value: RankValue) -> bool:
    """Whether a value is a set of what is known to be texts: a dict's names, or a few words."""
    made = value.made_by("builtins.set", "builtins.frozenset")
    given = made.call.arg(0, "iterable") if made is not None and made.call is not None else None
    if given is None:
        return False
    names = given.keys is not None and len(given.keys) != 1
    words = [item.constant for item in given.items or ()]
    return names or (len(words) > 1 and all(isinstance(word, str) for word in words))


WORDS = (
    ("import torch\nimport", "import pickle\n\nimport torch\nimport"),
    (
        "rows = TensorDataset(torch.randn(4096, 20), torch.randint(0, 2, (4096,)))\n",
        'texts = pickle.load(open("texts.pkl", "rb"))\nknown = {word for text in texts for word in'
        " text}\nnumber = {word: n for n, word in enumerate(known)}  # DDP220\n"
        "rows = TensorDataset(torch.tensor([[number[w] for w in t] for t in texts]).float(),"
        " torch.randint(0, 2, (4096,)))\n",
    ),
)


RULE = Rule(
    "DDP220",
    "set-order",
    "Python hashes texts by a number that each process draws for itself, so that a set of the same"
    " words has another order on each rank: vocabularies and class numbers made from it differ, and"
    " the ranks train one model on data that mean different things. Nothing fails. Rank 0's order"
    " is that of all; where ranks cannot ask it, the set is sorted.",
    "PYTHONHASHSEED in the Python manual; PATTERNS B1.11",
    check,
    bad=(
        changed(SCRIPT, *WORDS),
        changed(  # a list of the classes, in a function
            SINGLE,
            (
                "def accuracy",
                "def classes():\n    names = open('names.txt').read().split()\n"
                "    return list(set(names) - {'none'})  # DDP220\n\n\ndef accuracy",
            ),
            ("    torch.manual_seed(7)\n", "    torch.manual_seed(7)\n    kinds = classes()\n"),
        ),
        Example(  # a file that is imported before ranks know of each other
            (
                *changed(
                    SINGLE, ("import torch\n", "import torch\nfrom kinds import KINDS\n")
                ).files,
                (
                    "kinds.py",
                    "WORDS = open('names.txt').read().split()\n"
                    "KINDS = {name: n for n, name in enumerate(set(WORDS))}  # DDP220\n",
                ),
            )
        ),
        changed(  # filled bit by bit, and numbered in a loop
            SINGLE,
            (
                "    torch.manual_seed(7)\n",
                "    torch.manual_seed(7)\n    met, place = set(), {}\n"
                "    for line in open('words.txt'):\n        met.add(line.strip())\n"
                "    for word in met.difference(place):  # DDP220\n"
                "        place[word] = len(place)\n",
            ),
        ),
        on_ranks("""
            sums = {"loss": torch.ones(1) * rank, "hits": torch.zeros(1)}
            for name in set(sums):  # DDP220
                dist.all_reduce(sums[name])
            """),
    ),
    lint=lint,
    words=("hash(",),
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            WORDS[0],
            (WORDS[1][0], WORDS[1][1].replace("(known)}  # DDP220", "(sorted(known))}")),
        ),
        changed(
            SCRIPT,
            WORDS[0],
            (WORDS[1][0], WORDS[1][1].replace("(known)}  # DDP220", "(broadcast(list(known)))}")),
            ("    begin_epoch,\n", "    begin_epoch,\n    broadcast,\n"),
        ),
        changed(  # sorted afterwards; only counted; numbers, which hash to themselves
            SINGLE,
            (
                "    torch.manual_seed(7)\n",
                "    torch.manual_seed(7)\n    words = list(set(open('w.txt').read().split()))\n"
                "    words.sort()\n    many = len(list(set(words)))\n    sizes = list({16, 32})\n",
            ),
        ),
        on_ranks("""
            sums = {"loss": torch.ones(1) * rank, "hits": torch.zeros(1)}
            for name in sorted(set(sums)):
                dist.all_reduce(sums[name])
            for name in set(sums):
                print(name)
            for number in set([1, 2]):
                dist.all_reduce(torch.ones(number))
            """),
    ),
)
