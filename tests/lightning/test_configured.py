"""Trainers that a configuration makes, LightningCLI's and hydra's: what is written, and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lightning.configured import COMMANDLINE, HYDRA, MODULES
from tests.lightning.runs import Run, read_checkpoint, train
from tests.projects import put, write

PROGRAMS = {"main.py": COMMANDLINE, "train.py": HYDRA}
programs = pytest.mark.parametrize("script", PROGRAMS)
NORM = ("self.inner = nn.Linear(width, 1)", "self.inner = nn.BatchNorm1d(width)")
TWO = (
    "        super().__init__()\n        self.layer",
    "        super().__init__()\n        self.automatic_optimization = False\n        self.layer",
)
STEPS = (
    "        return nn.functional.mse_loss(self.layer(x)[:, 0], y)\n\n    def val",
    "        first, second = self.optimizers()\n"
    "        self.manual_backward(nn.functional.mse_loss(self.layer(x)[:, 0], y))\n"
    "        first.step()\n\n    def val",
)
running = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(240)]
SLURM = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun python {}\n"


def project(folder: Path, script: str, *changes: tuple[str, str], **files: str) -> Path:
    """A program with these changes of its files, each of which is in one of them."""
    texts = {**PROGRAMS[script], **files}
    for old, new in changes:
        (path,) = [path for path, text in texts.items() if old in text]
        texts[path] = texts[path].replace(old, new)
    put(texts, folder)
    return folder / script


def outcome(
    folder: Path, script: str, *changes: tuple[str, str], strategy: str = "ddp", **files: str
) -> Outcome:
    return migrate((project(folder, script, *changes, **files),), Settings(strategy=strategy))


def texts(found: Outcome) -> Mapping[str, str]:
    assert not found.refusals, found.refusals
    return {change.path: change.after.decode() for change in found.changes}


def refused(found: Outcome) -> str:
    assert not found.changes
    return " ".join(one.message for one in found.refusals)


@programs
def test_what_a_configuration_makes_is_read_as_what_code_makes(script: str, tmp_path: Path) -> None:
    """Steps, data, a callback, and what stands around ``fit``."""
    written = texts(outcome(tmp_path, script))
    assert "sync_dist=True" in written["net.py"]
    assert "share_training(" in written["rows.py"]
    assert "        if trainer.is_global_zero:\n            with open" in written["notes.py"]
    assert "if rank_zero_only.rank == 0:\n" in written[script]


def test_one_device_is_changed_in_files_and_commands(tmp_path: Path) -> None:
    written = texts(outcome(tmp_path, "main.py"))
    old = COMMANDLINE["config.yaml"]
    assert written["config.yaml"] == old.replace("devices: 1  # of", "devices: auto  # of")
    assert written["run.sh"].endswith(
        "\npython main.py fit --config config.yaml --trainer.devices auto\n"
    )


def test_a_group_of_hydra_says_where_its_files_lie(tmp_path: Path) -> None:
    """What is laid over it to try it on the CPU stays."""
    written = texts(outcome(tmp_path, "train.py"))
    assert "devices: auto  # of this machine\n" in written["configs/trainer/default.yaml"]
    assert written["configs/trainer/gpu.yaml"].endswith("devices: auto\n")
    assert "configs/debug.yaml" not in written
    assert written["run.sh"].endswith("trainer=gpu trainer.devices=auto\n")


@programs
def test_a_migrated_program_is_left_alone(script: str, tmp_path: Path) -> None:
    job = SLURM.format(script)
    write(outcome(tmp_path, script, NORM, **{"job.sh": job}).changes, tmp_path)
    again = migrate((tmp_path / script,), Settings())
    assert not again.refusals
    assert not again.changes


def test_batch_norm_of_a_command_line_is_a_default(tmp_path: Path) -> None:
    gpu = ("accelerator: cpu\n", "accelerator: auto\n")
    written = texts(outcome(tmp_path, "main.py", NORM, gpu))
    assert '| {"sync_batchnorm": cuda.is_available()}' in " ".join(written["main.py"].split())


def test_batch_norm_of_hydra_is_said_where_there_are_gpus(tmp_path: Path) -> None:
    written = texts(outcome(tmp_path, "train.py", NORM))
    line = "accelerator: gpu  # all of them\nsync_batchnorm: true\n"
    assert line in written["configs/trainer/gpu.yaml"]
    assert "sync_batchnorm" not in written["configs/trainer/default.yaml"]
    assert "sync_batchnorm" not in written["train.py"]


def test_batch_norm_is_asked_for_in_code_where_no_file_says_what_there_is(tmp_path: Path) -> None:
    files = {"configs/trainer/default.yaml": "_target_: lightning.Trainer\nmax_epochs: 1\n"}
    written = texts(outcome(tmp_path, "train.py", NORM, **files))
    assert "sync_batchnorm=cuda.is_available()" in written["train.py"]


def test_two_optimizers_of_a_command_line_are_told_to_look(tmp_path: Path) -> None:
    written = texts(outcome(tmp_path, "main.py", TWO, STEPS))
    assert '"ddp_find_unused_parameters_true" if int(' in " ".join(written["main.py"].split())


def test_two_optimizers_of_hydra_are_told_to_look_where_ddp_is_said(tmp_path: Path) -> None:
    gpu = "defaults: [default]\nstrategy: ddp  # mine\ndevices: 2\n"
    found = outcome(tmp_path, "train.py", TWO, STEPS, **{"configs/trainer/gpu.yaml": gpu})
    text = texts(found)["configs/trainer/gpu.yaml"]
    assert "strategy: ddp_find_unused_parameters_true  # mine\n" in text
    left = [str(one.site) for one in found.findings if one.rule == "DDP964" and not one.fix]
    assert left == ["configs/trainer/default.yaml:1"]


def test_nodes_are_said_where_they_are_asked_for(tmp_path: Path) -> None:
    job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n#SBATCH --ntasks-per-node=4\n"
    command = SLURM.format("main.py fit --config config.yaml > log")
    written = texts(outcome(tmp_path / "a", "main.py", **{"job.sh": command}))
    assert written["job.sh"] == (
        f"{job}srun python main.py fit --config config.yaml --trainer.num_nodes=2 > log\n"
    )
    command = SLURM.format("train.py trainer=gpu")
    written = texts(outcome(tmp_path / "b", "train.py", **{"job.sh": command}))
    assert written["job.sh"] == f"{job}srun python train.py trainer=gpu ++trainer.num_nodes=2\n"


@pytest.mark.parametrize("command", ["main.py fit --config c.yaml --trainer.num_nodes=2", ""])
def test_nodes_that_are_said_stay(command: str, tmp_path: Path) -> None:
    """By the command, or by a file."""
    config = (("max_epochs: 2", "max_epochs: 2\n  num_nodes: 2"),) if not command else ()
    job = SLURM.format(command or "main.py fit --config config.yaml")
    assert texts(outcome(tmp_path, "main.py", *config, **{"job.sh": job}))["job.sh"] == job.replace(
        "gpu:4\n", "gpu:4\n#SBATCH --ntasks-per-node=4\n"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("devices: 1  #", "devices: ${gpus}  #"), "configs/trainer/default.yaml:3"),
        (("trainer.devices=1", "trainer.devices=$GPUS"), "run.sh:2"),
    ],
)
def test_a_number_that_is_elsewhere_is_named(
    change: tuple[str, str], line: str, tmp_path: Path
) -> None:
    changes = [change] if line[0] == "r" else [("1  # of this machine", "${gpus}  # of this")]
    found = outcome(tmp_path, "train.py", *changes)
    named = {str(one.site): one.message for one in found.findings if one.rule == "DDP960"}
    assert ("${gpus}" if line[0] == "c" else "$GPUS") in named[line]


REFUSED = [
    (
        "main.py",
        "main.py:17: what is trained here is not followed",
        ("        Net,\n        Rows,\n", "        datamodule_class=Rows,\n"),
    ),
    (
        "main.py",
        "main.py:12: `instantiate_classes` is LightningCLI's own",
        (
            "    def after_fit(",
            "    def instantiate_classes(self):\n        super()\n\n    def end(",
        ),
    ),
    (
        "main.py",
        "main.py:20: LightningCLI with `args` is not followed",
        ("        Rows,\n", '        Rows,\n        args=["fit"],\n'),
    ),
    (
        "main.py",
        "config.yaml:8: DDP965 Lightning makes another loader",
        ("enable_checkpointing: false\n", "overfit_batches: 3\n"),
    ),
    (
        "train.py",
        "configs/trainer/default.yaml:4: DDP965 Lightning makes another loader",
        ("max_epochs: 2", "overfit_batches: 3"),
    ),
    (
        "main.py",
        "main.py:9: `fit` is LightningCLI's own",
        (
            "class Program(LightningCLI):",
            "class Base(LightningCLI):\n    def fit(self, model):\n        pass\n\n\n"
            "class Program(Base):",
        ),
    ),
    (
        "train.py",
        "train.py:15: hydra also looks for configurations where `searchpath` says",
        ("seed: 7\n", "seed: 7\nhydra:\n  searchpath: [file://elsewhere]\n"),
    ),
    (
        "train.py",
        "train.py:16: what is trained here is not followed",
        ("_target_: net.Net", "_target_: unknown.Net"),
    ),
    (
        "train.py",
        "train.py:10: the folder of hydra's configurations has to be written out here",
        ('config_path="configs"', "config_path=FOLDER"),
    ),
]


FOLDERS = [
    'config_path=str(root / "configs")',
    'config_path=root + "/configs"',
    'config_path=str(Path(__file__).resolve().parent / "configs")',
    "**OPTIONS",
]


@pytest.mark.parametrize("given", FOLDERS)
def test_a_folder_that_is_written_out_is_read(given: str, tmp_path: Path) -> None:
    made = (
        "import rootutils\nfrom pathlib import Path\n\n"
        'root = rootutils.setup_root(search_from=__file__, indicator=[".git", "train.py"])\n'
        'OPTIONS = {"version_base": None, "config_path": "configs"}\n\n\ndef callbacks('
    )
    changes = (("def callbacks(", made), ('config_path="configs"', given))
    written = texts(outcome(tmp_path, "train.py", *changes))
    assert "devices: auto" in written["configs/trainer/default.yaml"]


@pytest.mark.parametrize(("script", "said", "change"), REFUSED)
def test_what_is_not_followed_is_refused(
    script: str, said: str, change: tuple[str, str], tmp_path: Path
) -> None:
    assert said in refused(outcome(tmp_path, script, change))


PAST = [
    ("main.py", "fit --config config.yaml --model {}", "Other", "Net"),
    ("main.py", "fit --trainer.callbacks+={}", "other.Other", "EarlyStopping"),
    ("main.py", "fit --trainer {}", "trainer.yaml", ""),
    ("train.py", "model._target_={}", "other.Other", "net.Net"),
    ("train.py", "--config-dir {}", "elsewhere", ""),
]


@pytest.mark.parametrize(("script", "options", "past", "known"), PAST)
def test_what_a_command_chooses_past_the_files_is_refused(
    script: str, options: str, past: str, known: str, tmp_path: Path
) -> None:
    """Not what the files name, too, and not what Lightning has."""
    files = {"other.py": "class Other:\n    pass\n"}
    if script == "main.py":
        files["second.yaml"] = "model:\n  class_path: net.Net\n"
    job = f"#!/bin/bash\npython {script} {options}\n"
    said = refused(outcome(tmp_path / "a", script, **files, **{"job.sh": job.format(past)}))
    assert f"job.sh:2: DDP963 this command has a Trainer train what was not read (`{past}`)" in said
    if known:
        texts(outcome(tmp_path / "b", script, **files, **{"job.sh": job.format(known)}))


@programs
@pytest.mark.parametrize(
    ("option", "rule"), [("overfit_batches=4", "DDP965"), ("limit_val_batches=2", "DDP966")]
)
def test_what_a_command_says_of_batches_is_named(
    script: str, option: str, rule: str, tmp_path: Path
) -> None:
    dashes = "fit --config config.yaml --" if script == "main.py" else "+"
    job = f"#!/bin/bash\npython {script} {dashes}trainer.{option}\n"
    found = outcome(tmp_path, script, **{"job.sh": job})
    assert ("job.sh:2", rule) in {(str(one.site), one.rule) for one in found.findings}


def test_a_class_of_the_same_name_does_not_hide_the_command_lines(tmp_path: Path) -> None:
    own = "    def instantiate_classes(self):\n        super()\n\n    def end("
    change = (("    def after_fit(", own), ("from rows import", "import other\nfrom rows import"))
    other = {"other.py": "class Program:\n    pass\n"}
    said = refused(outcome(tmp_path, "main.py", *change, **other))
    assert "`instantiate_classes` is LightningCLI's own" in said


@programs
def test_shards_are_not_written_into_configurations(script: str, tmp_path: Path) -> None:
    said = refused(outcome(tmp_path, script, strategy="fsdp"))
    assert "shards are only written where the code makes the Trainer" in said


def test_a_loader_that_a_file_makes_within_another_thing_is_refused(tmp_path: Path) -> None:
    """Its call is that of ``instantiate(cfg.data)``, which cannot be dealt."""
    data = "_target_: rows.Rows\nloader:\n  _target_: torch.utils.data.DataLoader\n  dataset: [1]\n"
    found = outcome(
        tmp_path,
        "train.py",
        ("batch_size: int = 8", "loader=None"),
        ("self.batch_size = batch_size", "self.loader = loader"),
        ("return DataLoader(TensorDataset(self.x, self.x.sum(1)), self.batch_size)",
         "return self.loader"),
        ("self.x[:20].prod(1)), self.batch_size)", "self.x[:20].prod(1)), 8)"),
        **{"configs/data/rows.yaml": data},
    )  # fmt: skip
    assert "rows.py:15: DDP965 what is trained on is not followed" in refused(found)


def test_a_number_that_an_anchor_has_is_named(tmp_path: Path) -> None:
    one = ("seed_everything: 7", "seed_everything: &one 1")
    found = outcome(tmp_path, "main.py", one, ("devices: 1  #", "devices: *one  #"))
    assert "config.yaml" not in texts(found)
    assert ("config.yaml:5", False) in {
        (str(each.site), bool(each.fix)) for each in found.findings if each.rule == "DDP960"
    }


def test_defaults_that_are_not_written_out_are_named(tmp_path: Path) -> None:
    other = ("        trainer_defaults={", "        trainer_defaults={**OTHERS, ")
    gpu = ("accelerator: cpu\n", "accelerator: auto\n")
    found = outcome(tmp_path, "main.py", NORM, gpu, other)
    assert "sync_batchnorm" not in texts(found)["main.py"]
    assert any(one.rule == "DDP961" and not one.fix for one in found.findings)


def test_scripts_that_share_files_are_migrated_together(tmp_path: Path) -> None:
    project(tmp_path, "train.py", NORM, **{"second.py": HYDRA["train.py"]})
    found = migrate((tmp_path / "train.py", tmp_path / "second.py"), Settings())
    assert texts(found)["configs/trainer/gpu.yaml"].count("sync_batchnorm: true") == 1


def test_another_script_of_the_same_files_is_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, "train.py", **{"eval.py": HYDRA["train.py"].replace("fit", "test")})
    named = [str(one.site) for one in found.findings if one.rule == "DDP963" and not one.fix]
    assert named == ["eval.py:1"]


def test_an_overfit_that_is_chosen_is_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, "train.py", ("devices: 1  # debug", "overfit_batches: 3  # debug"))
    assert "configs/debug.yaml:4" in {
        str(one.site) for one in found.findings if one.rule == "DDP965" and not one.fix
    }


def test_what_a_command_line_has_in_its_class_is_read(tmp_path: Path) -> None:
    """Arguments that its ``__init__`` gives, callbacks that it adds, one that keeps the config."""
    main = """import lightning as L
