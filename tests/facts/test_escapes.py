"""What goes into code that was not read, and what it may do there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.model import Danger, Facts
from ddpify.rules.base import Example
from ddpify.rules.examples import changed
from ddpify.rules.examples.single import LEARNER, LEGACY, SINGLE
from tests.projects import put, put_example, read

MAIN = dict(SINGLE.files)["main.py"].replace(
    "import torch\n", "import torch\nimport hidden\nfrom functools import partial\n", 1
)
STEP = "            adam.step()\n"
LOSS = "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())"
BEFORE = "    for round_ in range(5):\n"
NET = "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()"


def facts(folder: Path, old: str, new: str) -> Facts:
    assert MAIN.count(old) == 1
    return read(put({"main.py": MAIN.replace(old, new)}, folder) / "main.py")


def dangers(found: Facts) -> set[Danger]:
    return {escape.danger for escape in found.followed.escapes}


def each_step(line: str) -> tuple[str, str]:
    return STEP, f"            {line}\n{STEP}"


def once(line: str) -> tuple[str, str]:
    return BEFORE, f"    {line}\n{BEFORE}"


ESCAPES = [
    (each_step("hidden.clip(net)"), Danger.TRAINING),
    (each_step("hidden.clip(net.parameters())"), Danger.TRAINING),
    (each_step("hidden.clip(optimizers={'main': [adam]})"), Danger.TRAINING),
    (each_step("partial(hidden.clip, net)()"), Danger.TRAINING),
    (each_step("hidden.clip(net[0])"), Danger.TRAINING),
    (each_step("hidden.call(net.zero_grad)"), Danger.TRAINING),
    (each_step("opt.clip(net)"), Danger.TRAINING),
    (once("hidden.Trainer().run(fitting)"), Danger.TRAINING),
    (once("hidden.registry['net'] = net"), Danger.TRAINING),
    (once("torch.func.functional_call(net, {}, signals)"), Danger.TRAINING),
    (once("hidden.every(60, lambda: net.zero_grad())"), Danger.TRAINING),
    (once("import signal as s; s.signal(2, lambda *a: torch.save(net, 'n'))"), Danger.CALLBACK),
    ((LOSS, f"hidden.smooth({LOSS})"), Danger.LOSS),
    ((LOSS, "hidden.Dice()(net(signal.cuda()), label.cuda())"), Danger.LOSS),
    ((LOSS, "hidden.make(opt).loss(net(signal.cuda()), label.cuda()).mean()"), Danger.LOSS),
    ((LOSS, f"{LOSS.replace('signal.cuda()', 'hidden.noisy(signal)')}"), Danger.LOSS),
    (("torch.save(net.state_dict(), ", "hidden.save(net.state_dict(), "), Danger.FILE),
    (("torch.save(net.state_dict(), ", "hidden.save({'net': net.state_dict()}, "), Danger.FILE),
    (each_step("hidden.log(objective.item())"), Danger.OUTPUT),
    (once("hidden.plan(opt.bs)"), Danger.BATCH_SIZE),
    (("torch.optim.Adam(net", "hidden.Adam(net"), Danger.OPTIMIZER),
    ((NET, "hidden.Net().cuda()"), Danger.MODEL),
    (once("hidden.show(holdout)"), Danger.EACH_RANK),
]


@pytest.mark.parametrize(("change", "danger"), ESCAPES)
def test_what_goes_into_unread_code_is_named(
    tmp_path: Path, change: tuple[str, str], danger: Danger
) -> None:
    assert dangers(facts(tmp_path, *change)) == {danger}


FOLLOWED = [
    once("net.apply(lambda part: torch.manual_seed(len(net)))"),
    each_step("nn.utils.clip_grad_norm_(net.parameters(), 1.0)"),
    each_step("getattr(nn.utils, opt.clip)(net.parameters(), 1.0)"),
    once("import thop; thop.profile(net, (signals[:1],))"),
    once("from torchsummary import summary; summary(net, (16,))"),
    once("hidden.seed(7)"),
    once("hidden.show(opt.title)"),
    once("nets = {}; nets['a'] = [net]; nets['a'][0].eval()"),
    once("list(filter(lambda p: p is not net[0].bias, net.parameters()))"),
    (LOSS, f"getattr(nn, opt.loss)()({LOSS}, label.cuda())"),
    (LOSS, f"vars(nn.functional)[opt.loss]({LOSS}, label.cuda())"),
    ("torch.optim.Adam(net", "torch.optim.__dict__[opt.solver](net"),
    ("torch.optim.Adam(net", "getattr(torch.optim, opt.solver)(net"),
]


@pytest.mark.parametrize("change", FOLLOWED)
def test_what_is_known_is_followed(tmp_path: Path, change: tuple[str, str]) -> None:
    found = facts(tmp_path, *change)
    assert found.models
    assert not found.followed.escapes


ONCE = "            self.once()\n"
PLACE = "    for facts,"
CHOSEN = [
    changed(LEARNER, (ONCE, f"{ONCE}            getattr(self, turn)()\n")),
    changed(
        LEGACY,
        ("for number in", "def keep():\n    torch.save(judge, 'j')\n\n\nfor number in"),
        (PLACE, f"    getattr(sys.modules[__name__], os.environ['KEEP'])()\n{PLACE}"),
        ("import os\n", "import os\nimport sys\n"),
    ),
]


@pytest.mark.parametrize("example", CHOSEN)
def test_a_function_that_is_chosen_late_may_have_hold_of_the_model(
    tmp_path: Path, example: Example
) -> None:
    assert dangers(read(put_example(example, tmp_path))) == {Danger.CALLBACK}


def test_a_base_that_is_not_read_is_given_the_model(tmp_path: Path) -> None:
    base = "class Loop(hidden.Loop):\n    def __init__(self, net):\n        super().__init__(net)\n"
    text = MAIN.replace("def accuracy", f"{base}\n\ndef accuracy")
    text = text.replace(BEFORE, f"    Loop(net).fit()\n{BEFORE}")
    found = read(put({"main.py": text}, tmp_path) / "main.py")
    (escape,) = found.followed.escapes
    assert (escape.to, escape.danger) == ("hidden.Loop", Danger.TRAINING)


def test_a_decorator_that_is_not_read_may_call_otherwise(tmp_path: Path) -> None:
    text = MAIN.replace("def accuracy", "@hidden.twice\ndef accuracy")
    found = read(put({"main.py": text}, tmp_path) / "main.py")
    assert Danger.TRAINING in dangers(found)


def test_uses_and_values_are_counted(tmp_path: Path) -> None:
    program = "import torch\n\nnet = torch.nn.Linear(2, 2)\nnet.eval()\nprint(net)\n"
    found = read(put({"main.py": program}, tmp_path) / "main.py").followed
    assert len(found.values) == 1
    assert sorted(site.span.line for site in found.uses) == [4, 5]
