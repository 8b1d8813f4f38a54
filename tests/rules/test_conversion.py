"""What of FSDP1 is converted, and what is refused, by its name and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.report.summary import planned
from ddpify.settings import Settings
from tests.projects import put
from tests.training.test_converted import (
    ADAM,
    BACK,
    CLIP,
    DEVICE,
    END,
    LOOP,
    LOSS,
    POLICY,
    PROGRAM,
    STEP,
    ZERO,
    text,
)


def outcome(tmp_path: Path, *changes: tuple[str, str]) -> Outcome:
    entry = put({"main.py": text(list(changes))}, tmp_path) / "main.py"
    return migrate([entry], Settings(strategy="fsdp"))


def result(tmp_path: Path, *changes: tuple[str, str]) -> str:
    found = outcome(tmp_path, *changes)
    assert not found.refusals, found.refusals
    assert [change.path for change in found.changes] == ["main.py"]
    return found.changes[0].after.decode()


MODEL = "        model,\n"
UNITS = "        auto_wrap_policy=policy,\n"
REFUSED: dict[str, tuple[tuple[str, str], str, str]] = {
    "no shard": (
        (DEVICE, f"        sharding_strategy=ShardingStrategy.NO_SHARD,\n{DEVICE}"),
        "ShardingStrategy.NO_SHARD",
        "that is DDP",
    ),
    "hybrid": (
        (DEVICE, f"        sharding_strategy=ShardingStrategy.HYBRID_SHARD,\n{DEVICE}"),
        "ShardingStrategy.HYBRID_SHARD",
        "device_mesh",
    ),
    "another strategy": (
        (DEVICE, f"        sharding_strategy=os.environ.get('S'),\n{DEVICE}"),
        "os.environ",
        "which strategy",
    ),
    "strategy by name": (
        (DEVICE, f"        sharding_strategy=getattr(ShardingStrategy, 'X'),\n{DEVICE}"),
        "getattr",
        "which strategy",
    ),
    "group": (
        (DEVICE, f"        process_group=dist.group.WORLD,\n{DEVICE}"),
        "WORLD",
        "device_mesh",
    ),
    "meta": ((DEVICE, f"        param_init_fn=print,\n{DEVICE}"), "param_init_fn", "to_empty()"),
    "meta alone": (
        ("    model = Net()\n", '    with torch.device("meta"):\n        model = Net()\n'),
        'torch.device("meta")',
        "reset_parameters()",
    ),
    "to meta": (
        ("    model = Net()\n", '    model = Net().to(device="meta")\n'),
        "meta",
        "reset_parameters()",
    ),
    "inputs of units": (
        (
            DEVICE,
            "        mixed_precision=MixedPrecision(torch.half, cast_forward_inputs=True),\n"
            f"{DEVICE}",
        ),
        "cast_forward_inputs",
        "the model alone casts",
    ),
    "arguments": ((DEVICE, "        **dict(device_id=rank),\n"), "**dict", "list of arguments"),
    "own policy": (
        (POLICY, "    policy = lambda module, recurse, nonwrapped_numel: True\n"),
        "auto_wrap_policy=policy",
        "ModuleWrapPolicy",
    ),
    "device that is not set": (
        (DEVICE, '        device_id=int(os.environ["LOCAL_RANK"]),\n'),
        "LOCAL_RANK",
        "set_device",
    ),
    "in a statement": (
        (ADAM, "    model = torch.nn.Sequential(FSDP(model))\n" + ADAM),
        "Sequential",
        "statement of its own",
    ),
    "nested": (
        ("        self.head = nn.Linear(8, 3)", "        self.head = FSDP(nn.Linear(8, 3))"),
        "FSDP(nn.Linear",
        "a part of a model",
    ),
    "summoned": (
        (END, f"    with FSDP.summon_full_params(model):\n        print(1)\n{END}"),
        "summon_full_params",
        "get_model_state_dict",
    ),
    "local": ((".FULL_STATE_DICT, config", ".LOCAL_STATE_DICT, config"), "LOCAL", "is gone"),
    "states of the optimizer": (
        (END, f'    torch.save(optimizer.state_dict(), "o.pt")\n{END}'),
        "optimizer.state_dict",
        "optim_state_dict",
    ),
    "loaded by itself": (
        (END, f'    optimizer.load_state_dict(torch.load("o.pt"))\n{END}'),
        "load_state_dict",
        "optim_state_dict_to_load",
    ),
    "scattered": (
        (END, f"    FSDP.scatter_full_optim_state_dict({{}}, model)\n{END}"),
        "scatter_full",
        "scatter_full_optim_state_dict",
    ),
    "muon": ((ADAM, ADAM.replace("AdamW", "Muon")), "Muon", "entry by entry"),
    "counted": (
        (END, f"    print(sum(p.numel() for p in model.parameters()))\n{END}"),
        "numel",
        "shards",
    ),
    "named": (
        (ADAM, ADAM.replace("model.parameters()", "[p for _, p in model.named_parameters()]")),
        "named_parameters",
        "named_parameters",
    ),
    "weights": ((END, f"    print(model.head.weight.norm())\n{END}"), "head.weight", "model.head"),
    "applied": ((ADAM, f"{ADAM}    model.apply(print)\n"), "apply", "`apply()`"),
    "copied": (
        (END, f"    __import__('copy').deepcopy(model)\n    other(model)\n{END}"),
        "deepcopy",
        "is not followed",
    ),
    "batch norm": (
        (DEVICE, f"        mixed_precision=MixedPrecision(torch.bfloat16),\n{DEVICE}"),
        "BatchNorm1d",
        "batch norms",
    ),
    "cleared": (
        (
            f"{LOOP}{ZERO}{LOSS}{BACK}{CLIP}{STEP}",
            f"        optimizer.zero_grad()\n{LOOP}            with model.no_sync():\n    {LOSS}"
            f"    {BACK}            if step == 3:\n    {LOSS}    {BACK}    {STEP}",
        ),
        "optimizer.zero_grad()",
        "not be averaged yet",
    ),
    "not reached": (
        (
            "def save(",
            "def keep(model):\n    torch.save(model.state_dict(), 'x')\n\n\n"
            "HOOKS = {'keep': keep}\n\n\ndef save(",
        ),
        "model.state_dict(), 'x'",
        "comes to this",
    ),
    "optimizer before": (
        (POLICY, f"{POLICY}{ADAM}".replace("optimizer", "first")),
        "first = ",
        "DDP903",
    ),
    "left in the midst": (
        (
            f"{BACK}{CLIP}",
            f"            with model.no_sync():\n    {BACK}                if step % 2:\n"
            f"                    continue\n{CLIP}",
        ),
        "with model.no_sync():",
        "left in its midst",
    ),
    "in evaluation": (
        (END, f'    os.environ["FSDP_USE_FULL_PREC_IN_EVAL"] = "1"\n{END}'),
        "FULL_PREC",
        "FSDP_USE_FULL_PREC_IN_EVAL",
    ),
    "inside": (
        (END, f"    print([n for n in [] if '_fsdp_wrapped_module' in n])\n{END}"),
        "_fsdp_wrapped_module",
        "_fsdp_wrapped_module",
    ),
}


HEAD = "        return self.head(x)\n"
MADE = "        self.head = nn.Linear(8, 3)\n"
# What FSDP1 and FSDP2 train otherwise, or what ends with an error: each seen on two ranks.
UNLIKE: dict[str, tuple[tuple[str, str], str, str]] = {
    "a branch of a sample": (
        (HEAD, f"        if x.sum() > 0:\n    {HEAD}        return self.head(x * 2)\n"),
        "if x.sum() > 0",
        "which weights get a gradient",
    ),
    "an unused layer": (
        (MADE, f"{MADE}        self.spare = nn.Linear(8, 3)\n"),
        "def __init__",
        "`spare` gets no gradient",
    ),
    "a class that is compared": (
        (ADAM, f"    found = [m for m in [model] if type(m) is Net]\n{ADAM}"),
        "type(m) is Net",
        "another class",
    ),
    "compiled": (
        ("    model = Net()\n", "    model = torch.compile(Net())\n"),
        "torch.compile",
        "`_orig_mod`",
    ),
    "ignored modules": (
        (DEVICE, f"        ignored_modules=[model.head],\n{DEVICE}"),
        "ignored_modules",
        "do not go into one step",
    ),
    "its modules": (
        (ADAM, f"    for m in model.modules():\n        print(m)\n{ADAM}"),
        "model.modules()",
        "`modules()`",
    ),
    "what a load returns": (
        (END, f"    missing = model.load_state_dict(model.state_dict())\n{END}"),
        "missing =",
        "what load_state_dict() returns",
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_trains_otherwise_is_refused(name: str, tmp_path: Path) -> None:
    change, where, why = UNLIKE[name]
    lines = text([change]).splitlines()
    found = outcome(tmp_path, change)
    assert not found.changes
    told = [one for one in found.refusals if one.site and where in lines[one.site.span.line - 1]]
    assert any(why in one.message for one in told), found.refusals


def test_a_model_by_its_name_from_before_is_followed(tmp_path: Path) -> None:
    """Through a function that wraps it, too: FSDP1's weights are flat there."""
    changes = (
        (ADAM, f"    heavy = [p for p in net.parameters() if p.ndim > 1]\n{ADAM}"),
        ("    model = Net()\n", "    net = model = Net()\n"),
    )
    found = outcome(tmp_path, *changes)
    assert any("before it was wrapped" in one.message for one in found.refusals), found.refusals


