"""Tables, JSON documents and TensorBoard's event files, compared as data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ddpify.verify.checks.lines import differences
from ddpify.verify.checks.records import text_lines
from ddpify.verify.interpreter import examined
from ddpify.verify.scalars import compare_scalars


def different(path: str, one: str, other: str) -> list[str]:
    both = text_lines(one, path, folder="/copy/1"), text_lines(other, path, folder="/copy/n")
    return [str(each) for each in differences(*both, 1e-9)]


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        ("a.csv", "epoch,loss\n0,0.1712345678901234\n", "epoch,loss\n0,0.1712345678901231\n"),
        ("a.csv", "loss,epoch_time\n0.5,3.25\n", "loss,epoch_time\n0.5,9.75\n"),
        ("a.csv", 'note,x\n"a, b",1e-3\n', 'note,x\n"a, b",0.001\n'),
        ("a.csv", "wall,x\n1795269700.12,1\n", "wall,x\n1795269912.12,1\n"),
        ("a.csv", "0.5,1\n", "0.500000000000001,1\n"),
        ("a.csv", "file,x\n/copy/1/a.pt,1\n", "file,x\n/copy/n/a.pt,1\n"),
        ("a.tsv", "a\tb\n1\t2.5\n", "a\tb\n1\t2.50\n"),
        ("a.json", '{"b": 1, "a": [0.25]}', '{"a": [0.250], "b": 1}'),
        ("a.json", '{"time": 3.0, "ok": true}', '{"time": 4.0, "ok": true}'),
        ("a.json", "no json 0.5", "no json 0.5"),
        ("a.jsonl", '{"loss": 0.5, "sec": 1}\n', '{"loss": 0.5, "sec": 2}\n'),
    ],
)
def test_the_same_data(path: str, one: str, other: str) -> None:
    assert different(path, one, other) == []


@pytest.mark.parametrize(
    ("path", "one", "other", "said"),
    [
        (
            "a.csv",
            "epoch,loss\n0,0.1712345678901234\n",
            "epoch,loss\n0,0.1912345678901234\n",
            "'0,0.1912345678901234' instead of '0,0.1712345678901234'",
        ),
        ("a.csv", "a,b\n1,2\n3,4\n", "a,b\n1,2\n", "missing: 3,4"),
        ("a.csv", "a,b\nx,2\n", "a,b\ny,2\n", "'y,2' instead of 'x,2'"),
        ("a.json", '{"a": {"b": 0.5}}', '{"a": {"b": 0.25}}', "'a/b: 0.25' instead of 'a/b: 0.5'"),
        ("a.json", '{"a": 1, "b": 2}', '{"b": 2}', "missing: a: 1"),
        ("a.json", '{"ok": true}', '{"ok": false}', "'ok: false' instead of 'ok: true'"),
        ("a.jsonl", '{"n": 1}\n{"n": 2}\n', '{"n": 1}\n{"n": 3}\n', "'n: 3' instead of 'n: 2'"),
    ],
)
def test_other_data_is_named(path: str, one: str, other: str, said: str) -> None:
    assert different(path, one, other) == [said]


def test_event_files_are_read_by_tensorboard(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for side, scale in (("one", 1.0), ("many", 0.5)):
        for new in (False, True):
            with SummaryWriter(str(tmp_path / side / "runs" / f"{new}")) as writer:
                writer.add_scalar("loss", scale, 3, new_style=new)
                writer.add_text("note", "said", 0)
    roots = tmp_path / "one", tmp_path / "many"
    left = [[str(p.relative_to(r)) for p in sorted(r.rglob("*.*"))] for r in roots]
    with examined(sys.executable) as interpreter:
        found, rest = compare_scalars(interpreter, roots, (left[0], left[1]))
    assert [each.folder for each in found] == ["runs/False", "runs/True"]
    for each in found:
        assert (each.reference["loss"], each.distributed["loss"]) == ([[3, 1.0]], [[3, 0.5]])
    assert rest == ("2 of TensorBoard's text",)


def test_without_tensorboard_it_is_said(tmp_path: Path) -> None:
    python = tmp_path / "python"
    facts = {"python": [3, 11], "torch": "2.9.0", "gpus": 0, "cuda": False}
    python.write_text(
        f'#!/bin/sh\ncat <<E\n{json.dumps(facts)}\n{{"answer": null}}\n'
        '{"answer": null}\nE\nread line\n'
    )
    python.chmod(0o755)
    left = ["runs/events.out.tfevents.1.host.1.0"]
    with examined(str(python)) as interpreter:
        found, rest = compare_scalars(interpreter, (tmp_path, tmp_path), (left, left))
        assert compare_scalars(interpreter, (tmp_path, tmp_path), (left, [])) == ((), ())
    assert (found, rest) == ((), (f"TensorBoard's event files ({python} has no tensorboard)",))
