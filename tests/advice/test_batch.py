"""Where the batch size comes from, what launchers pass, and the rows that follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.advice.model import Advice, Row
from ddpify.settings import Settings
from tests.advice.programs import PARALLEL, TRAIN, advice, changed

GIVEN = "batch_size=args.batch_size"
NORM = ("nn.ReLU()", "nn.BatchNorm1d(20)")


def line(text: str, what: str) -> int:
    return text[: text.index(what)].count("\n") + 1


@pytest.mark.parametrize(
    ("changes", "size", "place"),
    [
        pytest.param((), 8, '"--batch-size"', id="option"),
        pytest.param(((GIVEN, "batch_size=24"),), 24, "batch_size=24", id="literal"),
        pytest.param(
            ((GIVEN, "batch_size=SEEN"), ("SEEN = 0", "SEEN = 6")), 6, "SEEN = 6", id="constant"
        ),
        pytest.param(
            ((GIVEN, 'batch_size=SEEN["bs"]'), ("SEEN = 0", 'SEEN = {"lr": 12, "bs": 12}')),
            12,
            "SEEN = {",
            id="config",
        ),
        pytest.param(
            ((GIVEN, "batch_size=args.batch_size // 2"),), None, "args.batch_size //", id="computed"
        ),
        pytest.param(
            ((", default=8)", ', default="8", dest="batch_size")'),), 8, '"--batch-size"', id="dest"
        ),
    ],
)
def test_the_origin_is_found(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], size: int | None, place: str
) -> None:
    text = changed(TRAIN, *changes)
    (origin,) = advice(tmp_path, text).origins
    assert origin.size == size
    assert str(origin.site) == f"train.py:{line(text, place)}"


def test_defaults_may_be_set_later(tmp_path: Path) -> None:
    text = changed(
        TRAIN,
        (", default=8)", ")"),
        ("SEEN = 0", 'SEEN = {"a": dict(batch_size=20, epochs=2), "b": dict(batch_size=40)}'),
        ("    return parser", '    parser.set_defaults(**SEEN["a"])\n    return parser'),
    )
    (origin,) = advice(tmp_path, text).origins
    assert origin.size == 20
    assert str(origin.site) == f"train.py:{line(text, 'parser.set_defaults')}"


def test_a_default_that_is_not_followed_is_not_guessed(tmp_path: Path) -> None:
    text = changed(TRAIN, (", default=8)", ", default=len(__file__))"))
    given = advice(tmp_path, text, nproc=2)
    assert "default not followed" in given.origins[0].how
    assert [row.batch for row in given.rows] == [None]


def test_a_factorys_parameter_leads_to_its_caller(tmp_path: Path) -> None:
    factory = (
        "from torch.utils.data import DataLoader\n\n\n"
        "def build(data, size):\n    return DataLoader(data, batch_size=size, shuffle=True)\n"
    )
    text = changed(
        TRAIN,
        ("DataLoader(data, batch_size=args.batch_size, shuffle=True)", "build(data, 40)"),
        ("import argparse\n", "import argparse\n\nfrom loaders import build\n"),
    )
    (origin,) = advice(tmp_path, text, {"loaders.py": factory}).origins
    assert (origin.size, str(origin.loader)) == (40, "loaders.py:5")
    assert str(origin.site) == f"train.py:{line(text, 'build(data, 40)')}"


@pytest.mark.parametrize(
    ("script", "batch", "ranks"),
    [
        ("python train.py --batch-size 16", 16, 2),
        ("python train.py -b 16", 16, 2),
        ("python train.py --batch-size=16", 16, 2),
        ("python train.py --batch 16", 16, 2),
        ('BS=32\npython train.py --batch-size "$BS"', 32, 2),
        ('python train.py --batch-size "${BS:-24}"', 24, 2),
        ("BS=${BS:-24}\npython train.py --batch-size $BS", 24, 2),
        ("BS=$1\npython train.py --batch-size $BS", None, 2),
        ("for BS in 8 16; do python train.py --batch-size $BS; done", None, 2),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py", 8, 4),
        (
            'IDS="3,4,5,6"\nCUDA_VISIBLE_DEVICES=$IDS python train.py \\\n  --batch-size 16',
            16,
            4,
        ),
        ("python other.py --batch-size 16", 8, 2),
    ],
)
def test_what_the_launcher_passes_is_what_counts(
    tmp_path: Path, script: str, batch: int | None, ranks: int
) -> None:
    files = {"run.sh": f"#!/bin/bash\n{script}\n", "other.py": "print()\n"}
    row = advice(tmp_path, files=files).rows[0]
    assert (row.batch, row.ranks) == (batch, ranks)


def test_a_launcher_without_a_list_does_not_borrow_one(tmp_path: Path) -> None:
    files = {
        "a.sh": "CUDA_VISIBLE_DEVICES=0,1,2 python train.py -b 16\n",
        "b.sh": "python train.py -b 64\n",
        "c.sh": "python train.py\n",
    }
    rows = [(row.source, row.batch, row.ranks) for row in advice(tmp_path, files=files).rows]
    assert rows == [("a.sh:1", 16, 3), ("b.sh:1", 64, 2), ("b.sh:1", 64, 4), ("b.sh:1", 64, 8)]


def test_the_callers_arguments_and_gpus_come_first(tmp_path: Path) -> None:
    files = {"run.sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py -b 16\n"}
    given = advice(tmp_path, files=files, nproc=3, arguments=("--batch-size", "12"))
    assert [(row.batch, row.ranks) for row in given.rows] == [(12, 3)]


def row(given: Advice) -> Row:
    assert len(given.rows) == 1
    return given.rows[0]


def test_the_batch_is_split(tmp_path: Path) -> None:
    found = row(advice(tmp_path, changed(TRAIN, NORM), nproc=4))
    assert (found.before, found.after, found.global_after) == ((8,), 2, 8)
    assert (found.norm_before, found.norm_after) == ((8,), 8), "SyncBatchNorm"


def test_data_parallel_gives_chunks(tmp_path: Path) -> None:
    text = changed(PARALLEL, NORM, ("default=8", "default=9"))
    found = row(advice(tmp_path, text, nproc=4))
    assert (found.before, found.after, found.nearest) == ((3, 3, 3), None, (8, 12))
    assert (found.norm_before, found.norm_after) == ((3, 3, 3), None)
    twelve = row(advice(tmp_path / "b", changed(text, ("default=9", "default=12")), nproc=4))
    assert (twelve.norm_before, twelve.norm_after) == ((3, 3, 3, 3), 3), "each rank's own"


def test_data_parallel_on_a_written_list_of_gpus(tmp_path: Path) -> None:
    text = changed(PARALLEL, ("nn.DataParallel(model)", "nn.DataParallel(model, [0, 1])"))
    assert row(advice(tmp_path, text, nproc=4)).before == (4, 4)


def test_a_batch_kept_on_each_rank_grows(tmp_path: Path) -> None:
    given = advice(tmp_path, settings=Settings(batch_size="per-rank"), nproc=4)
    assert (row(given).after, row(given).global_after, row(given).nearest) == (8, 32, ())
    assert any("times N" in note and "Goyal" in note for note in given.notes)


def test_a_migrated_program_keeps_its_global_batch(tmp_path: Path) -> None:
    from ddpify.pipeline import migrate
    from tests.projects import write

    advice(tmp_path)
    outcome = migrate((tmp_path / "train.py",), Settings())
    write(outcome.changes, tmp_path)
    given = advice(tmp_path, (tmp_path / "train.py").read_text(), nproc=2)
    assert given.origins[0].shared_out
    assert (row(given).batch, row(given).after) == (8, 4)
