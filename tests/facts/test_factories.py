"""A factory that is called for training and for evaluation: its loaders are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.examples import SINGLE, changed
from ddpify.settings import Settings
from tests.projects import put, put_example

SCORED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def feed(mode="train"):
    rows = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    return DataLoader(rows, batch_size=8, shuffle=True)


def recall(guess, wanted):
    hits = ((guess == 1) & (wanted == 1)).sum()
    return float(hits) / (float((wanted == 1).sum()) + 1e-6)


def main():
    learn, check = feed("train"), feed("valid")
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    best = 0.0
    for epoch in range(3):
        net.train()
        for x, y in learn:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        net.eval()
        score = 0.0
        for x, y in check:
            x = x.float()
            score += recall(net(x).argmax(1), y)
        if score > best:
            best = score
            torch.save(net.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
"""


def test_what_only_evaluates_is_gone_through_whole_and_decided_from_once(tmp_path: Path) -> None:
    outcome = migrate(
        [put({"train.py": SCORED}, tmp_path) / "train.py"], Settings(whole_batches=False)
    )
    assert outcome.refusals == ()
    after = next(change.after.decode() for change in outcome.changes if change.path == "train.py")
    assert 'distributed_sampler(rows, shuffle=True) if mode == "train" else None' in after.replace(
        "'", '"'
    )
    assert "\n        score = broadcast(score)\n" in after, "x, which each round binds, stays"
    assert "save_on_main(unwrap(net).state_dict()" in after


EXPERIMENT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def provide(flag):
    rows = TensorDataset(torch.zeros(64, 4), torch.zeros(64, 2))
    return rows, DataLoader(rows, batch_size=8, shuffle=flag == "train")


class Fit:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).cuda()

    def data(self, flag):
        rows, feed = provide(flag)
        return rows, feed

    def predict(self, x):
        return self.model(x.cuda())

    def validate(self, hold):
        self.model.eval()
        losses = []
        for x, y in hold:
            losses.append((self.predict(x).cpu() - y).square().mean().item())
        self.model.train()
        return sum(losses)

    def look(self, x):
        self.model.eval()
        with torch.no_grad():
            shown = torch.zeros(64, 2)
            shown[:] = self.model(x.cuda()).cpu()
        self.model.train()
        return shown.mean()

    def train(self):
        rows, feed = self.data("train")
        _, hold = self.data("val")
        adam = torch.optim.Adam(self.model.parameters())
        best = 1e9
        for epoch in range(5):
            for x, y in feed:
                adam.zero_grad()
                nn.functional.mse_loss(self.predict(x), y.cuda()).backward()
                adam.step()
            score = self.validate(hold)
            seen = self.look(rows.tensors[0])
            if score + seen < best:
                best = score + seen
                torch.save(self.model.state_dict(), "best.pt")

    def test(self):
        _, feed = self.data("train")
        self.model.eval()
        seen = 0
        for x, y in feed:
            seen += (self.predict(x).cpu() > y).sum().item()
        print(seen)

    def describe(self):
        rows, _ = self.data("train")
        print(rows.tensors[0].shape)


if __name__ == "__main__":
    fit = Fit()
    fit.train()
    fit.test()
    fit.describe()
"""


def test_a_training_loader_that_is_made_again_evaluates_on_all_samples(tmp_path: Path) -> None:
    after = _migrated(EXPERIMENT, tmp_path)
    assert "distributed_sampler(rows, shuffle=flag == 'train') if flag == 'train'" in after
    assert "per_rank_batch_size(8) if flag == 'train' else 8" in after
    assert "for x, y in whole_loader(feed):\n" in after
    assert after.count("whole_loader(") == 1, "not where it trains, nor for the other split"


def test_the_model_has_the_name_that_the_class_keeps_it_by(tmp_path: Path) -> None:
    after = _migrated(EXPERIMENT, tmp_path)
    assert "sync_buffers(self.model)\n        for x, y in hold:" in after
    assert "sync_buffers(self.model)\n        for x, y in whole_loader(feed):" in after


def test_what_no_loader_gave_is_decided_from_once(tmp_path: Path) -> None:
    after = _migrated(EXPERIMENT, tmp_path)
    assert "            seen = broadcast(seen)\n" in after


def test_batches_taken_by_hand_are_no_loop_to_mend(tmp_path: Path) -> None:
    taken = EXPERIMENT.replace(
        "        for x, y in feed:\n            seen",
        "        for x, y in [next(iter(feed))]:\n            seen",
    )
    assert taken != EXPERIMENT
    outcome = migrate(
        [put({"train.py": taken}, tmp_path) / "train.py"], Settings(whole_batches=False)
    )
    assert any("no argument tells them apart" in one.message for one in outcome.refusals)


def _migrated(text: str, folder: Path) -> str:
    outcome = migrate([put({"train.py": text}, folder) / "train.py"], Settings(whole_batches=False))
    assert outcome.refusals == ()
    after = next(change.after.decode() for change in outcome.changes if change.path == "train.py")
    return after.replace('"', "'")


DERIVED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Feed(DataLoader):
    def __init__(self, folder, batch_size):
        rows = TensorDataset(torch.zeros(64, 4), torch.zeros(64, 2))
        super().__init__(rows, batch_size, shuffle=True)


net = nn.Linear(4, 2)
feed = Feed("data", 8)
adam = torch.optim.Adam(net.parameters())
for x, y in feed:
    adam.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    adam.step()
"""


