"""DDP403: the gradient path goes around the wrapper."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.through import goes_through, is_same
from ddpify.facts.values import NOTHING, Kind
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import BY_HAND, CORRECT, PROJECT, SCRIPT, SINGLE, changed
from ddpify.rules.gradients.bypass import bypasses, handed_on
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

ADVICE = "route the call through forward() (for example with a mode argument), then run again"

_HALVES = """class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 32), nn.Linear(32, 4)

    def encode(self, rows):
        return self.body(rows).tanh()

    def forward(self, rows):
        return self.head(self.encode(rows))


"""


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per method, part or raw alias of a trained model that is differentiated."""
    if of(settings).inner:
        yield from _methods(facts)
        yield from _routed(facts)
    seen: set[Site] = set(facts.routes)
    for call in facts.bypasses:
        receiver = call.receiver.of(Kind.MODEL, Kind.WRAPPED) if call.receiver is not None else ()
        if call.site not in seen and any(_is_trained(facts, whole(t).born) for t in receiver):
            seen.add(call.site)
            yield _finding(
                call.site, f"`{facts.text(call.callee)}` is differentiated without forward()"
            )
    homes = any(model.home is not None or model.wrapped for model in facts.models)
    bare = [f for f in facts.training_forwards if f.model.kind is Kind.MODEL]
    bare = [f for f in bare if facts.routes.isdisjoint(f.call.where.stack)]
    for forward in bare if homes else ():
        site = forward.call.site
        if site not in seen and _is_trained(facts, forward.model.born):
            seen.add(site)
            yield _finding(site, "this call reaches the bare model, not the wrapper")
    called = {whole(f.model).born for f in (*facts.training_forwards, *facts.evaluation_forwards)}
    for model in facts.models if facts.training else ():
        if model.home is not None and called.isdisjoint(t.born for t in model.things):
            yield _finding(model.things[0].born, "nothing calls this model, so not its wrapper")


def _methods(facts: Facts) -> Iterable[Finding]:
    """Methods that only call their model: the class's function is given the wrapper."""
    for site, calls in once(facts.calls).items():
        asked = next((call for call in calls if goes_through(call)), None)
        owner = _class_of(facts, asked, calls) if asked is not None else ""
        if asked is None or asked.receiver_site is None:
            continue
        own = facts.text(asked.receiver_site)
        yield Finding(
            "DDP403",
            site,
            f"`{facts.text(asked.callee)}` is of the inner module, and calls that: its gradients"
            " would never be averaged; given the wrapper, the same function calls it",
            Severity.ERROR,
            (
                (
                    edit(facts, How.REPLACE, asked.receiver_site, owner),
                    edit(facts, How.ARGUMENT, site, own),
                )
                if owner
                else ()
            ),
            "" if owner else ADVICE,
        )


def _routed(facts: Facts) -> Iterable[Finding]:
    """Methods and parts that one backward goes through: the wrapper calls them as its forward."""
    calls = once(tuple(call for call in facts.calls if call.site in facts.routes))
    for call in (alike[0] for alike in calls.values()):
        receiver = call.receiver.things if call.receiver is not None else ()
        if call.receiver_site is None or not any(t.kind is Kind.WRAPPED for t in receiver):
            continue
        text, name = facts.text(call.receiver_site), call.name.rpartition(".")[2]
        code = f'through_wrapper({text.removesuffix(".module")}, "{name}")'
        yield Finding(
            "DDP403",
            call.callee,
            f"`{facts.text(call.callee)}` is of the inner module: its gradients would never be"
            " averaged; the wrapper calls it as its forward",
            Severity.ERROR,
            (edit(facts, How.REPLACE, call.callee, code),),
        )


def _class_of(facts: Facts, asked: Call, calls: list[Call]) -> str:
    """An expression for the class of the model; "" where no call of the class would be the same.

    That is its name where that is known and the model is no argument, which may be of any class.
    """
    if asked.receiver_site is None or not all(is_same(call) for call in calls):
        return ""
    text, frame = facts.text(asked.receiver_site), asked.where.frame
    classes = {whole(t).ref for c in calls if c.receiver for t in c.receiver.things}
    info = classes.pop() if len(classes) == 1 else None
    if isinstance(info, ClassInfo) and text not in frame.parameters:
        named = frame.lookup(info.name) or NOTHING
        if [t.ref for t in named.of(Kind.CLASS)] == [info] == [t.ref for t in named.things]:
            return info.name
    return "type(unwrap({}))" if text.replace(".", "").isidentifier() else ""


def _is_trained(facts: Facts, born: Site) -> bool:
    return any(t.born == born for model in facts.models for t in model.things if not model.sharded)


