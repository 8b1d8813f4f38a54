"""PATTERNS B1.5 to B1.8: ranks agree, on a gradient that is not that of one process."""

from __future__ import annotations

from tests.verify.hazards.base import Change, define, hazard, setup, step

OFF = ("gradients", "trajectory")

SUMMED: tuple[Change, ...] = (
    ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")'),
    ("total += loss.item() * len(labels)", "total += loss.item()"),
    ("default=0.1)", "default=0.01)"),
)
IGNORED: tuple[Change, ...] = (
    ("train_set, val_set =", "y[x[:, 0] > 0.5] = -100\n    train_set, val_set ="),
)

MEANS = (
    hazard(
        "B1.5",
        "the loss is a sum over the batch",
        "DDP401",
        (*OFF, "loss"),
        program=SUMMED,
        right=(
            (
                "loss = criterion(model(inputs), labels)",
                "loss = world * criterion(model(inputs), labels)",
            ),
            ("total += loss.item()", "total += loss.item() / world"),
        ),
    ),
    hazard(
        "B1.5b",
        "a mean is divided once more, by the number of local samples",
        "DDP401",
        (*OFF, "loss"),
        program=(
            step("""\
                loss = criterion(model(inputs), labels) / len(inputs)
                loss.backward()
            """),
            ("default=0.1)", "default=1.0)"),
        ),
        right=(("/ len(inputs)", "/ args.batch_size"),),
    ),
    hazard(
        "B1.6",
        "the mean is over the labels that are not ignored, and each rank has another number",
        "DDP401",
        (*OFF, "loss"),
        program=IGNORED,
        right=(
            step("""\
                counted = (labels != -100).sum()
                loss = criterion(model(inputs), labels) * counted * world / reduce_sum(counted)
                loss.backward()
            """),
        ),
    ),
    hazard(
        "B1.6b",
        "the mean is over a mask, and each rank's has another size",
        "DDP401",
        (*OFF, "loss"),
        program=(
            step("""\
                mask = (inputs[:, 0] < 0.5).to(inputs)
                each = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
                loss = (each * mask).sum() / mask.sum()
                loss.backward()
            """),
        ),
        right=(("/ mask.sum()", "* world / reduce_sum(mask.sum())"),),
    ),
)

CONTRASTIVE = define("""\
    def contrastive(first, second):
        first, second = nn.functional.normalize(first), nn.functional.normalize(second)
        return nn.functional.cross_entropy(first @ second.T / 0.5, torch.arange(len(first)))
""")
DICE = define("""\
    def dice_loss(logits, labels):
        share, truth = logits.softmax(1), nn.functional.one_hot(labels, 4)
        overlap, size = (share * truth).sum(0), share.sum(0) + truth.sum(0)
        return 1 - (2 * overlap / (size + 1)).mean()
""")
# The gradient of one's own share is in the losses of all ranks.
GATHER = define("""\
    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, values.contiguous())
            return torch.cat(parts)

        @staticmethod
        def backward(ctx, gradient):
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
            return gradient.chunk(dist.get_world_size())[dist.get_rank()]


    def gathered(values):
        return Gather.apply(values) if dist.is_initialized() else values
""")

COUPLED = (
    hazard(
        "B1.7",
        "the negatives of a contrastive loss are those of the rank's own share",
        "DDP406",
        (*OFF, "loss"),
        program=(
            CONTRASTIVE,
            step("""\
                first, second = model(torch.cat([inputs, inputs.flip(1)])).chunk(2)
                loss = contrastive(first, second)
                loss.backward()
            """),
        ),
        right=(
            GATHER,
            (
                "loss = contrastive(first, second)",
                "loss = contrastive(gathered(first), gathered(second))",
            ),
        ),
    ),
    hazard(
        "B1.7b",
        "dice is taken of a rank's share of the batch",
        "DDP406",
        (*OFF, "loss"),
        program=(
            DICE,
            step("""\
                loss = dice_loss(model(inputs), labels)
                loss.backward()
            """),
        ),
        right=(
            GATHER,
            (
                "loss = dice_loss(model(inputs), labels)",
                "loss = dice_loss(gathered(model(inputs)), gathered(labels))",
            ),
        ),
    ),
)

FED_BACK = (
    hazard(
        "B1.8",
        "a number made of the local loss weighs the next one",
        "DDP701",
        OFF,
        program=(
            setup("    weight = 0.5\n"),
            step("""\
                logits = model(inputs)
                penalty = logits.pow(2).mean()
                loss = criterion(logits, labels) + weight * penalty
                loss.backward()
                weight = min(max(weight + 0.1 * (penalty.item() - 1.0), 0.0), 1.0)
            """),
        ),
        right=(("(penalty.item() - 1.0)", "(reduce_sum(penalty.item()) / world - 1.0)"),),
    ),
    hazard(
        "B1.8b",
        "a rank adds a term to the loss when its own share is hard",
        "DDP404",
        OFF,
        program=(
            step("""\
                logits = model(inputs)
                loss = criterion(logits, labels)
                if loss.item() > 1.2:
                    loss = loss + logits.pow(2).mean()
                loss.backward()
            """),
        ),
        right=(("if loss.item() > 1.2:", "if reduce_sum(loss.item()) / world > 1.2:"),),
    ),
)

HAZARDS = (*MEANS, *COUPLED, *FED_BACK)
