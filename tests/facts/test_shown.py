"""Numbers that are shown: which of them are this rank's, and how they become those of all ranks.

A number that is sent before it is used for training trains something else, so that every way to
hand one on that is not just for showing it has a row.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.facts.marks import facts_of

PROGRAM = """
import numpy as np
import torch.nn.functional as F
from torch.utils.tensorboard import SummaryWriter
from torchvision.utils import save_image

board = SummaryWriter()
kept = []
def show(line):
    print(line)
def pass_on(line):
    show(line)
def show_all(pairs):
    for name, number in pairs:
        board.add_scalar(name, number)
def learn_from(number):
    print(number)
    number.backward()
def keep(number):
    print(number)
    kept.append(number)
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.zeros(8).long()), 2)
losses, hits = [], []
for x, y in loader:
    out = net(x)
    loss = F.cross_entropy(out, y)
    right = (out.argmax(1) == y).sum()
    odd = out.sort(0)[0][0].sum()
    losses.append(loss.item())
    hits.append(right.item() / 8)
{body}
    optimizer.step()
{end}
"""


def shown(tmp_path: Path, body: str, end: str = "") -> set[tuple[str, str]]:
    """What is shown of this rank's numbers, and the helper that puts it together."""
    text = PROGRAM.format(body=indent(body, " " * 4), end=end)
    facts = facts_of(text, tmp_path)
    return {(part.text, part.how) for _, parts in facts.sinks for part in parts}


LOSS = ("loss.item()", "reduce_mean")
TEXTS = {
    "in place": 'print("%f" % loss.item())',
    "a text made before": 'text = "%f" % loss.item()\nprint(text)',
    "format": 'text = "{:f}".format(loss.item())\nprint(text)\nboard.add_text("x", text)',
    "parts of a text": 'text = "a " + f"{loss.item()}"\nprint(text)',
    "a list that is shown": 'row = [("loss", loss.item())]\nboard.add_scalars(row)',
    "a text for a function": 'text = f"{loss.item():.3f}"\nshow(text)',
    "through two functions": 'pass_on("%f" % loss.item())',
    "entries of what is given": 'show_all([("loss", f"{loss.item()}")])',
    "a list that is joined": (
        'parts = ["a"]\nparts.append("%f" % loss.item())\nprint(" ".join(parts))'
    ),
    "a text that grows": 'line = "a"\nline += f" {loss.item()}"\nprint(line)',
    "entries of a list made before": 'rows = [("loss", f"{loss.item()}")]\nshow_all(rows)',
}


TOLD = """
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 3)), 2)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        said = {{"step": step, "loss": {0}}}
        if step % 2 == 0:
            print({1})
"""


@pytest.mark.parametrize("text", ["str(said)", "repr(said)", '"%s" % said', "said"])
def test_a_dict_of_numbers_put_into_words_is_told(text: str, tmp_path: Path) -> None:
    facts = facts_of(TOLD.format("loss.item()", text), tmp_path)
    assert [how for _, how in facts.kept] == ["reduce_mean"]
    assert not [part for _, parts in facts.sinks for part in parts]

    facts = facts_of(TOLD.format("net(x).argmax().item()", text), tmp_path)
    found = [part.how for _, parts in facts.sinks for part in parts]
    assert found == [""]


@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS)
def test_a_number_is_found_where_it_is_put_into_words(body: str, tmp_path: Path) -> None:
    assert shown(tmp_path, f"loss.backward()\n{body}") == {LOSS}


def test_a_function_that_shows_numbers_puts_them_together_itself(tmp_path: Path) -> None:
    found = shown(tmp_path, "loss.backward()\nshow(loss.item())\nshow(loss.item() * 2)")
    assert found == {("line", "reduce_mean")}


OTHERWISE = {
    "also trained with": "learn_from(loss)",
    "also kept": "keep(loss)",
    "a list that is trained with": "terms = [loss, odd]\nsum(terms).backward()\nprint(terms)",
    "a text of a condition": (
        'text = ""\nif len(x) > 1:\n    text = "%f" % loss.item()\nprint(text)'
    ),
}


