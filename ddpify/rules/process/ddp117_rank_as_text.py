"""DDP117: the text that a variable of the environment holds is compared with a number."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per comparison of a rank's text with the number."""
    for site, origin in run.texts.items():
        yield Finding(
            "DDP117",
            site,
            f"the environment holds {origin.what} as a text, which equals no number: all ranks"
            " answer alike",
            Severity.ERROR,
            advice=f'int(os.environ["{origin.what}"])',
            because=((origin.site, "read here"),),
        )


_ASKED = "if dist.get_rank() == 0:"

RULE = Rule(
    "DDP117",
    "rank-as-text",
    "What the environment holds is text, and '0' == 0 is False on every rank, without an error:"
    " what rank 0 should have done nobody does (measured: no checkpoint), and `!=` keeps nobody"
    " out. A default beside it, environ.get('RANK', 0), is right in one process alone.",
    "os.environ documentation; torchrun: environment variables",
    lint=lint,
    severity=Severity.ERROR,
    bad=(
        changed(PROCESS, (_ASKED, 'if os.environ["RANK"] == 0:  # DDP117')),
        changed(
            PROCESS,
            ("def main", 'RANK = os.environ.get("RANK", 0)\n\n\ndef main'),
            (_ASKED, "if 0 == RANK:  # DDP117"),
        ),
    ),
    good=(
        PROCESS,
        changed(PROCESS, (_ASKED, 'if int(os.environ["RANK"]) == 0:')),
        changed(PROCESS, (_ASKED, 'if os.environ["RANK"] == "0" and "1" != 1:')),
        changed(PROCESS, (_ASKED, 'if os.environ["RANK"] == 0 or os.environ["RANK"] == "0":')),
        changed(PROCESS, (_ASKED, 'if os.environ.get("RANK", -1) == -1 or dist.get_rank() == 0:')),
    ),
    fixes=False,
)
