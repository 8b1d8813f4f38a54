"""DDP401: the loss is no mean over the batch, and DDP averages."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.coupling import certain
from ddpify.facts.details import is_of_one
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Gather, Share
from ddpify.facts.roles import backwards
from ddpify.facts.unproven import unproven
from ddpify.facts.values import Kind, Measure, Value
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, LEARNER, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.gradients.agreed import agreed_terms
from ddpify.rules.gradients.snippets import MASKED, OF_THE_BATCH, PARTLY_SCALED, POSITIVES
from ddpify.rules.gradients.summed import summed
from ddpify.rules.gradients.varying import BY_HAND, PADDED, TO_A_LENGTH, varying
from ddpify.rules.shared.optimizers import steps_alike
from ddpify.rules.shared.wrapped import forwards, reached, wraps
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a finding per backward of a sum and per mean over a rank's own count.

    Without a fix where the loss is not followed, or its count cannot be made that of all ranks.
    """
    yield from (_shared(facts, share) for share in facts.shares)
    yield from (_pooled(facts, gather, call) for gather, call in facts.pooled)
    for addend in facts.summed:
        scaled = edit(facts, How.REPLACE, addend, "{} * get_world_size()")
        yield _sum(addend, "this part of the loss", scaled)
    yield from agreed_terms(facts)
    for site, calls in once(backwards(facts.calls)).items():
        call = calls[0]
        loss = call.receiver
        if loss is None or loss.dep(Kind.WORLD) or certain([loss]) or call.receiver_site is None:
            continue
        if loss.measure is Measure.SUM:
            code = "({} * get_world_size())"
            yield _sum(site, "the loss", edit(facts, How.REPLACE, call.receiver_site, code))
        elif loss.dep(Kind.RATIO):
            yield from (varying(call, ratio) for ratio in loss.dep(Kind.RATIO))
        elif _is_unproven(loss):
            yield _unproven(facts, call)


def _sum(site: Site, what: str, scaled: Edit) -> Finding:
    message = f"{what} is a sum over the batch: averaging over N ranks makes its gradient 1/N"
    return Finding("DDP401", site, message, Severity.ERROR, (scaled,))


def _shared(facts: Facts, share: Share) -> Finding:
    """A count, or a mean, that is to be of all ranks."""
    if share.mean_over:
        code = f"global_mean({{}}, {share.mean_over})"
        message = "the loss is a mean over the targets that count, and ranks have unequally many"
    elif share.at_least:
        code = f"per_rank_count({share.counted}, at_least={share.at_least})"
        message = "the loss divides by a count of this rank's samples, which differs between ranks"
    else:
        code = "per_rank_count({})"
        message = "the loss divides by a count of this rank's samples, which differs between ranks"
    fix = (edit(facts, How.REPLACE, share.site, code),)
    return Finding("DDP401", share.site, message, Severity.ERROR, fix)


def _pooled(facts: Facts, gather: Gather, call: Site) -> Finding:
    """What a loss that is not followed is given: that of all ranks."""
    what = "the loss is not known to be a mean: each rank computes that of the whole batch"
    fix = (edit(facts, How.REPLACE, gather.site, gather.code),)
    message, because = f"{what}, as DataParallel did", ((call, "the loss is made"),)
    return Finding("DDP401", gather.site, message, Severity.ERROR, fix, because=because)


def _is_unproven(loss: Value) -> bool:
    known = loss.measure is Measure.MEAN and not loss.dep(Kind.AVERAGED)
    return not known and not is_of_one(loss) and bool(loss.dep(Kind.BATCH))


