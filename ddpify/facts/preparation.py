"""Downloads and the like: work whose result lands on disk, done once before the others read it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from ddpify.facts.events import Call
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Value
from ddpify.python import words
from ddpify.source import Site

FIRST = "ddpify.runtime.main_process_first"
DOWNLOADS = tuple(
    """urllib.request.urlopen urllib.request.urlretrieve torch.hub.download_url_to_file
    torchvision.datasets.utils.download_url torchvision.datasets.utils.download_and_extract_archive
    gdown.download wget.download nltk.download kaggle.api.dataset_download_files""".split()
)  # those of huggingface_hub lock their files
# A command that fetches or unpacks: `os.system("wget …; unzip …")`.
_SHELLS = frozenset(
    "os.system os.popen subprocess.run subprocess.call subprocess.check_call subprocess.Popen"
    " subprocess.check_output".split()
)
_FETCHES = frozenset("wget curl gdown gsutil aws kaggle unzip tar gunzip bunzip2 7z clone".split())

_TORCHTEXT = re.compile(r"torchtext(\.legacy)?\.datasets\.\w+\.(splits|iters|download)\Z")
DATABASES = frozenset({"lmdb.open", "lmdb.Environment"})


def preparations(calls: tuple[Call, ...], trees: Mapping[str, Tree]) -> frozenset[Site]:
    """Calls to run on the main process first: data sets that download, functions that do."""
    asking = [c for c in calls if _asks(c)]
    asked = {c.site for c in asking}
    found = {c.site for c in asking if not prepared(c, asked)}
    for call in calls:
        if (
            (call.name.endswith(DOWNLOADS) or _fetches(call, trees))
            and not call.where.one_rank()
            and not prepared(call, asked)
        ):
            found.add(call.where.stack[-1] if call.where.stack else call.site)
    return frozenset(found | set(_built(calls)))


def _built(calls: tuple[Call, ...]) -> Iterator[Site]:
    """Calls that build a database where none is found: who comes late reads a half-built one."""
    made = [c for c in calls if c.name in DATABASES and not _is_true(c.kwargs.get("readonly"))]
    led = {(c.site, c.where.stack): c for c in calls} if made else {}
    for call in made:
        stack = call.where.stack
        way = [led.get((site, stack[:number])) for number, site in enumerate(stack)]
        asked = [n for n, one in enumerate((*way, call)) if one is not None and _asks_disk(one)]
        before = way[asked[0] - 1] if asked and asked[0] else None
        if before is None or before.where.one_rank() or before.where.inside(FIRST):
            continue
        if not any(before.site in one.where.stack for one in calls if _meets(one)):
            yield before.site


def _meets(call: Call) -> bool:
    """What ranks do together, which those that wait for their turn cannot join."""
    return call.name in (".backward", words.LOADER) or "optim." in call.name


def _asks_disk(call: Call) -> bool:
    return any(guard.test.dep(Kind.FILES) for guard in call.where.guards)


def _is_true(value: Value | None) -> bool:
    return value is not None and value.known and bool(value.const)


def _asks(call: Call) -> bool:
    """``download=True``, and what torchtext fetches unasked: data sets, vectors of words."""
    vectors = call.name == ".load_vectors" or "vectors" in call.kwargs
    vocabulary = call.name in (".load_vectors", ".build_vocab") and vectors
    fetches = vocabulary or _TORCHTEXT.match(call.name)
    return bool(fetches) or _may_be_true(call.kwargs.get("download"))


def _may_be_true(value: Value | None) -> bool:
    """Also what is set under a condition, ``if not exists(folder): download = True``."""
    return value is not None and (bool(value.const) if value.known else not value.dep(Kind.RANK))


def _fetches(call: Call, trees: Mapping[str, Tree]) -> bool:
    node = trees[call.site.path].expression(call.site) if call.name in _SHELLS else None
    if not isinstance(node, ast.Call) or not node.args:
        return False
    said = (n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant))
    texts = (text for text in said if isinstance(text, str))
    return not _FETCHES.isdisjoint(word.strip(";&|") for text in texts for word in text.split())


def prepared(call: Call, sites: Collection[Site]) -> bool:
    """Whether a call happens inside such work: there every rank does all of it, in turn."""
    return call.where.inside(FIRST) or any(site in sites for site in call.where.stack)
