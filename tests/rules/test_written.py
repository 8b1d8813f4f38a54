"""What a fix writes, where that it removes the finding is not enough."""

from __future__ import annotations

from pathlib import Path

from ddpify.rules.examples import SINGLE, changed
from tests.projects import judged, migrated, put, put_example, read


def test_a_sampler_drops_the_last_where_settings_say_so(tmp_path: Path) -> None:
    entry = put_example(
        changed(
            SINGLE,
            ("    fitting =", '    given = {"drop_last": True}\n    fitting ='),
            ("opt.bs, shuffle=True)", "opt.bs, shuffle=True, **given)"),
        ),
        tmp_path,
    )
    migrated(entry)
    made = "".join(entry.read_text().split())
    assert "distributed_sampler(train_dataset,shuffle=True,drop_last=True)" in made


def test_the_text_of_a_bar_is_of_all_ranks_or_named(tmp_path: Path) -> None:
    step = "            adam.step()\n"
    shown = 'bar.desc = "loss {:.3f}".format(objective)\n'
    bar = (
        ("import torch\n", "import torch\nfrom tqdm import tqdm\n"),
        (
            "        for signal, label in fitting:\n",
            "        bar = tqdm(fitting)\n        for signal, label in bar:\n",
        ),
    )
    often = changed(SINGLE, *bar, (step, f"{step}            {shown}"))
    (found,) = [
        f for f in judged(read(put_example(often, tmp_path / "often"))) if f.rule == "DDP702"
    ]
    assert not found.fix
    assert found.advice.startswith("rank 0's bar shows its own numbers")
    seldom = changed(
        SINGLE, *bar, (step, f"{step}            if round_ > 2:\n                {shown}")
    )
    entry = put_example(seldom, tmp_path / "seldom")
    migrated(entry)
    assert "global_objective = reduce_mean(objective, weight=" in entry.read_text()
    assert 'bar.desc = "loss {:.3f}".format(global_objective)\n' in entry.read_text()


def test_a_list_of_losses_in_a_file_is_averaged(tmp_path: Path) -> None:
    kept = changed(
        SINGLE,
        ("import torch\n", "import json\nimport torch\n"),
        ("    for round_ in range(5):\n", "    kept = []\n    for round_ in range(5):\n"),
        (
            "            adam.step()\n",
            "            adam.step()\n            kept.append(objective.item())\n",
        ),
        (
            '    torch.save(net.state_dict(), "net.pth")\n',
            '    with open("kept.json", "w") as file:\n        json.dump(kept, file)\n',
        ),
    )
    entry = put_example(kept, tmp_path)
    assert not [f for f in judged(read(entry)) if f.rule == "DDP702"]
    migrated(entry)
    assert "        kept[:] = reduce_mean(kept)\n" in entry.read_text()
    table = changed(
        kept,
        ("import json\n", "import pandas\n"),
        (
            '    with open("kept.json", "w") as file:\n        json.dump(kept, file)\n',
            '    table = pandas.DataFrame({"loss": kept})\n    table.to_csv("kept.csv")\n',
        ),
    )
    found = judged(read(put_example(table, tmp_path / "table")))
    assert not [f for f in found if f.rule == "DDP702"]


def test_a_part_of_one_rank_is_not_divided_by_the_count_of_all(tmp_path: Path) -> None:
    shown = "print(signal.std().item() / high)"
    step = "            adam.step()\n"
    lines = f"{step}            high = (label > 1).sum()\n            {shown}\n"
    entry = put_example(changed(SINGLE, (step, lines)), tmp_path)
    (found,) = [f for f in judged(read(entry)) if f.rule == "DDP702"]
    assert not found.fix
    migrated(entry)
    assert shown in entry.read_text()


def test_a_generator_without_end_counts_its_passes(tmp_path: Path) -> None:
    """Each would shuffle as the first."""
    entry = put({"main.py": FOREVER}, tmp_path) / "main.py"
    found = [f for f in judged(read(entry)) if f.rule == "DDP201"]
    assert [f.site.span.line for f in found] == [8]
    migrated(entry)
    counted = "begin_epoch(loader,passes)passes+=1forbatchinloader:"
    made = "".join(entry.read_text().split())
    assert "passes=0whileTrue:" in made
    assert counted in made
    entry.write_text(FOREVER.replace("while True:", "if loader:"))
    assert not [f for f in judged(read(entry)) if f.rule == "DDP201"]


