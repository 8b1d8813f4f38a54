"""DDP305: ranks evaluate with batch-norm statistics of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.copies import original
from ddpify.facts.events import Forward
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.scopes import Frame, FunctionInfo, Loop
from ddpify.facts.values import Value
from ddpify.ranks.buffers import has_buffers
from ddpify.ranks.model import RankCall
from ddpify.ranks.model import RankLoop as RankLoop
from ddpify.ranks.modules import FunctionDefinition as RankFunction
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, PROJECT, SINGLE, changed
from ddpify.rules.shared.wrapped import wraps
from ddpify.settings import Settings
from ddpify.source import Site

SYNC = "ddpify.runtime.sync_buffers"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation loop that starts with unsynchronised buffers."""
    training = {x.batch.site for x in facts.training}
    done: set[Site] = set()
    for forward in facts.evaluation_forwards:
        loop = _evaluation_loop(forward)
        if loop is None or loop.site in done | training or not _has_buffers(facts, forward):
            continue
        done.add(loop.site)
        if _synchronised(facts, loop.function):
            continue
        name = _model_name(facts, forward, loop)
        fix = (edit(facts, How.BEFORE, loop.site, f"sync_buffers({name})"),) if name else ()
        yield Finding(
            "DDP305",
            loop.site,
            "ranks would evaluate with batch-norm statistics of their own",
            Severity.ERROR,
            fix,
            "" if fix else "give the model a name where this loop is, then run again",
        )


def _evaluation_loop(forward: Forward) -> Loop | None:
    found = [x for x in forward.call.where.loops() if loaders_in(x.over)]
    return found[0] if found else None


def _has_buffers(facts: Facts, forward: Forward) -> bool:
    born = original(whole(forward.model)).born  # of a copy: what it takes over
    return any(m.buffers for m in facts.models if any(t.born == born for t in m.things))


def _synchronised(facts: Facts, function: FunctionInfo | None) -> bool:
    return any(call.where.function is function for call in facts.named(SYNC))


def _model_name(facts: Facts, forward: Forward, loop: Loop) -> str | None:
    """What the model is called where the loop is."""

    def same(value: Value) -> bool:
        return bool(value.things) and all(whole(t).born in alike for t in value.things)

    model = whole(forward.model).born
    alternatives = ({t.born for t in m.things} for m in facts.models)
    alike = next((one for one in alternatives if model in one), {model})
    tree = facts.tree(forward.call.site)
    node = tree.expression(forward.call.owner_site)
    if isinstance(node, ast.Call) and node.args:  # unwrap(net)(inputs)
        node = node.args[0]
    if isinstance(node, (ast.Name, ast.Attribute)) and forward.call.where.function is loop.function:
        return ast.unparse(node)
    names = (*loop.frame.env.items(), *_fields(loop), *_around(loop))
    found = next((name for name, value in names if same(value)), None)
    return found or _own_field(node, forward.call.where.frame, loop)


