"""Which Lightning a program is for, as its files and what it uses say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from ddpify.ranks.model import RankCall
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.run import Run
from ddpify.ranks.words import TRAINER

_FILES: Final = (
    *("requirements*.txt", "requirements/*.txt", "env*.y*ml", "conda*.y*ml"),
    *("setup.py", "setup.cfg", "pyproject.toml", "Pipfile"),
)
# A name and its bounds, as all these files write them; not behind a `#`.
_ASKED: Final = re.compile(
    r"^[^#\n]*?(?<![\w.-])(?:pytorch[-_.])?lightning(?:\[[\w,-]*\])?[ \t\"'=({]*?"
    r"((?:[=<>~!^]{1,3}[ \t]*\d[\d.*]*[ \t]*,?[ \t]*)+)",
    re.IGNORECASE | re.MULTILINE,
)
_BARRIER: Final = Version("2.1")  # since this version all ranks meet in `save_checkpoint`
_NEWER: Final = ("2.1", "2.99", "99")
_MODULE: Final = "lightning.pytorch.LightningModule"
# What there is no more since Lightning 2, which refuses it: hooks, and arguments of a Trainer.
_HOOKS: Final = frozenset({"training_epoch_end", "validation_epoch_end", "test_epoch_end"})
_ARGUMENTS: Final = frozenset(
    "gpus auto_select_gpus num_processes tpu_cores ipus progress_bar_refresh_rate weights_summary"
    " checkpoint_callback resume_from_checkpoint auto_lr_find auto_scale_batch_size amp_backend"
    " amp_level replace_sampler_ddp track_grad_norm multiple_trainloader_mode".split()
)


def is_older(m: RankMachine) -> bool:
    """Whether a program is for a Lightning in whose ``save_checkpoint`` ranks do not meet."""
    if _is_refused(m.run):
        return True
    folder = (m.modules.root / m.run.start).parent
    return any(_is_bounded(m, file) for file in _said_in(folder, m.modules.root))


def _is_refused(run: Run) -> bool:
    """Whether Lightning 2 would end it with an error."""
    classes = (info for module in run.modules.values() for info in module.classes.values())
    hooks = (info for info in classes if not _HOOKS.isdisjoint(info.methods))
    # while it is read: `run.named` keeps what there is when it is asked first
    trainers = (call for call in run.calls if call.name == TRAINER)
    return any(info.inherits(_MODULE) for info in hooks) or any(map(_is_old, trainers))


def _is_old(trainer: RankCall) -> bool:
    made = trainer.node.func
    parsed = isinstance(made, ast.Attribute) and made.attr == "from_argparse_args"
    return parsed or not _ARGUMENTS.isdisjoint(trainer.kwargs)


def _said_in(folder: Path, root: Path) -> Iterator[Path]:
    """The files that say what a program needs: beside it, or in a folder above."""
    within = [one for one in (folder, *folder.parents) if one == root or root in one.parents]
    for place in within:
        for pattern in _FILES:
            yield from sorted(place.glob(pattern))


def _is_bounded(m: RankMachine, file: Path) -> bool:
    m.modules.looked.add(file)
    return any(map(excludes_newer, _ASKED.findall(m.modules.text(file))))


def excludes_newer(asked: str) -> bool:
    """Whether bounds such as ``==1.4.2``, ``^1.9`` or ``>=1.9,<2`` leave out the newer ones."""
    plain = re.sub(r"\s|,\s*$", "", asked)
    plain = re.sub(r"\^(\d+)[\d.]*", r"==\1.*", plain)  # of poetry; of conda:
    plain = re.sub(r"(^|,)=(?=\d)", r"\1==", plain)
    try:
        bounds = SpecifierSet(plain)
    except InvalidSpecifier:
        return False
    named = [one.version.removesuffix(".*") for one in bounds]
    return not any(Version(one) >= _BARRIER and one in bounds for one in (*named, *_NEWER))