def test_a_loader_that_each_pass_makes_is_told_the_epoch_when_it_is_there(tmp_path: Path) -> None:
    _, before, after = SINGLE.files[0][1].partition("    fitting = ")
    made = after.partition("\n")[0]
    loop = "    for round_ in range(5):\n"
    entry = put_example(
        changed(
            SINGLE,
            (f"{before}{made}\n", ""),
            (loop, f"{loop}        fitting = feed(signals, labels, opt)\n"),
            ("def main", f"def feed(signals, labels, opt):\n    return {made}\n\n\ndef main"),
        ),
        tmp_path,
    )
    migrated(entry)
    lines = [line.strip() for line in entry.read_text().splitlines()]
    at = lines.index("begin_epoch(fitting, round_)")
    assert lines[at + 1] == "for i, (signal, label) in enumerate(fitting):"
    assert lines.index("fitting = feed(signals, labels, opt)") < at


def test_a_training_that_is_repeated_is_told_its_epochs(tmp_path: Path) -> None:
    entry = put_example(
        changed(SINGLE, ('":\n    main()', '":\n    for _ in range(2):\n        main()')), tmp_path
    )
    migrated(entry)
    lines = [line.strip() for line in entry.read_text().splitlines()]
    assert lines[lines.index("for round_ in range(5):") + 1] == "begin_epoch(fitting, round_)"


def test_a_batch_norm_that_met_its_replicas_meets_the_ranks(tmp_path: Path) -> None:
    entry = put({"main.py": OWN_BATCH_NORM}, tmp_path) / "main.py"
    migrated(entry)
    assert "wrap_model(model, sync_batchnorm=True)" in entry.read_text()
    entry.write_text(OWN_BATCH_NORM.replace("__data_parallel_replicate__", "meet"))
    migrated(entry)
    assert "wrap_model(model)" in entry.read_text()


def test_a_block_that_writes_and_remembers_runs_on_all_ranks(tmp_path: Path) -> None:
    step = "            adam.step()\n"
    block = '            with open("log.txt", "a") as log:\n                log.write("x")\n'
    for kept, head in (("", "if is_main_process():"), ("seen.append(1)", "NullWriter() as log:")):
        folder = tmp_path / head[:4]
        entry = put_example(
            changed(
                SINGLE,
                ("    fitting =", "    seen = []\n    fitting ="),
                (step, f"{step}{block}                {kept}\n"),
            ),
            folder,
        )
        migrated(entry)
        lines = entry.read_text().splitlines()
        at = next(n for n, line in enumerate(lines) if 'open("log.txt"' in line)
        assert head in lines[at] + lines[at - 1]


OWN_BATCH_NORM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class BatchNorm(nn.modules.batchnorm._BatchNorm):
    def __data_parallel_replicate__(self, context, copy_id):
        self.context = context

    def forward(self, x):
        return super().forward(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(5), nn.Linear(5, 1)

    def forward(self, x):
        return self.out(self.norm(x))

if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.DataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
"""
FOREVER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def forever(loader):
    while True:
        print("again")
        for batch in loader:
            yield batch

if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = forever(loader)
    for step in range(100):
        x, y = next(batches)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


LOGGED = """def log(line):
    with open("log.txt", "a") as file:
        file.write(line)


def lines():
    with open("log.txt") as file:
        return len(file.readlines())


def accuracy"""


def test_nobody_waits_for_what_rank_0_reads_alone(tmp_path: Path) -> None:
    """A barrier before the line would stand under the condition of rank 0."""
    save = "    torch.save(net"
    shown = f'    log("done")\n    if opt.bs > 2:\n        print(lines())\n{save}'
    entry = put_example(changed(SINGLE, ("def accuracy", LOGGED), (save, shown)), tmp_path)
    migrated(entry)
    made = entry.read_text()
    assert "if opt.bs > 2 and is_main_process():\n        print(lines())" in made
    assert "barrier()" not in made
