"""What fixes write, where an example of the rule only shows that there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.base import Example
from ddpify.rules.examples import LEGACY, SINGLE, changed
from tests.projects import migrated, put_example

_JUDGE = """class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))

    def forward(self, facts):
        return self.body(facts)


judge = Judge().cuda()
"""
_MADE = "judge = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)).cuda()\n"
_BRANCHES = _JUDGE.replace(
    "        return self.body(facts)\n",
    "        if facts.is_cuda:\n"
    "            out = nn.parallel.data_parallel(self.body, facts, range(2))\n"
    "        else:\n            out = self.body(facts)\n        return out\n",
)
_LATER = """        print(seen / len(fitting))
        for signal, label in holdout:
            with torch.no_grad():
                objective = net(signal.cuda()).sum()
            print(objective.item())
"""
_STEP = "            adam.zero_grad()\n"

WRITTEN = [
    pytest.param(
        changed(
            LEGACY,
            (_MADE, _JUDGE),
            ("judge = nn.DataParallel(judge)", "judge.body = nn.DataParallel(judge.body)"),
        ),
        'without_module_prefix(torch.load("judge.pt", map_location=local_device()), "body")',
        1,
        id="a part had a wrapper of its own: its keys are body.module.0.weight",
    ),
    pytest.param(
        changed(LEGACY, (_MADE, _JUDGE)),
        'without_module_prefix(torch.load("judge.pt", map_location=local_device()))',
        1,
        id="the whole model had one",
    ),
    pytest.param(
        changed(
            SINGLE,
            (
                _STEP,
                f"            signal = signal.view(opt.bs, 16) + torch.randn(opt.bs, 16)\n{_STEP}",
            ),
        ),
        "own_batch_size = per_rank_batch_size(opt.bs) for round_ in",
        1,
        id="a share that is said twice is named once, before the loop",
    ),
    pytest.param(
        changed(SINGLE, (_STEP, f"            signal = signal.view(opt.bs, 16)\n{_STEP}")),
        "signal.view(per_rank_batch_size(opt.bs), 16)",
        1,
        id="one that is said once is not",
    ),
    pytest.param(
        changed(
            SINGLE,
            (
                _STEP,
                f"            signal = signal.view(opt.bs, 16) + torch.randn(opt.bs, 16)\n{_STEP}",
            ),
            ("        net.train()\n", "        net.train()\n        opt.bs = opt.bs\n"),
        ),
        "per_rank_batch_size(opt.bs)",
        3,
        id="nor one that the loop sets",
    ),
    pytest.param(
        changed(LEGACY, (_MADE, _BRANCHES), ("judge = nn.DataParallel(judge)\n", "")),
        "def forward(self, facts): out = self.body(facts) return out",
        1,
        id="two branches that are one without data_parallel",
    ),
    pytest.param(
        changed(
            LEGACY,
            (
                _MADE,
                _BRANCHES.replace("else:\n            out = ", "else:\n            out = 2 * "),
            ),
            ("judge = nn.DataParallel(judge)\n", ""),
        ),
        "if facts.is_cuda: out = self.body(facts) else: out = 2 * self.body(facts)",
        1,
        id="two that stay two",
    ),
    pytest.param(
        changed(
            SINGLE,
            ('        print("round"', _LATER + '        print("round"'),
            ("adam.step()\n", "adam.step()\n            seen += objective.item()\n"),
            ("        net.train()\n", "        net.train()\n        seen = 0.0\n"),
        ),
        "objective, seen = reduce_mean(",
        0,
        id="a number that another loop sets before it is read is not reduced",
    ),
]


def test_lines_whose_batch_is_one_sample_start_one_process(tmp_path: Path) -> None:
    example = changed(SINGLE, ("default=32", "default=1"))
    put_example(example, tmp_path)
    (tmp_path / "run.sh").write_text("python main.py\npython main.py --bs 8\n")
    migrated(tmp_path / "main.py")
    lone, several = (tmp_path / "run.sh").read_text().splitlines()
    assert lone.startswith('torchrun --standalone --nproc_per_node="${NPROC_PER_NODE:-1}"')
    assert several.startswith('torchrun --standalone --nproc_per_node="${NPROC_PER_NODE:-gpu}"')


@pytest.mark.parametrize(("example", "text", "times"), WRITTEN)
def test_the_text(example: Example, text: str, times: int, tmp_path: Path) -> None:
    put_example(example, tmp_path)
    migrated(tmp_path / "main.py")
    after = " ".join((tmp_path / "main.py").read_text("utf-8").split())  # wherever it is broken
    assert after.replace("( ", "(").replace(" )", ")").count(text) == times
