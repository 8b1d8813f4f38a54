"""``--strategy fsdp``: what is sharded, what then has to change, and what is refused.

That what is migrated trains as one process does is shown by ``tests/verify/test_fixtures.py`` and
``tests/training/test_sharded.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings, SettingsError, checked
from tests.projects import write

PROGRAM = """\
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Linear(5, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def features(self, x):
        return self.stem(x)

    def size(self):
        return sum(p.numel() for p in self.parameters())

    def penalty(self):
        return self.head.weight.pow(2).sum()


def main():
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
    held = DataLoader(TensorDataset(torch.randn(13, 5), torch.randint(0, 3, (13,))), batch_size=4)
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    model = Net(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        hits = 0
        with torch.no_grad():
            for x, y in held:
                hits += (model(x).argmax(1) == y).sum().item()
        print(epoch, hits / 13)
    torch.save({"model": model.state_dict(), "adam": optimizer.state_dict()}, "last.pt")


if __name__ == "__main__":
    main()
"""
FIRST = "            optimizer.zero_grad()\n"
BACK = "            loss.backward()\n"
STEP = "            optimizer.step()\n"
LOSS = "            loss = nn.functional.cross_entropy(model(x), y)\n"
MADE = "    model = Net(8, 2)\n"
ADAM = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\n"
SAVE = '    torch.save({"model": model.state_dict(), "adam": optimizer.state_dict()}, "last.pt")\n'
EVAL = "            for x, y in held:\n"
HITS = "                hits += (model(x).argmax(1) == y).sum().item()\n"
LIST = "        for block in self.blocks:\n            x = block(x)\n"
OVER = "        for block in self.blocks:\n"
EACH = "            for p in model.parameters():\n"
AGAIN = "                    x = x - model(x).mean()\n"
BEST = "    best = copy.deepcopy(model.state_dict())\n"
OWN = """\
class Own(torch.optim.Optimizer):
    def __init__(self, weights, lr):
        super().__init__(weights, dict(lr=lr))
        self.base = torch.optim.SGD(self.param_groups, lr=lr)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        norm = self._norm()
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad / norm)

    @torch.no_grad()
    def descend(self):
        self.base.step()

    def _norm(self):
        held = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        return torch.norm(torch.stack(held))


"""
HEAD = "        self.head = nn"
COPY = "self.stem.weight.detach().clone()"
COUNTED = "    size = sum(p.numel() for p in model.parameters())\n    print(f'{size / 1e6:.2f}')\n"
SWA = "    mean = torch.optim.swa_utils.AveragedModel(model)\n"
PICKLES = ("import copy\n", "import copy\nimport pickle\n")
WRITER = "from torch.utils.tensorboard import SummaryWriter\n\nwriter = SummaryWriter()\n"
SHARDS = """\
    if is_distributed():
        ready_to_shard(model)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model, reshard_after_forward=True)
