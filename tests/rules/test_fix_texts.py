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
_MODES = (
    "    opt = parser.parse_args()\n",
    '    parser.add_argument("mode")\n    opt = parser.parse_args()\n'
    '    if opt.mode == "fit":\n        fit(opt)\n\n\ndef fit(opt):\n',
)
_SWITCH = (
    "    opt = parser.parse_args()\n",
    '    parser.add_argument("--learn", type=int, default=1)\n    opt = parser.parse_args()\n'
    "    if opt.learn:\n        fit(opt)\n\n\ndef fit(opt):\n",
)
_LATER = """        print(seen / len(fitting))
        for signal, label in holdout:
            with torch.no_grad():
                objective = net(signal.cuda()).sum()
            print(objective.item())
"""
_STEP = "            adam.zero_grad()\n"

_CLEARED = """def cleared(path):
    if os.path.exists(path):
        if input("Remove? ") == "y":
            shutil.rmtree(path)
            os.makedirs(path)
    else:
        os.makedirs(path)
"""

WRITTEN = [
    pytest.param(
        changed(SINGLE, ("for round_ in", "for _ in"), ('"round", round_', '"round", _')),
        "begin_epoch(fitting, _)",
        1,
        id="a counter that is called _ and read",
    ),
    pytest.param(
        changed(SINGLE, ("for round_ in", "for _ in"), ('"round", round_, ', "")),
        "for epoch in range(5): begin_epoch(fitting, epoch)",
        1,
        id="one that nothing reads",
    ),
    pytest.param(  # rank 0 runs the block alone: no gate in a gate
        changed(
            SINGLE,
            (
                "    adam = ",
                '    with open("opt.txt", "w") as kept:\n        text = str(opt)\n'
                "        print(text)\n        kept.write(text)\n    adam = ",
            ),
        ),
        "if is_main_process():",
        1,
        id="print-in-a-gated-block",
    ),
    pytest.param(
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\nimport os\nimport sys\n"),
            (
                "    adam = ",
                '    if os.path.exists("kept"):\n        if input("Go on? ") != "y":\n'
                '            sys.exit(0)\n    else:\n        os.makedirs("kept")\n    adam = ',
            ),
        ),
        'if broadcast(os.path.exists("kept")):',
        1,
        id="rank 0 may have made the folder when another looks whether to ask",
    ),
    pytest.param(
        changed(
            SINGLE,
            ("import argparse\n", f"import argparse\nimport os\nimport shutil\n\n\n{_CLEARED}"),
            ("    adam = ", '    cleared("kept")\n    adam = '),
        ),
        'if is_main_process(): cleared("kept")',
        1,
        id="a question in a function that rank 0 alone calls",
    ),
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

_DRAWN = "print(torch.randn(2).mean(), label[:1])"
_BEGUN = "    for round_ in range(5):\n"
WRITTEN += [
    pytest.param(
        changed(SINGLE, (_BEGUN, f"    label = labels\n    {_DRAWN}\n{_BEGUN}")),
        "print_on_main(torch.randn(2).mean(), label[:1])",
        1,
        id="a draw before training is every rank's",
    ),
    pytest.param(
        changed(SINGLE, ("adam.step()\n", f"adam.step()\n            {_DRAWN}\n")),
        f"if is_main_process(): {_DRAWN}",
        1,
        id="one while it trains is rank 0's, as in one process",
    ),
    pytest.param(
        changed(
            SINGLE,
            (
                _BEGUN,
                '    with open("x.txt", "w") as out:\n'
                f"        out.write(str(torch.rand(1)))\n{_BEGUN}",
            ),
        ),
        'with open("x.txt", "w") if is_main_process() else NullWriter() as out:',
        1,
        id="a file that a draw is written into",
    ),
]

# A mean of the weights, with which is evaluated: another model than the one that is trained.
_MEAN = (
    ("import argparse\n", "import argparse\nimport copy\n"),
    ("nn.ReLU()", "nn.BatchNorm1d(32)"),
    ("    adam = torch", "    mean = copy.deepcopy(net)\n    adam = torch"),
    (
        "adam.step()\n",
        "adam.step()\n            with torch.no_grad():\n"
        "                for kept, new in zip(mean.parameters(), net.parameters()):\n"
        "                    kept.mul_(0.9).add_(new, alpha=0.1)\n",
    ),
    ("accuracy(net, holdout)", "accuracy(mean, holdout)"),
)
WRITTEN += [
    pytest.param(changed(SINGLE, *_MEAN), written, 1, id=f"a copy of a model: {written}")
    for written in (
        "net = wrap_model(net, sync_batchnorm=True)",
        "mean = copy.deepcopy(unwrap(net))",
        "sync_buffers(net)",
        'print_on_main("round", round_, "accuracy", accuracy(mean, holdout))',
    )
]

