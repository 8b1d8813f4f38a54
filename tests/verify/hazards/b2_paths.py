"""B2: the ranks take different paths, and hang, crash or drift apart."""

from __future__ import annotations

from tests.verify.hazards.base import ORIGINAL, Change, Hazard, changed, hazard

HANGS = 20.0  # seconds: more than starting takes on a busy machine
SAVE = '        torch.save(model.state_dict(), "last.pt")\n'
MAIN_SAVE = '            torch.save(net.state_dict(), "last.pt")\n'
PARSED = "    args = parser.parse_args()\n"
OPTIMIZER = "    criterion = nn.CrossEntropyLoss()\n"
LOSS = "            loss = criterion(model(inputs), labels)\n"
TOTAL = "            total += loss.item() * len(labels)\n"
FOUR_EPOCHS: Change = ('"--epochs", type=int, default=2', '"--epochs", type=int, default=4')
# The number of this rank's share, beside the reduced one that is printed.
LOCAL: tuple[Change, ...] = (
    ("    return reduce_sum(correct) / reduce_sum(count)\n", "    return correct / count\n"),
    (
        "        accuracy = evaluate(net, val_loader)\n",
        "        local = evaluate(net, val_loader)\n"
        "        accuracy = reduce_sum(local) / world\n",
    ),
)
# Every second validation sample, which rank 1 gets, is labelled wrongly.
ANNOTATED: Change = (
    "[96, 32])\n",
    "[96, 32])\n    second = val_set.indices[1::2]\n"
    "    y[second] = (y[second] + 1) % 4  # another annotator\n",
)
# A buffer that never changes: the wrapper's forwards are collectives, and batch statistics do
# not blur the comparison.
BUFFER: tuple[Change, ...] = (
    (
        "        self.head = nn.Linear(16, 4)\n",
        "        self.head = nn.Linear(16, 4)\n"
        '        self.register_buffer("scale", torch.tensor(0.5))\n',
    ),
    ("self.head(self.encoder(x))", "self.head(self.encoder(x)) * self.scale"),
)


def _after_epoch(lines: str) -> Change:
    """At the end of an epoch, on all ranks."""
    return MAIN_SAVE, MAIN_SAVE + lines


def _per_epoch(
    number: str,
    title: str,
    failing: tuple[str, ...],
    lines: tuple[str, str, str],
    setup: tuple[Change, ...],
    local: tuple[Change, ...] = (),
    rule: str = "DDP703",
) -> Hazard:
    """``lines`` end an epoch: of the original, the wrong and the right migration."""
    single, wrong, right = lines
    both = (FOUR_EPOCHS, *setup)
    return hazard(
        number,
        title,
        rule,
        failing,
        *(*both, *local, _after_epoch(wrong)),
        original=changed(ORIGINAL, *both, (SAVE, SAVE + single)),
        right=(*both, _after_epoch(right)),
    )


STOP = "        if accuracy > 0.6:\n            break\n"
EARLY_STOP = _per_epoch(
    "B2.12",
    "stops early on the accuracy of its own share",
    ("completed",),
    (STOP, STOP.replace("accuracy", "local"), STOP),
    (ANNOTATED,),
    LOCAL,
    "DDP803",
)

PLATEAU = "        scheduler.step(accuracy)\n"
PLATEAU_SETUP: Change = (
    OPTIMIZER,
    OPTIMIZER + "    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(\n"
    '        optimizer, mode="max", factor=0.5, patience=0\n    )\n',
)
ON_PLATEAU = _per_epoch(
    "B2.13",
    "ReduceLROnPlateau is fed with the accuracy of its own share",
    ("learning-rates", "ranks-identical", "trajectory"),
    (PLATEAU, PLATEAU.replace("accuracy", "local"), PLATEAU),
    (ANNOTATED, PLATEAU_SETUP),
    LOCAL,
    "DDP704",
)

