"""Loops that train in one pass and evaluate in another: where the sums are of all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.gradients import ddp405_unsupported
from ddpify.rules.metrics import ddp701_metrics
from ddpify.settings import Settings
from tests.facts.marks import facts_of, project
from tests.projects import judged, put

HEAD = """from tqdm import tqdm
def loader_of(n, **how):
    return DataLoader(TensorDataset(torch.rand(n, 4), torch.rand(n, 1)), 2, **how)
fit, held = loader_of(8, shuffle=True), loader_of(7)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
BODY = """total = 0.0
for x, y in {over}:
    loss = nn.functional.mse_loss(net(x), y)
    if {test}:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total += loss.item() * len(x)
    {shown}
print(total)
"""


def in_loop(over: str, test: str, names: str = '"train", "val"', shown: str = "") -> str:
    body = BODY.format(over=over, test=test, shown=shown).replace("\n", "\n        ")
    head = f'{HEAD}loaders = {{"train": fit, "val": held}}\n'
    return f"{head}for epoch in range(3):\n    for phase in ({names}):\n        {body}\n"


def in_function(given: str, test: str, train: str, evaluate: str) -> str:
    body = BODY.format(over="loader", test=test, shown="").replace("\n", "\n    ")
    calls = f"    once(fit{train})\n    once(held{evaluate})\n"
    return f"{HEAD}def once(loader{given}):\n    {body}\nfor epoch in range(3):\n{calls}"


def fixes(text: str, folder: Path) -> list[str]:
    facts = facts_of(text, folder)
    found = judged(facts, [ddp405_unsupported.RULE, ddp701_metrics.RULE])
    return [edit.code for finding in found for edit in finding.fix] + [
        "refused" for finding in found if not finding.fix
    ]


WHERE = "if {}:\n    total = reduce_sum(total)"
PROGRAMS = [
    (in_loop("loaders[phase]", 'phase == "train"'), 'phase == "train"'),
    (in_loop("tqdm(loaders[phase])", 'phase == "train"'), 'phase == "train"'),
    (in_loop("loaders[phase]", 'phase != "val"'), 'phase == "train"'),
    (in_function(", train", "train", ", True", ", False"), "train"),
    (in_function(", frozen=True", "not frozen", ", False", ""), "not frozen"),
    (in_function(", mode='eval'", "mode == 'fit'", ", 'fit'", ""), 'mode == "fit"'),
    (in_function(", opt=None", "opt is not None", ", optimizer", ""), "opt is not None"),
]


@pytest.mark.parametrize(("text", "test"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_sums_are_of_all_ranks_where_it_trains(text: str, test: str, tmp_path: Path) -> None:
    assert fixes(text, tmp_path) == [WHERE.format(test)]


def test_a_sum_that_is_shown_inside_is_refused(tmp_path: Path) -> None:
    text = in_loop("loaders[phase]", 'phase == "train"', shown="print(total)")
    assert "refused" in fixes(text, tmp_path)


# One call makes both loaders; what is best is saved where it evaluates, by a helper that waits.
TUTORIAL = """x, y = torch.rand(8, 4), torch.rand(8, 1)
sets = {{name: TensorDataset(x, y) for name in ["train", "val"]}}
{made}
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best = 9.0
for epoch in range(3):
    for phase in ["train", "val"]:
        total = 0.0
        for x, y in {over}:
            with torch.set_grad_enabled(phase == "train"):
                loss = nn.functional.mse_loss(net(x), y)
                if phase == "train":
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            total += loss.item() * len(x)
        print(total)
        if phase == "val" and total < best:
            best = total
            torch.save(net.state_dict(), "best.pt")
"""
OF = "DataLoader({}, batch_size=2, shuffle={})"
WORD, ENTRY = OF.format("sets[x]", True), OF.format("v", 'k == "train"')
MADE = [
    (f'feeds = {{x: {WORD} for x in ["train", "val"]}}', "feeds[phase]", 'feeds["train"]'),
    (f'names = "train", "val"\nf = {{x: {WORD} for x in names}}', "f[phase]", 'f["train"]'),
    (f"feeds = {{k: {ENTRY} for k, v in sets.items()}}", "feeds[phase]", 'feeds["train"]'),
    (f"feeds = {{x: {WORD} for x in sets}}", "feeds[phase]", 'feeds["train"]'),
    (
        f'fit, held = [{WORD} for x in ("train", "val")]\nfeeds = {{"train": fit, "val": held}}',
        "feeds[phase]",
        "fit",
    ),
]


@pytest.mark.parametrize(("made", "over", "shared"), MADE, ids=range(len(MADE)))
def test_of_loaders_made_in_turns_the_one_that_trains_is_shared_out(
    made: str, over: str, shared: str, tmp_path: Path
) -> None:
    text = TUTORIAL.format(made=made, over=over)
    outcome = migrate([put(project(text), tmp_path) / "main.py"], Settings())
    assert not outcome.refusals, [refusal.message for refusal in outcome.refusals]
    after = next(c.after.decode() for c in outcome.changes if c.path == "main.py")
    assert f"{shared} = share_batches({shared})" in after
    assert 'if phase == "train":\n            total = reduce_sum(total)' in after
    assert after.count("share_batches(") == 1