from lightning.pytorch.cli import LightningCLI, SaveConfigCallback


class Keep(SaveConfigCallback):
    def on_fit_start(self, trainer, pl_module):
        with open("began.txt", "a") as file:
            file.write("began")


class Program(LightningCLI):
    def __init__(self):
        super().__init__(
            L.LightningModule,
            subclass_mode_model=True,
            save_config_callback=Keep,
            run=False,
        )

    def add_arguments_to_parser(self, parser):
        from notes import Notes

        parser.add_lightning_class_args(Notes, "notes")
        parser.set_defaults({"notes.path": "n.jsonl", "trainer.devices": 1})


program = Program()
program.trainer.fit(program.model, program.datamodule)
print(program.trainer.callback_metrics["val/loss"].item())
"""
    config = "model:\n  class_path: Net\n  init_args: {layer: {class_path: layers.Small}}\n"
    config += "data:\n  class_path: rows.Rows\n"
    files = {
        "main.py": main.replace("import lightning as L\n", "import lightning as L\nimport net\n")
    }
    written = texts(outcome(tmp_path, "main.py", **files, **{"config.yaml": config}))
    assert (
        "        if trainer.is_global_zero:\n            with open(self.path" in written["notes.py"]
    )
    assert written["main.py"].count("if rank_zero_only.rank == 0:\n") == 2
    assert '"trainer.devices": environ.get("LOCAL_WORLD_SIZE", "auto")' in written["main.py"]
    assert "share_training(" in written["rows.py"]
    assert "sync_dist=True" in written["net.py"]


def test_all_classes_that_files_name_are_read(tmp_path: Path) -> None:
    """The command line chooses among them."""
    other = HYDRA["net.py"].replace("class Net", "class Other")
    files = {"other.py": other, "configs/model/other.yaml": "_target_: other.Other\n"}
    written = texts(outcome(tmp_path, "train.py", **files))
    assert "sync_dist=True" in written["net.py"]
    assert "sync_dist=True" in written["other.py"]


def test_check_reads_them_where_a_file_says_several_devices(tmp_path: Path) -> None:
    start = project(tmp_path, "train.py", ("all of them\ndevices: 1", "all of them\ndevices: 4"))
    found = lint(tmp_path, sorted(tmp_path.glob("*.py")))
    assert "notes.py:12: DDP502" in {f"{o.site}: {o.rule}" for o in found.findings}
    assert tmp_path / "configs/trainer/gpu.yaml" in found.others  # what a cache goes by
    (tmp_path / "configs/trainer/gpu.yaml").write_text("defaults: [default]\n")
    assert not lint(tmp_path, [start]).findings


NUMBERS = [  # how a Trainer is told, the file that says so, and where it is named
    ("**cfg.trainer", "c.json", "{}", "main.py:9"),
    ("**cfg['trainer']", "c.yaml", "trainer:\n  devices:\n    - 0\n", "c.yaml:3"),
    ("devices=cfg.trainer.devices", "c.json", "{}", "main.py:9"),
    ("devices=cfg['gpus']", "c.yaml", "gpus: 1\n", "main.py:9"),
    ("devices=len(cfg.gpus)", "c.yaml", "gpus: [0]\n", "main.py:9"),
    ("**cfg.trainer", "c.yaml", "trainer: {a: 1}\nother: {trainer: {devices: 1}}\n", "c.yaml:2"),
]


@pytest.mark.parametrize(("given", "file", "text", "line"), NUMBERS)
def test_devices_that_are_not_followed_are_named(
    given: str, file: str, text: str, line: str, tmp_path: Path
) -> None:
    """Not changed where a section may be another thing's."""
    main = f"""import lightning as L

from layers import Small
from net import Net
from read import cfg
from rows import Rows

L.seed_everything(1)
trainer = L.Trainer({given})
trainer.fit(Net(Small()), Rows())
"""
    put({**MODULES, "main.py": main, file: text}, tmp_path)
    found = migrate((tmp_path / "main.py",), Settings())
    assert file not in texts(found)
    assert [str(one.site) for one in found.findings if one.rule == "DDP960"] == [line]