def _own_field(node: ast.AST | None, frame: Frame, loop: Loop) -> str | None:
    """``self.net``, which may be any of many, as another method of the loop's object calls it."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None
    own, there = (next(iter(f.parameters), "") for f in (loop.frame, frame))
    same = frame.self_thing is not None and frame.self_thing is loop.frame.self_thing
    return f"{own}.{node.attr}" if same and node.value.id == there else None


def _fields(loop: Loop) -> Iterator[tuple[str, Value]]:
    """What the object whose method the loop is in keeps: ``self.model``."""
    me, own = loop.frame.self_thing, next(iter(loop.frame.parameters), "")
    for field, kept in me.attrs.items() if me is not None else ():
        yield f"{own}.{field}", kept


def _around(loop: Loop) -> Iterator[tuple[str, Value]]:
    """What the functions around the loop's own, and its module, bind and nothing nearer does."""
    names = {*loop.frame.env}
    frame = loop.frame.outer
    while frame is not None:
        yield from ((name, kept) for name, kept in frame.env.items() if name not in names)
        names |= {*frame.env}
        frame = frame.outer
    held = loop.frame.module.globals
    yield from ((name, kept) for name, kept in held.items() if name not in names)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per evaluation of the model inside a wrapper that nothing has synchronised.

    In a migrated program; others mostly evaluate the wrapper, which then synchronises.
    """
    done: set[Site] = set()
    for wrap in wraps(run) if run.helpers else ():
        called = run.methods("__call__", "forward") if has_buffers(wrap.wrapper) else ()
        for call in called:
            loop = next((loop for loop in call.loops if _evaluates(run, loop)), None)
            inside = call.receiver is not None and any(
                t in wrap.inner for t in call.receiver.things
            )
            if loop is None or call.grad or not inside or loop.site in done:
                continue
            if call.everywhere and not _in_step(run, call):
                done.add(loop.site)
                yield Finding(
                    "DDP305",
                    loop.site,
                    "ranks evaluate with batch-norm statistics of their own",
                    Severity.WARNING,
                    advice="call sync_buffers(model) before the loop",
                )


def _evaluates(run: Run, loop: RankLoop) -> bool:
    return bool(iterated(loop)) and loop.node not in run.training_loops


def _in_step(run: Run, call: RankCall) -> bool:
    """Whether buffers were sent since the last step of training before it, if there was one."""
    steps = [one.order for one in run.backwards if one.order < call.order]
    sent = [one.order for one in run.calls if one.target is not None and _sends(one.target)]
    return not steps or any(steps[-1] < order < call.order for order in sent)


def _sends(function: RankFunction) -> bool:
    return function.module.ours and function.name == "sync_buffers"


_ASKED = "def asked(signal):\n    net.eval()\n    return net(signal.cuda()).argmax(1)\n\n\n"

RULE = Rule(
    "DDP305",
    "evaluation-with-own-buffers",
    "The wrapper copies rank 0's buffers before each training forward, not after it: when training"
    " stops for an evaluation, each rank's batch-norm statistics include its own last batch. The"
    " ranks then measure different models, and a decision made from the number splits the job.",
    "torch.nn.parallel.DistributedDataParallel (forward_sync_buffers); BUGS C04",
    check,
    bad=(
        changed(
            PROJECT,
            (
                "self.body = nn.Linear(64, 32)",
                "self.body = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))",
            ),
            ("in stream:\n        guess", "in stream:  # DDP305\n        guess"),
        ),
        changed(
            SINGLE,
            ("nn.Linear(16, 32), nn.ReLU()", "nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()"),
            ("in pairs:\n", "in pairs:  # DDP305\n"),
        ),
        changed(  # a global, in a function that the loop calls
            SINGLE,
            ("nn.Linear(16, 32), nn.ReLU()", "nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()"),
            ("def main():\n", f"{_ASKED}def main():\n    global net\n"),
            ("accuracy(net, pairs):\n    net.eval()\n", "accuracy(pairs):\n"),
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)",
                "in pairs:  # DDP305\n            guess = asked(signal)",
            ),
            ("accuracy(net, holdout)", "accuracy(holdout)"),
        ),
        changed(  # a backbone whose layers are not seen may have batch norm
            PROJECT,
            ("from torch import nn\n", "import timm\nfrom torch import nn\n"),
            ("self.body = nn.Linear(64, 32)", 'self.body = timm.create_model("resnet18")'),
            ("in stream:\n        guess", "in stream:  # DDP305\n        guess"),
        ),
    ),
    lint=lint,
    good=(
        *CORRECT,
        SINGLE,
        changed(  # another model has them
            PROJECT,
            ("import Classifier,", "import Classifier, Guide,"),
            ("    brain = wrap", "    guide = Guide().to(place).eval()\n    brain = wrap"),
            ("fit(brain, learn,", "fit(guide, brain, learn,"),
            ("def fit(brain,", "def fit(guide, brain,"),
            ("(brain(picture), kind)", "(brain(guide(picture)), kind)"),
            (
                "class Classifier",
                "class Guide(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                "        self.norm = nn.BatchNorm1d(64)\n\n    def forward(self, picture):\n"
                "        return self.norm(picture)\n\n\nclass Classifier",
            ),
        ),
        changed(
            PROJECT,
            (
                "self.body = nn.Linear(64, 32)",
                "self.body = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))",
            ),
            ("import reduce_sum\n", "import reduce_sum\nfrom ddp_utils import sync_buffers\n"),
            ("    hits = seen = 0\n", "    hits = seen = 0\n    sync_buffers(brain)\n"),
        ),
    ),
)
