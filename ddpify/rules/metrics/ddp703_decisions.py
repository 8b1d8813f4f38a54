"""DDP703: ranks decide from numbers that each computed for itself."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.joining import flat_deps
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Measure, Value
from ddpify.names import OF_CHECKPOINTS
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, is_local
from ddpify.rules.examples import CORRECT, SINGLE, changed
from ddpify.rules.examples.single import METER
from ddpify.rules.metrics.deciding import left_behind, results
from ddpify.rules.metrics.kept import TRACKER
from ddpify.rules.metrics.outside import decided_outside
from ddpify.settings import Settings
from ddpify.source import Site

COLLECTIVE = ("torch.save", *OF_CHECKPOINTS)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation that all ranks repeat and then decide from.

    And one per number of a rank's own samples that a scheduler is given.
    """
    yield from _scheduled(facts)
    decided = _decided_from(facts)
    yield from _unseen(facts, decided)
    done: set[Site] = set()
    for end in facts.replicated:
        names = left_behind(facts, end)
        loaders = {t.born for t in loaders_in(end.loop.over)}
        if end.loop.site in done or not names or not loaders & decided:
            continue
        done.add(end.loop.site)
        told = tuple(_told(facts, end, names))
        if not told:
            continue
        yield Finding(
            "DDP703",
            end.loop.site,
            f"a decision is made from {', '.join(names)}: ranks may differ in the last digit and"
            " part ways",
            Severity.ERROR,
            told,
        )


def _told(facts: Facts, end: LoopEnd, names: tuple[str, ...]) -> Iterable[Edit]:
    """Rank 0's numbers for all: what is added up, and the results of what is collected."""
    calls, lists = results(facts, end, names)
    for site in calls:
        yield edit(facts, How.REPLACE, site, "broadcast({})")
    rest = [name for name in names if name not in lists]
    given = f"({', '.join(rest)})" if len(rest) > 1 else "".join(rest)
    if rest:
        yield edit(facts, How.AFTER, end.loop.site, f"{', '.join(rest)} = broadcast({given})")


def _unseen(facts: Facts, loaders: set[Site]) -> Iterable[Finding]:
    """``score = evaluate(model, everything)``: decided from what each rank computed at once."""
    done: set[Site] = set()
    for forward, site, names in decided_outside(facts, loaders):
        if site in done:
            continue
        done.add(site)
        told = ", ".join(names)
        given = f"({told})" if len(names) > 1 else told
        yield Finding(
            "DDP703",
            site,
            f"a decision is made from {told}: ranks may differ in the last digit, or in"
            " their batch norm, and part ways",
            Severity.ERROR,
            (edit(facts, How.AFTER, site, f"{told} = broadcast({given})"),),
            because=((forward.call.site, "the model is called here"),),
        )


def _scheduled(facts: Facts) -> Iterable[Finding]:
    """``scheduler.step(np.mean(losses))``: the ranks' learning rates would part."""
    done: set[Site] = set()
    for call in _scheduler_steps(facts):
        given = call.arg(0, "metrics")
        site = call.arg_site(0, "metrics")
        if given is None or site is None or site in done or not is_local(facts, given):
            continue
        done.add(site)
        mean = given.measure is Measure.MEAN
        yield Finding(
            "DDP703",
            site,
            "the learning rate would follow this rank's own number: ranks part ways",
            Severity.ERROR,
            (edit(facts, How.REPLACE, site, "reduce_mean({})"),) if mean else (),
            "" if mean else "give the scheduler the number of all ranks: reduce it first",
        )


def _scheduler_steps(facts: Facts) -> list[Call]:
    steps = facts.named(".step")
    return [c for c in steps if c.receiver is not None and c.receiver.of(Kind.SCHEDULER)]


def _decided_from(facts: Facts) -> set[Site]:
    """Loaders whose batches reach a condition on a collective, or a scheduler."""
    values: list[Value] = []
    for call in (*[loop.backward for loop in facts.training], *facts.named(*COLLECTIVE)):
        values += [guard.test for guard in call.where.conditions()]
    for call in _scheduler_steps(facts):
        values += [*call.args, *call.kwargs.values()]
    batches = {d for value in values for d in flat_deps(value) if d.kind is Kind.BATCH}
    return {t.born for b in batches if b.inner is not None for t in b.inner.things}


PLATEAU = (
    (
        "    for round_",
        "    slow = torch.optim.lr_scheduler.ReduceLROnPlateau(adam)\n    for round_",
    ),
    ("        net.train()\n", "        net.train()\n        shown = []\n"),
    (
        "            adam.step()\n",
        "            adam.step()\n            shown.append(float(objective))\n",
    ),
    (
        '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
        "        slow.step(sum(shown))\n",
    ),
)

# The whole lists are for a function of the project; rank 0's result of it decides.
COLLECTED = (
    ("def accuracy", "def share(found):\n    return found[-1].mean()\n\n\ndef accuracy"),
    ("    right, seen = 0, 0\n", "    found = []\n"),
    ("            right += (guess == label.cuda()).sum().item()\n", "            print(guess)\n"),
    (
        "            seen += len(label)\n",
        "            found.append(guess.squeeze_(0).cpu().numpy())\n",
    ),
    ("    return right / seen\n", "    mean = share(found)\n    return mean\n"),
    (
        '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
        "        if accuracy(net, holdout) > 0.9:\n            break\n",
    ),
)

