"""Faults that people made to try verify, of which it named the neighbour's rule or saw nothing."""

from __future__ import annotations

from textwrap import indent

from tests.verify.hazards.base import Change, hazard, setup

SHOWN = 'print(f"epoch {epoch} loss {train_loss:.6f} accuracy {accuracy:.4f}")'
EVALUATED = "        accuracy = evaluate(net, val_loader)\n"
LOGGING: tuple[Change, ...] = (
    ("import argparse\n", "import argparse\nimport logging\n"),
    (
        "def main():\n",
        'log = logging.getLogger("train")\n\n\ndef main():\n    logging.basicConfig()\n',
    ),
    (SHOWN, 'log.warning("epoch %d loss %.6f accuracy %.4f", epoch, train_loss, accuracy)'),
)
TABLE: tuple[Change, ...] = (
    (SHOWN, f'{SHOWN}; append(f"{{epoch}},{{train_loss}},{{accuracy}}\\n")'),
    (
        "@torch.no_grad()\n",
        'def append(line):\n    with open("log.csv", "a") as file:\n        file.write(line)\n\n\n'
        "@torch.no_grad()\n",
    ),
)
HEAD = 'with open("log.csv", "w") as file:\n    file.write("epoch,loss,accuracy\\n")\n'
HEAD_ON_MAIN = setup("if rank == 0:\n" + indent(HEAD, "    "))
BOARD: tuple[Change, ...] = (
    (
        "from torch import nn\n",
        "from torch import nn\nfrom torch.utils.tensorboard import SummaryWriter\n",
    ),
    (SHOWN, f'{SHOWN}; writer.add_scalar("loss/train", train_loss, epoch)'),
)
WRITER = '    writer = SummaryWriter("runs/first")\n'
MODEL = "    criterion = nn.CrossEntropyLoss()\n"

HAZARDS = (
    hazard(
        "R.1",
        "rank 0 alone waits for the others",
        "DDP801",
        ("completed",),
        (EVALUATED, EVALUATED + "        if rank == 0:\n            dist.barrier()\n"),
        timeout=15.0,
    ),
    hazard(
        "R.2",
        "rank 0 alone evaluates, and adds up what nobody else has",
        "DDP801",
        ("completed",),
        (EVALUATED, f"        accuracy = 0.0\n        if rank == 0:\n    {EVALUATED}"),
        timeout=15.0,
    ),
    hazard(
        "R.3",
        "a table to which every rank appends",
        "DDP502",
        ("files-once",),
        (
            f"            {SHOWN}; append(",
            f"            {SHOWN}\n        if rank >= 0:\n            append(",
        ),
        (
            "            torch.save",
            "        if rank == 0:\n            torch.save",
        ),
        HEAD_ON_MAIN,
        program=TABLE,
        alone=(setup(HEAD),),
        right=(HEAD_ON_MAIN,),
    ),
    hazard(
        "R.4",
        "the number that is logged is not reduced",
        "DDP702",
        ("metrics",),
        ("reduce_sum(total) / len(train_set)", "world * total / len(train_set)"),
        program=LOGGING,
    ),
    hazard(
        "R.5",
        "the scalar that TensorBoard shows is that of rank 0's share",
        "DDP702",
        ("metrics",),
        ('"loss/train", train_loss', '"loss/train", world * total / len(train_set)'),
        (MODEL, f"{MODEL}    if rank == 0:\n    {WRITER}"),
        program=BOARD,
        alone=((MODEL, MODEL + WRITER),),
        right=((MODEL, f"{MODEL}    if rank == 0:\n    {WRITER}"),),
    ),
)
