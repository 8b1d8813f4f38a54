"""DDP206: a tensor of the training step has the whole batch size as its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.facts.sized import SHAPED
from ddpify.facts.values import Kind, Measure
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import FunctionDefinition as RankFunction
from ddpify.ranks.run import Run
from ddpify.ranks.values import same
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, fresh, is_local
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, changed
from ddpify.settings import Settings
from ddpify.source import Site

_SUFFIXES = frozenset(f".{name.rpartition('.')[2]}" for name in SHAPED)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per use of the batch size as a number inside a training loop."""
    if settings.batch_size == "per-rank":
        return
    named = _named_once(facts)
    for site in sorted(facts.sized):
        split = edit(facts, How.REPLACE, site, "per_rank_batch_size({})")
        yield Finding(
            "DDP206",
            site,
            "each rank's batch is smaller than this",
            Severity.ERROR,
            named.get(site, (split,)),
        )
    for site in sorted(facts.whole_shapes | facts.model_shapes):
        yield Finding(
            "DDP206",
            site,
            "each rank's batch is smaller than this shape, whose size an object keeps",
            Severity.ERROR,
            advice="take the size from the batch itself, or give the object a rank's share of it",
        )
    yield from _kept(facts)
    yield from _steps_by_share(facts)


def _steps_by_share(facts: Facts) -> Iterable[Finding]:
    """``SGD(parameters, lr=base * loader.batch_size / 256)``: the loader has a rank's share."""
    for call in facts.calls:
        values = [*zip(call.args, call.arg_sites, strict=False)]
        values += [(call.kwargs[name], site) for name, site in call.kwarg_sites.items()]
        for value, site in values if call.result.of(Kind.OPTIMIZER, Kind.SCHEDULER) else ():
            if value.measure is Measure.COUNT and is_local(facts, value):
                yield Finding(
                    "DDP206",
                    site,
                    "this goes by the number of samples in a rank's batch, not by that of all",
                    Severity.ERROR,
                    advice="multiply it by get_world_size(), or take what the loader was given",
                )


def _kept(facts: Facts) -> Iterable[Finding]:
    """What is kept of the first batch, where an evaluation gives the same object whole ones."""
    for site in sorted(facts.first_batches):
        whole = facts.evaluation_forwards
        yield Finding(
            "DDP206",
            site,
            "what is kept here has the size of a rank's share of the first batch"
            + (", and evaluation goes on with whole ones" if whole else ""),
            Severity.ERROR if whole else Severity.NOTE,
            advice="make it anew where the batch has another size: `or kept.size(0) != x.size(0)`",
        )


def _named_once(facts: Facts) -> dict[Site, tuple[Edit, ...]]:
    """For a number that one loop says several times: its share, named before that loop."""
    groups: dict[tuple[Site, str], list[Site]] = {}
    for site in sorted(facts.sized):
        outer = _outermost_loop(facts, site)
        if outer is not None:
            groups.setdefault((outer, facts.text(site)), []).append(site)
    found: dict[Site, tuple[Edit, ...]] = {}
    for (outer, text), sites in groups.items():
        if len(sites) > 1:
            name = fresh(facts, outer, "own_batch_size")
            before = edit(facts, How.BEFORE, outer, f"{name} = per_rank_batch_size({text})")
            found |= {one: (before, edit(facts, How.REPLACE, one, name)) for one in sites}
    return found


def _outermost_loop(facts: Facts, site: Site) -> Site | None:
    """The loop of this scope around a use of a name or setting that it leaves as it is."""
    tree = facts.tree(site)
    node = tree.expression(site)
    if not isinstance(node, ast.Name | ast.Attribute):
        return None
    scope = tree.function(node)
    around = [n for n in tree.ancestors(node) if isinstance(n, ast.For | ast.While)]
    around = [loop for loop in around if tree.function(loop) is scope]
    if not around or any(_rebinds(n, ast.unparse(node)) for n in tree.nodes(around[-1])):
        return None
    return tree.site(around[-1])


