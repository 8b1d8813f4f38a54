"""DDP406: the loss compares the samples of a batch with each other."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.carrying import carried
from ddpify.facts.coupling import certain
from ddpify.facts.model import Facts
from ddpify.facts.norms import built, by_class
from ddpify.facts.roles import backwards
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.states import mixed
from ddpify.facts.values import Thing
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import SCRIPT, SINGLE, changed
from ddpify.settings import Settings

STEP = "            objective.backward()"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a finding per tensor to gather, and per comparison for which that cannot be done."""
    for gather, why in facts.whole:
        yield Finding(
            "DDP406",
            gather.site,
            "the loss compares the samples of a batch: a rank would see 1/N of them",
            Severity.ERROR,
            (edit(facts, How.REPLACE, gather.site, gather.code),),
            because=((why, "compared"),),
        )
    calls = backwards(facts.calls)
    starts = [v for c in calls for v in (c.receiver, *c.args) if v is not None]
    for site in sorted({thing.born for thing in certain(starts)}):
        yield Finding(
            "DDP406",
            site,
            "the loss compares all samples of a batch: a rank would see 1/N of them",
            Severity.ERROR,
            (),
            "give it the outputs of all ranks, and what belongs to them: whole_batch(outputs)",
        )
    yield from _in_models(facts)


def _in_models(facts: Facts) -> Iterable[Finding]:
    """What goes on between the samples of a batch inside of a model, and where it is made."""
    for site in facts.compared:
        yield Finding(
            "DDP406",
            site,
            "the model compares all samples of a batch, or decides by them: a rank would see 1/N",
            Severity.ERROR,
            (),
            "let it see those of all ranks: whole_batch(rows), and take its own of the result",
        )
    for site in facts.collated:
        yield Finding(
            "DDP406",
            site,
            "what makes a batch compares its samples: a rank would see 1/N of them",
            Severity.ERROR,
            (),
            "do it to what comes out of the loader, or by numbers of the whole data set",
        )
    made = by_class(facts.calls)
    classes: dict[ClassInfo, Thing] = {}
    for thing in (thing for one in facts.models for thing in one.things):
        classes |= built(thing, made)
    for site in sorted({site for info, thing in classes.items() for site in mixed(info, thing)}):
        yield Finding(
            "DDP406",
            site,
            "a row of this holds values of several samples: in a rank's share other ones meet",
            Severity.ERROR,
            (),
            "layers come first in a state, then samples: transpose(0, 1) before it is reshaped",
        )
    for site in sorted({site for info in classes for site in carried(info)}):
        yield Finding(
            "DDP406",
            site,
            "the model keeps this of a batch for later ones: a rank would keep its own rows only",
            Severity.ERROR,
            (),
            "keep the rows of all ranks, the same on each: whole_batch(rows)",
        )


DICE = """def dice(guess, truth):
    guess, truth = guess.reshape(-1), truth.reshape(-1)
    both = (guess * truth).sum()
    return 1 - 2 * both / (guess.sum() + truth.sum())


"""
CONTRASTIVE = """class Contrastive(nn.Module):
    def forward(self, views):
        rows = torch.cat(torch.unbind(views, dim=1), dim=0)
        alike = torch.div(torch.matmul(rows, rows.T), 0.1)
        return -(alike - alike.logsumexp(1, keepdim=True)).diag().mean()


"""
PULL_AWAY = """class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 32), nn.Sequential(nn.ReLU(), nn.Linear(32, 4))

    def forward(self, signal):
        inner = self.inner(signal.view(signal.size(0), -1))
        return self.outer(inner), inner


def apart(rows):
    unit = rows / torch.sqrt(torch.sum(rows**2, -1, keepdim=True))
    alike, count = torch.matmul(unit, unit.transpose(1, 0)), rows.size(0)
    return (torch.sum(alike) - count) / (count * (count - 1))


"""
CENTERS = """class Centers(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(4, 4))

    def forward(self, rows, label):
        return (rows - self.centers[label]).square().sum() / rows.size(0)


"""
# Of all batches so far: a queue of their rows, or the mean of these.
KEEPER = """class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.state = nn.Linear(16, 4), 0.0
        self.register_buffer("kept", torch.randn(64, 4))

    def keep(self, new, begin=0):
{body}

    def forward(self, signal):
        rows = self.body(signal)
        out = rows - 0.1 * self.kept.clone().mean(0)
        self.keep(rows.detach())
        return out


"""
TAGGER = """class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.LSTM(4, 8, bidirectional=True, batch_first=True), nn.Linear(16, 4)

    def told(self, states):
        return self.out({rows})

    def forward(self, signal):
        _, (last, _) = self.body(signal.view(signal.size(0), 4, 4))
        return self.told(last)


"""
# A branch that all samples decide, and what the same size, or an error, does.
DECIDER = """class Decider(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, signal):
        rows = torch.tanh(self.body(signal.view(signal.size(0), -1)))
{body}
        return self.out(rows)


"""
BRANCH = """        if rows.mean() > 0:  # DDP406
            rows = rows * 2"""