def test_the_batches_of_a_class_that_makes_its_loader_itself_are_shared(tmp_path: Path) -> None:
    after = _migrated(DERIVED, tmp_path)
    assert "feed = share_batches(Feed('data', 8))\n" in after
    assert "per_rank_batch_size" not in after
    assert "begin_epoch" not in after


def test_of_loaders_that_one_call_makes_the_one_that_trains_is_shared(tmp_path: Path) -> None:
    made = "def made():\n    return Feed('data', 8)\n\n\nfeed, rest = made(), made()\n"
    text = DERIVED.replace('feed = Feed("data", 8)\n', made) + "for x, y in rest:\n    net(x)\n"
    assert "feed, rest = share_batches(made()), made()\n" in _migrated(text, tmp_path)


OTHER_BATCHES = [
    ("shuffle=True)\n", "shuffle=True)\n        self.batch_sampler.late = 1\n", "`batch_sampler`"),
    (
        "shuffle=True)\n",
        "shuffle=True)\n\n    def __iter__(self):\n        return 1\n",
        "`__iter__`",
    ),
    ("rows, batch_size", "rows, None", "goes without batches"),
    ("for x, y in feed:\n", "for x, y in feed:\n    net(x)\nfor x, y in feed:\n", "evaluated, too"),
]


@pytest.mark.parametrize(("old", "new", "why"), OTHER_BATCHES)
def test_a_class_that_may_go_by_other_batches_is_named(
    old: str, new: str, why: str, tmp_path: Path
) -> None:
    text = DERIVED.replace(old, new)
    outcome = migrate(
        [put({"train.py": text}, tmp_path) / "train.py"], Settings(whole_batches=False)
    )
    said = [one.message for one in outcome.refusals]
    assert any("`Feed` makes its loader itself" in one and why in one for one in said), said


def test_a_class_that_hands_on_what_it_is_given_takes_a_sampler(tmp_path: Path) -> None:
    plain = DERIVED.replace(
        "        rows = TensorDataset(torch.zeros(64, 4), torch.zeros(64, 2))\n"
        "        super().__init__(rows, batch_size, shuffle=True)\n",
        "        super().__init__(dataset, **options)\n",
    )
    plain = plain.replace("self, folder, batch_size", "self, dataset, **options").replace(
        'Feed("data", 8)',
        "Feed(TensorDataset(torch.zeros(64, 4), torch.zeros(64, 2)), batch_size=8)",
    )
    assert "sampler=" in _migrated(plain, tmp_path)


def test_the_training_loader_evaluates_on_all_samples(tmp_path: Path) -> None:
    shown = '        print("fit", accuracy(net, fitting))\n        print("round"'
    put_example(changed(SINGLE, ('        print("round"', shown)), tmp_path)
    outcome = migrate([tmp_path / "main.py"], Settings(whole_batches=False))
    assert not outcome.refusals
    after = next(c.after.decode() for c in outcome.changes if c.path == "main.py")
    assert "accuracy(unwrap(net), whole_loader(fitting))" in after
    assert "accuracy(unwrap(net), holdout)" in after, "what is not trained on as it was"
    assert "reduce_sum" not in after, "the loop that goes through both keeps whole sums"


def test_a_name_that_is_also_of_another_loader_goes_through_both_whole(tmp_path: Path) -> None:
    both = "        for part in (fitting, holdout):\n            print(accuracy(net, part))\n"
    put_example(
        changed(SINGLE, ('        print("round"', f'{both}        print("round"')), tmp_path
    )
    outcome = migrate([tmp_path / "main.py"], Settings(whole_batches=False))
    assert not outcome.refusals
    after = next(c.after.decode() for c in outcome.changes if c.path == "main.py")
    assert "accuracy(unwrap(net), whole_loader(part))" in after
    assert "sampler=" in after.partition("holdout = ")[0], "what trains is shared out"
    assert "sampler" not in after.partition("holdout = ")[2], "and nothing else: it gives all"


def test_a_sampler_of_its_own_that_is_evaluated_too_is_refused(tmp_path: Path) -> None:
    shown = '        print("fit", accuracy(net, fitting))\n        print("round"'
    own = (
        ("import DataLoader, ", "import DataLoader, SubsetRandomSampler, "),
        ("opt.bs, shuffle=True)", "opt.bs, sampler=SubsetRandomSampler(range(700)))"),
    )
    put_example(changed(SINGLE, *own, ('        print("round"', shown)), tmp_path)
    refusals = migrate([tmp_path / "main.py"], Settings(whole_batches=False)).refusals
    assert any("the same loader is evaluated too" in one.message for one in refusals)