"""


def outcome(tmp_path: Path, *changes: tuple[str, str], **chosen: object) -> Outcome:
    text = PROGRAM
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "main.py").write_text(text)
    settings = Settings(strategy="fsdp", **chosen)  # type: ignore[arg-type]
    return migrate([tmp_path / "main.py"], settings)


def migrated(tmp_path: Path, *changes: tuple[str, str], **chosen: object) -> str:
    found = outcome(tmp_path, *changes, **chosen)
    assert not found.refusals, found.refusals[0].message
    return next(one.after.decode() for one in found.changes if one.path == "main.py")


def test_blocks_and_then_the_model_are_sharded_before_the_optimizer(tmp_path: Path) -> None:
    assert f"{MADE}{SHARDS}{ADAM}" in migrated(tmp_path)


def test_what_files_and_evaluation_need_of_all_ranks(tmp_path: Path) -> None:
    text = migrated(tmp_path)
    assert "for x, y in even_batches(held, model):" in text
    assert (
        '{"model": unsharded(model).state_dict(), "adam": unsharded(optimizer).state_dict()}'
        in text
    )


def test_the_model_is_called_as_it_was(tmp_path: Path) -> None:
    assert "unwrap(" not in migrated(tmp_path)


def test_again_there_is_nothing_to_do(tmp_path: Path) -> None:
    text = migrated(tmp_path)
    write(outcome(tmp_path / "again").changes, tmp_path / "again")
    entry = tmp_path / "again" / "main.py"
    assert entry.read_text() == text
    for strategy in ("fsdp", "ddp"):
        found = migrate([entry], Settings(strategy=strategy))  # type: ignore[arg-type]
        assert (found.refusals, found.changes) == ((), ())


def test_what_is_migrated_to_ddp_is_not_half_converted(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    write(migrate([tmp_path / "main.py"], Settings()).changes, tmp_path)
    found = migrate([tmp_path / "main.py"], Settings(strategy="fsdp"))
    assert [one.message.partition(": ")[2] for one in found.refusals] == [
        "is migrated to DDP already: take the script as it was before, then run again"
    ]
    assert found.changes == ()


WHOLE = "        ready_to_shard(model)\n        fully_shard(model, reshard_after_forward=True)\n"
NOT_ALONE = [
    pytest.param(
        (
            LIST,
            "        for block in self.blocks:\n            x = block(x) if x.sum() > 0 else x\n",
        ),
        id="under-a-condition",
    ),
    pytest.param(
        (LIST, f"        for _ in range(x.size(0)):\n{LIST.replace('        ', '            ')}"),
        id="for-each-step-of-a-sequence",
    ),
    pytest.param((LIST, "        x = self.blocks[1](self.blocks[0](x))\n"), id="by-numbers"),
    pytest.param(
        ("self.mlp = nn.Linear(width, width)", "self.mlp = None"),
        ("x + self.mlp(self.norm(x))", "self.norm(x)"),
        id="of-one-layer",
    ),
    pytest.param(
        ("[Block(width) for _ in range(depth)]", "[block] * depth"),
        ("        self.blocks", "        block = Block(width)\n        self.blocks"),
        id="one-block-again",
    ),
    pytest.param(
        ("        self.blocks = nn", "        if depth:\n            self.blocks = nn"),
        id="not-always-made",
    ),
]


@pytest.mark.parametrize(
    "changes", [one.values for one in NOT_ALONE], ids=[one.id for one in NOT_ALONE]
)
def test_blocks_that_a_forward_may_call_unequally_often_are_no_units(
    changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    found = outcome(tmp_path, *changes)
    texts = [one.after.decode() for one in found.changes if one.path == "main.py"]
    assert all(WHOLE in text for text in texts), texts
    assert texts or found.refusals


def test_classes_may_be_named(tmp_path: Path) -> None:
    text = migrated(tmp_path, fsdp_wrap=("Block",))
    loop = "        for block in reversed([*model.modules()]):  # those inside of others first\n"
    assert f'{loop}            if type(block).__name__ in ("Block",):\n' in text


def test_a_class_that_nobody_has_is_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, fsdp_wrap=("Blok",))
    assert any("has a class Blok" in one.message for one in found.findings)


KEPT = """\
            fully_shard(block)
            block.register_forward_pre_hook(  # weights stay for a backward only
                lambda block, _: block.set_reshard_after_forward(not is_grad_enabled())
            )
        fully_shard(model, reshard_after_forward=True)
