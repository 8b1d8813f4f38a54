"""Models are followed to the statement after which they are complete and not yet used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of, found, places, wanted

DATA = "loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)  #: training\n"
STEP = """        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
"""
TRAIN = f"""for epoch in range(3):  #: epoch
    for x, y in loader:  #: batches
{STEP}"""
NET_CLASS = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

"""
SGD = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"

FLOWS = [
    pytest.param(
        f"{NET_CLASS}{DATA}nets = {{}}\nfor key in 'ab':\n    nets[key] = Net()\n"
        "for one in nets.values():  #: home\n    one.cuda()\n"
        'optimizer = torch.optim.SGD([*nets["a"].parameters(), *nets["b"].parameters()], 0.1)\n'
        + TRAIN.replace("net(x)", 'nets["a"](x) + nets["b"](x)'),
        id="in-a-dict",
    ),
    pytest.param(
        f'{NET_CLASS}{DATA}nets = {{"a": Net(), "b": Net().eval()}}  #: home\n'
        'optimizer = torch.optim.SGD(nets["a"].parameters(), lr=0.1)\n'
        + TRAIN.replace("net(x)", 'nets["a"](x) + nets["b"](x).detach()'),
        id="one-of-a-dict",
    ),
    pytest.param(
        f"import sys\n{NET_CLASS}{DATA}net = Net()  #: home\nhead = None\n"
        "if len(sys.argv) > 1:\n    head = Net()  #: home\n"
        "weights = list(net.parameters())\n"
        "if head is not None:\n    weights += list(head.parameters())\n"
        "optimizer = torch.optim.SGD(weights, lr=0.1)\n"
        + TRAIN.replace("net(x)", "(head(x) if head else 0) + net(x)"),
        id="none-but-in-a-branch",
    ),
    pytest.param(
        f"import sys\n{NET_CLASS}{DATA}head = None\n"
        "if len(sys.argv) > 1:  #: home\n    net = Net()\n"
        "else:\n    net = nn.Linear(4, 1)\n" + SGD + TRAIN,
        id="made-by-both-sides",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net()\nnet.apply(print)\nnet = net.cuda()  #: home\n{SGD}{TRAIN}",
        id="moved-and-initialised",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net()\nnet.cuda()  #: home\n{SGD}{TRAIN}", id="moved-in-place"
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net().cuda()\nfor name, p in net.named_parameters():  #: home\n"
        f'    if "bias" in name:\n        p.requires_grad_(False)\n{SGD}{TRAIN}',
        id="moved-and-frozen-in-part",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net().cuda()\n{SGD}if net:  #: home\n"
        f"    for p in net.layer.parameters():\n        p.requires_grad = False\n{TRAIN}",
        id="frozen-in-part-after-the-optimizer",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net()\n{SGD}"
        f"if torch.cuda.is_available():  #: home\n    net = net.cuda()\n{TRAIN}",
        id="moved-in-a-branch-after-the-optimizer",
    ),
    pytest.param(
        "import sys\n"
        f'{NET_CLASS}{DATA}if sys.argv[1] == "a":  #: home\n    net = Net()\n'
        'elif sys.argv[1] == "b":\n    net = nn.Linear(4, 1)\n'
        f"else:\n    raise SystemExit\n{SGD}{TRAIN}",
        id="chosen-by-if-elif",
    ),
    pytest.param(
        "import sys\n"
        f'{NET_CLASS}{DATA}if sys.argv[1] == "a":\n    net = Net()\n'
        "else:\n    net = nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(list(net.parameters()), lr=0.1)\n"
        f"net.cuda()  #: home\n{TRAIN}",
        id="one-of-two-that-is-moved-after-the-optimizer",
    ),
    pytest.param(
        f"from nets import build\n{DATA}net = build().cuda()  #: home\n{SGD}{TRAIN}"
        f"## nets.py\n{NET_CLASS}\ndef build():\n    return Net()\n",
        id="factory-in-another-file",
    ),
    pytest.param(
        f"import nets\n{DATA}"
        'table = {"net": nets.Net, "linear": nn.Linear}\nnet = table["net"]()  #: home\n'
        f"{SGD}{TRAIN}## nets.py\n{NET_CLASS}",
        id="class-from-a-table",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net()  #: home\n\n"
        "def groups(module):\n"
        "    plain = [p for n, p in module.named_parameters() if p.ndim < 2]\n"
        "    rest = [p for n, p in module.named_parameters() if p.ndim > 1]\n"
        '    return [{"params": plain, "weight_decay": 0.0}, {"params": rest}]\n\n'
        "def make_optimizer(module):\n"
        f"    return torch.optim.AdamW(groups(module))\n\noptimizer = make_optimizer(net)\n{TRAIN}",
        id="optimizer-from-parameter-groups-in-functions",
    ),
    pytest.param(
        "import sys\n"
        f"{NET_CLASS}{DATA}net = Net()  #: home\n"
        f"optimizer = getattr(torch.optim, sys.argv[1])(net.parameters())\n{TRAIN}",
        id="optimizer-chosen-by-name",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}net = Net()  #: home\n"
        "weights = filter(lambda p: p.requires_grad, net.parameters())\n"
        f"optimizer = torch.optim.SGD(weights, lr=0.1)\n{TRAIN}",
        id="filtered-parameters",
    ),
    pytest.param(
        "import itertools\n"
        f"{DATA}front = nn.Linear(4, 2)  #: home\nback = nn.Linear(2, 1)  #: home\n"
        "both = itertools.chain(front.parameters(), back.parameters())\n"
        f"optimizer = torch.optim.SGD(both, lr=0.1)\n{TRAIN.replace('net(x)', 'back(front(x))')}",
        id="two-models-one-optimizer-chained",
    ),
    pytest.param(
        f"{DATA}front = nn.Linear(4, 2)  #: home\nback = nn.Linear(2, 1)  #: home\n"
        "both = list(front.parameters()) + list(back.parameters())\n"
        f"optimizer = torch.optim.SGD(both, lr=0.1)\n{TRAIN.replace('net(x)', 'back(front(x))')}",
        id="two-models-one-optimizer-added",
    ),
    pytest.param(
        f"{DATA}maker = nn.Linear(4, 1)  #: home\ncritic = nn.Linear(1, 1)  #: home\n"
        "one = torch.optim.SGD(maker.parameters(), lr=0.1)\n"
        "two = torch.optim.SGD(critic.parameters(), lr=0.1)\n"
        "for epoch in range(3):  #: epoch\n    for x, y in loader:  #: batches\n"
        "        critic(maker(x).detach()).mean().backward()\n        two.step()\n"
        "        critic(maker(x)).mean().backward()\n        one.step()\n",
        id="two-models-two-optimizers",
    ),
    pytest.param(
        f"{DATA}"
        "class Trainer:\n"
        "    def __init__(self):\n"
        "        self.net = nn.Linear(4, 1)\n\n"
        "    def reset(self):\n"
        "        for child in self.net.modules():\n"
        "            for p in child.parameters():\n"
        "                nn.init.uniform_(p, -0.1, 0.1)\n\n"
        "    def run(self):\n"
        "        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
        "        self.reset()  #: home\n"
        "        for epoch in range(3):  #: epoch\n"
        "            for x, y in loader:  #: batches\n"
        "                nn.functional.mse_loss(self.net(x), y).backward()\n"
        "                optimizer.step()\n\n"
        "Trainer().run()\n",
        id="drawn-again-by-a-method",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}"
        "def draw(layer):\n"
        "    for p in layer.parameters():\n"
        "        nn.init.uniform_(p, -0.1, 0.1)\n\n"
        "def build():\n"
        "    whole = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))\n"
        "    net = whole\n"
        "    whole[1].apply(draw)  #: home\n"
        "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    for epoch in range(3):  #: epoch\n"
        "        for x, y in loader:  #: batches\n"
        "            nn.functional.mse_loss(net(x), y).backward()\n"
        "            optimizer.step()\n\nbuild()\n",
        id="a-part-drawn-again",
    ),
    pytest.param(
        f"{DATA}teacher = nn.Linear(4, 1)\nteacher.eval()\nnet = nn.Linear(4, 1)  #: home\n{SGD}"
        "for epoch in range(3):  #: epoch\n    for x, y in loader:  #: batches\n"
        "        with torch.no_grad():\n            goal = teacher(x)\n"
        "        nn.functional.mse_loss(net(x), goal).backward()\n        optimizer.step()\n",
        id="a-frozen-teacher-is-not-trained",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}"
        "class Box:\n    def __init__(self):\n        self.inner = Net()  #: home\n"
        "        self.made = torch.optim.SGD(self.inner.parameters(), lr=0.1)\n\n"
        "box = Box()\nnet, optimizer = box.inner, box.made\n"
        f"{TRAIN}",
        id="attribute-of-an-object",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}"
        "class Base:\n    def __init__(self, net):\n        self.net = net\n"
        "        self.optimizer = self.make()\n\n    def make(self):\n"
        "        raise NotImplementedError\n\n    def fit(self):\n"
        "        for epoch in range(3):  #: epoch\n            for x, y in loader:  #: batches\n"
        "                self.step(x, y)\n\n"
        "class Mine(Base):\n    def make(self):\n"
        "        return torch.optim.SGD(self.net.parameters(), lr=0.1)\n\n"
        "    def step(self, x, y):\n        nn.functional.mse_loss(self.net(x), y).backward()\n"
        "        self.optimizer.step()\n\n"
        "net = Net()  #: home\nMine(net).fit()\n",
        id="trainer-with-a-base-class",
    ),
    pytest.param(
        "class Net(nn.Linear):\n    def optimizer(self):\n"
        "        return torch.optim.SGD(self.parameters(), lr=0.1)\n\n"
        f"{DATA}net = Net(4, 1)  #: home\noptimizer = net.optimizer()\n{TRAIN}",
        id="model-that-makes-its-optimizer",
    ),
    pytest.param(
        f"{NET_CLASS}{DATA}"
        "def keep(function):\n    def inner(*args, **kwargs):\n"
        "        return function(*args, **kwargs)\n    return inner\n\n"
        "@keep\ndef build():\n    return Net()\n\n"
        f"net = build()  #: home\n{SGD}{TRAIN}",
        id="decorated-factory",
    ),
    pytest.param(
        f'{DATA}net = getattr(nn, "Linear")(4, 1)  #: home\n{SGD}{TRAIN}', id="class-named-as-text"
    ),
]


