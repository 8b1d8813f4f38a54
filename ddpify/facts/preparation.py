"""Downloads and the like: work whose result lands on disk, done once before the others read it."""

from __future__ import annotations

from ddpify.facts.events import Call
from ddpify.source import Site

FIRST = "ddpify.runtime.main_process_first"
DOWNLOADS = tuple(
    """urllib.request.urlopen urllib.request.urlretrieve torch.hub.download_url_to_file
    torchvision.datasets.utils.download_url torchvision.datasets.utils.download_and_extract_archive
    gdown.download wget.download nltk.download kaggle.api.dataset_download_files""".split()
)  # those of huggingface_hub lock their files


def preparations(calls: tuple[Call, ...]) -> frozenset[Site]:
    """Calls to run on the main process first: data sets that download, functions that do."""
    asking = [c for c in calls if _asks(c)]
    asked = {c.site for c in asking}
    found = {c.site for c in asking if not _covered(c, asked)}
    for call in calls:
        if (
            call.name.endswith(DOWNLOADS)
            and not call.where.one_rank()
            and not _covered(call, asked)
        ):
            found.add(call.where.stack[-1] if call.where.stack else call.site)
    return frozenset(found)


def _asks(call: Call) -> bool:
    """``download=True``."""
    flag = call.kwargs.get("download")
    return flag is not None and flag.known and bool(flag.const)


def _covered(call: Call, sites: set[Site]) -> bool:
    return call.where.inside(FIRST) or any(site in sites for site in call.where.stack)


def prepared(call: Call, sites: frozenset[Site]) -> bool:
    """Whether a call happens inside such work: there every rank does all of it, in turn."""
    return call.where.inside(FIRST) or any(site in sites for site in call.where.stack)
