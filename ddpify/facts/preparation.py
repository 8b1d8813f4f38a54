"""Downloads and the like: work whose result lands on disk, done once before the others read it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ddpify.facts.events import Call
from ddpify.facts.tree import Tree
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


def preparations(calls: tuple[Call, ...], trees: Mapping[str, Tree]) -> frozenset[Site]:
    """Calls to run on the main process first: data sets that download, functions that do."""
    asking = [c for c in calls if _asks(c)]
    asked = {c.site for c in asking}
    found = {c.site for c in asking if not _covered(c, asked)}
    for call in calls:
        if (
            (call.name.endswith(DOWNLOADS) or _fetches(call, trees))
            and not call.where.one_rank()
            and not _covered(call, asked)
        ):
            found.add(call.where.stack[-1] if call.where.stack else call.site)
    return frozenset(found)


def _asks(call: Call) -> bool:
    """``download=True``."""
    flag = call.kwargs.get("download")
    return flag is not None and flag.known and bool(flag.const)


def _fetches(call: Call, trees: Mapping[str, Tree]) -> bool:
    node = trees[call.site.path].expression(call.site) if call.name in _SHELLS else None
    if not isinstance(node, ast.Call) or not node.args:
        return False
    said = (n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant))
    words = {word.strip(";&|") for text in said if isinstance(text, str) for word in text.split()}
    return not words.isdisjoint(_FETCHES)


def _covered(call: Call, sites: set[Site]) -> bool:
    return call.where.inside(FIRST) or any(site in sites for site in call.where.stack)


def prepared(call: Call, sites: frozenset[Site]) -> bool:
    """Whether a call happens inside such work: there every rank does all of it, in turn."""
    return call.where.inside(FIRST) or any(site in sites for site in call.where.stack)