CUT = """        if accuracy <= best:
            for group in optimizer.param_groups:
                group["lr"] /= 4
        best = max(best, accuracy)
"""
HAND_MADE_CUT = _per_epoch(
    "B2.13b",
    "cuts the learning rate by hand when the accuracy of its own share stalls",
    ("learning-rates", "ranks-identical", "trajectory"),
    (CUT, CUT.replace("accuracy", "local"), CUT),
    (ANNOTATED, (OPTIMIZER, OPTIMIZER + "    best = 0.0\n")),
    LOCAL,
)

SCHEDULE = "        scheduler.step()\n"
SCHEDULER_GATED = _per_epoch(
    "B2.14b",
    "the scheduler steps inside the block that logs, which only rank 0 enters now",
    ("learning-rates", "ranks-identical", "trajectory"),
    (SCHEDULE, "            scheduler.step()\n", SCHEDULE),
    ((OPTIMIZER, OPTIMIZER + "    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"),),
)

STOPPER: Change = (
    "def main():\n",
    '''class EarlyStopping:
    """Saves the best model; stops when it has not become better by ``delta``."""

    def __init__(self, delta):
        self.best, self.delta, self.stop = -1.0, delta, False

    def __call__(self, accuracy, model):
        self.stop = accuracy < self.best + self.delta
        if not self.stop:
            self.best = accuracy
            torch.save(model.state_dict(), "best.pt")


def main():
''',
)
SAVE_AND_STOP = "        stopping(accuracy, model)\n        if stopping.stop:\n            break\n"
MAIN_STOPPER: Change = (
    STOPPER[0],
    STOPPER[1].replace(
        "            torch.save(",
        "            if not dist.is_initialized() or dist.get_rank() == 0:\n"
        "                torch.save(",
    ),
)
STOPPING: tuple[Change, ...] = (
    FOUR_EPOCHS,
    (OPTIMIZER, OPTIMIZER + "    stopping = EarlyStopping(0.5)\n"),
)
STOPPING_GATED = hazard(
    "B2.14c",
    "one call saves and decides to stop; rank 0 alone makes it",
    "DDP803",
    ("completed",),
    *(STOPPER, *STOPPING),
    _after_epoch("    " + SAVE_AND_STOP.replace("model", "net")),
    original=changed(ORIGINAL, STOPPER, *STOPPING, (SAVE, SAVE + SAVE_AND_STOP)),
    right=(MAIN_STOPPER, *STOPPING, _after_epoch(SAVE_AND_STOP.replace("model", "net"))),
)

DRY_RUN = """            if index % 3 == 2:
                print(f"batch {index}")
                if args.dry_run:
                    break
"""
RIGHT_DRY_RUN = DRY_RUN.replace("    print(", "    if rank == 0:\n                    print(")
DRY_RUN_SETUP: tuple[Change, ...] = (
    (PARSED, '    parser.add_argument("--dry-run", action="store_true")\n' + PARSED),
    (
        "for inputs, labels in train_loader:",
        "for index, (inputs, labels) in enumerate(train_loader):",
    ),
)
BREAK_GATED = hazard(
    "B2.14",
    "the break stands inside the block that prints, which only rank 0 enters now",
    "DDP802",
    ("completed",),
    *DRY_RUN_SETUP,
    (TOTAL, TOTAL + DRY_RUN.replace("if index", "if rank == 0 and index")),
    original=changed(ORIGINAL, *DRY_RUN_SETUP, (TOTAL, TOTAL + DRY_RUN)),
    right=(*DRY_RUN_SETUP, (TOTAL, TOTAL + RIGHT_DRY_RUN)),
    arguments=("--dry-run",),
    timeout=HANGS,
)

SHOWN = '        model.eval()\n        print("predicted", model(x[:4]).argmax(1).tolist())\n'
ON_MAIN = "".join(f"    {line}\n" for line in SHOWN.splitlines())
SAMPLE_ON_MAIN = hazard(
    "B2.15",
    "rank 0 alone predicts a few samples through the wrapper of a model with buffers",
    "DDP804",
    ("completed",),
    *BUFFER,
    _after_epoch(ON_MAIN),
    original=changed(ORIGINAL, *BUFFER, (SAVE, SAVE + SHOWN)),
    right=(*BUFFER, _after_epoch(ON_MAIN.replace("model", "net"))),
    timeout=HANGS,
)