"""
INDENTED = f"    {LOSS}"
IN_AMP = f"            with torch.autocast('cpu', dtype=torch.bfloat16):\n{INDENTED}"
SURE = [
    pytest.param((), id="plain"),
    pytest.param((LOSS, IN_AMP), id="in-a-context"),
    pytest.param((FIRST, "            model.zero_grad()\n"), id="cleared-before-the-forward"),
    pytest.param(
        (STEP, f"            with torch.no_grad():\n                model(x)\n{STEP}"),
        id="no-gradients",
    ),
    pytest.param((HITS, f"{HITS}                model.features(x)\n"), id="a-method-without"),
    pytest.param((ADAM, f"{ADAM}    print(model.size())\n"), id="a-method-that-asks"),
]


@pytest.mark.parametrize("change", [one.values[0] for one in SURE], ids=[one.id for one in SURE])
def test_blocks_may_keep_their_weights_until_a_backward(
    change: tuple[str, str], tmp_path: Path
) -> None:
    assert KEPT in migrated(tmp_path, *([change] if change else []), fsdp_reshard=False)


def test_named_classes_may_too(tmp_path: Path) -> None:
    text = migrated(tmp_path, fsdp_wrap=("Block",), fsdp_reshard=False)
    assert "\n                block.register_forward_pre_hook(" in text


LEFT = [
    pytest.param((STEP, f"            hits = model(x).argmax(1)\n{STEP}"), id="looked-at"),
    pytest.param((EVAL, EVAL + f"{' ' * 16}torch.set_grad_enabled(True)\n"), id="switched-on"),
    pytest.param(
        ("        with torch.no_grad():\n", "        if True:\n"), id="evaluated-with-gradients"
    ),
    pytest.param(
        (BACK, f"            if loss.isnan():\n                continue\n{BACK}"), id="left-out"
    ),
    pytest.param((BACK, f"            if epoch:\n    {BACK}"), id="under-a-condition"),
    pytest.param((BACK, f"            model.zero_grad()\n{BACK}"), id="cleared-between"),
    pytest.param(
        (
            BACK,
            f"            for p in model.parameters():\n                p.grad = None\n{BACK}",
        ),
        id="cleared-by-hand-between",
    ),
    pytest.param((STEP, f"            features = model.features(x)\n{STEP}"), id="a-method"),
]


@pytest.mark.parametrize("change", [one.values[0] for one in LEFT], ids=[one.id for one in LEFT])
def test_they_may_not_where_a_step_could_pass_them_by(
    change: tuple[str, str], tmp_path: Path
) -> None:
    assert not outcome(tmp_path / "plain", change).refusals
    said = [one.message for one in outcome(tmp_path, change, fsdp_reshard=False).refusals]
    assert any(" DDP908 " in message for message in said), said


COMPILED = [
    pytest.param("model = torch.compile(model)", "model._orig_mod", id="its-name"),
    pytest.param("model = torch.compile(model, backend='eager')", "model._orig_mod", id="keywords"),
    pytest.param("fast = torch.compile(model)", 'getattr(model, "_orig_mod", model)', id="other"),
    pytest.param(
        "if len(rows) > 9:\n        model = torch.compile(model)",
        'getattr(model, "_orig_mod", model)',
        id="under-a-condition",
    ),
    pytest.param("model.compile()", "model", id="in-place"),
]


@pytest.mark.parametrize(
    ("text", "inner"), [one.values for one in COMPILED], ids=[one.id for one in COMPILED]
)
def test_of_a_compiled_model_what_is_inside_is_sharded(
    text: str, inner: str, tmp_path: Path
) -> None:
    text = migrated(tmp_path, (MADE, f"{MADE}    {text}\n"))
    assert f"        fully_shard({inner}, reshard_after_forward=True)\n" in text


def test_a_compiled_one_is_left_the_second_time(tmp_path: Path) -> None:
    compiled = (MADE, f"{MADE}    model = torch.compile(model)\n")
    write(outcome(tmp_path, compiled).changes, tmp_path)
    found = migrate([tmp_path / "main.py"], Settings(strategy="fsdp"))
    assert (found.refusals, found.changes) == ((), ())


def test_of_one_that_is_compiled_later_too(tmp_path: Path) -> None:
    text = migrated(tmp_path, (ADAM, f"{ADAM}    model = torch.compile(model)\n"))
    assert SHARDS in text


def test_an_option_for_blocks_says_when_there_are_none(tmp_path: Path) -> None:
    without = (LIST, "        x = self.blocks[1](self.blocks[0](x))\n")
    found = outcome(tmp_path, without, fsdp_reshard=False, fsdp_recompute=True)
    said = [one.message for one in found.findings if "nothing repeats" in one.message]
    assert [message.split()[-3] for message in said] == ["--fsdp-recompute", "--no-fsdp-reshard"]
    assert "is_grad_enabled" not in found.changes[0].after.decode()


@pytest.mark.parametrize(
    "chosen",
    [
        {"strategy": "ddp", "fsdp_bf16": True},
        {"strategy": "ddp", "fsdp_reshard": False},
        {"strategy": "ddp", "fsdp_wrap": ("Block",)},
        {"strategy": "fsdp", "bucket_cap": 5},
    ],
)
def test_an_option_of_the_other_strategy_is_refused(chosen: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="goes with strategy"):
        checked(Settings(**chosen), "")  # type: ignore[arg-type]


def test_the_last_batch_is_averaged_too(tmp_path: Path) -> None:
    """What was added and not averaged outlives zero_grad(): ratio 2.0 measured with torch 2.13."""
    text = migrated(
        tmp_path,
        ("for x, y in loader:", "for i, (x, y) in enumerate(loader):"),
        (STEP, f"            if (i + 1) % 4 == 0:\n    {STEP}"),
        (FIRST, f"            if i % 4 == 0:\n    {FIRST}"),
        (LOSS, LOSS.replace("loss(", "loss(").replace("y)\n", "y) / 4\n")),
    )
    assert "sync=(i + 1) % 4 == 0 or i == len(loader) - 1):" in text


def test_a_method_that_computes_is_registered(tmp_path: Path) -> None:
    text = migrated(tmp_path, (HITS, f"{HITS}                model.features(x)\n"))
    assert f'{SHARDS}    register_fsdp_forward_method(model, "features")\n' in text


_FEATURES = "    def features(self, x):\n        return self.stem(x)\n"
_BODIES = {
    "a-loop": "        for block in self.blocks:\n            x = block(x)\n        return x\n",
    "a-name": "        first = self.stem\n        return first(x)\n",
    "given-away": "        return torch.utils.checkpoint.checkpoint(self.stem, x)\n",
    "a-parameter": "        return x + self.shift\n",
}


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_however_it_computes(body: str, tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        (_FEATURES, f"    def features(me, x):\n{body.replace('self', 'me')}"),
        (
            "        self.head = nn",
            f"        self.shift = nn.Parameter(torch.zeros(5))\n{HEAD}",
        ),
        ("        x = self.stem(x)\n", "        x = self.stem(x + self.shift)\n"),
        (HITS, f"{HITS}                model.features(x)\n"),
    )
    assert f'{SHARDS}    register_fsdp_forward_method(model, "features")\n' in text


_LIKE = "        return next(self.parameters()).new_zeros(3)\n"
_WITHOUT_BLOCKS = (
    ("        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])\n", ""),
    (LIST, ""),
)


@pytest.mark.parametrize("like", [_LIKE, _LIKE.replace("new_zeros(3)", "new(3).zero_()")])
def test_a_method_that_makes_tensors_like_a_weight_is_registered(like: str, tmp_path: Path) -> None:
    """Of a model without blocks, whose first weight may not be the model's own."""
    text = migrated(
        tmp_path,
        (_FEATURES, f"    def features(self, x):\n{like}"),
        (HITS, f"{HITS}                model.features(x)\n"),
        *_WITHOUT_BLOCKS,
    )
    assert f'{WHOLE}    register_fsdp_forward_method(model, "features")\n' in text


