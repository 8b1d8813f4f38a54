"""What of a program with DDP is not taken to fully_shard is named, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put
from tests.training.test_converted_replicas import ADAM, NORMED, PAUSED, SAVE, STEP, WRAP, text

BACK = "            loss.backward()\n"
CLIP = "            nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n"
GUARD = "        if me == 0:\n"
INIT = '    dist.init_process_group("gloo")\n'
NORM = [
    (NORMED, f"        self.norm = nn.BatchNorm1d(size)\n{NORMED}"),
    ("        return self.last(x)\n", "        return self.last(self.norm(x))\n"),
]
REFUSED: dict[str, list[tuple[str, str]]] = {
    "`process_group` has no": [(WRAP, "    net = DDP(net, process_group=dist.group.WORLD)\n")],
    "init_sync=False": [(WRAP, "    net = DDP(net, init_sync=False)\n")],
    "get no gradient": [
        ("        return self.last(x)\n", "        return self.last(x) if x.sum() > 0 else x\n"),
        (WRAP, "    net = DDP(net, find_unused_parameters=True)\n"),
    ],
    "`register_comm_hook()`": [(WRAP, f"{WRAP}    net.register_comm_hook(None, print)\n")],
    "names with `module.`": [(CLIP, f"{CLIP}            dict(net.named_parameters())\n")],
    "without averaging gradients": [*NORM, (STEP, PAUSED)],
    "rank 0 alone trains": [
        (
            GUARD,
            "        if me == 0:\n            net.eval()\n            net(x).sum().backward()\n",
        )
    ],
    "without `else`": [(SAVE, f"{SAVE}        else:\n            print(me)\n")],
    "in one statement with": [
        (GUARD, "        if me == 0:\n            print(score(net, held_out))\n")
    ],
    "may not be averaged yet": [
        (
            STEP,
            PAUSED.replace("                adam.zero_grad()\n", "").replace(
                "            if step % 3", "            adam.zero_grad()\n            if step % 3"
            ),
        )
    ],
    "what is asked or done": [(CLIP, f"{CLIP}            print(isinstance(net, DDP))\n")],
    "hangs on `step_by_step`": [
        (
            WRAP,
            "    step_by_step = bool(os.getpid())\n    if step_by_step:\n        net = DDP(net)\n",
        )
    ],
    "hangs on `distributed`": [
        (WRAP, "    distributed = bool(os.getpid())\n    if distributed:\n        net = DDP(net)\n")
    ],
    "torch.multiprocessing.spawn": [
        ("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n"),
        ("def main():\n", "def main(number=0):\n"),
    ],
    "the process group is opened behind": [
        (INIT, ""),
        ("    me = dist.get_rank()\n", '    me = int(os.environ["RANK"])\n'),
        (WRAP, f"{INIT}{WRAP}"),
    ],
    "the weights are changed": [(WRAP, f"    net.double()\n{WRAP}")],
    "behind where the model is sharded": [
        (WRAP, f"    kind = torch.float32\n    net.to(kind)\n{WRAP}")
    ],
    "steps an optimizer or a schedule": [
        (WRAP, f"{WRAP}    plan = torch.optim.lr_scheduler.ReduceLROnPlateau(adam)\n"),
        (GUARD, "        if me == 0:\n            plan.step(score(net, held_out))\n"),
    ],
    "loads a state": [
        (GUARD, "        if me == 0:\n            net.module.load_state_dict(torch.load('a.pt'))\n")
    ],
    "takes the next of something": [
        (WRAP, f"{WRAP}    endless = iter(held_out)\n"),
        (GUARD, "        if me == 0:\n            print(net(next(endless)[0]).mean())\n"),
    ],
    "is given weights": [
        (CLIP, f"{CLIP}            print(net.module.last.weight.norm().item())\n")
    ],
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_not_followed_is_named(said: str, tmp_path: Path) -> None:
    entry = put({"main.py": text(REFUSED[said])}, tmp_path) / "main.py"
    outcome = migrate([entry], Settings(strategy="fsdp"))
    assert any(said in one.message for one in outcome.refusals), outcome.refusals
    assert not outcome.changes


@pytest.mark.parametrize(
    "asked", ["dist.is_initialized()", "ranks > 1"], ids=["initialized", "number-of-ranks"]
)
def test_a_wrap_that_asks_for_ranks_is_followed(asked: str, tmp_path: Path) -> None:
    wrap = f"    ranks = dist.get_world_size()\n    if {asked}:\n        net = DDP(net)\n"
    entry = put({"main.py": text([(WRAP, wrap)])}, tmp_path) / "main.py"
    outcome = migrate([entry], Settings(strategy="fsdp"))
    assert not outcome.refusals
    assert outcome.changes


def test_a_condition_that_is_left_early_is_named(tmp_path: Path) -> None:
    early = "        if me != 0:\n            continue\n        torch.save(net.state_dict(), 'x')\n"
    entry = put({"main.py": text([(SAVE, early)])}, tmp_path) / "main.py"
    assert migrate([entry], Settings(strategy="fsdp")).refusals


FIRST = {
    "rank": ("", "me == 0"),
    "environment": ('    who = int(os.environ.get("RANK", -1))\n', "who in (-1, 0)"),
    "not-the-rank": ("", "not me"),
    "named": ("    boss = me == 0\n", "boss"),
    "one-process": ("    many = dist.get_world_size() > 1\n", "not many or me == 0"),
    "initialized": ("", "not dist.is_initialized() or dist.get_rank() == 0"),
}
OTHERS = {
    "each-node": ("", "me % 2 == 0"),
    "not-a-remainder": ("", "not me % 2"),
    "a-part": ("    rank_of_pair = me // 2\n", "not rank_of_pair"),
    "also-others": ("", "me == 0 or lap == 1"),
    "named-twice": ("    boss = me == 0\n    boss = me < 4\n", "boss"),
    "added-to": ("    who = me\n    who += 1\n", "who == 0"),
    "of-a-group": ("    who = dist.get_rank(dist.new_group([1]))\n", "who == 0"),
    "given": ("    boss, _ = me < 2, 0\n", "boss"),
}


def asked(kind: tuple[str, str], folder: Path) -> Outcome:
    made, condition = kind
    changes = [(INIT, INIT), (WRAP, WRAP + made), (GUARD, f"        if {condition}:\n")]
    entry = put({"main.py": text(changes)}, folder) / "main.py"
    return migrate([entry], Settings(strategy="fsdp"))


@pytest.mark.parametrize("kind", FIRST)
def test_what_rank_0_does_alone_all_ranks_come_to(kind: str, tmp_path: Path) -> None:
    outcome = asked(FIRST[kind], tmp_path)
    assert not outcome.refusals
    main = next(one.after.decode() for one in outcome.changes if one.path == "main.py")
    assert "save_on_main(state" in main or "if is_main_process():" in main


@pytest.mark.parametrize("kind", OTHERS)
def test_a_condition_that_lets_other_ranks_in_is_not_rank_0s(kind: str, tmp_path: Path) -> None:
    outcome = asked(OTHERS[kind], tmp_path)
    assert outcome.refusals
    assert not outcome.changes


def test_a_program_that_was_migrated_to_ddp_is_sent_back(tmp_path: Path) -> None:
    program = "from ddpify.runtime import wrap_model\n" + text(
        [(WRAP, "    net = wrap_model(net)\n")]
    )
    entry = put({"main.py": program}, tmp_path) / "main.py"
    found = migrate([entry], Settings(strategy="fsdp")).refusals
    assert "is migrated to DDP already: take the script as it was before" in found[0].message


def test_what_is_converted_is_not_converted_again(tmp_path: Path) -> None:
    entry = put({"main.py": text([])}, tmp_path) / "main.py"
    outcome = migrate([entry], Settings(strategy="fsdp"))
    for change in outcome.changes:
        (tmp_path / change.path).write_bytes(change.after)
    for strategy in ("ddp", "fsdp"):
        found = migrate([entry], Settings(strategy=strategy))
        assert "already distributed" in found.refusals[0].message
    assert ADAM in entry.read_text()


def test_the_original_strategy_takes_no_program_with_ddp(tmp_path: Path) -> None:
    entry = put({"main.py": text([])}, tmp_path) / "main.py"
    assert "already distributed" in migrate([entry], Settings()).refusals[0].message


@pytest.mark.parametrize(
    ("option", "given"),
    [("fsdp-meta", {"fsdp_meta": True}), ("checkpoint", {"checkpoint": "sharded"})],
)
def test_options_that_are_not_there_for_it_are_named(
    option: str, given: dict[str, object], tmp_path: Path
) -> None:
    entry = put({"main.py": text([])}, tmp_path) / "main.py"
    settings = Settings(strategy="fsdp", **given)  # type: ignore[arg-type]
    found = migrate([entry], settings)
    assert f"{option} is not there for programs" in found.refusals[0].message
    assert not found.changes


def test_options_of_how_it_is_sharded_are_followed(tmp_path: Path) -> None:
    entry = put({"main.py": text([])}, tmp_path) / "main.py"
    outcome = migrate([entry], Settings(strategy="fsdp", fsdp_offload=True))
    main = next(one.after.decode() for one in outcome.changes if one.path == "main.py")
    assert "fully_shard(block, offload_policy=offload)" in main
