"""Names that are gone, reserved or deprecated."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("names")


def test_names_that_torch_distributed_has_lost(seen: Seen) -> None:
    for found in seen["gone"]:
        assert (found["policy"], found["multigpu"]) == (False, [])
        assert found["pipeline"].startswith("ModuleNotFoundError")


def test_fully_shard_has_no_argument_of_fsdp1_but_the_module(seen: Seen) -> None:
    for found in seen["arguments"]:
        assert found["both"] == ["module"]
        assert found["auto_wrap_policy"].startswith("TypeError")
        assert found["fsdp_auto_wrap_policy"].startswith("TypeError")


def test_async_is_a_reserved_word(seen: Seen) -> None:
    for found in seen["reserved"]:
        assert found[0].startswith("SyntaxError")
        assert found[1] == ""


def test_old_amp_warns_once_on_each_rank(seen: Seen) -> None:
    names = ("torch.cuda.amp.GradScaler", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast")
    for found in seen["old_amp"]:
        assert [kind for kind, _ in found] == ["FutureWarning"] * 3
        assert all(name in text for name, (_, text) in zip(names, found, strict=True))