_OTHER = """\
class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(x)


"""


def test_a_method_that_one_of_two_models_has_is_registered_for_it(tmp_path: Path) -> None:
    chosen = "    model = Bare() if {} else Net(8, 2)\n"
    changes = [("def main():\n", f"{_OTHER}def main():\n"), (MADE, chosen.format("len(rows) < 9"))]
    calls = f"{HITS}                if len(rows) > 8:\n                    model.features(x)\n"
    text = migrated(tmp_path, *changes, (HITS, calls))
    register = 'register_fsdp_forward_method(model, "features")'
    assert f'    if hasattr(model, "features"):\n        {register}\n' in text


def test_a_sample_without_a_backward_gets_one_that_adds_nothing(tmp_path: Path) -> None:
    own = (BACK, "            if y.item() != 2:\n                (loss / 8).backward()\n")
    changes = (*BY_ONE, own)
    text = migrated(tmp_path, *changes)
    assert f"            with backward_on_all(model):\n    {LOSS}" in text
    assert "                if y.item() != 2:\n" in text
    (tmp_path / "again").mkdir()
    write(outcome(tmp_path / "again", *changes).changes, tmp_path / "again")
    assert migrate([tmp_path / "again" / "main.py"], Settings(strategy="fsdp")).changes == ()


BY_ONE = (
    ("for x, y in loader:", "for i, (x, y) in enumerate(loader):"),
    ("batch_size=8", "batch_size=1"),
    (FIRST, ""),
    (STEP, f"            if (i + 1) % 8 == 0:\n    {STEP}    {FIRST}"),
)


@pytest.mark.parametrize(
    "body",
    [
        "            if torch.isfinite(loss):\n                (loss / 8).backward()\n",
        "            if y.item() != 2:\n                (loss / 8).backward()\n"
        "                epochs += 1\n",
        "            if y.item() != 2:\n                (loss / 8).backward()\n"
        "                losses.append(loss.item())\n",
        "            if y.item() != 2:\n                (loss / 8).backward()\n"
        "            else:\n                epochs += 1\n",
        "            if y.item() != 2:\n                (loss / 8).backward()\n"
        "                model.seen += 1\n",
    ],
    ids=["decided-by-the-loss", "counted-over-passes", "kept-in-a-list", "left-out", "by-a-model"],
)
def test_a_sample_without_a_backward_may_not_decide_more(body: str, tmp_path: Path) -> None:
    begun = (ADAM, f"{ADAM}    epochs, losses = 0, []\n")
    shown = (SAVE, f"{SAVE}    print(epochs, losses)\n")
    found = outcome(tmp_path, *BY_ONE, begun, shown, (BACK, body))
    assert any(" DDP404 " in one.message for one in found.refusals), found.refusals


def test_the_state_of_a_part_is_whole_too(tmp_path: Path) -> None:
    part = 'torch.save(model.head.state_dict(), "head.pt")\n'
    text = migrated(
        tmp_path,
        (SAVE, f"{SAVE}    {part}    model.stem.load_state_dict(torch.load('stem.pt'))\n"),
    )
    assert 'save_on_main(unsharded(model.head).state_dict(), "head.pt")' in text
    assert "unsharded(model.stem).load_state_dict(" in text


