"""What `from … import *` of a library may have bound."""

from __future__ import annotations

import pytest

from ddpify.python.imports import starred


@pytest.mark.parametrize(
    ("name", "libraries", "meant"),
    [
        pytest.param("tqdm", ["tqdm"], "tqdm.tqdm", id="known to be given"),
        pytest.param("tqdm", ["tqdm", "torch.nn"], "tqdm.tqdm", id="by one of two"),
        pytest.param("Linear", ["tqdm", "torch.nn"], "torch.nn.Linear", id="by the other"),
        pytest.param(
            "Linear", ["torch.nn", "numpy"], "builtins.Linear", id="nobody knows by which"
        ),
        pytest.param("Linear", [], "builtins.Linear", id="by none"),
        pytest.param("sum", ["numpy"], "builtins.sum", id="a builtin, or what hides it"),
        pytest.param("Linear", ["torch.nn", "torch.nn"], "torch.nn.Linear", id="twice"),
    ],
)
def test_a_name_is_of_the_only_library_that_may_give_it(
    name: str, libraries: list[str], meant: str
) -> None:
    assert starred(name, libraries) == meant
