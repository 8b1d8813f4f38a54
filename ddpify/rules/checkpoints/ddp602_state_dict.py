"""DDP602: a checkpoint holds the wrapper's keys or the wrapper itself."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.words import WRAPPERS
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.checkpoints.entries import wrapped_entries
from ddpify.rules.checkpoints.states import (
    plain_into_wrapper,
    prefix_expected,
    saved_wrappers,
    wrapped_states,
)
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import (
    BY_HAND,
    CORRECT,
    PROJECT,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.shared.saving import is_distributed, is_only_written, saves_of
from ddpify.rules.shared.stored import Stored
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

_PREFIXED = "its keys would begin with `module.`"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per ``state_dict()`` or whole-model save of a wrapped model."""
    strategy = of(settings)
    stored = Stored.of(facts, strategy).states
    for calls in once(facts.named(".state_dict")).values():
        site = calls[0].receiver_site
        if calls[0].site in stored:  # each rank writes its shards
            continue
        if site is not None and any(is_distributed(facts, c, strategy) for c in calls):
            message = "its tensors would be shards" if strategy.shards else _PREFIXED
            # its tensors are wanted on rank 0 alone
            alone = all(c.where.one_rank() for c in calls)
            written = alone or is_only_written(facts, calls[0])
            yield _finding(facts, site, message, strategy.state if written else strategy.kept)
    if not strategy.shards:  # see DDP904
        yield from _pickled(facts)


def _pickled(facts: Facts) -> Iterable[Finding]:
    saves = saves_of(facts)
    for calls in once(saves).values():
        site = calls[0].arg_site(0, "obj")
        value = calls[0].arg(0, "obj")
        if site is not None and value is not None and value.of(Kind.WRAPPED):
            yield _finding(facts, site, "the wrapper itself would be pickled")
    written = frozenset(call.site for call in saves)
    entries = (site for call in saves for site in wrapped_entries(facts, call, written))
    for site in dict.fromkeys(entries):
        yield _finding(facts, site, "the wrapper itself would be pickled, in a dict")


def _finding(facts: Facts, site: Site, message: str, code: str = "unwrap({})") -> Finding:
    fix = (edit(facts, How.REPLACE, site, code),)
    return Finding("DDP602", site, message, Severity.ERROR, fix)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per saved state with a wrapper's names in it."""
    for call in saved_wrappers(run):
        yield Finding(
            "DDP602",
            call.site,
            "the wrapper itself is pickled: it can only be loaded where a process group is open",
            Severity.WARNING,
            advice="save the state_dict() of the model inside the wrapper",
        )
    for call, save in plain_into_wrapper(run):
        yield Finding(
            "DDP602",
            call.site,
            "every key is missing: the file holds the state of the model inside the wrapper",
            Severity.ERROR,
            advice="load it into the model inside the wrapper: `….module.load_state_dict(…)`",
            because=((save.site, "written here, without `module.` before the keys"),),
        )
    found = list(wrapped_states(run))
    if not found or prefix_expected(run):
        return
    for call, prefix in found:
        yield Finding(
            "DDP602",
            call.site,
            f"every key begins with `{prefix}`: a model that is not wrapped cannot load it",
            Severity.WARNING,
            advice="save the state of the model inside the wrapper",
            because=tuple((site, "wrapped here") for site in _wrapped(call)),
        )


def _wrapped(call: RankCall) -> list[Site]:
    """Where the model was wrapped whose state is asked for."""
    things = call.receiver.things if call.receiver is not None else ()
    return [t.site for t in things if t.name in WRAPPERS and t.site is not None][:1]


RULE = Rule(
    "DDP602",
    "checkpoint-of-wrapper",
    "A wrapper's state_dict has `module.` before every key: a single process cannot load it, and"
    " with strict=False loads nothing without a word. A pickled wrapper needs a process group.",
    "pytorch#3805, #9176; BUGS K05",
    check,
    bad=(
        changed(
            SCRIPT,
            (
                'save_on_main(unwrap(net).state_dict(), "net.pt")',
                'save_on_main(net.state_dict(), "net.pt")  # DDP602',
            ),
        ),
        changed(
            PROJECT,
            (
                '{"brain": unwrap(brain).state_dict(), "lap": lap}, "top.pt")',
                '{"brain": brain.state_dict(), "lap": lap}, "top.pt")  # DDP602',
            ),
        ),
        changed(
            TRAINER,
            (
                '{"pupil": unwrap(self.pupil).state_dict(), "lesson": number}',
                '{"pupil": self.pupil.state_dict(), "lesson": number}  # DDP602',
            ),
        ),
        changed(
            BY_HAND, ('model.module.state_dict(), "model.pt")', 'model, "model.pt")  # DDP602')
        ),
        marked(SINGLE, "DDP602", '"net.pth")'),
        changed(
            SINGLE,
            (
                '    torch.save(net.state_dict(), "net.pth")',
                '    torch.save({"net": net, "round": 5}, "net.pth")  # DDP602',
            ),
        ),
        changed(  # through a name, and a helper that writes it twice
            SINGLE,
            (
                "def main():\n",
                "def keep(state, path):\n"
                '    torch.save(state, path)\n    torch.save(state, "last.pth")\n\n\n'
                "def main():\n",
            ),
            (
                '    torch.save(net.state_dict(), "net.pth")',
                '    found = {"round": 5, "net": net}  # DDP602\n    keep(found, path="net.pth")',
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(  # its model is called, too: the entry stays the wrapper
            SINGLE,
            (
                '    torch.save(net.state_dict(), "net.pth")',
                '    found = {"net": net}\n    found["net"](signals.cuda())\n'
                '    torch.save(found, "net.pth")',
            ),
        ),
        changed(  # bound again: the dict that is written may be another one
            SINGLE,
            (
                '    torch.save(net.state_dict(), "net.pth")',
                '    found = {"net": net}\n    if opt.bs > 9:\n        found = {}\n'
                '    torch.save(found, "net.pth")',
            ),
        ),
    ),
    lint=lint,
    words=("state_dict",),
    severity=Severity.WARNING,
)