_STATES = '{"model": model.state_dict(), "adam": optimizer.state_dict()}'


def test_a_pickled_model_is_a_whole_one(tmp_path: Path) -> None:
    pickled = (_STATES, "model")
    assert 'save_on_main(whole_model(model), "last.pt")' in migrated(tmp_path, pickled)
    assert outcome(tmp_path, pickled, fsdp_recompute=True).refusals
    compiled = (MADE, f"{MADE}    model = torch.compile(model)\n")
    assert outcome(tmp_path, pickled, compiled).refusals


def test_a_norm_that_is_shown_is_whole(tmp_path: Path) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    text = migrated(tmp_path, (STEP, f"            norm = {clip}\n            {clip}\n{STEP}"))
    assert f"norm = whole_tensor({clip})\n            {clip}\n" in text


def test_states_that_are_kept_are_whole_everywhere(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        (
            SAVE,
            f"{BEST}    model.load_state_dict(best)\n{SAVE}",
        ),
    )
    assert "copy.deepcopy(unsharded(model, everywhere=True).state_dict())" in text
    assert "unsharded(model).load_state_dict(best)" in text


ALIAS = (
    (MADE, "    net = Net(8, 2)\n    model = nn.DataParallel(net)\n"),
    ('"model": model.state_dict()', '"model": net.state_dict()'),
)


def test_a_name_from_before_is_of_the_same_shards(tmp_path: Path) -> None:
    text = migrated(tmp_path, *ALIAS, (ADAM, f"    net.load_state_dict(net.state_dict())\n{ADAM}"))
    assert '"model": unsharded(net).state_dict()' in text


def test_what_is_asked_of_a_setting_is_the_same_on_each_rank(tmp_path: Path) -> None:
    """A layer that a rank may leave out is refused; one that no rank uses, or all, is not."""
    asked = "        x = self.stem(x) if {} else x\n"
    changes = [("        x = self.stem(x)\n", asked.format(test)) for test in _ASKED]
    by_setting, by_sample = (outcome(tmp_path / str(n), change) for n, change in enumerate(changes))
    assert not by_setting.refusals
    assert any(" DDP308 " in one.message for one in by_sample.refusals)


_ASKED = ("self.head is not None", "x.sum() > 0")
FINE = [
    pytest.param(
        (
            MADE,
            f"{MADE}{COUNTED}",
        ),
        id="counted-and-shown",
    ),
    pytest.param(
        (
            "        self.head = nn",
            f"        self.more = nn.Parameter({COPY})\n{HEAD}",
        ),
        id="a-copy-is-no-view",
    ),
    pytest.param((FIRST, f"{EACH}                p.grad = None\n"), id="cleared-by-hand"),
    pytest.param((ADAM, f"    print(model.size())\n{ADAM}"), id="numbers-of-weights"),
    pytest.param(
        (
            STEP,
            f"{STEP}{EACH}                p.data.clamp_(-1, 1)\n",
        ),
        id="entry-by-entry",
    ),
    pytest.param(
        (BACK, "            loss.backward(retain_graph=True)\n            (loss * 2).backward()\n"),
        id="two-backwards",
    ),
    pytest.param(
        (
            FIRST,
            f"{EACH}                p.requires_grad = epoch > 0\n{FIRST}",
        ),
        id="unfrozen-later",
    ),
]


@pytest.mark.parametrize("change", [one.values[0] for one in FINE], ids=[one.id for one in FINE])
def test_what_is_the_same_of_shards_is_left(change: tuple[str, str], tmp_path: Path) -> None:
    text = migrated(tmp_path, change)
    assert change[1].splitlines()[-1].strip().replace("(loss * 2).backward()", "loss * 2") in text
    assert "average_gradients" not in text


@pytest.mark.parametrize(
    "change",
    [
        (HITS, f"{HITS}                if hits > 9:\n                    break\n"),
        (HITS, f"                while x.sum() > 0:\n{AGAIN}{HITS}"),
    ],
    ids=["early-end", "as-often-as-samples-say"],
)
def test_where_ranks_evaluate_all_they_are_even(change: tuple[str, str], tmp_path: Path) -> None:
    text = migrated(tmp_path, change)
    assert "evaluation_share" not in text
    assert "even_batches" not in text


