"""What the server remembers is never told in the place of what is there now.

After every step of a random session, its answer is that of a reader that remembers nothing.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify.checking.model import CheckRequest
from ddpify.checking.run import check
from ddpify.judging import is_serious
from ddpify.server import reading
from ddpify.server.reading import ProjectAnswer, ProjectReader
from tests.server.test_server import NET, TRAIN

FIXTURES = Path(__file__).parents[2] / "fixtures"
LIGHTNING = """\
import pytorch_lightning as pl
import torch


class Task(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        return self.net(batch[0]).mean()

    def on_train_epoch_end(self):
        if self.global_rank == 0:
            self.trainer.save_checkpoint("best.ckpt")


if __name__ == "__main__":
    rows = torch.utils.data.TensorDataset(torch.randn(64, 4))
    loader = torch.utils.data.DataLoader(rows, batch_size=8, shuffle=True)
    pl.Trainer(max_epochs=2, devices=2, strategy="ddp").fit(Task(), loader)
"""
BOUND = "setup(install_requires=['pytorch_lightning<1.9'])\n"
LINES = (
    "torch.distributed.barrier()",
    "import torch.distributed",
    "from net import *",
    "if rank == 0:",
    "pass",
    "x = 1  # noqa: DDP801",
    "return",
    "def broken(:",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path.resolve()
    texts = {"net.py": NET, "train.py": TRAIN, "fit.py": LIGHTNING, "setup.py": ""}
    for name, text in {**texts, "run.sh": "python train.py\n", "pyproject.toml": ""}.items():
        (top / name).write_text(text)
    (top / "pkg").mkdir()
    (top / "pkg" / "net.py").write_text(NET.replace("rank == 0", "rank >= 0"))
    monkeypatch.chdir(top)
    return top


class Session:
    """Somebody who edits: files by their names, and what is typed and not yet written."""

    def __init__(self, top: Path, seed: int) -> None:
        self.top, self.dice = top, random.Random(seed)
        self.reader = ProjectReader(top)
        self.buffers: dict[Path, str] = {}

    @property
    def files(self) -> list[Path]:
        return sorted(self.top.rglob("*.py"))

    def step(self) -> str:
        ways = (self.write, self.write, self.type, self.type, self.close, self.copy, self.rename)
        more: tuple[Callable[[Path], str], ...] = (self.remove, self.launch, self.settings)
        return self.dice.choice((*ways, *more))(self.dice.choice(self.files))

    def edited(self, text: str) -> str:
        lines = text.split("\n")
        at = self.dice.randrange(len(lines))
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        new = [] if self.dice.random() < 0.3 else [indent + self.dice.choice(LINES)]
        lines[at : at + self.dice.randrange(2)] = new
        return "\n".join(lines)

    def write(self, file: Path) -> str:
        bound = file.name == "setup.py"
        file.write_text(self.dice.choice((BOUND, "")) if bound else self.edited(file.read_text()))
        return f"write {file.name}"

    def type(self, file: Path) -> str:
        self.buffers[file] = self.edited(self.buffers.get(file, file.read_text()))
        return f"type in {file.name}"

    def close(self, file: Path) -> str:
        text = self.buffers.pop(file, None)
        if text is not None and self.dice.random() < 0.5:
            file.write_text(text)
        return f"close {file.name}"

    def copy(self, file: Path) -> str:
        folder = self.dice.choice([one.parent for one in self.files])
        return self.moved(shutil.copy, file, folder / self.dice.choice(self.files).name)

    def rename(self, file: Path) -> str:
        return self.moved(shutil.move, file, file.with_name(f"x{self.dice.randrange(3)}.py"))

    def moved(self, how: Callable[[Path, Path], object], file: Path, to: Path) -> str:
        if to.exists():
            return self.write(to)
        how(file, to)
        self.reader.forget()
        return f"{how.__name__} {file.name} {to.name}"

    def remove(self, file: Path) -> str:
        if len(self.files) < 4:
            return self.type(file)
        file.unlink()
        self.reader.forget()
        return f"remove {file.name}"

    def launch(self, file: Path) -> str:
        starter = self.dice.choice(("python", "torchrun", "python -m torch.distributed.launch"))
        (self.top / "run.sh").write_text(f"{starter} {file.relative_to(self.top)}\n")
        self.reader.forget()
        return f"start {file.name} by {starter}"

    def settings(self, file: Path) -> str:
        codes = self.dice.choice(('"DDP8"', '"DDP1"', ""))
        (self.top / "pyproject.toml").write_text(f"[tool.ddpify]\nignore = [{codes}]\n")
        self.reader.forget()
        return f"ignore {codes}"

    def answer(self, reader: ProjectReader, cache: bool = False) -> ProjectAnswer:
        return reader.read(sorted({*self.files, *self.buffers}), self.buffers, cache)


def same_answers(top: Path, seed: int, steps: int) -> None:
    session, log = Session(top, seed), []
    for _ in range(steps):
        log.append(session.step())
        cached = session.dice.random() < 0.3
        fresh = session.answer(ProjectReader(top))
        assert session.answer(session.reader, cached) == fresh, log
        if not session.buffers:
            assert check(CheckRequest((top,), cache=False)).findings == fresh.checked.findings


@pytest.mark.parametrize("seed", range(4))
def test_a_long_session_is_told_what_a_new_one_is(project: Path, seed: int) -> None:
    same_answers(project, seed, 30)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["vision_project", "language_model", "lightning_imagenet"])
def test_a_long_session_in_a_larger_project(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path.resolve() / name
    shutil.copytree(FIXTURES / name, top)
    monkeypatch.chdir(top)
    same_answers(top, 7, 60)


def test_a_version_that_setup_py_bounds_counts_as_it_is_now(project: Path) -> None:
    reader = ProjectReader(project)
    file = project / "fit.py"

    def codes() -> set[str]:
        return {one.rule for one in reader.read([file], {}, cache=False).findings[file]}

    assert "DDP806" in codes()
    (project / "setup.py").write_text(BOUND)
    assert "DDP806" not in codes()


def test_a_file_that_comes_while_files_are_looked_for_is_not_passed_over(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, new, find = ProjectReader(project), project / "new.py", reading.groups

    def slowly(*asked: object) -> object:
        found = find(*asked)  # type: ignore[arg-type]
        if not new.exists():
            new.write_text(TRAIN)
            reader.forget()
        return found

    monkeypatch.setattr(reading, "groups", slowly)
    reader.read([], {}, cache=False)
    reader.read([], {}, cache=False)
    starts = {one.start for one in reader.read([], {}, cache=False).checked.programs}
    assert "new.py" in starts


LOADS = """\
import torch
import torch.distributed as dist
from meetings import meet

if __name__ == "__main__":
    dist.init_process_group("nccl")
    meet(dist.get_rank())
    model = torch.nn.Linear(4, 1).cuda()
    model.load_state_dict(torch.load("net.pt"))
    torch.nn.parallel.DistributedDataParallel(model)
    dist.destroy_process_group()
"""
MEET = """\
import torch.distributed as dist

def meet(rank):
    if rank == 0:
        dist.barrier()
"""
SAVES = "import torch\n\n\ndef export(model):\n    torch.save(model.state_dict(), 'net.pt')\n"
FINDS = "import os\nimport sys\nsys.path.append(os.path.join(os.path.dirname(__file__), 'lib'))\n"


@pytest.mark.parametrize(
    ("other", "before", "after", "rule"),
    [
        ("export.py", SAVES, SAVES.replace("model.state", "model.cpu().state"), "DDP606"),
        ("conf.py", FINDS, "", "DDP801"),
    ],
    ids=["where states are saved", "where imports are found"],
)
def test_a_file_that_no_program_enters_counts_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, before: str, after: str, rule: str
) -> None:
    project = tmp_path.resolve()
    monkeypatch.chdir(project)
    (project / "lib").mkdir()
    texts = {"loads.py": LOADS, "export.py": SAVES, "conf.py": FINDS, "lib/meetings.py": MEET}
    for name, text in {"pyproject.toml": "", **texts, other: before}.items():
        (project / name).write_text(text)
    reader = ProjectReader(project)

    def has(reader: ProjectReader) -> bool:
        found = reader.read([project / "loads.py"], {}, cache=False).checked.findings
        return rule in {one.rule for one in found if is_serious(one)}

    assert has(reader)
    (project / other).write_text(after)
    assert not has(ProjectReader(project))
    assert not has(reader)
