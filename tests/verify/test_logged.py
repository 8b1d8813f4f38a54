"""What a program prints and logs again and again is a course, under the words around it."""

from __future__ import annotations

from dataclasses import replace

from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.logged import logged
from ddpify.verify.evidence import Evidence, Scalars, Text
from ddpify.verify.verdict import Logged, Points
from tests.verify.factories import evidence, ranks, reference


def courses(found: Evidence) -> dict[str, Points]:
    return {one.name: one.reference for one in logged(Comparison(found))}


def printed(*lines: str) -> Evidence:
    said = "".join(f"{line}\n" for line in lines)
    many = tuple(replace(run, stdout=said if run.rank == 0 else "") for run in ranks())
    return evidence(many, one=replace(reference(), stdout=said))


def test_a_line_of_each_epoch_is_a_course_for_each_number() -> None:
    found = printed(
        "epoch 1: loss 0.5, acc=0.25",
        "ready",
        "epoch 2: loss 0.25, acc=0.5",
        "epoch 3: loss 0.125, acc=0.5",
    )
    assert courses(found) == {
        "loss": ((1.0, 0.5), (2.0, 0.25), (3.0, 0.125)),
        "acc": ((1.0, 0.25), (2.0, 0.5), (3.0, 0.5)),
    }


def test_what_stays_the_same_or_is_said_once_is_none() -> None:
    assert courses(printed("lr 0.1", "lr 0.1", "seconds that 7 things take")) == {}


def test_tables_documents_and_boards_have_names_of_their_own() -> None:
    table = "epoch,train_loss\n0,0.5\n1,0.25\n"
    document = '{"history": [{"accuracy": 0.5}, {"accuracy": 0.75}]}'
    board = {"loss/train": [(10, 0.5), (20, 0.25)]}
    silent = tuple(replace(run, stdout="") for run in ranks())
    found = evidence(
        silent,
        one=replace(reference(), stdout=""),
        texts=(Text("log.csv", table, table), Text("log.json", document, document)),
        scalars=(Scalars("runs", board, board),),
    )
    seen = courses(found)
    assert seen["train_loss"] == ((0.0, 0.5), (1.0, 0.25))
    assert seen["history/accuracy"] == ((0.0, 0.5), (1.0, 0.75))
    assert seen["loss/train"] == ((10.0, 0.5), (20.0, 0.25))


def test_both_runs_have_theirs() -> None:
    found = printed("loss 0.5", "loss 0.25")
    half = tuple(replace(run, stdout="loss 0.25\nloss 0.125\n") for run in ranks())
    found = replace(found, distributed=replace(found.distributed, runs=half))
    expected = Logged("loss", "stdout", ((0.0, 0.5), (1.0, 0.25)), ((0.0, 0.25), (1.0, 0.125)))
    assert logged(Comparison(found)) == (expected,)
