"""`migrate` on Lightning projects: who takes which samples, and what becomes of their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from tests.lightning.project import outcome, refused, written
from tests.lightning.runs import Launcher, train
from tests.projects import write

TRAIN = "        return DataLoader(TensorDataset(self.x, self.x.sum(1)), BATCH)\n"
VAL = "        return DataLoader(TensorDataset(self.x, self.x.prod(1)), BATCH)\n"
FIT = "    trainer.fit(net, datamodule=Rows())\n"
STEP = '        loss = self._step(batch, "val")\n'
TRAINED = '        loss = self._step(batch, "train")\n'
MADE = "        self.layer = nn.Linear(4, 1, dtype=torch.float64)\n"
EPOCH = "    def on_train_epoch_end(self):\n"
SETUP = '        self.x = torch.load("rows.pt")\n'


def found(given: Outcome, rule: str) -> list[tuple[bool, str]]:
    """What a rule has found: whether it was fixed, and the advice."""
    return [(bool(one.fix), one.advice) for one in given.findings if one.rule == rule]


def test_batches_of_one_process_are_divided(tmp_path: Path) -> None:
    text = written(outcome(tmp_path))
    assert "return share_training(DataLoader(TensorDataset(self.x, self.x.sum(1)), BATCH))" in text
    assert "return share_evaluation(DataLoader(TensorDataset(self.x, self.x.prod(1)), BATCH" in text
    assert "from ddp_metrics import share_evaluation, share_training\n" in text


def test_sizes_per_rank_leave_training_to_lightning(tmp_path: Path) -> None:
    given = outcome(tmp_path, batch_size="per-rank")
    text = written(given)
    assert "share_training" not in text
    assert "share_evaluation(DataLoader(" in text
    assert any("the global batch is N times as large; times N" in n.message for n in given.notes)


@pytest.mark.parametrize(
    ("train", "wrapped"),
    [
        (
            "        rows = TensorDataset(self.x)\n        loader = DataLoader(rows, **OPTIONS)\n"
            "        return loader\n",
            "loader = share_training(DataLoader(rows, **OPTIONS))\n",
        ),
        (
            "        return {'rows': DataLoader(self.x, 8)}\n",
            "return {'rows': share_training(DataLoader(self.x, 8))}",
        ),
        (
            "        weighted = torch.utils.data.WeightedRandomSampler(self.x[:, 0].exp(), 64)\n"
            "        return DataLoader(self.x, BATCH, sampler=weighted)\n",
            "return share_training(DataLoader(self.x, BATCH, sampler=weighted))",
        ),
        (
            "        return DataLoader(self.x, batch_sampler=chosen(self.x))\n",
            "return share_training(DataLoader(self.x, batch_sampler=chosen(self.x)))",
        ),
        (  # as black has it, before and after
            "        return DataLoader(\n            self.x,\n            BATCH,\n        )\n",
            "        return share_training(\n            DataLoader(\n"
            "                self.x,\n                BATCH,\n            )\n        )\n",
        ),
        (
            "        return DataLoader(self.x,\n                          BATCH)\n",
            "        return share_training(DataLoader(self.x,\n                          BATCH))\n",
        ),
    ],
)
def test_loaders_are_dealt_where_they_are_made(train: str, wrapped: str, tmp_path: Path) -> None:
    assert wrapped in written(outcome(tmp_path, (TRAIN, train)))


def test_loaders_of_one_function_are_told_apart_in_the_hooks(tmp_path: Path) -> None:
    text = written(
        outcome(
            tmp_path,
            (TRAIN, "        return self._loader(self.x.sum(1))\n"),
            (VAL, "        return self._loader(self.x.prod(1))\n"),
            (
                "    def setup(",
                "    def _loader(self, y):\n"
                "        return DataLoader(TensorDataset(self.x, y), BATCH)\n\n    def setup(",
            ),
        )
    )
    assert "return share_training(self._loader(self.x.sum(1)))" in text
    assert "return share_evaluation(self._loader(self.x.prod(1)))" in text
    assert "        return DataLoader(TensorDataset(self.x, y), BATCH)\n" in text


def test_loaders_that_setup_keeps_are_dealt_there(tmp_path: Path) -> None:
    text = written(
        outcome(
            tmp_path,
            (TRAIN, "        return self.loader\n"),
            (SETUP, f"{SETUP}        self.loader = DataLoader(self.x, BATCH)\n"),
        )
    )
    assert "self.loader = share_training(DataLoader(self.x, BATCH))" in text


OUTSIDE = (FIT, "    rows = torch.zeros(64, 4)\n    trainer.fit(net, DataLoader(rows, 8))\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            (
                FIT,
                OUTSIDE[1]
                .replace("DataLoader(rows, 8))", "rows)")
                .replace(
                    "    rows = torch.zeros(64, 4)\n",
                    "    rows = DataLoader(torch.zeros(64, 4), 8)\n    print(next(iter(rows)))\n",
                ),
            ),
            "the program goes over it, too: make another one for the Trainer",
        ),
        (
            (TRAIN, "        return Streamed(self.x)\n"),
            "what is trained on is not followed",
        ),
        (
            (TRAIN, "        return DataLoader(Stream(), BATCH)\n"),
            "an IterableDataset deals its samples itself",
        ),
        (
            (TRAIN, "        return DataLoader(self.sets['a'], BATCH)\n"),
            "what it loads is not followed, and may be an IterableDataset",
        ),
        (
            (TRAIN, "        return DataLoader(self.x, batch_size=None)\n"),
            "`batch_size=None`: what it is given makes batches",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    classes = (
        "class Streamed(DataLoader):\n    pass\n\n\n"
        "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n"
        "        yield from torch.zeros(64, 4)\n\n\nclass Rows("
    )
    text = refused(outcome(tmp_path, ("class Rows(", classes), change))
    assert "DDP965" in text
    assert said in text


def test_loaders_that_a_trainer_is_given_are_dealt(tmp_path: Path) -> None:
    """It starts the processes later: what they share is found when they take batches."""
    text = written(outcome(tmp_path, OUTSIDE))
    assert "trainer.fit(net, share_training(DataLoader(rows, 8)))" in text


@pytest.mark.parametrize(
    "size",
    [
        "BATCH // self.trainer.world_size",
        "int(BATCH / max(1, torch.cuda.device_count()))",
    ],
)
def test_a_batch_that_is_divided_is_not_divided_again(size: str, tmp_path: Path) -> None:
    for name, change in (
        ("written", (TRAIN, TRAIN.replace("BATCH)", f"{size})"))),
        ("kept", (SETUP, f"{SETUP}        self.size = {size}\n")),
    ):
        more = ((TRAIN, TRAIN.replace("BATCH)", "self.size)")),) if name == "kept" else ()
        text = written(outcome(tmp_path / name, change, *more))
        assert "share_training" not in text
        assert "share_evaluation" in text


def test_a_size_that_may_be_divided_is_refused(tmp_path: Path) -> None:
    size = "BATCH // torch.distributed.get_world_size()"
    text = refused(outcome(tmp_path, (TRAIN, TRAIN.replace("BATCH)", f"{size})"))))
    assert "the program asks how many processes there are" in text


def test_data_without_a_seed_are_refused(tmp_path: Path) -> None:
    changes = (FIT, OUTSIDE[1].replace("zeros", "randn")), ("    L.seed_everything(0)\n", "")
    prepared = ("        torch.manual_seed(1)\n", "")
    assert "DDP216 each rank draws its data" in refused(outcome(tmp_path, *changes, prepared))


def test_sizes_that_stay_are_not_refused(tmp_path: Path) -> None:
    written(outcome(tmp_path, OUTSIDE, batch_size="per-rank"))


def test_a_stream_that_all_read_is_refused_with_any_size(tmp_path: Path) -> None:
    stream = (
        "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n"
        "        yield from torch.zeros(64, 4)\n\n\nclass Rows("
    )
    given = outcome(
        tmp_path,
        ("class Rows(", stream),
        (TRAIN, "        return DataLoader(Stream(), BATCH)\n"),
        batch_size="per-rank",
    )
    assert "DDP210 every rank reads all of Stream" in refused(given)


def test_splits_without_a_seed_are_refused(tmp_path: Path) -> None:
    split = "        self.x, _ = torch.utils.data.random_split(self.x, [60, 4])\n"
    seed = ("    L.seed_everything(0)\n", "")
    prepared = ("        torch.manual_seed(1)\n", "")
    text = refused(outcome(tmp_path, (SETUP, SETUP + split), seed, prepared))
    assert "DDP216 each rank splits" in text


@pytest.mark.parametrize(
    "line",
    [
        "        self.all_gather(batch[0])\n",
        "        self.trainer.strategy.barrier()\n",
        '        self.log("val/now", loss, on_step=True, sync_dist=True)\n',
    ],
)
def test_where_ranks_meet_in_each_batch_lightning_deals(line: str, tmp_path: Path) -> None:
    given = outcome(tmp_path, (STEP, STEP + line))
    text = written(given)
    assert "share_evaluation" not in text
    assert "extract_batch_size" not in text  # all have as many
    [(fixed, why)] = found(given, "DDP966")
    assert not fixed
    assert "all processes meet there in each batch" in why


def _counted(adds: str, ends: str, begins: str = "self.kept = 0", step: str = STEP) -> tuple:
    """A number that a step adds to, and what is done with it at the end of the epoch."""
    stage = "validation" if step == STEP else "train"
    hook = f"    def on_{stage}_epoch_end(self):\n{ends}        {begins}\n"
    end = f"{hook}\n{EPOCH}" if step == STEP else hook
    return (step, f"{step}        {adds}\n"), (MADE, f"{MADE}        {begins}\n"), (EPOCH, end)


SHOWN = "        print(self.kept)\n"
ALL = {
    "a sum of an evaluation": (_counted("self.kept += loss.item()", SHOWN), "reduce_sum"),
    "batches of an evaluation": (_counted("self.kept += 1", SHOWN), "reduce_sum"),
    "entries for batches": (
        _counted("self.kept.append((loss, batch[0]))", SHOWN, "self.kept = []"),
        "gather_samples",
    ),
    "samples that were trained on": (
        _counted("self.kept += len(batch[0])", SHOWN, step=TRAINED),
        "reduce_sum",
    ),
    "losses that were trained with": (
        _counted("self.kept.append(loss.item())", SHOWN, "self.kept = []", TRAINED),
        "reduce_mean",
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_what_hooks_keep_is_that_of_all(name: str, tmp_path: Path) -> None:
    changes, helper = ALL[name]
    if TRAINED in [old for old, _ in changes]:
        changes = (
            *changes[:2],
            (f'{EPOCH}        print("epoch", self.current_epoch)\n', changes[2][1]),
        )
    text = written(outcome(tmp_path, *changes))
    line = f"        self.kept = {helper}(self.kept)\n"
    assert f"{line}        if self.trainer.is_global_zero:\n            print(self.kept)\n" in text


def test_steps_are_as_many_on_each_rank(tmp_path: Path) -> None:
    changes = _counted("self.kept += 1", SHOWN, step=TRAINED)
    print_of_epoch = f'{EPOCH}        print("epoch", self.current_epoch)\n'
    text = written(outcome(tmp_path, *changes[:2], (print_of_epoch, changes[2][1])))
    assert "reduce_" not in text.replace("reduce_fx", "")


@pytest.mark.parametrize(
    "changes",
    [
        _counted("self.kept.append(loss)", SHOWN, "self.kept += []"),  # it never begins anew
        (*_counted("self.kept += loss", SHOWN), ('print("done")', "print(net.kept)")),
        _counted("self.kept += loss", "        self.all = [self.kept]\n        return\n"),
    ],
)
def test_what_is_kept_in_other_ways_is_refused(
    changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    if changes[0][1].endswith("+= loss\n") and len(changes) == 3:
        changes = (*changes[:2], (EPOCH, changes[2][1].replace("        self.kept = 0\n", "")))
    assert "DDP968 self.kept: what the batches of one process came to" in refused(
        outcome(tmp_path, *changes)
    )


def test_ranks_decide_together_to_stop(tmp_path: Path) -> None:
    stop = "        self.trainer.should_stop = bool(self.layer.bias > 1)\n"
    text = written(outcome(tmp_path, (EPOCH, EPOCH + stop)))
    decided = "self.trainer.strategy.reduce_boolean_decision"
    assert f"{stop}        self.trainer.should_stop = {decided}(\n" in text


def test_where_some_may_have_left_a_hook_nothing_is_decided(tmp_path: Path) -> None:
    stop = (
        "        if self.layer.bias < 1:\n            return\n"
        "        self.trainer.should_stop = True\n"
    )
    assert "DDP969 a process that stops" in refused(outcome(tmp_path, (EPOCH, EPOCH + stop)))


def test_a_loader_that_its_own_hook_gives_may_be_exchanged(tmp_path: Path) -> None:
    hook = "    def on_train_epoch_start(self, trainer, pl_module):\n"
    put = "        trainer.fit_loop._combined_loader.flattened = [{}]\n"
    before = "    def on_train_start(self, trainer, pl_module):\n"
    own = put.format("trainer.datamodule.train_dataloader()")
    text = written(outcome(tmp_path, (before, f"{hook}{own}\n{before}")))
    assert own in text
    left = tmp_path / "left"
    given = outcome(left, (before, f"{hook}{own}\n{before}"), batch_size="per-rank")
    assert "DDP977" in refused(given)


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_take_the_batches_of_a_loader_that_is_made_before(
    launcher: Launcher, tmp_path: Path
) -> None:
    """Each process gets half of every batch, and evaluates what the other does not."""
    fit = (
        "    x = torch.randn(64, 4, dtype=torch.float64)\n"
        "    rows = TensorDataset(x, x.sum(1))\n"
        "    held_out = TensorDataset(x[:37], x[:37].sum(1))\n"
        "    trainer.fit(net, DataLoader(rows, BATCH, shuffle=True), DataLoader(held_out, 5))\n"
    )
    changes = outcome(tmp_path / "source", (FIT, fit)).changes
    write(changes, tmp_path / "source")
    run = train(
        tmp_path / "source",
        tmp_path / "seen",
        "16",
        processes=2,
        launcher=launcher,
        trainer={"devices": 2, "strategy": "ddp"},
    )
    assert run.finished, run.output
    first, second = (rank.batches("train", 0, 64) for rank in run.ranks)
    assert [len(batch) for batch in (*first, *second)] == [8] * 8
    assert sorted(i for batch in (*first, *second) for i in batch) == [*range(64)]
    evaluated = [i for rank in run.ranks for i in rank.samples("validate", 0, 37)]
    assert sorted(evaluated) == [*range(37)]
    a, b = (rank.parameters for rank in run.ranks)
    assert a.equal(b)


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_what_counts_batches_of_training_counts_what_it_did(tmp_path: Path) -> None:
    """And what counts those of an evaluation counts those of each process, as it is said."""
    limits = "limit_train_batches=3, max_steps=5, val_check_interval=2, limit_val_batches=2"
    changes = outcome(tmp_path / "source", ("max_epochs=2", f"max_epochs=2, {limits}")).changes
    one = train(tmp_path / "source", tmp_path / "one", "8")
    write(changes, tmp_path / "source")
    two = train(tmp_path / "source", tmp_path / "two", "8", processes=2)
    assert one.finished, one.output
    assert two.finished, two.output
    assert len(one.ranks[0].parameters) == 1 + 5
    assert all(
        rank.parameters.sub(one.ranks[0].parameters).abs().max() < 1e-10 for rank in two.ranks
    )
    for run, evaluated in ((one, 16), (two, 32)):
        first = [set(rank.samples("validate", 0, 64)) for rank in run.ranks]
        assert set().union(*first) == {*range(evaluated)}


@pytest.mark.training
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_one_device_with_ddp_has_the_order_that_it_had(tmp_path: Path) -> None:
    """Lightning's sampler shuffles there, the loaders of hooks as well."""
    shuffled = (TRAIN, TRAIN.replace("BATCH)", "BATCH, shuffle=True)"))
    alone = {"devices": 1, "strategy": "ddp"}
    write(outcome(tmp_path / "after", shuffled).changes, tmp_path / "after")
    outcome(tmp_path / "before", shuffled)
    runs = [
        train(tmp_path / name, tmp_path / f"seen {name}", "16", trainer=alone)
        for name in ("before", "after")
    ]
    assert all(run.finished for run in runs), [run.output for run in runs]
    before, after = (run.ranks[0] for run in runs)
    assert before.batches("train", 1, 64) == after.batches("train", 1, 64)
    assert before.parameters.equal(after.parameters)


def test_a_loader_made_before_fit_that_ddp_shuffles_on_one_device_is_named(tmp_path: Path) -> None:
    said = "Lightning's sampler shuffles on one device, too"
    for strategy, named in (('"ddp"', 1), ('"auto"', 0)):
        changes = (OUTSIDE, ("L.Trainer(\n", f"L.Trainer(\n        strategy={strategy},\n"))
        notes = outcome(tmp_path / strategy[1:-1], *changes).notes
        assert sum(said in note.message for note in notes) == named


def test_a_step_that_returns_a_sum_is_scaled(tmp_path: Path) -> None:
    summed = TRAINED.replace('self._step(batch, "train")', "self.layer(batch[0]).pow(2).sum()")
    given = outcome(tmp_path, (TRAINED, summed))
    assert found(given, "DDP978") == [
        (True, "return a mean, or the sum times self.trainer.world_size")
    ]
    assert "        return loss * self.trainer.world_size\n" in written(given)