FACTOR = "        rows = rows * (2 if (rows > 0.9).any() else 1)  # DDP406"
SAME_BRANCH = """        if rows.dim() > 2 or rows.shape[1] > 32:
            rows = rows.flatten(1)
        if torch.isnan(rows).any():
            raise ValueError("not a number")
        for b in range(rows.size(0)):
            if rows[b].sum() == 0:  # of one sample
                continue
            rows = rows.clone()"""
NET = "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))"
# Of the batch that it makes: a mean over 1/N of the samples.
COLLATED = (
    (
        "def accuracy",
        "def together(pairs):\n    rows = torch.stack([row for row, _ in pairs])\n"
        "    rows = rows - rows.mean(0)  # DDP406\n"
        "    return rows, torch.stack([kind for _, kind in pairs])\n\n\ndef accuracy",
    ),
    ("opt.bs, shuffle=True)", "opt.bs, shuffle=True, collate_fn=together)"),
)
QUEUE = "        self.kept[begin : begin + new.shape[0]] = new  # DDP406"
MEAN = "        self.kept = 0.9 * self.kept + 0.1 * new.mean(0)  # DDP406"
ADDED = "        self.kept.mul_(0.9).add_(new.mean(0))  # DDP406"
OWN_ROWS = "        self.state = 0.5 * self.state + new"