REFUSED = [
    pytest.param("DDP907", (ADAM, f"{ADAM}    ema = copy.deepcopy(model)\n"), id="copied"),
    pytest.param(
        "DDP907",
        (
            BACK,
            f"            loss = loss + sum(p.pow(2).sum() for p in model.parameters())\n{BACK}",
        ),
        id="penalty",
    ),
    pytest.param(
        "DDP907",
        (STEP, f"            print(model.head.weight.grad.norm().item())\n{STEP}"),
        id="own-norm",
    ),
    pytest.param(
        "DDP907",
        (
            STEP,
            f"{STEP}{EACH}                p.data = p.data * 0.9\n",
        ),
        id="stored",
    ),
    pytest.param(
        "DDP907",
        ("def main():\n", f"{OWN}def main():\n"),
        ("torch.optim.AdamW(", "Own("),
        (STEP, f"            optimizer.climb()\n{LOSS}{BACK}            optimizer.descend()\n"),
        id="own-optimizer",
    ),
    pytest.param("DDP907", ("torch.optim.AdamW(", "torch.optim.Adafactor("), id="optimizer"),
    *(
        pytest.param("DDP907", (MADE, f"{MADE}    {text}\n"), id=name)
        for name, text in (
            ("one-graph", "model = torch.compile(model, fullgraph=True)"),
            ("one-graph-in-place", "model.compile(fullgraph=True)"),
            ("cuda-graphs", "model = torch.compile(model, mode='reduce-overhead')"),
            (
                "options-of-compile",
                "model = torch.compile(model, options={'triton.cudagraphs': 1})",
            ),
            ("compiled-in-part", "model.head = torch.compile(model.head)"),
        )
    ),
    pytest.param(
        "DDP907",
        (MADE, f"{MADE}    model = torch.compile(model)\n"),
        (HITS, f"{HITS}                model.features(x)\n"),
        id="compiled-with-methods",
    ),
    pytest.param(
        "DDP907",
        (MADE, f"{MADE}    model = torch.compile(model)\n"),
        ('"model": model.state_dict()', '"model": model._orig_mod.state_dict()'),
        id="inside-of-the-compiled",
    ),
    pytest.param(
        "DDP904",
        (
            'torch.save({"model": model.state_dict(), "adam": optimizer.state_dict()}',
            'torch.save({"model": model}',
        ),
        id="pickled-in-a-dict",
    ),
    pytest.param(
        "DDP901",
        ("        return self.head(x)\n", "        return SimpleNamespace(out=self.head(x))\n"),
        ("import copy\n", "import copy\nfrom types import SimpleNamespace\n"),
        ("(model(x), y)", "(model(x).out, y)"),
        ("(model(x).argmax(1)", "(model(x).out.argmax(1)"),
        id="outputs-in-an-object",
    ),
    pytest.param(
        "DDP901",
        (
            "        return sum(p.numel() for",
            "        return next(self.parameters()).new_zeros(3)\n"
            "        return sum(p.numel() for",
        ),
        (ADAM, f"{ADAM}    print(model.size())\n"),
        id="made-like-a-weight",
    ),
    *(
        pytest.param(
            "DDP907",
            (
                "        self.head = nn",
                f"        self.more = nn.Parameter({made})\n        self.head = nn",
            ),
            ("        return self.head(x)\n", "        return self.head(x) * self.more.mean()\n"),
            id=name,
        )
        for name, made in (
            ("no-dimension", "torch.tensor(0.5)"),
            ("none-either", "torch.ones([]) * 2.0"),
            ("a-view", "self.stem.weight.t()"),
        )
    ),
    pytest.param(
        "DDP907",
        ("import copy\n", f"import copy\n{WRITER}"),
        (STEP, f"{STEP}{EACH}                writer.add_histogram('p', p, epoch)\n"),
        id="histograms",
    ),
    pytest.param("DDP907", (STEP, f"{STEP}            print(model.head.bias)\n"), id="shown"),
    pytest.param(
        "DDP907", (STEP, f"{STEP}            y = float(model.head.bias[0])\n"), id="a-number"
    ),
    pytest.param(
        "DDP907",
        (SAVE, "    pickle.dump(model, open('m', 'wb'))\n"),
        ("import copy\n", "import copy\nimport pickle\n"),
        id="pickled-otherwise",
    ),
    pytest.param(
        "DDP907",
        (ADAM, f"{ADAM}{SWA}"),
        id="averaged",
    ),
    pytest.param(
        "DDP405",
        (
            LOSS,
            "            x.requires_grad_(True)\n            out = model(x)\n"
            "            slope = torch.autograd.grad(out.sum(), x, None, True, True)[0]\n"
            "            loss = nn.functional.cross_entropy(out, y) + slope.pow(2).sum(1).mean()\n",
        ),
        id="gradient-of-gradients-by-place",
    ),
    pytest.param(
        "DDP308",
        (
            "        self.head = nn",
            f"        self.aux = nn.Linear(width, width)\n{HEAD}",
        ),
        (
            "        x = self.stem(x)\n",
            "        x = self.stem(x)\n        if x.sum() > 0:\n            return self.head(x)\n"
            "        if self.training:\n            x = self.aux(x)\n",
        ),
        id="a-setting-after-a-sample",
    ),
    pytest.param(
        "DDP907",
        (STEP, f"{STEP}            add = getattr(loader, 'add')\n{EACH}                add(p)\n"),
        id="by-another-name",
    ),
    pytest.param(
        "DDP904",
        (SAVE, "    torch.save([p.detach().clone() for p in model.parameters()], 'mean.pt')\n"),
        id="copies-in-a-file",
    ),
    pytest.param(
        "DDP901",
        (BACK, f"            loss = loss + model.penalty()\n{BACK}"),
        id="method-on-weights",
    ),
    pytest.param(
        "DDP901", (HITS, f"{HITS}                model.stem(x)\n"), id="layer-from-outside"
    ),
    pytest.param(
        "DDP909",
        (
            LOSS,
            f"            for k in range(int(x.abs().sum())):\n{AGAIN}{LOSS}",
        ),
        id="as-often-in-training",
    ),
    pytest.param(
        "DDP308",
        (
            LIST,
            f"{OVER}            if torch.rand(1) > 0.5:\n                x = block(x)\n",
        ),
        id="left-out-at-random",
    ),
    pytest.param(
        "DDP405",
        (
            LOSS,
            "            x.requires_grad_(True)\n            out = model(x)\n"
            "            slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]\n"
            "            loss = nn.functional.cross_entropy(out, y) + slope.pow(2).sum(1).mean()\n",
        ),
        id="gradient-of-gradients",
    ),
]