@pytest.mark.parametrize("text", FLOWS)
def test_models_are_wrapped_where_they_are_complete(text: str, tmp_path: Path) -> None:
    assert found(facts_of(text, tmp_path)) == wanted(text)


def test_a_frozen_model_of_a_pair_is_not_among_the_trained(tmp_path: Path) -> None:
    facts = facts_of(
        f"{DATA}net = nn.Linear(4, 4)\nfixed = nn.Linear(4, 1)\n{SGD}"
        f"{TRAIN.replace('net(x)', 'fixed(net(x))')}",
        tmp_path,
    )
    assert places(t.born for m in facts.models for t in m.things) == {"main.py:5"}


TWO_HEADS = """AUX = False

def drawn(blocks, share):
    keep = torch.zeros(len(blocks)).uniform_(0, 1) > share
    return [block for block, kept in zip(blocks, keep) if kept]

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)

class Net(nn.Module):
    def __init__(self, wide=False):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        {made}

    def forward(self, x):
        {used}
        return self.layer(x)

"""
ALWAYS = "self.aux = nn.Linear(4, 1)"
HEADS = {
    "setting": (ALWAYS, "if AUX: x = self.aux(x)", "used under a condition only"),
    "ternary": (ALWAYS, "x = self.aux(x) if x.sum() > 0 else x", "used under a condition only"),
    "other-side": (ALWAYS, "if AUX: x = x * 2\n        else: x = self.aux(x)", "used under"),
    "never": (ALWAYS, "x = x * 2", "never used"),
    "never-transposed": ("self.up = torch.nn.ConvTranspose2d(4, 1, 2)", "pass", "never used"),
    "always": (ALWAYS, "x = self.aux(x)", ""),
    "both-sides": (ALWAYS, "x = self.aux(x) if AUX else self.aux(x * 2)", ""),
    "where-it-is": (
        f"self.aux = None\n        if wide: {ALWAYS}",
        "if self.aux: x = self.aux(x)",
        "",
    ),
    "where-it-may-be": (
        "self.aux = wide and nn.Linear(4, 1)",
        "x = self.aux(x) if self.wide else x",
        "",
    ),
    "where-made": (f"if wide: {ALWAYS}", "if self.wide: x = self.aux(x)", ""),
    "of-the-project": (
        "self.aux = Head()",
        "if AUX: x = self.aux(x)",
        "used under a condition only",
    ),
    "without-parameters": ("self.aux = nn.ReLU()", "if AUX: x = self.aux(x)", ""),
    "in-training": (ALWAYS, "if self.training: x = self.aux(x)", ""),
    "drawn": (
        ALWAYS,
        "if self.training and torch.rand(1) < 0.1: return self.layer(x)\n        x = self.aux(x)",
        "left out at random",
    ),
    "drawn-of-a-list": (
        "self.aux = nn.ModuleList([])\n        self.aux.append(nn.Linear(4, 4))",
        "for one in drawn(self.aux, share=0.1): x = one(x)",
        "left out at random",
    ),
    "drawn-by-number": (
        "self.aux = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])",
        "x = self.aux[torch.randint(2, (1,)).item()](x)",
        "left out at random",
    ),
    "drawn-noise": (
        ALWAYS,
        "noise = torch.rand(4)\n        if x.shape[0] > 1: noise = noise * 2\n"
        "        x = self.aux(x + noise) if noise is not None else self.aux(x)",
        "",
    ),
    "by-chance": (
        ALWAYS,
        "if not self.training: return self.aux(x)\n        if x.sum() > 0: x = self.aux(x)",
        "used under",
    ),
}