# Under no_grad only the first forward after training broadcasts buffers (torch 2.13).
WITH_GRAD: Change = ("@torch.no_grad()\n", "")
UNEVEN_EVALUATION = hazard(
    "B2.16",
    "evaluates shares of 3 and 2 batches through the wrapper of a model with buffers",
    "DDP304",
    ("completed",),
    ("evaluate(net, val_loader)", "evaluate(model, val_loader)"),
    program=(*BUFFER, WITH_GRAD, ("randn(128, 8,", "randn(129, 8,"), ("[96, 32]", "[96, 33]")),
    timeout=HANGS,
)

BROKEN: Change = (
    "[96, 32])\n",
    '[96, 32])\n    x[train_set.indices[0]] = float("nan")  # a broken recording\n',
)
SKIP = "            if torch.isnan(loss):\n                continue\n"
SKIPPED_BATCH = hazard(
    "B2.17",
    "skips a batch whose loss is not a number, on the rank that has it",
    "DDP803",
    ("completed",),
    BROKEN,
    (LOSS, LOSS + SKIP),
    original=changed(ORIGINAL, BROKEN, (LOSS, LOSS + SKIP)),
    right=(
        BROKEN,
        (LOSS, LOSS + SKIP.replace("torch.isnan(loss)", "reduce_sum(torch.isnan(loss)) > 0")),
    ),
    timeout=HANGS,
)

OPEN_ENDED: tuple[Change, ...] = (
    ("import torch\n", "import itertools\n\nimport torch\n"),
    ("for epoch in range(args.epochs):", "for epoch in itertools.count():"),
)
DONE = "            if loss.item() < 1.1:\n                break\n"
OVER = "        if loss.item() < 1.1:\n            break\n"
GLOBAL_LOSS = (LOSS, LOSS + "            mean = reduce_sum(loss.item()) / world\n")
LOCAL_EXIT = hazard(
    "B2.18",
    "trains until the loss of its own share is small enough",
    "DDP803",
    ("completed",),
    *OPEN_ENDED,
    (TOTAL, TOTAL + DONE),
    _after_epoch(OVER),
    original=changed(ORIGINAL, *OPEN_ENDED, (TOTAL, TOTAL + DONE), (SAVE, SAVE + OVER)),
    right=(
        *OPEN_ENDED,
        GLOBAL_LOSS,
        (TOTAL, TOTAL + DONE.replace("loss.item()", "mean")),
        _after_epoch(OVER.replace("loss.item()", "mean")),
    ),
    timeout=HANGS,
)

LBFGS: tuple[Change, ...] = (
    ('"--batch-size", type=int, default=16', '"--batch-size", type=int, default=96'),
    (
        "torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)",
        'torch.optim.LBFGS(model.parameters(), max_iter=8, line_search_fn="strong_wolfe")',
    ),
    (
        "            optimizer.zero_grad()\n" + LOSS + "            loss.backward()\n"
        "            optimizer.step()\n",
        """            def closure():
                optimizer.zero_grad()
                loss = criterion(model(inputs), labels)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
""",
    ),
)
LINE_SEARCH = hazard(
    "B2.19",
    "a line search judges its steps by the loss of its own share",
    "DDP405",
    ("completed",),
    program=LBFGS,
    right=(("return loss\n", "return torch.tensor(reduce_sum(loss.item()) / world)\n"),),
)

HAZARDS: tuple[Hazard, ...] = (
    EARLY_STOP,
    ON_PLATEAU,
    HAND_MADE_CUT,
    BREAK_GATED,
    SCHEDULER_GATED,
    STOPPING_GATED,
    SAMPLE_ON_MAIN,
    UNEVEN_EVALUATION,
    SKIPPED_BATCH,
    LOCAL_EXIT,
    LINE_SEARCH,
)
