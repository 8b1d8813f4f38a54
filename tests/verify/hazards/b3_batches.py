"""B3, the size of a batch: global or a rank's own, and what is computed from it."""

from __future__ import annotations

from tests.verify.hazards.base import ORIGINAL, Change, Hazard, changed, hazard

BATCH_SIZE = "    batch_size = args.batch_size // world\n"
CRITERION = "    criterion = nn.CrossEntropyLoss()\n"
OPTIMIZER = "    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)\n"
LOSS = "            loss = criterion(model(inputs), labels)\n"
STEP = "            optimizer.step()\n"
FIRST: Change = ("        total = 0.0\n", "        total, step = 0.0, 0\n")
SMALL: Change = ('"--batch-size", type=int, default=16', '"--batch-size", type=int, default=8')

BY_STEPS: Change = (
    "        for inputs, labels in train_loader:\n",
    """        batches = iter(train_loader)
        for _ in range(len(train_set) // args.batch_size):
            inputs, labels = next(batches)
""",
)
OVERRUN = hazard(
    "B3.26",
    "takes as many batches as the whole data set has of a rank's size",
    "DDP203",
    ("completed",),
    ("len(train_set) // args.batch_size", "len(train_set) // batch_size"),
    program=(BY_STEPS,),
)

EVERY: Change = (CRITERION, CRITERION + "    every = len(train_loader) // 10\n")
SHOW = """            step += 1
            if step % every == 0:
                print(f"step {step}")
"""
SHOW_ON_MAIN = SHOW.replace("if step", "if rank == 0 and step")
MODULO = hazard(
    "B3.27",
    "a tenth of a share's batches is none: modulo by zero",
    "DDP203",
    ("completed",),
    *(SMALL, FIRST, EVERY, (STEP, STEP + SHOW_ON_MAIN)),
    (BATCH_SIZE, "    batch_size = args.batch_size\n"),
    original=changed(ORIGINAL, SMALL, FIRST, EVERY, (STEP, STEP + SHOW)),
    right=(SMALL, FIRST, EVERY, (STEP, STEP + SHOW_ON_MAIN)),
)

TWICE: Change = (
    CRITERION,
    CRITERION + "    every = len(train_set) // (2 * args.batch_size)\n",
)
VALIDATE = """            step += 1
            if step % every == 0:
                print(f"step {step} accuracy {evaluate(model, val_loader):.4f}")
                model.train()
"""
VALIDATE_ALL = """            step += 1
            if step % every == 0:
                accuracy = evaluate(net, val_loader)
                if rank == 0:
                    print(f"step {step} accuracy {accuracy:.4f}")
                model.train()
"""
SELDOM = hazard(
    "B3.27b",
    "validates half as often: the interval is computed from a rank's batch size",
    "DDP203",
    ("metrics",),
    FIRST,
    (TWICE[0], TWICE[1].replace("args.batch_size", "batch_size")),
    (STEP, STEP + VALIDATE_ALL),
    original=changed(ORIGINAL, FIRST, TWICE, (STEP, STEP + VALIDATE)),
    right=(FIRST, TWICE, (STEP, STEP + VALIDATE_ALL)),
)

DECAY: tuple[Change, ...] = (
    (
        OPTIMIZER,
        OPTIMIZER + "    steps = args.epochs * len(train_set) // args.batch_size\n"
        "    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)\n",
    ),
    (STEP, STEP + "            decay.step()\n"),
)
SCHEDULE = hazard(
    "B3.28",
    "the schedule is laid out for the steps that batches of a rank's size would make",
    "DDP203",
    ("learning-rates", "trajectory"),
    ("len(train_set) // args.batch_size", "len(train_set) // batch_size"),
    program=DECAY,
)

TARGETS: Change = (
    LOSS,
    """            targets = torch.zeros(args.batch_size, 4).scatter_(1, labels[:, None], 1.0)
            loss = criterion(model(inputs), targets)
""",
)
FIXED = hazard(
    "B3.34",
    "a tensor is made in the size of the global batch",
    "DDP206",
    ("completed",),
    program=(TARGETS,),
    right=(("torch.zeros(args.batch_size, 4)", "torch.zeros(len(labels), 4)"),),
)

INDIVISIBLE = hazard(
    "B3.34b",
    "a batch of one cannot be divided: batch size 0",
    "DDP203",
    ("completed",),
    program=(('"--batch-size", type=int, default=16', '"--batch-size", type=int, default=1'),),
    right=None,
)

ODD: tuple[Change, ...] = (("randn(128, 8,", "randn(130, 8,"), ("[96, 32]", "[98, 32]"))
LAST_OF_ONE = hazard(
    "B3.35",
    "the last batch of 2 is one sample on each rank: batch norm fails",
    "DDP206",
    ("completed",),
    program=(*ODD, ("nn.Linear(8, 16), nn.ReLU()", "nn.Linear(8, 16), nn.BatchNorm1d(16)")),
    right=None,
)
SQUEEZED = hazard(
    "B3.35b",
    "the last batch of 2 is one sample on each rank: squeeze() takes its axis away",
    "DDP206",
    ("completed",),
    program=(
        *ODD,
        ("self.head = nn.Linear(16, 4)", "self.head = nn.Linear(16, 1)"),
        ("nn.CrossEntropyLoss()", "nn.BCEWithLogitsLoss()"),
        (
            LOSS,
            "            targets = labels.clamp(max=1).to(inputs.dtype)\n"
            "            loss = criterion(model(inputs).squeeze(), targets)\n",
        ),
    ),
    right=(("squeeze()", "squeeze(1)"),),
)

GROWN = hazard(
    "B3.37",
    "each rank takes the whole batch size",
    "DDP203",
    ("steps", "samples", "trajectory"),
    (BATCH_SIZE, "    batch_size = args.batch_size\n"),
)
RATE = hazard(
    "B3.37b",
    "the learning rate is multiplied by the number of ranks, the global batch is the same",
    "DDP203",
    ("learning-rates", "trajectory"),
    ("lr=args.lr", "lr=args.lr * world"),
)

HAZARDS: tuple[Hazard, ...] = (
    OVERRUN,
    MODULO,
    SELDOM,
    SCHEDULE,
    FIXED,
    INDIVISIBLE,
    LAST_OF_ONE,
    SQUEEZED,
    GROWN,
    RATE,
)