@pytest.mark.parametrize(
    ("rule", "changes"),
    [(one.values[0], one.values[1:]) for one in REFUSED],
    ids=[one.id for one in REFUSED],
)
def test_what_goes_wrong_with_shards_is_refused(
    rule: str, changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    said = [one.message for one in outcome(tmp_path, *changes).refusals]
    assert any(f" {rule} " in message for message in said), said


BUILT = """\
    with built_on_main():
        model = Net(8, 2)
    if is_distributed():
        for block in model.blocks:
            ready_to_shard(block)
            fully_shard(block)
        ready_to_shard(model)
        fully_shard(model, reshard_after_forward=True)
"""
DRAWN = "    for p in model.parameters():\n        nn.init.normal_(p)\n"
CUDA = "    model.to(torch.device('cuda'))\n"


def test_a_model_may_be_built_on_one_rank(tmp_path: Path) -> None:
    assert BUILT + ADAM in migrated(tmp_path, fsdp_meta=True)
    assert "built_on_main" not in migrated(tmp_path)


def test_what_changes_a_model_is_where_it_is_built(tmp_path: Path) -> None:
    text = migrated(tmp_path, (MADE, MADE + DRAWN + CUDA), fsdp_meta=True)
    built = (
        "    with built_on_main():\n        model = Net(8, 2)\n        for p in model.parameters"
    )
    assert built in text
    assert "        model.to(torch.device('cuda'))\n    if is_distributed():\n" in text


def test_with_it_again_there_is_nothing_to_do(tmp_path: Path) -> None:
    write(outcome(tmp_path, fsdp_meta=True).changes, tmp_path)
    found = migrate([tmp_path / "main.py"], Settings(strategy="fsdp", fsdp_meta=True))
    assert (found.refusals, found.changes) == ((), ())


ENDS = "        self.head = nn.Linear(width, 3)\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((ENDS, f"{ENDS}        self.r = torch.linspace(0, 1, depth)[0].item()\n"), "not known"),
        ((ENDS, f"{ENDS}        self.r = torch.load('r.pt')\n"), "not known"),
        ((ENDS, f"{ENDS}        self.head.weight.data = torch.eye(3, width)\n"), "sets `.data`"),
        ((ENDS, f"{ENDS}        self.pos = torch.randn(width)\n"), "is no buffer"),
        ((ENDS, f"{ENDS}        self.pos = [torch.ones(width) for _ in (1, 2)]\n"), "is no buffer"),
        ((ENDS, f"{ENDS}        self.to(torch.device('cuda'))\n"), "moves what it makes"),
        ((ENDS, ENDS.replace("3)", "3, device='cuda')")), "says a device"),
        ((MADE, MADE + CUDA + DRAWN), "on the device"),
        ((MADE, f"{MADE}    model.to_empty(device='cuda')\n"), "gives it memory"),
        ((MADE + ADAM, f"    for _ in range(2):\n    {MADE}    {ADAM}"), "in a loop"),
    ],
)
def test_what_shapes_do_not_do_for_is_refused(
    change: tuple[str, str], why: str, tmp_path: Path
) -> None:
    found = outcome(tmp_path / "one", change, fsdp_meta=True)
    assert any(why in one.message for one in found.refusals)
    without = outcome(tmp_path / "two", change).refusals
    assert not any(why in one.message for one in without)


