"""A right migration of a program that says what it does in every way is verified green."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify import cli
from tests.projects import migrated
from tests.verify.hazards.base import ORIGINAL, changed, put
from tests.verify.observing import run_single

pytestmark = pytest.mark.training

SHOWN = '        print(f"epoch {epoch} loss {train_loss:.6f} accuracy {accuracy:.4f}")\n'
SAYING = """        log.warning("epoch %d loss %.6f accuracy %.4f", epoch, train_loss, accuracy)
        print(epoch, train_loss, accuracy)
        writer.add_scalar("loss/train", train_loss, epoch)
        history.append({"epoch": epoch, "loss": train_loss, "time": time.time()})
        with open("log.csv", "a") as file:
            file.write(f"{epoch},{train_loss},{accuracy},{time.time() - start}\\n")
        with open("history.json", "w") as file:
            json.dump(history, file)
"""
BEGUN = """    logging.basicConfig(format="%(asctime)s %(message)s")
    writer, history, start = SummaryWriter("events"), [], time.time()
    with open("log.csv", "w") as file:
        file.write("epoch,loss,accuracy,seconds\\n")
"""
LIBRARIES = "from torch.utils.tensorboard import SummaryWriter\nfrom tqdm.auto import tqdm\n"
PROGRAM = changed(
    ORIGINAL,
    ("import argparse\n", "import argparse\nimport json\nimport logging\nimport time\n"),
    ("from torch import nn\n", f"from torch import nn\n{LIBRARIES}"),
    ("def main():\n", f'log = logging.getLogger("train")\n\n\ndef main():\n{BEGUN}'),
    ("    model = Net()\n", "    model = nn.DataParallel(Net())\n"),
    ("in train_loader:", "in tqdm(train_loader):"),
    (SHOWN, SAYING),
)


def test_it_is_green_and_what_is_not_compared_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(PROGRAM, tmp_path / "project")
    assert cli.main(["verify", str(script), "--json=-"]) == cli.CLEAN
    report = json.loads(capsys.readouterr().out)
    measured = {check["name"]: check["measured"] for check in report["checks"]}
    # for each of two epochs: 3 logged, 3 printed, 3 in the table, 2 in the document, 1 scalar
    assert measured["metrics"] == ("24 numbers in 15 lines; not compared: 6 times; 2 progress bars")
    assert measured["checkpoints"].endswith("without DataParallel's `module.`")


def test_the_sentence_with_which_a_script_ends_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "quit.py").write_text(
        "def main():\n    raise SystemExit('batch 33: use 32')\nmain()\n"
    )
    run = run_single(tmp_path, "quit.py", tmp_path / "out")
    assert (run.status, run.exit_code) == ("SystemExit: batch 33: use 32", 1)
    assert 'quit.py", line 2, in main' in run.traceback
    assert run.crashed


BY_HAND = changed(
    ORIGINAL,
    ("    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)\n", ""),
    ("            optimizer.zero_grad()\n", "            model.zero_grad()\n"),
    (
        "            optimizer.step()\n",
        "            for p in model.parameters():\n"
        "                p.data.add_(p.grad, alpha=-args.lr)\n",
    ),
)


def test_steps_that_no_optimizer_takes_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(BY_HAND, tmp_path / "project")
    assert cli.main(["verify", str(script), "--json=-"]) == cli.CLEAN
    checks = json.loads(capsys.readouterr().out)["checks"]
    measured = {check["name"]: check["measured"] for check in checks}
    assert measured["steps"] == "12 in one process, 12 / 12 on the ranks"
    assert measured["learning-rates"] == "steps that are taken by hand tell none"

    put(BY_HAND, tmp_path / "original")
    migrated(script)
    text = script.read_text()
    script.write_text(text.replace("    model = wrap_model(model)\n", ""))  # none is averaged
    baseline = f"--baseline={tmp_path / 'original'}"
    assert cli.main(["verify", str(script), "--json=-", baseline]) == cli.TO_DO
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {c["name"] for c in checks if c["verdict"] == "fail"} >= {"gradients", "trajectory"}