def test_a_layer_that_is_always_there_or_never_is_no_branch(tmp_path: Path) -> None:
    branch = "        x = self.down(x) if self.down is not None else x\n"
    made = f"{MADE}        self.down = None\n"
    assert branch in result(tmp_path, (MADE, made), (HEAD, f"{branch}{HEAD}"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_refused_where_it_stands(name: str, tmp_path: Path) -> None:
    change, where, why = REFUSED[name]
    changes = [change]
    if name == "optimizer before":
        changes += [(STEP, STEP.replace("optimizer", "first"))]
    if name == "batch norm":
        changes.append(
            (
                "        self.stem = nn.Linear(5, 8)\n",
                "        self.stem = nn.Linear(5, 8)\n        self.b = nn.BatchNorm1d(8)\n",
            )
        )
    lines = text(changes).splitlines()
    found = outcome(tmp_path, *changes)
    assert not found.changes
    told = [one for one in found.refusals if one.site and where in lines[one.site.span.line - 1]]
    assert told, found.refusals
    assert any(why in one.message for one in told), told


def test_the_policy_is_written_out_and_its_imports_go(tmp_path: Path) -> None:
    after = result(tmp_path)
    assert (
        "        if isinstance(block, Block):\n            fully_shard(block, mesh=mesh)\n" in after
    )
    assert "    fully_shard(model, mesh=mesh, reshard_after_forward=True)\n" in after
    for gone in ("FSDP", "auto_wrap", "StateDictType", "import functools", "CPUOffload"):
        assert gone not in after, gone


def test_precision_of_units_and_of_the_model(tmp_path: Path) -> None:
    mixed = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"
    after = result(tmp_path, (DEVICE, f"        {mixed},\n{DEVICE}"))
    assert "mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n" in after
    assert "mp_policy=replace(mp_policy, cast_forward_inputs=False)" in after
    assert "fully_shard(model, mesh=mesh, mp_policy=mp_policy, reshard_after_forward=True)" in after


def test_what_the_model_does_not_cast_it_does_not_cast_in_fsdp2(tmp_path: Path) -> None:
    mixed = "MixedPrecision(torch.half, cast_forward_inputs=False, cast_root_forward_inputs=False)"
    after = result(tmp_path, (DEVICE, f"        mixed_precision={mixed},\n{DEVICE}"))
    assert "MixedPrecisionPolicy(param_dtype=torch.half, cast_forward_inputs=False)\n" in after


def test_hybrid_sharding_of_gradients_alone_keeps_its_mesh(tmp_path: Path) -> None:
    strategy = "        sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,\n"
    mesh = "    mesh = dist.init_device_mesh('cuda', (2, 2))\n"
    after = result(
        tmp_path, (POLICY, mesh + POLICY), (DEVICE, f"{strategy}        device_mesh=mesh,\n")
    )
    assert "fully_shard(model, mesh=mesh, reshard_after_forward=False)" in after


def test_what_only_the_old_code_read_goes_with_it(tmp_path: Path) -> None:
    idle = "    by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=100)\n"
    idle += "    mixed = MixedPrecision(torch.half)\n    ahead = BackwardPrefetch.BACKWARD_PRE\n"
    ahead = (DEVICE, f"        backward_prefetch=ahead,\n{DEVICE}")
    after = result(tmp_path, (POLICY, idle + POLICY), ahead)
    assert after == result(tmp_path / "without")


def test_what_may_be_read_stays(tmp_path: Path) -> None:
    kept = "    ahead = BackwardPrefetch.BACKWARD_PRE\n    mixed = MixedPrecision(torch.half)\n"
    after = result(tmp_path, (POLICY, kept + POLICY), (END, f"    print(ahead, locals())\n{END}"))
    assert "    ahead = BackwardPrefetch.BACKWARD_PRE\n" in after
    assert "    mixed = MixedPrecisionPolicy(param_dtype=torch.half)\n" in after


def test_a_sampler_that_was_never_told_the_epoch_still_is_not_and_said(tmp_path: Path) -> None:
    found = outcome(tmp_path, ("        sampler.set_epoch(epoch)\n", ""))
    assert not found.refusals
    assert found.changes
    told = [one for one in found.findings if one.rule == "DDP201"]
    assert [one.fix for one in told] == [()]
    assert "it was so before" in told[0].advice


def test_a_backward_that_a_rank_leaves_out_was_so_before_and_is_refused(tmp_path: Path) -> None:
    skip = "            if not loss.isfinite():\n                continue\n"
    found = outcome(tmp_path, (BACK, skip + BACK))
    assert any("DDP803" in one.message for one in found.refusals), found.refusals


def test_rounds_that_all_ranks_leave_out_are_converted(tmp_path: Path) -> None:
    agreed = "            bad = loss.isnan().float()\n            dist.all_reduce(bad)\n"
    agreed += "            if bad > 0 or (epoch == 0 and step < 2):\n                continue\n"
    assert agreed in result(tmp_path, (BACK, agreed + BACK))


@pytest.mark.parametrize(
    "freezing",
    [
        "        p.requires_grad = 'head' not in name\n",
        "        if name.startswith('stem.'):\n            p.requires_grad_(False)\n",
    ],
)
def test_weights_that_are_frozen_before_the_wrap_stay_so(freezing: str, tmp_path: Path) -> None:
    lines = f"    for name, p in model.named_parameters():\n{freezing}"
    after = result(tmp_path, (POLICY, lines + POLICY))
    assert after.index(lines) < after.index("    for block in reversed(")


def test_a_conversion_counts_no_values(tmp_path: Path) -> None:
    assert "followed" not in planned(outcome(tmp_path))


def test_a_strategy_of_two_is_asked_as_the_program_runs(tmp_path: Path) -> None:
    strategy = "    kind = ShardingStrategy.FULL_SHARD\n    if rank > 9:\n"
    strategy += "        kind = ShardingStrategy.SHARD_GRAD_OP\n"
    after = result(
        tmp_path,
        (POLICY, strategy + POLICY),
        (DEVICE, f"        sharding_strategy=kind,\n{DEVICE}"),
    )
    assert "reshard_after_forward=kind is not ShardingStrategy.SHARD_GRAD_OP" in after


def test_a_policy_that_may_be_none_stays_in_its_parentheses(tmp_path: Path) -> None:
    made = POLICY.partition(" = ")[2].rstrip()
    after = result(tmp_path, (POLICY, f"    policy = {made} if rank < 9 else None\n"))
    assert "policy = (lambda module: isinstance(module, Block)) if rank < 9 else None\n" in after
    assert "        if policy and policy(block):\n" in after


def test_a_trainer_keeps_its_model_in_an_attribute(tmp_path: Path) -> None:
    trainer = "class Trainer:\n    def __init__(self, model):\n        self.model = FSDP(model)\n\n"
    trainer += (
        "    def parts(self):\n        return self.model.module, self.model.state_dict()\n\n\n"
    )
    wrap = PROGRAM[PROGRAM.index("    model = FSDP(") : PROGRAM.index(ADAM)]
    after = result(
        tmp_path,
        ("def save(", f"{trainer}def save("),
        (wrap, "    trainer = Trainer(model)\n    model = trainer.model\n"),
        (END, f"{END}    trainer.parts()\n"),
    )
    wrapped = "        fully_shard(model, reshard_after_forward=True)\n        self.model = model\n"
    assert wrapped in after
    assert "        return self.model, get_model_state_dict(\n" in after


def test_prefetching_ahead_is_a_note(tmp_path: Path) -> None:
    found = outcome(tmp_path, (DEVICE, f"        forward_prefetch=True,\n{DEVICE}"))
    assert not found.refusals
    assert any("set_modules_to_forward_prefetch" in one.message for one in found.findings)


def test_clipping_by_shards_is_said_to_be_by_the_model_now(tmp_path: Path) -> None:
    clip = "            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n"
    found = outcome(tmp_path, (CLIP, clip))
    assert not found.refusals
    assert any("its own shards" in one.message for one in found.findings)


def test_an_offloaded_norm_wants_a_backend_for_the_cpu(tmp_path: Path) -> None:
    changes = [
        (DEVICE, f"        cpu_offload=CPUOffload(True),\n{DEVICE}"),
        ('("gloo")', '("nccl")'),
    ]
    found = outcome(tmp_path, *changes)
    assert any("cpu:gloo,cuda:nccl" in one.message for one in found.refusals)


def test_functions_that_nothing_calls_are_left_and_named(tmp_path: Path) -> None:
    idle = "def old(model):\n    with FSDP.summon_full_params(model):\n        pass\n\n\ndef save("
    found = outcome(tmp_path, ("def save(", idle))
    assert not found.refusals
    assert any("nothing calls this function" in one.message for one in found.findings)
    assert "import FullyShardedDataParallel as FSDP" in found.changes[0].after.decode()


def test_ddp_migrates_no_program_of_fsdp1(tmp_path: Path) -> None:
    entry = put({"main.py": PROGRAM}, tmp_path) / "main.py"
    assert "already distributed" in migrate([entry], Settings()).refusals[0].message


def test_what_is_left_of_fsdp1_beside_ddp_is_named(tmp_path: Path) -> None:
    wrap = "    model = nn.parallel.DistributedDataParallel(model)\n"
    program = PROGRAM[: PROGRAM.index("    model = FSDP(")] + wrap + ADAM
    program = program.replace(POLICY, "") + PROGRAM[PROGRAM.index("    losses = []\n") :]
    entry = put({"main.py": program}, tmp_path) / "main.py"
    found = migrate([entry], Settings(strategy="fsdp")).refusals
    assert "FSDP.state_dict_type" in found[0].message


def test_what_is_converted_is_not_converted_again(tmp_path: Path) -> None:
    entry = put({"main.py": result(tmp_path / "first")}, tmp_path / "again") / "main.py"
    assert "already distributed" in migrate([entry], Settings(strategy="fsdp")).refusals[0].message


def test_an_option_that_the_program_answers_itself_is_named(tmp_path: Path) -> None:
    entry = put({"main.py": PROGRAM}, tmp_path) / "main.py"
    found = migrate([entry], Settings(strategy="fsdp", fsdp_bf16=True))
    assert "fsdp-bf16 is what the program says itself" in found.refusals[0].message
    assert not found.changes


def test_the_class_of_a_tensor_is_asked_for(tmp_path: Path) -> None:
    """No unit of `fully_shard` is one."""
    assert "type(model) == torch.Tensor" in result(
        tmp_path, (ADAM, f"    assert not type(model) == torch.Tensor\n{ADAM}")
    )


def test_a_program_whose_functions_nothing_calls_is_told_so(tmp_path: Path) -> None:
    (refusal,) = outcome(tmp_path, ("    main()", "    pass")).refusals
    assert "nothing in it calls its functions" in refusal.message