BLOCKS = """class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Net() for _ in range(3)])

    def forward(self, x):
        return self.blocks(x)

"""


@pytest.mark.parametrize("name", HEADS)
def test_a_part_without_gradients_is_told_to_the_wrapper(name: str, tmp_path: Path) -> None:
    made, used, said = HEADS[name]
    text = TWO_HEADS.format(made=made, used=used)
    for more, net in (("", "Net()"), (BLOCKS, "Deep()")):
        (model,) = facts_of(f"{text}{more}{DATA}net = {net}\n{SGD}{TRAIN}", tmp_path).models
        assert (said in model.unused) if said else not model.unused


def test_only_a_model_with_batch_norm_has_statistics(tmp_path: Path) -> None:
    other = NET_CLASS.replace("Net", "Other").replace("nn.Linear(4, 1)", "nn.BatchNorm1d(4)")
    step = STEP.replace("net(x)", "net(other(x))")
    both = SGD.replace("net.parameters()", "[*net.parameters(), *other.parameters()]")
    text = f"{NET_CLASS}{other}{DATA}net, other = Net(), Other()\n{both}"
    text += TRAIN.replace(STEP, step)
    found = {t.name: m.buffers for m in facts_of(text, tmp_path).models for t in m.things}
    assert found == {"Net": False, "Other": True}


