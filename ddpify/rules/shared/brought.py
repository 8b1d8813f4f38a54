"""Files that are fetched where they are missing, and asked for again behind that."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.folders import looked_for
from ddpify.rules.shared.meetings import for_missing, one_path

_BRINGS: Final = (
    "subprocess.",
    "os.system",
    "urllib.request.urlretrieve",
    "torch.hub.download_url_to_file",
    "huggingface_hub.",
    "gdown.",
    "wget.",
)


def brought_before(run: Run, call: RankCall, path: RankValue | None) -> bool:
    """Whether all ranks come to a call for what is missing still, after they have run a command, or
    what fetches files, in another function because this very file was missing."""
    if path is None or not for_missing(run, call):
        return False
    return any(
        one.order < call.order
        and one.ranks == ALL
        and one.name.startswith(_BRINGS)
        and one.function is not call.function
        and for_missing(run, one)
        and _asked_for(one, path)
        for one in run.calls
    )


def _asked_for(call: RankCall, path: RankValue) -> bool:
    """Whether a condition of a call asks if this path is there."""
    asked = (thing.call for guard in call.guards for thing in guard.test.sources())
    looks = (looked_for(one) for one in asked if one is not None)
    return any(one is not None and one_path(one, path) for one in looks)