RULE = Rule(
    "DDP406",
    "coupled-batch",
    "A contrastive loss has one term per pair of samples, a dice loss divides sums over the batch."
    " Over a rank's share of the batch that is no error, but another objective. The outputs of all"
    " ranks have to be gathered, and the gradient has to flow back through the gather.",
    "PATTERNS B1.7; BUGS G15 (open_clip#616, vissl PR#123)",
    check,
    bad=(
        changed(SINGLE, *COLLATED),
        changed(
            SINGLE,
            (
                STEP,
                "            z = net(signal.cuda())\n            pairs = z @ z.t()  # DDP406\n"
                "            objective = pairs.logsumexp(1).mean()\n" + STEP,
            ),
        ),
        changed(
            SINGLE,
            (
                STEP,
                "            z = net(torch.cat([signal, -signal]).cuda())\n"
                "            pairs = torch.mm(z, z.transpose(1, 0))  # DDP406\n"
                "            objective = pairs.logsumexp(1).mean()\n" + STEP,
            ),
        ),
        *(
            changed(
                SINGLE,
                ("def accuracy", KEEPER.format(body=body) + "def accuracy"),
                (NET, "Encoder()"),
            )
            for body in (QUEUE, MEAN, ADDED)
        ),
        changed(
            SINGLE,
            (
                "def accuracy",
                TAGGER.replace("({rows})", "(states.view(-1, 16))  # DDP406") + "def accuracy",
            ),
            (NET, "Tagger()"),
        ),
        *(
            changed(
                SINGLE,
                ("def accuracy", DECIDER.format(body=body) + "def accuracy"),
                (NET, "Decider()"),
            )
            for body in (BRANCH, FACTOR)
        ),
        changed(  # entries compared with their mean over the batch
            SINGLE,
            (
                STEP,
                "            z = net(signal.cuda())\n"
                "            objective = (z - z.mean(0, keepdim=True)).square().mean()  # DDP406\n"
                + STEP,
            ),
        ),
        changed(  # a dice loss: what is summed has no row per sample any more, its arguments have
            SINGLE,
            ("def accuracy", f"{DICE}def accuracy"),
            (
                STEP,
                "            truth = nn.functional.one_hot(label.cuda(), 4)\n"
                "            objective = dice(net(signal.cuda()).softmax(1), truth)  # DDP406\n"
                + STEP,
            ),
        ),
        changed(  # two views of each sample, one after the other
            SINGLE,
            ("def accuracy", f"{CONTRASTIVE}def accuracy"),
            (
                STEP,
                "            both = net(torch.cat([signal, -signal]).cuda())\n"
                "            first, second = both.chunk(2)\n"
                "            objective = Contrastive()(torch.stack([first, second], 1))  # DDP406\n"
                + STEP,
            ),
        ),
        changed(  # one of two outputs, each of which has a row per sample
            SINGLE,
            ("def accuracy", f"{PULL_AWAY}def accuracy"),
            (NET, "Encoder()"),
            ("guess = net(signal.cuda())", "guess = net(signal.cuda())[0]"),
            (
                "            objective = ",
                "            out, inner = net(signal.cuda())\n            objective = ",
            ),
            (
                "cross_entropy(net(signal.cuda()), label.cuda())\n",
                "cross_entropy(out, label.cuda())\n"
                "            objective = objective + 0.1 * apart(inner)  # DDP406\n",
            ),
        ),
        changed(  # weights that gradients go through: not only a count
            SINGLE,
            (
                STEP,
                "            scores = net(signal.cuda())\n"
                "            each = scores.sum(1)\n"
                "            objective = (each * label.cuda()).sum() / each.sum()  # DDP406\n"
                + STEP,
            ),
        ),
        changed(  # a weight that each step's loss changes: began's k
            SINGLE,
            ("    for round_", "    share = 0.0\n    for round_"),
            (
                STEP,
                "            objective = objective - share * net(-signal.cuda()).square().mean()\n"
                "            share = share + 0.01 * objective.item()  # DDP406\n" + STEP,
            ),
        ),
        changed(  # the root of a mean
            SINGLE,
            (
                STEP,
                "            guess, truth = net(signal.cuda()), signal[:, :4]\n"
                "            off = nn.functional.mse_loss(guess, truth)  # DDP406\n"
                "            objective = torch.sqrt(off)\n" + STEP,
            ),
        ),
    ),
    good=(
        SCRIPT,
        changed(
            SINGLE,
            ("def accuracy", DECIDER.format(body=SAME_BRANCH) + "def accuracy"),
            (NET, "Decider()"),
        ),
        changed(SINGLE, *COLLATED, ("rows - rows.mean(0)  # DDP406", "rows - 0.5")),
        changed(  # of each place in the batch, what its own samples left
            SINGLE,
            ("def accuracy", KEEPER.format(body=OWN_ROWS) + "def accuracy"),
            (NET, "Encoder()"),
        ),
        changed(
            SINGLE,
            (
                "def accuracy",
                TAGGER.format(rows="states.transpose(0, 1).reshape(-1, 16)") + "def accuracy",
            ),
            (NET, "Tagger()"),
        ),
        changed(  # a mean that is only looked at, and one per sample
            SINGLE,
            (
                STEP,
                "            z = net(signal.cuda())\n"
                "            off = z - z.mean(1, keepdim=True)\n"
                "            objective = off.square().mean(dim=(1,)).sqrt().mean()\n"
                "            spread = z.std().item()\n" + STEP,
            ),
        ),
        changed(  # a curve of each sample's loss
            SINGLE,
            (
                STEP,
                "            guess, truth = net(signal.cuda()), signal[:, :4].cuda()\n"
                '            each = nn.functional.mse_loss(guess, truth, reduction="none")\n'
                "            objective = each.sum(1).sqrt().mean()\n" + STEP,
            ),
        ),
        changed(
            SINGLE,
            (
                STEP,
                "            table = torch.ones(3, 4)\n"
                "            objective = objective + (net(signal.cuda()) @ table.t()).mean()\n"
                + STEP,
            ),
        ),
        changed(  # what a criterion with weights of its own gives is one number perhaps: DDP401
            SINGLE,
            ("def accuracy", f"{CENTERS}def accuracy"),
            (
                "    for round_",
                "    centers, outer = Centers().cuda(), nn.CrossEntropyLoss()\n    for round_",
            ),
            ("net.parameters()", "[*net.parameters(), *centers.parameters()]"),
            (
                "            objective = ",
                "            out = net(signal.cuda())\n            objective = ",
            ),
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "outer(out, label.cuda())\n"
                "            objective = objective + centers(out, label.cuda())\n",
            ),
        ),
    ),
)
