"""Options that several loaders are given: what the training loader gets stays its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import migrated, put_example

OPTIONS = '    options = {"batch_size": opt.bs, "shuffle": True}\n'
OWN = '{"batch_size": per_rank_batch_size(opt.bs), "shuffle": True}'
BESIDE = (
    '**{**options, "batch_size": per_rank_batch_size(options["batch_size"]),'
    ' "shuffle": train_sampler is None and options.get("shuffle", False)}'
)
OTHERS = {
    "the same": ("", "**options"),
    "changed in between": ('    options["shuffle"] = False\n', "**options"),
    "made of it": ('    others = {**options, "shuffle": False}\n', "**others"),
    "made of it in place": ("", "**dict(options, batch_size=100)"),
}


def plain(text: str) -> str:
    """Without spaces, and what else a formatter adds to long lines."""
    return "".join(text.split()).replace(",}", "}").replace(":(", ":").replace("]),", "],")


def written(tmp_path: Path, lines: str, given: str, before: str = "") -> str:
    """What ``migrate`` makes of a script whose loaders are given their options by ``**``."""
    example = changed(
        SINGLE,
        ("    fitting =", f"{OPTIONS}{before}    fitting ="),
        ("opt.bs, shuffle=True)\n", f"**options)\n{lines}"),
        ("labels[800:]), 100)", f"labels[800:]), {given})"),
    )
    put_example(example, tmp_path)
    migrated(tmp_path / "main.py")
    return plain((tmp_path / "main.py").read_text())


@pytest.mark.parametrize(("lines", "given"), OTHERS.values(), ids=OTHERS)
def test_what_others_are_given_too_stays_as_it_is(lines: str, given: str, tmp_path: Path) -> None:
    text = written(tmp_path, lines, given)
    assert plain(OPTIONS) in text
    assert plain(BESIDE) in text


def test_options_of_its_own_are_changed_where_they_are_written(tmp_path: Path) -> None:
    text = written(tmp_path, "", "100", '    options.update({"num_workers": 0})\n')
    assert plain(OWN) in text
    assert '"num_workers":0}' in text


FACTORY = """def feed(rows, fits):
    return DataLoader(rows, **OPTIONS)


def accuracy"""


def test_a_factory_asks_which_loader_it_makes(tmp_path: Path) -> None:
    example = changed(
        SINGLE,
        ("def accuracy", f"OPTIONS = dict(batch_size=32, shuffle=True)\n\n\n{FACTORY}"),
        ("DataLoader(TensorDataset(signals[:800]", "feed(TensorDataset(signals[:800]"),
        ("opt.bs, shuffle=True)", "True)"),
        ("DataLoader(TensorDataset(signals[800:]", "feed(TensorDataset(signals[800:]"),
        ("labels[800:]), 100)", "labels[800:]), False)"),
    )
    put_example(example, tmp_path)
    migrated(tmp_path / "main.py")
    text = plain((tmp_path / "main.py").read_text())
    assert "OPTIONS=dict(batch_size=32,shuffle=True)" in text
    size = 'OPTIONS["batch_size"]'
    assert plain(f'"batch_size": per_rank_batch_size({size}) if fits else {size}') in text
