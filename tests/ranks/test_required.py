"""The bounds that files of a project set for Lightning."""

from __future__ import annotations

import pytest

from ddpify.ranks.required import _ASKED, excludes_newer


@pytest.mark.parametrize(
    ("line", "older"),
    [
        ("pytorch-lightning==1.4.2", True),
        ("pytorch-lightning>=1.9,<2", True),
        ("lightning[extra] ~= 2.0.3", True),
        ("  - pytorch-lightning=1.9", True),
        ('pytorch-lightning = "^1.9.0"', True),
        ('lightning = {version = "==1.9"}', False),  # not understood
        ("    install_requires=['torch', 'pytorch_lightning<2.1'],", True),
        ("lightning<=2.0.9", True),
        ("lightning>=1.9", False),
        ("lightning==2.1.*", False),
        ("lightning>=2,<2.2", False),
        ("pytorch-lightning!=1.5.0", False),
        ("pytorch-lightning~=2.0", False),
        ('lightning = "^2.0"', False),
        ("# pytorch-lightning==1.4.2 was slower", False),
        ("lightning  # torch==1.9", False),
        ("our-lightning==1.0", False),
        ("lightning-bolts==0.5", False),
        ("lightning===2", True),
        ("lightning=<2", False),
    ],
)
def test_bounds_say_whether_a_program_is_for_an_older_lightning(line: str, older: bool) -> None:
    assert any(map(excludes_newer, _ASKED.findall(line))) is older
