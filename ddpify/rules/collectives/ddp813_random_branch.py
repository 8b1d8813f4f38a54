"""DDP813: each rank draws for itself which layers a batch goes through."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.python.choices import LayerChoice, Names, choices, spelled
from ddpify.ranks import words
from ddpify.ranks.events import Exit
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import ClassDefinition, Module
from ddpify.ranks.origins import IDENTITY, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.averaged_by_hand import averagings
from ddpify.rules.shared.fields import classes_in, fields_of, function_of, layers, qualified
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.wrapped import forwards, wraps
from ddpify.site import Site

_ASKS_FOR_GRADIENT: Final = re.compile(r"\.grad is (?:not )?None")
_DRAWS: Final = ("random.", "numpy.random.")
_MISSING: Final = (
    "where it is not, its gradients are missing, and DDP fails in the next step",
    ", and set find_unused_parameters=True",
)
_WAITING: Final = ("all ranks gather its shards in each forward, so the others wait: a hang", "")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per draw that decides over a layer of a wrapped model."""
    for wrap in wraps(run):
        calls = forwards(run, wrap)
        flags = (wrap.flag("find_unused_parameters"), wrap.flag("static_graph"))
        if flags != (False, False) or not calls:
            continue
        found: dict[Site, Finding] = {}
        for info in classes_in(run, (t.cls for t in wrap.inner if t.cls is not None)):
            for choice, module in _choices(run, info, layers(run, info)):
                if stream(run, calls[0], choice.library)[0] is not Stream.SAME:
                    found.setdefault(module.site(choice.test), _finding(module, choice, _MISSING))
        yield from found.values()
    yield from _of_shards(run)
    yield from _by_hand(run)


def _by_hand(run: Run) -> Iterator[Finding]:
    """The same where a program averages the gradients itself, those that are there."""
    for one in averagings(run):
        left = (g for e in run.exits if _leaves(e, one.call) for g in e.guards)
        skips = [g for g in (*one.call.conditions, *left) if _ASKS_FOR_GRADIENT.search(g.text)]
        for call in run.methods("__call__", "forward") if skips else ():
            made = [t for t in call.receiver.things if t in one.models] if call.receiver else []
            for thing in made:
                chosen = _chosen(run, call, thing.cls) if thing.cls and not thing.wrapper else None
                if chosen is not None:
                    yield Finding(
                        "DDP813",
                        one.call.site,
                        "a layer that a rank has not used has no gradient there, and this"
                        " collective meets that of another parameter: a hang or wrong numbers",
                        Severity.ERROR,
                        advice="reduce zeros in place of a gradient that is None",
                        because=((chosen, "each rank chooses for itself which layer it uses"),),
                    )
                    return


def _leaves(left: Exit, call: RankCall) -> bool:
    """Whether it is a ``continue`` above a call, in the loop around it."""
    inner = left.loops[-1:] == call.loops[-1:]
    return left.kind == "continue" and inner and left.order < call.order


def _chosen(run: Run, call: RankCall, cls: ClassDefinition) -> Site | None:
    """Where a forward uses the layer that a rank has drawn, or was told: ``self.heads[task]``."""
    held = {*layers(run, cls)}
    for choice, module in _choices(run, cls, held):
        if stream(run, call, choice.library)[0] is not Stream.SAME:
            return module.site(choice.test)
    forward = cls.method("forward")
    names = forward.parameters[1:] if forward is not None else ()
    given = {name: call.arg(place, name) for place, name in enumerate(names)}
    own = {name for name, v in given.items() if v and _is_name(v) and _is_own(run, v)}
    for node in ast.walk(forward.node) if forward is not None and own else ():
        index = node.slice if isinstance(node, ast.Subscript) and _is_in(node, held) else None
        if forward is not None and isinstance(index, ast.Name) and index.id in own:
            return forward.module.site(node)
    return None


def _is_in(node: ast.Subscript, held: set[str]) -> bool:
    return spelled(node.value) in held


def _is_name(value: RankValue) -> bool:
    """Whether it is a number or a text that was drawn, told by what drew it; no batch."""
    return all(one.call is not None and one.name.startswith(_DRAWS) for one in value.things)


def _is_own(run: Run, value: RankValue) -> bool:
    """Whether each rank has drawn a value for itself."""
    return run.script and any(one.kind in (RANDOM, *IDENTITY) for one in value.origins)


def _of_shards(run: Run) -> Iterator[Finding]:
    """The same of layers that are sharded one by one: each of them communicates."""
    parts = {name for call in run.named(words.FULLY_SHARD) for name in _parts(call)}
    found: dict[Site, Finding] = {}
    for call in run.methods("__call__", "forward"):
        held = [*(call.receiver.things if call.receiver is not None else ())]
        wrapped = [t.attrs.get("module") for t in held if t.name == words.FSDP]
        held = [t for t in held if t.sharded] + [t for v in wrapped if v for t in v.things]
        for info in classes_in(run, (t.cls for t in held if t.cls is not None)):
            sharded = parts | {*_wrapped_parts(info)}
            for choice, module in _choices(run, info, sharded & {*layers(run, info)}):
                if stream(run, call, choice.library)[0] is not Stream.SAME:
                    found.setdefault(module.site(choice.test), _finding(module, choice, _WAITING))
    yield from found.values()