def _unproven(facts: Facts, call: Call) -> Finding:
    """Two of the terms stand in the sentence, the others are its reasons."""
    terms = unproven(facts, call.receiver_site) if call.receiver_site is not None else ()
    first = "".join(f"; {what} ({site})" for site, what in terms[:2])
    return Finding(
        "DDP401",
        call.site,
        f"the loss could not be shown to be a mean over the batch{first}",
        Severity.ERROR,
        (),
        "a mean needs nothing, a sum must be multiplied by get_world_size(), a mean over a varying"
        " count (masks, positives) needs the count of all ranks; it is exact, too, with its"
        " arguments gathered: whole_batch(outputs), whole_batch(labels), numbers of rows made anew",
        terms[2:],
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per backward of a wrapped model's plain sum over the batch."""
    for backward, made in summed(run):
        models = [wrap for wrap in wraps(run) if reached(backward, forwards(run, wrap))]
        alike = all(steps_alike(run, wrap.covers) for wrap in models)
        yield Finding(
            "DDP401",
            backward.site,
            "the loss is a sum over this rank's samples, and DDP averages over ranks: the gradient"
            " is 1/N of that of one process with all samples",
            Severity.NOTE if alike else Severity.WARNING,
            (),
            "use a mean, or multiply the loss by the world size",
            ((made.site, "summed here"),),
        )


RULE = Rule(
    "DDP401",
    "loss-no-mean",
    "DistributedDataParallel averages the ranks' gradients. For a mean over samples, as many on"
    " each rank, that gives the gradient of the global mean; for a sum it gives 1/N of it, and for"
    " a mean over a count that differs between ranks (masks, positives, ignore_index) something"
    " else: the count is then that of all ranks.",
    "DistributedDataParallel docstring (gradients are averaged); PATTERNS B1.5",
    check,
    lint=lint,
    bad=(
        PADDED,
        BY_HAND,
        changed(
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum")\n'),
            ("cost.backward()\n", "cost.backward()  # DDP401\n"),
        ),
        changed(
            LEARNER,
            ("nn.MSELoss()", 'nn.MSELoss(reduction="sum")'),
            ("off.backward()\n", "off.backward()  # DDP401\n"),
        ),
        changed(
            TRAINER,
            (
                "F.mse_loss(self.pupil(run.to(local_device())), then.to(local_device()))",
                "(self.pupil(run.to(local_device())) - then.to(local_device())).abs().sum()",
            ),
            ("off.backward()\n", "off.backward()  # DDP401\n"),
        ),
        changed(  # a mean over the targets that are not ignored
            SINGLE,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "LOSS(net(signal.cuda()), label.cuda())  # DDP401\n",
            ),
            ("    adam = ", "    LOSS = nn.CrossEntropyLoss(ignore_index=3)\n    adam = "),
        ),
        changed(  # older flags, by their place: a sum
            SINGLE,
            ("nn.functional.cross_entropy(", "nn.NLLLoss(None, False)("),
            ("objective.backward()\n", "objective.backward()  # DDP401\n"),
        ),
        changed(
            SINGLE,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "LOSS(net(signal.cuda()), label.cuda())  # DDP401\n",
            ),
            ("    adam = ", "    LOSS = nn.CrossEntropyLoss(None, None, 3)\n    adam = "),
        ),
        changed(  # a criterion without a name cannot be asked for its weights
            SINGLE,
            ("nn.functional.cross_entropy(", "nn.CrossEntropyLoss(torch.ones(4).cuda())("),
            ("objective.backward()\n", "objective.backward()  # DDP401\n"),
        ),
        changed(SINGLE, MASKED, ("use.sum()\n", "use.sum()  # DDP401\n")),
        changed(  # a count of which more is made: it is divided by where it stands
            SINGLE,
            MASKED,
            (
                "(each * use).sum() / use.sum()\n",
                "(each * use).sum()\n            used = use.sum()\n            print(used)\n"
                "            objective = objective / used  # DDP401\n",
            ),
        ),
        changed(  # two parts of one loss, one of which is not followed: one divisor for both
            SINGLE,
            MASKED,
            (
                "(each * use).sum() / use.sum()\n",
                "(each * use).sum()\n            used = use.sum()  # DDP401\n"
                "            hard = hardest(each, use).sum() / used\n"
                "            objective = objective / used + hard\n",
            ),
            ("import torch\n", "import torch\nfrom mining import hardest\n"),
            ("objective.backward()\n", "objective.backward()  # DDP401\n"),
        ),
        changed(  # what is not read may give a sum
            SINGLE,
            ("nn.functional.cross_entropy(", "hardest("),
            ("import torch\n", "import torch\nfrom mining import hardest\n"),
            ("objective.backward()\n", "objective.backward()  # DDP401\n"),
        ),
        *OF_THE_BATCH,
        changed(  # a sum that is divided by what is no number of samples
            SINGLE,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "nn.functional.cross_entropy(\n"
                '                net(signal.cuda()), label.cuda(), reduction="sum"\n'
                "            ) / 10\n",
            ),
            ("objective.backward()\n", "objective.backward()  # DDP401\n"),
        ),
        changed(  # a criterion of one's own, and how many positives there are
            SINGLE,
            ("nn.functional.cross_entropy(", "Positives()("),
            ("def accuracy", f"{POSITIVES}def accuracy"),
            ("clamp(min=1)\n", "clamp(min=1)  # DDP401\n"),
        ),
    ),
    good=(
        *CORRECT,
        TO_A_LENGTH,
        PARTLY_SCALED,
        changed(
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum")\n'),
            ("cost.backward()", "(cost * get_world_size()).backward()"),
            ("is_main_process,\n", "get_world_size, is_main_process,\n"),
        ),
        changed(  # a sum that the script divides by its batch itself
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum") / len(x)\n'),
        ),
        changed(  # and in place
            SCRIPT,
            ("y.to(device))\n", 'y.to(device), reduction="sum")\n        cost /= len(x)\n'),
        ),
        changed(  # what the fixes make
            SINGLE,
            MASKED,
            ("/ use.sum()\n", "/ per_rank_count(use.sum())\n"),
            ("import argparse\n", "import argparse\nfrom ddp_metrics import per_rank_count\n"),
        ),
        changed(
            SINGLE,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "global_mean(LOSS(net(signal.cuda()), label.cuda()), (label != 3).sum())\n",
            ),
            ("    adam = ", "    LOSS = nn.CrossEntropyLoss(ignore_index=3)\n    adam = "),
            ("import argparse\n", "import argparse\nfrom ddp_metrics import global_mean\n"),
        ),
        changed(  # mixup: each sample with another one of its batch
            SINGLE,
            (
                "            objective = ",
                "            order = torch.randperm(signal.size()[0]).cuda()\n"
                "            mixed = 0.3 * signal.cuda() + 0.7 * signal.cuda()[order]\n"
                "            other = nn.functional.cross_entropy(net(mixed), label.cuda()[order])\n"
                "            objective = 0.7 * other + 0.3 * ",
            ),
        ),
        changed(  # the older flags
            SINGLE,
            ("nn.functional.cross_entropy(", "nn.NLLLoss(None, True)("),
        ),
        changed(
            SINGLE,
            (
                "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())\n",
                "nn.NLLLoss(None, False)(net(signal.cuda()), label.cuda()) / len(label)\n",
            ),
        ),
        changed(  # something of each sample, whatever device it is on
            SINGLE,
            (
                "            objective = ",
                "            feature = net(signal.cuda())[:, :, None]\n"
                "            eye = torch.eye(4)\n"
                "            if feature.is_cuda:\n                eye = eye.cuda()\n"
                "            square = torch.bmm(feature, feature.transpose(2, 1)) - eye\n"
                "            objective = torch.norm(square, dim=(1, 2)).mean() + ",
            ),
        ),
        changed(  # a sum per sample over a count per sample
            SINGLE,
            MASKED,
            ("(each * use).sum() / use.sum()", "((each * use).sum(1) / use.sum(1)).mean()"),
        ),
    ),
)