@pytest.mark.parametrize(
    ("calls", "repeated"), [("score(x) + score(-x)", True), ("score(x)", False)]
)
def test_a_function_that_is_called_twice_before_a_backward_repeats_the_forward(
    calls: str, repeated: bool, tmp_path: Path
) -> None:
    made = f"net = Net()\n{SGD}def score(x):\n    return net(x)\n"
    text = f"{NET_CLASS}{DATA}{made}{TRAIN.replace('net(x)', calls)}"
    (model,) = facts_of(text, tmp_path).models
    assert model.repeated is repeated


def test_a_table_that_a_constructor_reads_is_no_layer(tmp_path: Path) -> None:
    top, read = "import pandas as pd\nimport timm\n", 'pd.read_csv("words")'
    net = NET_CLASS.replace("        self.layer", f"        rows = {read}\n        self.layer")
    text = f"{top}{net}{DATA}net = Net()\n{SGD}{TRAIN}"
    assert not facts_of(text, tmp_path).models[0].batch_norm
    other = text.replace(read, 'timm.create_model("resnet18")')
    assert facts_of(other, tmp_path).models[0].batch_norm


def test_an_output_that_is_dropped_where_nothing_trains_needs_no_search(tmp_path: Path) -> None:
    text = TWO_HEADS.format(made="", used="").replace("(x)\n\n", "(x), x\n\n")
    step = STEP.replace("net(x)", "net(x)[0]")
    show = "        pair, _ = net(x)\n        print(len(pair))\n"
    text = f"{text}{DATA}net = Net()\n{SGD}{TRAIN.replace(STEP, step)}"
    assert not facts_of(text + show, tmp_path).models[0].unused
    trained = show.replace("print(len(pair))", "pair.sum().backward()")
    assert "not every output" in facts_of(text + trained, tmp_path).models[0].unused


LIBRARY = NET_CLASS.replace("nn.Linear(4, 1)", "torchvision.models.vgg11()")
FREEZES = """
    def train(self, mode=True):
        super().train(mode)
        for weight in self.layer.parameters():
            weight.requires_grad = False
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LIBRARY.replace("self.layer(x)", "self.layer.features(x)"), "of `layer` only parts"),
        (LIBRARY, ""),
        (
            NET_CLASS.replace(
                "        self.l", "        self.o = conf.load('c')\n        self.l"
            ).replace("self.layer(x)", "self.layer(x) * self.o.scale"),
            "",
        ),
        (NET_CLASS.rstrip() + "\n" + FREEZES, "`train` freezes layers"),
    ],
    ids=("in-parts", "whole", "a-configuration", "freezes"),
)
def test_layers_that_no_gradient_reaches_are_searched_for(
    text: str, said: str, tmp_path: Path
) -> None:
    program = f"import torchvision\nimport conf\n{text}\n{DATA}net = Net()\n{SGD}{TRAIN}"
    (model,) = facts_of(program, tmp_path).models
    assert (said in model.unused) if said else not model.unused


def test_an_output_that_nothing_reads_leaves_its_head_without_a_gradient(tmp_path: Path) -> None:
    text = TWO_HEADS.format(made="", used="").replace("(x)\n\n", "(x), x\n\n")
    step = (
        f"spare = 0\n        out, spare = net(x)\n        {STEP.strip().replace('net(x)', 'out')}\n"
    )
    text = f"{text}{DATA}net = Net()\n{SGD}{TRAIN.replace(STEP, '        ' + step)}"
    assert "not every output" in facts_of(text, tmp_path).models[0].unused
    assert not facts_of(f"{text}        print(spare)\n", tmp_path).models[0].unused