def _parts(call: RankCall) -> Iterator[str]:
    """``layers`` of ``for layer in model.layers: fully_shard(layer)``, of ``model.layers[0]`` and
    of ``model.layers``."""
    given, node = call.arg(0, "module"), call.node_of(0, "module")
    loop = call.loops[-1] if call.loops else None
    if isinstance(node, ast.Name) and given is not None and not given.things and loop is not None:
        node = getattr(loop.node, "iter", None)
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.Attribute):
            yield one.attr


def _wrapped_parts(info: ClassDefinition) -> Iterator[str]:
    """``self.blocks = nn.ModuleList([FSDP(Block()) for _ in range(3)])``."""
    made = info.methods.get("__init__")
    for field in fields_of(made) if made is not None else ():
        below = ast.walk(field.value) if field.value is not None else ()
        calls = (one.func for one in below if isinstance(one, ast.Call))
        if any(qualified(info.module, func) == words.FSDP for func in calls):
            yield field.name


def _choices(
    run: Run, info: ClassDefinition, held: Iterable[str]
) -> Iterator[tuple[LayerChoice, Module]]:
    """What ``forward`` and the functions that it calls decide by a draw, and where."""
    names = _RankNames(run, info, info.module)
    forward = names.function(ast.parse("self.forward", mode="eval").body)
    for choice in choices(*forward, held) if forward is not None else ():
        assert isinstance(choice.names, _RankNames)
        yield choice, choice.names.module


@dataclass(frozen=True)
class _RankNames:
    """The names of a class, if it is in one, and of its module."""

    run: Run
    owner: ClassDefinition | None
    module: Module

    def library(self, node: ast.expr) -> str:
        """The name that a library has for it."""
        return qualified(self.module, node)

    def function(self, node: ast.expr) -> tuple[ast.FunctionDef, Names] | None:
        """The function of the project."""
        method = self.owner.method(spelled(node)) if self.owner is not None else None
        found = method or function_of(self.run, self.module, node)
        if found is None or not isinstance(found.node, ast.FunctionDef):
            return None
        return found.node, _RankNames(self.run, self.owner or found.owner, found.module)


def _finding(module: Module, choice: LayerChoice, why: tuple[str, str]) -> Finding:
    return Finding(
        "DDP813",
        module.site(choice.test),
        f"each rank draws for itself whether this layer is used: {why[0]}",
        Severity.ERROR,
        advice=f"draw from a generator that is seeded alike on all ranks{why[1]}",
        because=(
            (module.site(choice.draw), "drawn by each rank for itself"),
            (module.site(choice.layer), "the layer"),
        ),
    )


def _net(draw: str) -> str:
    return f"""
import random


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x)
        {draw}
        return self.head(x)
"""


_LISTED: Final = """
import random


def kept(blocks, share):
    drops = [random.random() < share for _ in blocks]
    return [block for block, drop in zip(blocks, drops) if not drop]  # DDP813


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([])
        for _ in range(3):
            self.blocks.append(nn.Linear(16, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in kept(self.blocks, share=0.1):
            x = block(x)
        return self.head(x)
"""

_SETUP: Final = """
random.seed(dist.get_rank())
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    "DDP813",
    "random-branch",
    "DDP waits in the backward for the gradient of every parameter. A layer that one rank skips and"
    " another uses, because each drew its own number, leaves gradients out: measured, 'Expected to"
    " have finished reduction in the prior iteration' on one rank and a closed connection on the"
    " other. With find_unused_parameters=True it runs. A layer that is sharded by itself gathers"
    " its weights in each forward, and gradients that a program averages by hand, those that are"
    " there, meet others.",
    "pytorch#112152; composer#9; BUGS C12",
    lint=lint,
    bad=(
        trained(
            _SETUP,
            top=_net("if random.random() < 0.5:  # DDP813\n            x = self.second(x)"),
        ),
        trained(
            _SETUP,
            top=_net(
                "draw = random.uniform(0, 1)\n        if draw > 0.9:  # DDP813\n"
                "            return self.head(x)\n        x = self.second(x)"
            ),
        ),
        trained(  # a function that sorts them out is given the layers
            _SETUP,
            top=_LISTED,
        ),
    ),
    good=(
        trained(  # either side uses the same
            _SETUP,
            top=_net(
                "if random.random() < 0.5:\n            x = self.second(x)\n"
                "        else:\n            x = self.second(x) * 2"
            ),
        ),
        trained(
            _SETUP.replace("DDP(Net())", "DDP(Net(), find_unused_parameters=True)"),
            top=_net("if random.random() < 0.5:\n            x = self.second(x)"),
        ),
        trained(
            _SETUP,
            top=_net(
                "if random.random() < 0.5:\n            x = x.flip(-1)\n        x = self.second(x)"
            ),
        ),
    ),
    fixes=False,
)