_UNFOLLOWED = (  # what is evaluated goes into an object that is not followed
    *TRACKER,
    ("    right, seen = 0, 0\n", "    tracker = Tracker()\n"),
    (
        "            right += (guess == label.cuda()).sum().item()\n"
        "            seen += len(label)\n",
        "            hits = (guess == label.cuda()).float().mean().item()\n"
        '            tracker.update("loss", hits)\n',
    ),
    ("    return right / seen\n", '    return tracker.table.loc["loss", "total"]\n'),
)

RULE = Rule(
    "DDP703",
    "decision-from-own-number",
    "Every rank evaluates the same samples, but not always with the same bits: kernels are chosen"
    " by benchmark, sums run in another order. Best-so-far, early stopping and ReduceLROnPlateau"
    " then differ between ranks, and the next collective hangs. Rank 0's number decides for all.",
    "BUGS C04, C05; CONTRACT: decisions from metrics",
    check,
    bad=(
        changed(
            SINGLE,
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)\n",
                "in pairs:  # DDP703\n            guess = net(signal.cuda()).argmax(1)\n"
                "            print(guess)\n",
            ),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        if accuracy(net, holdout) > 0.9:\n            break\n",
            ),
        ),
        changed(
            SINGLE,
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)\n",
                "in pairs:  # DDP703\n            guess = net(signal.cuda()).argmax(1)\n"
                "            print(guess)\n",
            ),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n    torch',
                "        if accuracy(net, holdout) > 0.9:\n            torch",
            ),
        ),
        changed(SINGLE, *COLLECTED, ("in pairs:\n", "in pairs:  # DDP703\n")),
        changed(  # numbers that a function picks by the samples
            SINGLE,
            (
                "def accuracy",
                "def hit(found):\n    if found > 0:\n        return 1\n    return 0\n\n\n"
                "def accuracy",
            ),
            ("    right, seen = 0, 0\n", "    hits = []\n"),
            ("in pairs:\n", "in pairs:  # DDP703\n"),
            (
                "            right += (guess == label.cuda()).sum().item()\n"
                "            seen += len(label)\n",
                "            hits.append(hit((guess == label.cuda()).sum().item()))\n",
            ),
            ("    return right / seen\n", "    return sum(hits) / len(hits)\n"),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        if accuracy(net, holdout) > 0.9:\n            break\n",
            ),
        ),
        changed(  # an average meter
            SINGLE,
            ("def accuracy", f"{METER}def accuracy"),
            ("    right, seen = 0, 0\n", "    meter = Meter()\n"),
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)\n",
                "in pairs:  # DDP703\n            guess = net(signal.cuda()).argmax(1)\n"
                "            print(guess)\n",
            ),
            (
                "            right += (guess == label.cuda()).sum().item()\n"
                "            seen += len(label)\n",
                "            hits = (guess == label.cuda()).float().mean().item()\n"
                "            meter.update(hits, len(label))\n",
            ),
            ("    return right / seen\n", "    return meter.avg\n"),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        if accuracy(net, holdout) > 0.9:\n            break\n",
            ),
        ),
        changed(  # an object that is not followed
            SINGLE,
            *_UNFOLLOWED,
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        score = accuracy(net, holdout)  # DDP703\n"
                "        if score > 0.9:\n            break\n",
            ),
        ),
        changed(  # and what it says is kept in an attribute
            SINGLE,
            *_UNFOLLOWED,
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        opt.score = accuracy(net, holdout)  # DDP703\n"
                "        if opt.score > 0.9:\n            break\n",
            ),
        ),
        changed(  # lists in a dict
            SINGLE,
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)\n",
                "in pairs:  # DDP703\n            guess = net(signal.cuda()).argmax(1)\n"
                '            found["all"].append(guess.float().mean().item())\n',
            ),
            ("    right, seen = 0, 0\n", '    found = {"all": []}\n'),
            (
                "            right += (guess == label.cuda()).sum().item()\n"
                "            seen += len(label)\n",
                "",
            ),
            ("    return right / seen\n", '    return max(found["all"])\n'),
            (
                '        print("round", round_, "accuracy", accuracy(net, holdout))\n',
                "        if accuracy(net, holdout) > 0.9:\n            break\n",
            ),
        ),
        changed(  # of no loader, between two steps
            SINGLE,
            (
                "            adam.step()\n",
                "            adam.step()\n            hits = 0\n            with torch.no_grad():\n"
                "                for at in range(800, 1000, 100):  # DDP703\n"
                "                    guess = net(signals[at : at + 100].cuda()).argmax(1)\n"
                "                    hits += (guess == labels[at : at + 100].cuda()).sum().item()\n"
                "            if hits > 190:\n                torch.save(net, 'best.pth')\n",
            ),
        ),
        changed(
            SINGLE,
            *PLATEAU,
            ("append(float(objective))", "append(float(objective) ** 2)"),
            (".step(sum(shown))\n", ".step(sum(shown))  # DDP703\n"),
        ),
        changed(
            SINGLE,
            *PLATEAU,
            ("        slow.step(sum(shown))\n", ""),
            (
                "            shown.",
                "            slow.step(objective)  # DDP703\n            shown.",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(SINGLE, *PLATEAU, (".step(sum(shown))", ".step(round_)")),
        changed(  # that there is a row decides, not what is in it
            SINGLE,
            (
                "def main():\n",
                "def show(net, signals):\n    net.eval()\n    rows = None\n"
                "    for signal in signals:\n        row = net(signal.cuda()).detach()\n"
                "        rows = row if rows is None else torch.cat((rows, row))\n"
                '    torch.save(rows, "rows.pt")\n\n\ndef main():\n',
            ),
            ("    torch.save(net.", "    show(net, signals.split(8))\n    torch.save(net."),
        ),
        SINGLE,
    ),
)