# apex refuses a model that is wrapped already.
_APEX = (
    ("import argparse\n", "import argparse\n\nfrom apex import amp\n"),
    (
        "    for round_",
        '    net, adam = amp.initialize(net, adam, opt_level="O1")\n    for round_',
    ),
    (
        "            objective.backward()\n",
        "            with amp.scale_loss(objective, adam) as scaled:\n"
        "                scaled.backward()\n"
        "            nn.utils.clip_grad_norm_(amp.master_params(adam), 1.0)\n",
    ),
)
WRITTEN += [
    pytest.param(
        changed(SINGLE, *_APEX),
        'net, adam = amp.initialize(net, adam, opt_level="O1") net = wrap_model(net)',
        1,
        id="apex casts the model before it is wrapped",
    ),
]

_LISTED = "    torch.save(judge.state"
WRITTEN += [
    pytest.param(
        changed(LEGACY, (_LISTED, f"    inner = {asked}\n{_LISTED}")),
        f"inner = {written}",
        1,
        id=asked,
    )
    for asked, written in (
        ("next(judge.children())[0]", "next(iter([unwrap(judge)]))[0]"),
        ("list(judge.named_children())", 'list(iter([("module", unwrap(judge))]))'),
    )
]

# A model of the project's over one of a library's: its class's own method makes it.
_IMPORTED = "from transformers import BertModel, BertPreTrainedModel\n"
_TAGGER = """class Tagger(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.top = nn.Linear(16, 4)

    def forward(self, signal):
        return self.top(self.bert(signal){part})


def accuracy"""
WRITTEN += [
    pytest.param(
        changed(
            SINGLE,
            ("DataLoader, TensorDataset\n", f"DataLoader, TensorDataset\n{_IMPORTED}"),
            ("def accuracy", _TAGGER.format(part=part)),
            (
                "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))",
                'Tagger.from_pretrained("tagger")',
            ),
        ),
        written,
        1,
        id=f"a library's encoder, of which {part} is used",
    )
    for part, written in (
        ("[0][:, 0]", "net = wrap_model(net, find_unused_parameters=True)"),
        ("[1]", "net = wrap_model(net)"),
    )
]

STARTS = [
    pytest.param(("default=32", "default=1"), "main.py", "1", id="a batch of one sample"),
    pytest.param(("default=32", "default=1"), "main.py --bs 8", "gpu", id="of eight"),
    pytest.param(_MODES, "main.py test", "1", id="a mode in which it does not train"),
    pytest.param(_MODES, "main.py fit", "gpu", id="the one in which it does"),
    pytest.param(_SWITCH, "main.py --learn 0", "1", id="a number that says not to train"),
    pytest.param(_SWITCH, "main.py --learn 2", "gpu", id="one that says to"),
]


def _placed(option: str, device: str) -> Example:
    """A program whose options say where it trains."""
    ((name, text),) = SINGLE.files
    text = text.replace(".cuda()", ".to(DEVICE)").replace(
        "    opt = parser.parse_args()\n",
        f"    parser.add_argument({option})\n    opt = parser.parse_args()\n"
        f"    global DEVICE\n    {device}\n",
    )
    return Example(((name, text),))


_NO_CUDA = _placed(
    '"--no-cuda", action="store_true"',
    "opt.cuda = not opt.no_cuda and torch.cuda.is_available()\n"
    '    DEVICE = torch.device("cuda" if opt.cuda else "cpu")',
)
_NAMED = _placed('"--device", default="cuda"', "DEVICE = torch.device(opt.device)")
_HALF = _placed('"--half", action="store_true"', 'DEVICE = "cuda" if opt.half else "cuda:0"')
STARTS += [
    pytest.param(_NO_CUDA, "main.py --no-cuda", "1", id="a flag for the CPU"),
    pytest.param(_NO_CUDA, "main.py --bs 8", "gpu", id="without it"),
    pytest.param(_NAMED, "main.py --device cpu", "1", id="the CPU by name"),
    pytest.param(_NAMED, "main.py --device cuda", "gpu", id="a GPU by name"),
    pytest.param(_HALF, "main.py --half", "gpu", id="a flag of another meaning"),
]


@pytest.mark.parametrize(("change", "line", "processes"), STARTS)
def test_lines_for_one_process(
    change: tuple[str, str] | Example, line: str, processes: str, tmp_path: Path
) -> None:
    example = change if isinstance(change, Example) else changed(SINGLE, change)
    put_example(example, tmp_path)
    (tmp_path / "run.sh").write_text(f"python {line}\n")
    migrated(tmp_path / "main.py")
    number = f'"${{NPROC_PER_NODE:-{processes}}}"'
    after = (tmp_path / "run.sh").read_text()
    assert after == f"torchrun --standalone --nproc_per_node={number} {line}\n"


@pytest.mark.parametrize(("example", "text", "times"), WRITTEN)
def test_the_text(example: Example, text: str, times: int, tmp_path: Path) -> None:
    put_example(example, tmp_path)
    migrated(tmp_path / "main.py")
    after = " ".join((tmp_path / "main.py").read_text("utf-8").split())  # wherever it is broken
    assert after.replace("( ", "(").replace(" )", ")").count(text) == times
