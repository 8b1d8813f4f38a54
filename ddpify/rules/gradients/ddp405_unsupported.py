"""DDP405: training schemes that data parallelism does not keep."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Access
from ddpify.facts.gradients import behind
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.gradients.again import Again, again, names, stepped_between
from ddpify.rules.gradients.hooked import hooked
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

# Where `create_graph` is given.
_GRAPHS = {"torch.autograd.grad": 4, ".backward": 2, "torch.autograd.backward": 3}


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per construct that has no data-parallel equivalent."""
    shards = of(settings).shards  # of which each backward averages
    for one in again(facts) if not shards else ():
        yield from dict.fromkeys(_averaged(facts, one))
    if shards:
        yield from _twice(facts)
    yield from dict.fromkeys(_without_forward(facts))
    yield from hooked(facts)
    yield from _replaced(facts)
    if facts.whole_batches:
        return
    closed = (step for step in facts.steps if step.receiver and (step.args or step.kwargs))
    for optimizer in {t for step in closed for t in (step.receiver or NOTHING).things}:
        if optimizer.kind is Kind.OPTIMIZER and optimizer.name.endswith("LBFGS"):
            yield Finding(
                "DDP405",
                optimizer.born,
                "LBFGS decides from the loss of one rank: ranks diverge and hang",
                Severity.ERROR,
                (),
                "use a first-order optimizer, or train in one process",
            )
    phases = facts.phases.items()
    for site in (site for site, test in phases if not test or _adds(facts, site)):
        yield Finding(
            "DDP405",
            site,
            "one loop trains and, in another phase, evaluates: it can be shared out for neither",
            Severity.ERROR,
            (),
            "write one loop for each, or give each its own loader by a call of its own",
        )


def _twice(facts: Facts) -> Iterable[Finding]:
    """Gradients of gradients: the weights that they are made of are gone by then."""
    for call in facts.named(*_GRAPHS):
        given = call.arg(_GRAPHS[call.name], "create_graph")
        if given is not None and not (given.known and not given.const):
            yield Finding(
                "DDP405",
                call.site,
                "a backward through gradients needs weights that a sharded model has given away"
                " (torch 2.13 ends with a RuntimeError)",
                Severity.ERROR,
                advice="use --strategy ddp",
            )


def _replaced(facts: Facts) -> Iterable[Finding]:
    """``net.forward = other``: what is read of a model is the forward of its class."""
    for access in facts.accesses:
        models = access.base.of(Kind.MODEL, Kind.WRAPPED) or _classes(facts, access)
        if access.stored and access.attribute in ("forward", "__call__") and models:
            yield Finding(
                "DDP405",
                access.base_site,
                "another forward is put into this model than that of its class, which was read",
                Severity.ERROR,
                (),
                "write it as the forward of a class",
            )


def _classes(facts: Facts, access: Access) -> list[Thing]:
    """``Net.forward = other``: the classes of trained models among what this is stored in."""
    refs = [whole(thing).ref for model in facts.models for thing in model.things]
    line = {info.site for ref in refs if isinstance(ref, ClassInfo) for info in ref.mro()}
    classes = access.base.of(Kind.CLASS)
    return [t for t in classes if isinstance(t.ref, ClassInfo) and t.ref.site in line]


def _without_forward(facts: Facts) -> Iterable[Finding]:
    """``for loss in losses: loss.backward()``: of these, one backward is averaged."""
    for call in facts.named(".backward"):
        values = [value for value in (call.receiver, *call.args) if value is not None]
        outputs = {output for value in values for output in behind(value.all_deps())}
        through = [f for f in facts.training_forwards if f.output in outputs]
        inner = next(iter(call.where.loops()), None)
        around = {loop.site for f in through for loop in f.call.where.loops()}
        if through and inner is not None and inner.site not in around:
            yield Finding(
                "DDP405",
                call.site,
                "several backwards follow forwards that came before this loop: of these the first"
                " is averaged over the ranks, and no other",
                Severity.ERROR,
                (),
                "add the losses and go backward once",
                tuple((f.call.site, "this forward") for f in through[:1]),
            )


def _adds(facts: Facts, loop: Site) -> bool:
    """Whether a number is shown in a loop that is added up over the ranks, where it trains."""
    inside = (parts for call, parts in facts.sinks if call.site.within(loop))
    return any(part.how not in ("", "reduce_mean") for parts in inside for part in parts)


def _averaged(facts: Facts, one: Again) -> Iterable[Finding]:
    """What a second backward through a kept graph adds, averaged right after it."""
    step = stepped_between(facts, one)
    found = names(facts, one) if step is None else None
    if found == []:
        return
    message = "a second backward over a retained graph is not averaged over the ranks"
    advice = "add the losses and go backward once"
    if step is not None:
        message = (
            "an optimizer steps between this backward, which keeps its graph, and the next: where"
            " that goes back through the weights as they were, one process ends there, too, since"
            ' PyTorch 1.5 ("modified by an inplace operation")'
        )
        advice = "step after both; or drop `retain_graph=True` if nothing goes this way again"
    code = "\n".join(f"average_gradients({name})" for name in found or ())
    yield Finding(
        "DDP405",
        one.first.site,
        message,
        Severity.ERROR,
        (edit(facts, How.AFTER, one.second.site, code),) if code else (),
        "" if code else advice,
        ((step.site, "the step"),) if step is not None else (),
    )


