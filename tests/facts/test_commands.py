"""Programs that a library starts: what it calls is read, with options that nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import judged, put_example, read

GUARD = 'if __name__ == "__main__":\n    main()'
STARTS = [
    pytest.param("", f"import fire\n\n\n{GUARD}".replace("main()", "fire.Fire()"), id="fire"),
    pytest.param("", f"import fire\n\n\n{GUARD}".replace("main()", "fire.Fire(main)"), id="one"),
    pytest.param("import click\n\n\n@click.command()\n", GUARD, id="click"),
    pytest.param("import hydra\n\n\n@hydra.main()\n", GUARD, id="hydra"),
    pytest.param(
        "import click\n\n\n@click.group()\ndef cli():\n    pass\n\n\n@cli.command()\n",
        GUARD.replace("main()", "cli()"),
        id="group",
    ),
]


@pytest.mark.parametrize(("before", "start"), STARTS)
def test_what_a_library_calls_is_read(before: str, start: str, tmp_path: Path) -> None:
    example = changed(SINGLE, ("def main():", f"{before}def main(options=None):"), (GUARD, start))
    facts = read(put_example(example, tmp_path))
    assert len(facts.training) == 1
    assert {"DDP101", "DDP202", "DDP301"} <= {one.rule for one in judged(facts)}