@pytest.fixture(scope="module", params=PROGRAMS)
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """Before, after, and two processes after and before."""
    for name in ("lightning", "jsonargparse", "hydra"):
        pytest.importorskip(name)
    script = request.param
    folder = tmp_path_factory.mktemp(script.removesuffix(".py"))
    changes = outcome(folder / "source", script).changes
    first = ("fit", "--config", "config.yaml") if script == "main.py" else ()
    option = "--trainer.devices={}" if first else "trainer.devices={}"
    found = {}
    for name, edits, processes in (
        ("before", (), 1),
        ("after", changes, 1),
        ("two", changes, 2),
        ("faulty", (), 2),
    ):
        root = put(PROGRAMS[script], folder / name)
        write(edits, root)
        given = [option.format(processes)] if processes > 1 else []
        seen = folder / f"{name}_seen"
        found[name] = train(root, seen, *first, *given, trainer={}, script=script)
    return found


def weights(run: Run) -> list[float]:
    assert run.finished, run.output
    state = read_checkpoint(run.root / "net.pt")
    return [number for tensor in state.values() for number in tensor.flatten().tolist()]


class TestConfiguredRuns:
    """Real processes; float64."""

    pytestmark = running

    def test_one_device_is_as_before(self, runs: dict[str, Run]) -> None:
        before, after = runs["before"], runs["after"]
        assert weights(before) == weights(after)
        notes = [(run.root / "notes.jsonl").read_text() for run in (before, after)]
        assert notes[0] == notes[1]

    def test_two_processes_end_where_one_does(self, runs: dict[str, Run]) -> None:
        one, two = runs["after"], runs["two"]
        assert len(two.ranks) == 2
        assert weights(two) == pytest.approx(weights(one), abs=1e-10)
        mine, theirs = (
            [json.loads(line) for line in (run.root / "notes.jsonl").read_text().splitlines()]
            for run in (one, two)
        )
        assert len(mine) == len(theirs) == 2
        for single, several in zip(mine, theirs, strict=True):
            assert several["val/loss"] == pytest.approx(single["val/loss"], abs=1e-6)

    def test_without_it_they_do_not(self, runs: dict[str, Run]) -> None:
        faulty = runs["faulty"]
        assert weights(faulty) != pytest.approx(weights(runs["after"]), abs=1e-4)
        assert len((faulty.root / "notes.jsonl").read_text().splitlines()) == 4
