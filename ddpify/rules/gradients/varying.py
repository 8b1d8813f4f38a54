"""Losses that are means over a count which differs between ranks, and that nothing here mends."""

from __future__ import annotations

from ddpify.facts.details import CountMean
from ddpify.facts.events import Call
from ddpify.facts.values import Thing
from ddpify.rules.base import Finding, Severity
from ddpify.rules.examples import SINGLE, changed


def varying(call: Call, ratio: Thing) -> Finding:
    """A loss that is a mean over such a count, or over padding."""
    over = ratio.detail(CountMean)
    if over is not None and over.count is None and over.call is None and over.at is not None:
        message = (
            "the loss is a mean over padding, too: each rank fills up to its own longest sample"
        )
        advice = "leave padding out of the loss: `ignore_index`, or a mask and its sum"
        because = ((over.at, "filled up"), (ratio.born, "the mean"))
        return Finding("DDP401", call.site, message, Severity.ERROR, (), advice, because)
    return Finding(
        "DDP401",
        call.site,
        "the loss divides by a count or by weights that differ between ranks",
        Severity.ERROR,
        (),
        "averaging the ranks is then not exact: divide the sum by the count of all ranks over their"
        " number, in a statement that every rank comes by",
        ((ratio.born, "divided"),),
    )


PADDED = changed(  # an example of DDP401
    SINGLE,
    (
        "def accuracy",
        "def longest(samples):\n"
        "    signals, labels = zip(*samples)\n"
        "    filled = nn.utils.rnn.pad_sequence(signals, batch_first=True)\n"
        "    return filled, nn.utils.rnn.pad_sequence(labels, batch_first=True)\n\n\n"
        "def accuracy",
    ),
    ("opt.bs, shuffle=True)", "opt.bs, shuffle=True, collate_fn=longest)"),
    ("            objective.backward()\n", "            objective.backward()  # DDP401\n"),
)
