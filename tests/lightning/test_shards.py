"""`migrate --strategy fsdp` on Lightning projects: what is written, and that shards train alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lightning import project
from tests.lightning.project import written
from tests.lightning.runs import Run, read_checkpoint, train
from tests.lightning.transformer import TRANSFORMER
from tests.projects import write

HOOK = """
    def configure_model(self):
        if self.device_mesh is None or isinstance(self, FSDPModule):
            return  # one device has all of it; a second call finds it sharded
        mesh = self.device_mesh["data_parallel"]
        weights = self.state_dict()
        for block in self.net.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self, mesh=mesh, reshard_after_forward=True)
        for step in ("training_step", "validation_step"):
            register_fsdp_forward_method(self, step)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(self, weights, options=options)  # rank 0's, as with DDP

"""
DEVICES = "devices=DEVICES, "
STEP = "        return self._loss(batch)\n"
FIT = "    trainer.fit(net, datamodule=Texts(), ckpt_path=resumed)\n"
OPTIMIZER = "    def configure_optimizers(self):\n"
ADAM = "AdamW(self.parameters(), 0.01)"
GROUPS = (
    '[{"params": self.net.head.parameters(), "weight_decay": 0.0},'
    ' {"params": self.net.blocks.parameters()}]'
)
CALLBACK = "class Texts(L.LightningDataModule):\n"


outcome = partial(project.outcome, text=TRANSFORMER, strategy="fsdp")


def test_the_module_shards_itself_and_the_trainer_asks_for_it(tmp_path: Path) -> None:
    text = written(outcome(tmp_path))
    assert HOOK in text
    flat = " ".join(text.split())
    assert (
        "strategy=( ModelParallelStrategy( data_parallel_size=DEVICES, tensor_parallel_size=1,"
        ' save_distributed_checkpoint=False, ) if DEVICES != 1 else "auto" )'
    ) in flat
    assert "inference_mode=False" in flat
    assert "sync_dist=True" in flat  # what a Trainer of several devices needs is written, too


@pytest.mark.parametrize(
    "given", ["", "devices=1, ", 'devices="auto", ', 'devices=1, strategy="auto", ']
)
def test_where_no_number_is_said_it_is_that_of_the_gpus(given: str, tmp_path: Path) -> None:
    text = written(outcome(tmp_path, (DEVICES, given), ('accelerator="cpu"', 'accelerator="gpu"')))
    assert "    devices = device_count() or 1\n    trainer = L.Trainer(\n" in text
    assert "devices=devices," in text
    assert "data_parallel_size=devices," in text


def test_nodes_count(tmp_path: Path) -> None:
    text = written(outcome(tmp_path, (DEVICES, "devices=4, num_nodes=2, ")))
    assert "data_parallel_size=4 * 2," in text
    assert "if 4 * 2 != 1" in text


def test_classes_can_be_named(tmp_path: Path) -> None:
    text = written(outcome(tmp_path, fsdp_wrap=("Block",)))
    assert 'if type(block).__name__ in ("Block",):\n' in text
    assert "fully_shard(block, mesh=mesh)" in text


def test_a_sharded_project_is_left_alone(tmp_path: Path) -> None:
    write(outcome(tmp_path).changes, tmp_path)
    again = migrate((tmp_path / "train.py",), Settings(strategy="fsdp"))
    assert not again.refusals
    assert not again.changes


def _hook(line: str) -> tuple[str, str]:
    return OPTIMIZER, f"    def on_train_epoch_end(self):\n        {line}\n\n{OPTIMIZER}"


REFUSED = {
    "the strategy is set elsewhere": (DEVICES, f"{DEVICES}strategy=sys.argv[4], "),
    "this precision was not tried": (DEVICES, f'{DEVICES}precision="bf16-true", '),
    "let Lightning deal": (DEVICES, f"{DEVICES}use_distributed_sampler=False, "),
    "how many processes there are is not said": (DEVICES, "devices=1, "),
    "have to be written out": (DEVICES, "**dict(devices=DEVICES), "),
    "configure_model of its own": (OPTIMIZER, f"    def configure_model(self): ...\n\n{OPTIMIZER}"),
    "averages of weights": (
        "callbacks=[best]",
        "callbacks=[best, L.pytorch.callbacks.StochasticWeightAveraging(0.1)]",
    ),
    "trains, saves and loads": (FIT, f"    Tuner(trainer).lr_find(net)\n{FIT}"),
    "predict deals unequal": (FIT, f"{FIT}    trainer.predict(net, datamodule=Texts())\n"),
    "state_dict() is this rank's shards": (
        FIT,
        f'{FIT}    torch.save(net.state_dict(), "net.pt")\n',
    ),
    "outside of a step": _hook("print(self.net.head.weight.norm().item())"),
    "BatchNorm keeps": ("self.norm = nn.LayerNorm(width)", "self.norm = nn.BatchNorm1d(width)"),
    "SGD without momentum": ("torch.optim.AdamW(", "torch.optim.SGD("),
    "one Trainer shards": (FIT, f"{FIT}    L.Trainer(devices=1).validate(net, Texts())\n"),
    "does not step entry by entry": ("torch.optim.AdamW(", "torch.optim.Adafactor("),
    "may have another one's moments": (ADAM, f"AdamW({GROUPS}, 0.01)"),
    "One that shards have written is right": (
        f"        return torch.optim.{ADAM}",
        f"        groups = {GROUPS}\n        return torch.optim.AdamW(params=groups, lr=0.01)",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_shards_would_change_is_refused(why: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, REFUSED[why])
    assert not found.changes
    said = " ".join(one.message for one in found.refusals)
    assert why in said
    assert "train.py:" in said


def test_batches_of_each_process_are_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, (DEVICES, f"{DEVICES}limit_val_batches=2, "))
    written(found)
    assert any("evaluate N times as many" in one.message for one in found.findings)


def test_groups_are_not_where_nothing_is_resumed(tmp_path: Path) -> None:
    plain = FIT.replace(", ckpt_path=resumed", "")
    written(outcome(tmp_path, (ADAM, f"AdamW({GROUPS}, 0.01)"), (FIT, plain)))


def test_what_is_not_sharded_is_no_migration_to_accept(tmp_path: Path) -> None:
    given = REFUSED["configure_model of its own"]
    refused = outcome(tmp_path, given).refusals
    places = {one.site for one in refused}
    assert not any("--accept DDP973" in one.message for one in refused)
    accepted = tuple(f"{rule}@{place}" for rule in ("DDP973", "DDP974") for place in places)
    found = outcome(tmp_path, given, accept=accepted)
    assert not found.changes
    assert found.refusals == refused
    assert any("it cannot be accepted" in note.message for note in found.notes)


@pytest.mark.parametrize(
    "line",
    [
        "print(sum(p.numel() for p in self.parameters()))",
        "self.norm_of_last = 0.0",
    ],
)
def test_what_counts_or_is_no_weight_is_not(line: str, tmp_path: Path) -> None:
    written(outcome(tmp_path, _hook(line)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("fsdp_bf16", True), ("fsdp_offload", True), ("fsdp_hybrid", True)),
        *(("fsdp_recompute", True), ("fsdp_meta", True), ("checkpoint", "sharded")),
    ],
)
def test_options_that_are_not_written_are_refused(
    option: str, value: object, tmp_path: Path
) -> None:
    found = outcome(tmp_path, **{option: value})
    assert not found.changes
    said = [one for one in found.refusals if f"--{option.replace('_', '-')}" in one.message]
    assert len(said) == 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The original and the migrated project; a step sees all rows, for Lightning shuffles them."""
    pytest.importorskip("lightning")
    folder = tmp_path_factory.mktemp("sharded")
    after = outcome(folder / "source").changes
    found = {}
    for name, edits, devices, epochs, resumes in (
        ("before", (), 1, 4, None),
        ("one", after, 1, 4, None),
        ("two", after, 2, 4, None),
        ("four", after, 4, 4, None),
        ("before, resumed on two", after, 2, 6, "before"),
        ("two, resumed by the original", (), 1, 6, "two"),
        ("longer", (), 1, 6, None),
    ):
        root = folder / name
        root.mkdir()
        (root / "train.py").write_text(TRANSFORMER)
        write(edits, root)
        arguments = [str(devices), str(epochs)]
        if resumes:
            (root / "out").mkdir()
            state = (found[resumes].root / "out" / "end.ckpt").read_bytes()
            (root / "out" / "last.ckpt").write_bytes(state)
            arguments.append("resume")
        seen = folder / f"{name}_seen"
        found[name] = train(root, seen, *arguments, processes=devices, trainer={}, limit=150)
        assert found[name].finished, found[name].output
    return found