def _finding(site: Site, message: str) -> Finding:
    return Finding(
        "DDP403", site, f"{message}: its gradients are never averaged", Severity.ERROR, (), ADVICE
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per call that goes around the wrapper into a loss."""
    for call, backward, wrap in bypasses(run):
        handed = handed_on(call, backward, wrap)
        where, said = handed or (call, call.node.func)
        yield Finding(
            "DDP403",
            where.site,
            f"`{where.module.text(said)}` goes around DistributedDataParallel into the loss: its"
            " gradients are never averaged",
            Severity.ERROR,
            (),
            "call the wrapper, and route what else is needed through forward()",
            (
                *(((call.site, "called here"),) if handed is not None else ()),
                (backward.site, "the backward"),
                (wrap.call.site, "wrapped here"),
            ),
        )


# A loss by a method that only calls its model, and one that does more.
SCORED = """class Scored(nn.Sequential):
    def score(self, x, y):
        return self.distance(self(x), y)

    def distance(self, guess, y):
        return nn.functional.cross_entropy(guess, y)


class Net(Scored):
    def partly(self, x, y):
        return nn.functional.cross_entropy(self[:3](x), y)


"""
GIVEN = SCORED.replace("self.distance", "unwrap(self).distance")
SCORING = (
    ("def accuracy", f"{SCORED}def accuracy"),
    ("net = nn.Sequential(nn.Linear(16, 32)", "net = Net(nn.Linear(16, 32)"),
)

RULE = Rule(
    "DDP403",
    "bypassed-wrapper",
    "Only calling the wrapper arms its gradient hooks. A loss computed by a method or part of the"
    " inner module trains on local gradients: no error, and the ranks drift apart.",
    "icefall#226; BUGS G01; PATTERNS B1.1",
    check,
    lint=lint,
    bad=(
        changed(  # gradients are on again
            SCRIPT,
            (
                "        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n",
                "        with torch.no_grad(), torch.enable_grad():\n"
                "            guess = unwrap(net)(x.to(device))  # DDP403\n"
                "        cost = nn.functional.cross_entropy(guess, y.to(device))\n",
            ),
        ),
        changed(
            SCRIPT,
            (
                "cross_entropy(net(x.to(device)), y.to(device))\n",
                "cross_entropy(unwrap(net)(x.to(device)), y.to(device))  # DDP403\n",
            ),
        ),
        changed(
            PROJECT,
            ("import reduce_sum\n", "import reduce_sum\nfrom ddp_utils import unwrap\n"),
            (
                "F.cross_entropy(brain(picture), kind).backward()",
                "unwrap(brain).loss(picture, kind).backward()",
            ),
            (
                "        return self.head(self.body(picture).relu())\n",
                "        return self.head(self.body(picture).relu())\n\n"
                "    def loss(self, picture, kind):\n"
                "        return nn.functional.cross_entropy(self(picture), kind)  # DDP403\n",
            ),
        ),
        changed(
            BY_HAND,
            (
                "cross_entropy(model(image.to(gpu))",
                "cross_entropy(model.module.score(image.to(gpu))",
            ),
            ("target.to(gpu)).backward()\n", "target.to(gpu)).backward()  # DDP403\n"),
        ),
        changed(  # the optimizer has a list that nobody calls
            SINGLE,
            (
                "    adam = torch.optim.Adam(net.parameters())",
                "    kept, run = nn.ModuleList([net]), nn.ModuleList([net])  # DDP403\n"
                "    adam = torch.optim.Adam(kept.parameters())",
            ),
            ("cross_entropy(net(signal.cuda())", "cross_entropy(run[0](signal.cuda())"),
        ),
        changed(  # a method that only calls its model is given the wrapper
            SINGLE,
            *SCORING,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "net.score(signal.cuda(), label.cuda())  # DDP403\n",
            ),
        ),
        changed(  # of whatever class it is
            SINGLE,
            *SCORING,
            (
                "def main",
                "def cost(net, *pair):\n    return net.score(*pair)  # DDP403\n\n\ndef main",
            ),
            ("nn.functional.cross_entropy(net(signal.cuda()), ", "cost(net, signal.cuda(), "),
        ),
        changed(  # a part of it, one call for a backward: the wrapper calls it as its forward
            SINGLE,
            ("def main():\n", f"{_HALVES}def main():\n"),
            ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "Halves()"),
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "nn.functional.cross_entropy(net.encode(signal.cuda()), label.cuda())  # DDP403\n",
            ),
        ),
        changed(  # one that takes a part of it is not the same there
            SINGLE,
            *SCORING,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "net.partly(signal.cuda(), label.cuda())  # DDP403\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(  # what the fix makes
            SCRIPT,
            ("setup_distributed()\n", f"{GIVEN}setup_distributed()\n"),
            ("net = nn.Sequential", "net = Net"),
            ("nn.functional.cross_entropy(net(x.to(device)), ", "Net.score(net, x.to(device), "),
        ),
        changed(
            SCRIPT,
            ("setup_distributed()\n", f"{GIVEN}setup_distributed()\n"),
            ("net = nn.Sequential", "net = Net"),
            (
                "nn.functional.cross_entropy(net(x.to(device)), ",
                "type(unwrap(net)).score(net, x.to(device), ",
            ),
        ),
        changed(  # a part of it, through the wrapper
            SCRIPT,
            (
                "from ddp_metrics import reduce_mean\n",
                "from ddp_metrics import reduce_mean, through_wrapper\n",
            ),
            ("setup_distributed()\n", f"{_HALVES}setup_distributed()\n".replace("16, 32", "20, 2")),
            ("nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))", "Halves()"),
            ("wrap_model(net)", "wrap_model(net, find_unused_parameters=True)"),
            ("net(x.to(device))", 'through_wrapper(net, "encode")(x.to(device))'),
        ),
        changed(  # another of the same maker, which gives targets
            SCRIPT,
            ("net = nn.Sequential(", "make = lambda: nn.Sequential("),
            ("net = wrap_model(net)", "net, guide = wrap_model(make()), make()"),
            (
                "        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n",
                "        x = x.to(device)\n"
                "        cost = nn.functional.mse_loss(net(x), guide(x).detach())\n",
            ),
        ),
        changed(  # not differentiated
            SCRIPT,
            (
                "        cost.backward()\n",
                "        cost.backward()\n        probe = unwrap(net)(x.to(device))\n",
            ),
        ),
    ),
)
