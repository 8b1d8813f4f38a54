"""Attributes that a loop leaves behind: those that nothing reads any more are as good as locals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of

PROGRAM = """
class Job{base}:
    def __init__(self):
        self.net = nn.Linear(4, 3)
        self.adam = torch.optim.Adam(self.net.parameters())
        self.train_set = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())
        self.feed = DataLoader(self.train_set, **{options}, shuffle=True)
    def run(self):
        for epoch in range(3):
            for x, y in self.feed:
                self.loss = nn.functional.cross_entropy(self.net(x), y)
                self.adam.zero_grad()
                self.loss.backward()
                self.adam.step()
                if epoch:
                    print(self.loss.item())
            {after}
    def more(self):
        {more}

job = Job()
job.run()
{end}
"""


def left(folder: Path, base: str = "", after: str = "", more: str = "pass", end: str = "") -> bool:
    """Whether the loss counts as a number that somebody reads after the loop."""
    text = PROGRAM.format(base=base, after=after, more=more, end=end, options="self.options")
    text = text.replace(
        "        self.feed", '        self.options = {"batch_size": 2}\n        self.feed'
    )
    facts = facts_of(text, folder)
    return any("self.loss" in (*one.means, *one.others) for one in facts.ends)


@pytest.mark.parametrize(
    "program",
    [
        {},
        {"after": "self.loss = epoch; print(self.loss)"},
        {"base": "(object)", "more": "self.loss = 0"},
        {"more": "return super(Job, self).more()"},
        {"end": 'print("loss: {}".format(job.net))'},
    ],
)
def test_what_nothing_reads_is_not_left(program: dict[str, str], tmp_path: Path) -> None:
    assert not left(tmp_path, **program)


@pytest.mark.parametrize(
    "program",
    [
        {"after": "print(self.loss)"},
        {"after": "if epoch: self.loss = epoch\n            print(self.loss)"},
        {"more": "return self.loss"},
        {"more": "self.loss = 0; self.run(); print(self.loss)"},
        {"end": "print(job.loss)"},
        {"end": 'print("{job.loss}".format(job=job))'},
        {"end": 'print(getattr(job, "loss"))'},
        {"end": 'print([getattr(job, f"l{end}") for end in ("oss",)])'},
        {"end": "print(vars(job))"},
        {"more": "torch.save(self.__dict__, 'job.pt')"},
        {"more": "torch.save(self, 'job.pt')"},
        {"base": "(Dataset)"},
        {"base": "(metaclass=type)"},
    ],
)
def test_what_something_may_read_is_left(program: dict[str, str], tmp_path: Path) -> None:
    assert left(tmp_path, **program)