STEM_MADE = "        self.stem = nn.Linear(5, width)\n"
STEM_CALL = "        x = self.stem(x)\n"
HEAD_MADE = "        self.head = nn.Linear(width, 3)\n"
INIT = "        nn.init.zeros_(self.head.weight)\n"
TIE = "        self.tied = nn.Linear(5, width)\n        self.tied.weight = self.stem.weight\n"
READ = "    def penalty(self):\n        return self.head.weight.pow(2).sum()\n\n\n"
NO_READ = (READ, "\n")
OTHERWISE = (
    f"        if depth > 1:\n    {STEM_MADE}        else:\n            self.stem = nn.Identity()\n"
)
TWICE = "        for _ in range(2):\n            y = self.stem(x)\n        x = y\n"
PARTS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "all": ([NO_READ], "model.stem, model.head"),
    "read": ([], "model.stem,"),
    "initialised": ([NO_READ, (HEAD_MADE, HEAD_MADE + INIT)], "model.stem, model.head"),
    "tied": (
        [
            NO_READ,
            (HEAD_MADE, HEAD_MADE + TIE),
            (
                "        return self.head(x)\n",
                "        return self.head(x) + self.tied(x[:, :5]).mean()\n",
            ),
        ],
        "model.head,",
    ),
    "in-a-loop": ([NO_READ, (STEM_CALL, TWICE)], "model.head,"),
    "one-of-two": ([NO_READ, (STEM_MADE, OTHERWISE)], "model.head,"),
}


@pytest.mark.parametrize("kind", PARTS)
def test_only_parts_that_each_forward_calls_as_a_whole_are_units_by_size(
    kind: str, tmp_path: Path
) -> None:
    changes, named = PARTS[kind]
    text = migrated(tmp_path, *changes, fsdp_min_params=20)
    assert f"for part in ({named})" in flat(text)
    assert "numel() for p in part.parameters() if not isinstance(p, DTensor)" in text


def flat(code: str) -> str:
    """In one line, without what a line of many entries ends with."""
    return " ".join(code.split()).replace("( ", "(").replace(", )", ")")


def test_a_part_that_returns_an_object_is_no_unit_by_size(tmp_path: Path) -> None:
    """Its backward would not be told to gather the weights."""
    made = """class Out:
    def __init__(self, x):
        self.x = x


class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide = nn.Linear(5, width)

    def forward(self, x):
        return Out(self.wide(x))


class Net("""
    changes = [
        ("class Net(", made),
        (STEM_MADE, "        self.stem = Stem(width)\n"),
        (STEM_CALL, "        x = self.stem(x).x\n"),
    ]
    text = migrated(tmp_path, *changes, fsdp_min_params=20)
    assert "for part in (model.stem.wide,)" in flat(text)


def test_no_part_is_looked_for_without_a_size(tmp_path: Path) -> None:
    assert "for part in" not in migrated(tmp_path)


PAIR = """class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Linear(5, width)

    def forward(self, x):
        return self.one(x)


class Net("""
LOOKS = """    def look(self, x):
        pair = self.pair
        one = pair.one
        return one(x)

    def size(self):
"""
COUNTS_THEM = """    def look(self, x):
        cfg = self.config
        rows, columns = cfg.rows, cfg.columns
        return rows * columns

    def size(self):
"""


@pytest.mark.parametrize(
    ("made", "method", "registered"),
    [
        ("        self.pair = Pair(width)\n", LOOKS, True),
        ("        self.config = torch.load('config.pt')\n", COUNTS_THEM, False),
        ("        self.pair = torch.load('pair.pt')\n", LOOKS, True),
    ],
    ids=["layer", "numbers", "unknown"],
)
def test_what_a_method_gets_from_a_part_of_its_own_is_a_layer_where_it_is_called(
    made: str, method: str, registered: bool, tmp_path: Path
) -> None:
    changes = [
        ("class Net(", PAIR),
        (STEM_MADE, STEM_MADE + made),
        ("    def size(self):\n", method),
        (STEP, f"{STEP}            model.look(x)\n"),
    ]
    found = outcome(tmp_path, *changes)
    text = "".join(one.after.decode() for one in found.changes if one.path == "main.py")
    asked = any(one.rule == "DDP901" for one in found.findings)
    assert (asked or 'register_fsdp_forward_method(model, "look")' in text) == registered
    assert found.refusals or text