@pytest.mark.parametrize("body", OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_not_just_shown_is_not_sent_where_it_is_given(body: str, tmp_path: Path) -> None:
    assert LOSS not in shown(tmp_path, body)
    assert ("loss", "reduce_mean") not in shown(tmp_path, body)


ADDENDS = {
    "the loss": (
        "(loss + odd).backward()",
        "print((loss + odd).item())",
        {"(loss + odd).item()"},
    ),
    "its name": ("whole = loss + odd\nwhole.backward()", "print(whole.item())", {"whole.item()"}),
    "an addend": ("(loss + 0.1 * odd).backward()", "print(odd.item())", {"odd.item()"}),
    "scaled": ("whole = odd\nwhole /= 2\nwhole.backward()", "print(whole)", {"whole"}),
    "no addend": ("loss.backward()", "print(odd.item())", set()),
    "a divisor": ("(1 / odd).backward()", "print(odd.item())", set()),
    "a factor": ("(loss * odd).backward()", "print(odd.item())", set()),
}


@pytest.mark.parametrize("case", ADDENDS.values(), ids=ADDENDS)
def test_addends_of_a_loss_that_is_not_followed_are_averaged(
    case: tuple[str, str, set[str]], tmp_path: Path
) -> None:
    trained, printed, averaged = case
    found = shown(tmp_path, f"{trained}\n{printed}")
    assert {text for text, how in found if how == "reduce_mean"} == averaged


def test_numbers_of_batches_in_a_list(tmp_path: Path) -> None:
    end = "mean = np.mean(losses)\nshare = np.mean(hits)\nprint(mean, share)\n"
    found = shown(tmp_path, "loss.backward()", end)
    assert found == set()  # a list of means is averaged after the loop, one of sums summed
    found = shown(tmp_path, "loss.backward()", "print(sum(hits) / len(hits), np.average(losses))\n")
    assert found == set()


def test_a_picture_of_the_batch_is_of_one_ranks_share(tmp_path: Path) -> None:
    body = 'loss.backward()\nsave_image(x.data[:4], "x.png")\nboard.add_images("x", x)'
    assert shown(tmp_path, body) == {("x.data[:4]", ""), ("x", "")}
    noise = 'loss.backward()\nsave_image(torch.rand(25, 1, 4, 4), "x.png")'
    assert shown(tmp_path, noise) == set()


METER = """
class Meter:
    def __init__(self):
        self.sum, self.count = 0, 0
    def update(self, number, many):
        self.sum += number * many
        self.count += many
        self.avg = self.sum / self.count
    def __repr__(self):
        return f"{self.avg:.3f}"
meter = Meter()
"""


@pytest.mark.parametrize(("number", "left"), [("odd", ()), ("loss", ("meter",))])
def test_a_meter_of_numbers_that_are_not_followed_keeps_its_count(
    number: str, left: tuple[str, ...], tmp_path: Path
) -> None:
    body = f"    loss.backward()\n    meter.update({number}.item(), len(y))"
    text = PROGRAM.format(body=body, end="print(meter)")
    facts = facts_of(METER + text, tmp_path)
    assert [(end.sums, end.meters) for end in facts.ends] == [((), left)]


def test_a_text_that_a_meter_is_put_into_before_it_is_shown(tmp_path: Path) -> None:
    body = (
        "    loss.backward()\n    meter.update(loss.item(), len(y))\n"
        '    text = "{m.avg:.3f}".format(m=meter)\n    print(text)'
    )
    facts = facts_of(METER + PROGRAM.format(body=body, end=""), tmp_path)
    assert [(part.text, part.how) for _, parts in facts.sinks for part in parts] == [
        ("meter", "global_meter")
    ]


BOARD = METER.replace("{self.avg:.3f}", "mean") + """
class Board:
    def __init__(self, meters):
        self.meters = meters
    def display(self):
{body}
"""
BY_OTHERS = {
    "a list that grows": 'row = []\nrow += [repr(m) for m in self.meters]\nprint(" ".join(row))',
    "a list": 'print(" ".join([str(m) for m in self.meters]))',
    "one by one": "for m in self.meters:\n    print(str(m))",
    "a text": 'line = f"{self.meters[0]}"\nprint(line)',
}


@pytest.mark.parametrize("body", BY_OTHERS.values(), ids=BY_OTHERS)
def test_meters_that_another_object_shows_are_found(body: str, tmp_path: Path) -> None:
    text = BOARD.format(body=indent(body, " " * 8))
    step = "    loss.backward()\n    meter.update(loss.item(), len(y))\n    table.display()"
    facts = facts_of(
        text + "table = Board([meter])\n" + PROGRAM.format(body=step, end=""), tmp_path
    )
    assert [part for _, parts in facts.sinks for part in parts] != []


def test_a_meter_in_a_formatted_text(tmp_path: Path) -> None:
    body = "    loss.backward()\n    meter.update(loss.item(), len(y))\n    print(f'{meter}')"
    facts = facts_of(METER + PROGRAM.format(body=body, end=""), tmp_path)
    assert {(p.text, p.how) for _, parts in facts.sinks for p in parts} == {
        ("meter", "global_meter")
    }


WHOLE = {
    "in place": ("", 'print(f"{meter}")', "meter"),
    "a text of it": ("", 'print("a " + str(meter))', "meter"),
    "of a dict": ("", 'print(" ".join(f"{k} {m.avg}" for k, m in meters.items()))', "meters"),
    "by name": ("", 'print("%s" % meters["loss"])', 'meters["loss"]'),
    "in turn": ("", "print(*[str(one) for one in (meter,)])", "meter"),
    "by an object": ("progress = Progress([meter])\n", "progress.display()", "self.meters"),
}
PROGRESS = """
class Progress:
    def __init__(self, meters):
        self.meters = meters
    def display(self):
        entries = ["a"]
        entries += [str(meter) for meter in self.meters]
        print(" ".join(entries))
"""


@pytest.mark.parametrize(("before", "shows", "text"), WHOLE.values(), ids=WHOLE)
def test_meters_that_are_shown_whole(before: str, shows: str, text: str, tmp_path: Path) -> None:
    body = f"    loss.backward()\n    meter.update(loss.item(), len(y))\n    {shows}"
    made = METER + 'meters = {"loss": meter}\n' + PROGRESS + before
    facts = facts_of(made + PROGRAM.format(body=body, end=""), tmp_path)
    assert {(part.text, part.how) for _, parts in facts.sinks for part in parts} == {
        (text, "global_meter")
    }


OTHERS = """
class Window:
    def __init__(self):
        self.numbers = []
    def update(self, number):
        self.numbers.append(number)
    def __str__(self):
        return str(self.numbers[-1])
window = Window()
"""


@pytest.mark.parametrize("shows", ["print(window)", 'print("a", str(window))'])
def test_an_object_that_nobody_can_combine_is_named_after_the_loop(
    shows: str, tmp_path: Path
) -> None:
    body = "    loss.backward()\n    window.update(odd.item())"
    facts = facts_of(OTHERS + PROGRAM.format(body=body, end=shows), tmp_path)
    assert ("window", "") in {(p.text, p.how) for _, parts in facts.sinks for p in parts}
    assert not facts.kept


@pytest.mark.parametrize("shows", ["print(window)", 'print("a", str(window))'])
def test_an_object_with_a_mean_of_each_step_is_shown_by_a_copy(shows: str, tmp_path: Path) -> None:
    body = "    loss.backward()\n    window.update(loss.item())"
    facts = facts_of(OTHERS + PROGRAM.format(body=body, end=shows), tmp_path)
    assert [(p.text, p.how, p.given) for _, parts in facts.sinks for p in parts] == [
        ("window", "global_copy", ', means=("numbers",)')
    ]
    assert not facts.kept


STEPS = {  # what is kept of each step, and what makes it of all ranks
    "a product": ("total *= {}", "print(total)", "reduce_mean"),
    "an entry": ('table["a"].append(round({}, 3))', "print(table)", "reduce_mean"),
    "what a function gives": ("total = max(total, {})", "print(given())", "reduce_mean"),
    "in every second step": ("if step % 2:\n    total *= {}", "print(total)", "reduce_mean"),
    "where only some ranks come by": ("if odd > 1:\n    total *= {}", "print(total)", ""),
}
BEFORE = "step, total, table = 3, 1.0, {'a': []}\ndef given():\n    return total\n"


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_numbers_that_nothing_puts_together_later_are_reduced_in_each_step(
    case: tuple[str, str, str], tmp_path: Path
) -> None:
    kept, shows, how = case
    body = indent("loss.backward()\n" + kept.format("loss.item()"), " " * 4)
    facts = facts_of(OTHERS + BEFORE + PROGRAM.format(body=body, end=shows), tmp_path)
    assert [helper for _, helper in facts.kept] == ([how] if how else [])
    assert all(part.how for _, parts in facts.sinks for part in parts) is bool(how)


def test_what_a_star_gives_is_shown(tmp_path: Path) -> None:
    end = 'print("{} {}".format(*(sums[:2] / sums[2]).tolist()))'
    body = "loss.backward()\nsums = torch.tensor([loss.item(), right.item(), len(x)])"
    assert shown(tmp_path, body, end) == set()  # each of the three is reduced where it is made
    body = "loss.backward()\nsums = torch.tensor([loss.item(), odd.item(), len(x)])"
    assert shown(tmp_path, body, end) == {("sums", "")}
