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


def _filled_by_hand(given: str) -> tuple[tuple[str, str], ...]:
    """A ``collate_fn`` that fills up to a length it is given, else to the longest of a batch."""
    return (
        (
            "def accuracy",
            "def filled(samples, most=None):\n"
            "    if most is None:\n        most = max(len(label) for _, label in samples)\n"
            "    labels = torch.zeros(len(samples), most)\n"
            "    for i, (_, label) in enumerate(samples):\n"
            "        labels[i, : len(label)] = label\n"
            "    return torch.stack([signal for signal, _ in samples]), labels\n\n\n"
            "def accuracy",
        ),
        ("shuffle=True)", f"shuffle=True, collate_fn=lambda rows: filled({given}))"),
        ("nn.functional.cross_entropy", "nn.functional.mse_loss"),
    )


BY_HAND = changed(
    SINGLE,
    *_filled_by_hand("rows"),
    ("            objective.backward()\n", "            objective.backward()  # DDP401\n"),
)
TO_A_LENGTH = changed(SINGLE, *_filled_by_hand("rows, most=8"))
