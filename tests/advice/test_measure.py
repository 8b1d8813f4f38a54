"""What is measured of small models, compared with what can be counted by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ddpify.verify.measure import measure
from ddpify.verify.options import Options
from ddpify.verify.run import VerifyError
from tests.advice.programs import PARALLEL, TRAIN, changed
from tests.projects import put

pytestmark = [pytest.mark.training, pytest.mark.spread]
PARAMETERS = 4 * (10 * 20 + 20 + 20 * 5 + 5)
GAN = changed(
    TRAIN,
    ("    criterion = ", "    other = nn.Linear(5, 3)\n    criterion = "),
    (
        "    for epoch in",
        "    second = torch.optim.Adam(other.parameters())\n    for epoch in",
    ),
    (
        "            optimizer.step()\n",
        "            optimizer.step()\n            optimizer.step()\n"
        "            other(model(inputs).detach()).sum().backward()\n            second.step()\n",
    ),
)


def options(folder: Path, text: str, *arguments: str) -> Options:
    put({"train.py": text}, folder / "project")
    return Options(script=folder / "project" / "train.py", arguments=arguments, timeout=60)


@pytest.mark.parametrize("text", [TRAIN, PARALLEL], ids=["plain", "data-parallel"])
def test_a_perceptron_by_hand(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    found = measure(options(tmp_path, text, "--batch-size", "16"))
    assert found.parameters == found.trainable == found.gradients == found.state == PARAMETERS
    assert (found.batch, found.batch_size, found.samples, found.batches) == (16, 16, 36, 3)
    assert found.inputs == 16 * (10 * 4 + 8), "inputs and targets"
    assert found.saved == 16 * 20 * 4, "the output of ReLU, which the second layer keeps too"
    assert (found.outputs, found.shared) == (16 * 5 * 4, 0)
    assert found.loss == 16 * 5 * 4 + 4, "log-softmax, and the sum of the weights"
    assert (found.buffers, found.allocated, found.device) == (0, 0, "cpu")
    assert found.command == "python train.py --batch-size 16"
    assert (found.passes, found.capacity) == (1, 0)
    assert [(one.name, one.kinds, one.rows, one.size) for one in found.weights] == [
        ("0.weight", ("Sequential", "Linear"), 20, 4 * 200),
        ("0.bias", ("Sequential", "Linear"), 20, 4 * 20),
        ("2.weight", ("Sequential", "Linear"), 5, 4 * 100),
        ("2.bias", ("Sequential", "Linear"), 5, 4 * 5),
    ], "without what DataParallel puts before"
    assert all(one.size == one.gradient == one.state for one in found.weights)
    assert all((one.element, one.trained, one.scalars) == (4, True, 0) for one in found.weights)
    assert sorted(p.name for p in (tmp_path / "project").iterdir()) == [
        "requirements.txt",
        "train.py",
    ]
    assert not list((tmp_path / "scratch").glob("ddpify-*"))


def test_what_the_module_returns_and_keeps_is_shared(tmp_path: Path) -> None:
    text = changed(
        TRAIN,
        ("nn.Linear(20, 5))", "nn.Linear(20, 5), nn.BatchNorm1d(5), nn.Sigmoid())"),
        (
            "optim.SGD(model.parameters(), lr=0.1, momentum=args.momentum)",
            "optim.AdamW(model.parameters())",
        ),
    )
    found = measure(options(tmp_path, text))
    per_sample = 4 * 20 + 4 * 5 + 4 * 5  # ReLU's output, batch norm's input, the sigmoid's output
    assert found.saved == 8 * per_sample + 2 * 5 * 4, "and mean and deviation of the batch"
    assert found.outputs == found.shared == 8 * 5 * 4
    assert found.buffers == 2 * 5 * 4 + 8, "running mean and variance, and the count"
    assert found.state == 2 * (PARAMETERS + 2 * 5 * 4) + 6 * 4


def test_every_optimizer_is_waited_for(tmp_path: Path) -> None:
    found = measure(options(tmp_path, GAN))
    other = 4 * (5 * 3 + 3)
    assert found.parameters == found.gradients == PARAMETERS + other
    assert found.state == PARAMETERS + 2 * other + 2 * 4
    kept = {(one.name, one.model): (one.state, one.scalars) for one in found.weights}
    assert len(kept) == 6
    assert {model for _, model in kept} == {0, 1}
    assert sum(state + scalars for state, scalars in kept.values()) == found.state


def test_frozen_parameters_have_no_gradients(tmp_path: Path) -> None:
    text = changed(
        TRAIN,
        (
            "    criterion = ",
            "    model[0].requires_grad_(False)\n    criterion = ",
        ),
    )
    found = measure(options(tmp_path, text))
    assert found.parameters == PARAMETERS
    assert found.trainable == found.gradients == found.state == 4 * (20 * 5 + 5)
    assert found.saved == 8 * 20 * 4, "the input of the layer that learns"
    assert [(one.trained, one.gradient) for one in found.weights] == [
        (False, 0),
        (False, 0),
        (True, 400),
        (True, 20),
    ]


def test_tied_weights_count_once_and_those_without_a_shape_not(tmp_path: Path) -> None:
    text = changed(
        TRAIN,
        (
            "    criterion = ",
            "    holder = nn.Module()\n"
            "    holder.model = holder.again = model\n"
            "    holder.unused = nn.LazyLinear(3)\n"
            "    criterion = ",
        ),
    )
    found = measure(options(tmp_path, text))
    assert found.parameters == PARAMETERS
    names = [one.name for one in found.weights]
    assert names == [f"model.{n}.{kind}" for n in (0, 2) for kind in ("weight", "bias")]


def test_backwards_of_a_step_are_counted(tmp_path: Path) -> None:
    text = changed(
        TRAIN,
        ("for inputs, targets in loader:", "for i, (inputs, targets) in enumerate(loader):"),
        ("            optimizer.zero_grad()\n", ""),
        (
            "            optimizer.step()\n",
            "            if (i + 1) % 3 == 0:\n"
            "                optimizer.step()\n"
            "                optimizer.zero_grad()\n",
        ),
        ("batch_size=args.batch_size", "batch_size=4"),
    )
    assert measure(options(tmp_path, text)).passes == 3


def test_the_run_goes_on_as_it_would(tmp_path: Path) -> None:
    """Watching what is kept does not change what is computed: also second derivatives."""
    text = changed(
        TRAIN,
        (
            "            loss.backward()\n",
            "            (g,) = torch.autograd.grad(loss, inputs, create_graph=True)\n"
            "            (loss + g.pow(2).sum()).backward()\n"
            "            total = sum(p.grad.double().abs().sum() for p in model.parameters())\n"
            "            open('seen.txt', 'a').write(f'{total.item():.17g}\\n')\n"
            "            if total < 0: raise SystemExit(3)\n"
            "            torch.save(total, 'total.pt')\n"
            "            assert abs(total.item() - WANTED) < 1e-12, total.item()\n"
            "            raise SystemExit(0)\n",
        ),
        ("optimizer.zero_grad()", "optimizer.zero_grad(); inputs.requires_grad_()"),
    )
    import subprocess
    import sys

    bare = put({"train.py": text.replace("WANTED", "total.item()")}, tmp_path / "bare")
    subprocess.run([sys.executable, "train.py"], cwd=bare, check=True)
    wanted = (bare / "seen.txt").read_text().strip()
    with pytest.raises(VerifyError, match="took no optimizer step"):
        measure(options(tmp_path, text.replace("WANTED", wanted)))
    with pytest.raises(VerifyError, match="fails by itself"):
        measure(options(tmp_path / "b", text.replace("WANTED", f"({wanted} + 1)")))


def test_a_script_that_fails_says_so(tmp_path: Path) -> None:
    text = changed(TRAIN, ("loss.backward()", "raise RuntimeError('no more')"))
    with pytest.raises(VerifyError, match=r"(?s)the original fails by itself.*no more"):
        measure(options(tmp_path, text))


def test_an_interpreter_without_torch_is_named(tmp_path: Path) -> None:
    given = options(tmp_path, TRAIN)
    with pytest.raises(VerifyError, match="cannot be started"):
        measure(Options(script=given.script, python=str(tmp_path / "none")))