def _rebinds(node: ast.AST, name: str) -> bool:
    stores = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    return stores and f"{name}.".startswith(f"{ast.unparse(node)}.")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per shape in a training loop that is the batch size before it was divided."""
    sizes = [c for c in run.calls if c.target is not None and _divides(c.target)]
    done: set[Site] = set()
    for call in run.calls if sizes else ():
        inside = any(one.loop in call.loops for one in run.passes)
        if not inside or call.site in done or f".{call.method}" not in _SUFFIXES:
            continue
        if any(_is_whole(call, number, size) for number in range(len(call.args)) for size in sizes):
            done.add(call.site)
            yield Finding(
                "DDP206",
                call.site,
                "each rank's batch is smaller than this shape",
                Severity.WARNING,
                advice="take the size from the batch itself, or per_rank_batch_size(…)",
            )


def _divides(function: RankFunction) -> bool:
    return function.module.ours and function.name == "per_rank_batch_size"


def _is_whole(call: RankCall, number: int, size: RankCall) -> bool:
    """Whether an argument is what was divided: the same option, or a number of the same name."""
    node, whole = call.node_of(number, ""), size.node_of(0, "batch_size")
    if not size.args or not isinstance(node, ast.Name | ast.Attribute) or whole is None:
        return False
    value = call.args[number]
    equal = all(same(a, b) for a, b in zip(value.atoms, size.args[0].atoms, strict=True))
    return equal and (not value.known or ast.unparse(node) == ast.unparse(whole))


_KEEPS = """class Recurrent(nn.Module):
    def __init__(self, net, many):
        super().__init__()
        self.net, self.many = net, many
        self.begin()

    def begin(self, many=None):
        self.state = torch.zeros(many or self.many, 16)  # DDP206

    def forward(self, x):
        return self.net(x + self.state)


"""

_ONCE = """class Masked(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.mask = net, None

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.ones(x.size(0), 16, device=x.device)  # DDP206
        return self.net(x * self.mask)


"""
_ANEW = _ONCE.replace("None:", "None or len(self.mask) != len(x):").replace("  # DDP206", "")
_FIXED = """class Flat(nn.Module):
    def __init__(self, net, many):
        super().__init__()
        self.net, self.many = net, many
        self.start = torch.zeros(many, 16)  # DDP206

    def forward(self, x):
        return self.net(x.view(self.many, 16) + self.start)  # DDP206


"""

RULE = Rule(
    "DDP206",
    "fixed-batch-shape",
    "Noise, labels and reshapes written with the batch size fit the global batch only: a rank's"
    " share is a N-th of it. Where they do not crash they silently mix samples.",
    "PATTERNS B3.34",
    check,
    bad=(
        changed(
            SINGLE,
            (
                "Adam(net.parameters())",
                "Adam(net.parameters(), lr=1e-4 * fitting.batch_size)  # DDP206",
            ),
        ),
        changed(
            SINGLE,
            (
                "            adam.zero_grad()\n",
                "            signal = signal.view(opt.bs, 16)  # DDP206\n"
                "            adam.zero_grad()\n",
            ),
        ),
        changed(  # no batch of a rank is as long (DDP404 refuses it besides)
            SINGLE,
            (
                "            adam.zero_grad()\n",
                "            if signal.size(0) < opt.bs:  # DDP206\n                continue\n"
                "            adam.zero_grad()\n",
            ),
        ),
        changed(  # through a parameter of another name
            SINGLE,
            (
                "def accuracy",
                "def noise(many, wide):\n    return torch.randn(many, wide)\n\n\ndef accuracy",
            ),
            (
                "            adam.zero_grad()\n",
                "            signal = signal + noise(opt.bs, 16)  # DDP206\n"
                "            adam.zero_grad()\n",
            ),
        ),
        changed(  # a tensor that is filled anew in each pass
            SINGLE,
            ("    adam =", "    noise = torch.FloatTensor(1)\n    adam ="),
            (
                "            adam.zero_grad()\n",
                "            noise.resize_(opt.bs, 16).normal_()  # DDP206\n"
                "            signal = signal.cuda() + noise.cuda()\n"
                "            adam.zero_grad()\n",
            ),
        ),
        changed(  # a model keeps it
            SINGLE,
            ("def accuracy", f"{_KEEPS}def accuracy"),
            ("    adam =", "    net = Recurrent(net, opt.bs)\n    adam ="),
            (
                "            adam.zero_grad()\n",
                "            net.begin()\n            adam.zero_grad()\n",
            ),
        ),
        changed(  # of the size of its first batch, and evaluation has others
            SINGLE,
            ("def accuracy", f"{_ONCE}def accuracy"),
            ("    adam =", "    net = Masked(net)\n    adam ="),
        ),
        changed(
            SINGLE,
            ("def accuracy", f"{_FIXED}def accuracy"),
            ("    adam =", "    net = Flat(net, opt.bs)\n    adam ="),
        ),
        changed(
            SCRIPT,
            ("per_rank_batch_size(256)", "per_rank_batch_size(many)"),
            ("setup_distributed()\ndev", "setup_distributed()\nmany = 256\ndev"),
            (
                "        solver.zero_grad()\n",
                "        x = x + torch.randn(many, 20)  # DDP206\n        solver.zero_grad()\n",
            ),
        ),
    ),
    lint=lint,
    good=(
        *CORRECT,
        changed(
            SCRIPT,
            ("net = wrap_model(net)", f"\n\n{_ANEW}net = wrap_model(Masked(net))"),
        ),
        changed(
            SCRIPT,
            (
                "        solver.zero_grad()\n",
                "        x = x + torch.randn(len(x), 20)\n        solver.zero_grad()\n",
            ),
        ),
    ),
)