_MADE = "    adam = torch.optim.Adam(net.parameters())\n"
_BENDS = (
    "net[0].weight.register_hook(lambda g: g.clamp(-1, 1))",
    "next(net.parameters()).register_hook(torch.sign)",
)
_SCALES = (
    "net[0].weight.register_hook(lambda g: -0.5 * g)",
    "net[0].weight.register_hook(lambda g: g * torch.ones(16))",
)
_COST = "        cost.backward()\n"
_KEPT = _COST.replace("()", "(retain_graph=True)")
_TWICE = (_COST, f"{_KEPT}        (2 * cost).backward()\n")
_EACH = "        for term in (cost, 2 * cost):\n            term.backward()\n"
_SUM = "        total = 0.0\n        for term in (cost, 2 * cost):\n"
_SUM += "            total = total + term\n        total.backward()\n"
_MARKED = ("backward(retain_graph=True)\n", "backward(retain_graph=True)  # DDP405\n")
# A step between them of another model, which is called anew for the second.
_PAIR = (
    (
        "solver = torch",
        "guess = wrap_model(nn.Linear(2, 20).to(device))\n"
        "own = torch.optim.Adam(guess.parameters())\nsolver = torch",
    ),
    (
        "        cost = nn.functional.cross_entropy(net(x.to(device)), y.to(device))\n" + _COST,
        "        own.zero_grad()\n        out = net(x.to(device))\n"
        "        cost = nn.functional.cross_entropy(out, y.to(device))\n"
        "        cost = cost + (guess(out) - x.to(device)).square().mean()\n"
        f"{_KEPT}        own.step()\n"
        "        back = (guess(out) - x.to(device)).abs().mean()\n"
        "        back.backward()\n",
    ),
)
_AVERAGED = (
    ("    begin_epoch,\n", "    average_gradients,\n    begin_epoch,\n"),
    ("        solver.step()\n", "        average_gradients(net)\n        solver.step()\n"),
)

RULE = Rule(
    "DDP405",
    "unsupported-scheme",
    "A line search on a local loss takes as many backwards as each rank finds: the job breaks off"
    " or hangs (measured with LBFGS), or ranks step apart. A second backward over one graph gives"
    " each rank's own gradient, without an error.",
    "BUGS G13; PATTERNS B1.2, B2.19",
    check,
    bad=(
        *(changed(SINGLE, (_MADE, f"    {hook}  # DDP405\n{_MADE}")) for hook in _BENDS),
        changed(
            SINGLE,
            (
                _MADE,
                f"    inner = net.forward\n    net.forward = lambda x: inner(x)  # DDP405\n{_MADE}",
            ),
        ),
        changed(
            SINGLE,
            ("torch.optim.Adam(net.parameters())", "torch.optim.LBFGS(net.parameters())  # DDP405"),
            ("adam.step()", "adam.step(lambda: objective)"),
        ),
        changed(
            TRAINER,
            (
                "torch.optim.RMSprop(self.pupil.parameters(), lr=1e-3)",
                "torch.optim.LBFGS(self.pupil.parameters(), lr=1e-3)  # DDP405",
            ),
            ("self.habit.step()", "self.habit.step(lambda: loss)"),
        ),
        changed(SCRIPT, _TWICE, _MARKED),
        changed(SCRIPT, *_PAIR, _MARKED),
        changed(SCRIPT, (_COST, _EACH.replace("()\n", "()  # DDP405\n"))),
        changed(  # a step between the two: torch itself ends there
            SINGLE,
            (
                "            objective.backward()\n",
                "            objective.backward(retain_graph=True)  # DDP405\n"
                "            adam.step()\n            (2 * objective).backward()\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        SINGLE,
        *(changed(SINGLE, (_MADE, f"    {hook}\n{_MADE}")) for hook in _SCALES),
        changed(  # one of several that may be chosen, which none of its kind could step so
            SINGLE,
            (
                "    adam = torch.optim.Adam(net.parameters())\n",
                "    chosen = torch.optim.LBFGS if opt.bs > 99 else torch.optim.Adam\n"
                "    adam = chosen(net.parameters())\n",
            ),
        ),
        changed(SCRIPT, ("cost.backward()", "cost.backward(retain_graph=False)")),
        changed(SCRIPT, ("cost.backward()", "cost.backward(retain_graph=True)")),
        changed(SCRIPT, _TWICE, *_AVERAGED),
        changed(SCRIPT, (_COST, _SUM)),
        changed(SCRIPT, *_PAIR, *_AVERAGED),
        changed(  # the graph is kept, and a forward is made for each backward
            SCRIPT,
            (
                "        cost.backward()\n",
                "        cost.backward(retain_graph=True)\n"
                "        (cost + net(x.to(device)).square().mean()).backward()\n",
            ),
        ),
    ),
)