def _end(run: Run) -> dict[str, Any]:
    return read_checkpoint(run.root / "out" / "end.ckpt")


def _apart(one: Run, other: Run) -> float:
    """How far weights, and the moments of AdamW, are from those of another run, at most."""
    mine, theirs = _end(one), _end(other)
    assert list(mine["state_dict"]) == list(theirs["state_dict"])
    pairs = [(mine["state_dict"][name], theirs["state_dict"][name]) for name in mine["state_dict"]]
    states = [end["optimizer_states"][0]["state"] for end in (mine, theirs)]
    for number in states[0]:
        keys = ("exp_avg", "exp_avg_sq")
        pairs += [(states[0][number][key], states[1][number][key]) for key in keys]
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(900)
class TestShardedRuns:
    """Real processes; float64."""

    def test_one_device_is_as_before(self, runs: dict[str, Run]) -> None:
        assert _apart(runs["before"], runs["one"]) == 0.0

    @pytest.mark.parametrize("name", ["two", "four"])
    def test_shards_train_as_one_device(self, name: str, runs: dict[str, Run]) -> None:
        assert _apart(runs["before"], runs[name]) <= 1e-10

    def test_the_original_goes_on_from_a_checkpoint_of_shards(self, runs: dict[str, Run]) -> None:
        assert _apart(runs["longer"], runs["two, resumed by the original"]) <= 1e-10

    def test_shards_go_on_from_a_checkpoint_of_the_original(self, runs: dict[str, Run]) -> None:
        assert _apart(runs["longer"], runs["before, resumed on two"]) <= 1e-10
