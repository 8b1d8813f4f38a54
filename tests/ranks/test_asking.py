"""What rules ask of a run: the loops that train, what stands around a call, what a round does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.ranks.run import Run
from tests.ranks.test_reading import run_of

PROGRAM = """
def free(really=True):
{helper}
    dist.barrier()

def main(args):
    model = DDP(torch.nn.Linear(4, 4))
    loader = DataLoader(list(range(8)))
    for epoch in range(args.epochs):
        for x in loader:
{before}
            model(x).sum().backward()
{after}

if __name__ == "__main__":
    main(argparse.ArgumentParser().parse_args())
"""


def asked(folder: Path, before: str = "pass", after: str = "pass", helper: str = "pass") -> Run:
    parts = {"before": " " * 12 + before, "after": " " * 12 + after, "helper": " " * 4 + helper}
    return run_of(folder, PROGRAM.format(**parts))


def test_the_pass_is_the_loop_over_the_batches_and_knows_its_epochs(tmp_path: Path) -> None:
    (found,) = asked(tmp_path).passes
    assert found.loop.over is not None
    assert found.epochs is not None
    assert found.loop.site.within(found.epochs.site)
    assert found.loop is not found.epochs


@pytest.mark.parametrize(
    ("parts", "every"),
    [
        ({"after": "dist.barrier()"}, True),
        ({"after": "free()"}, True),
        ({"before": "free()"}, True),
        ({"after": "x.some() and dist.barrier()"}, False),
        ({"after": "if x.big(): dist.barrier()"}, False),
        ({"after": "if x.big(): free()"}, False),
        ({"after": "free()", "helper": "if unknown(): return"}, False),
        ({"before": "if x.big(): continue", "after": "dist.barrier()"}, False),
        ({"before": "if x.big(): break", "after": "dist.barrier()"}, True),
        (
            {
                "before": "for y in x.parts():\n                if y: continue",
                "after": "dist.barrier()",
            },
            True,
        ),
    ],
)
def test_a_call_of_every_round(parts: dict[str, str], every: bool, tmp_path: Path) -> None:
    run = asked(tmp_path, **parts)
    (loop,) = (one.loop for one in run.passes)
    calls = [call for call in run.calls if call.method == "barrier"]
    assert [run.in_every_round(call, loop) for call in calls] == [every]


def test_conditions_in_a_loop_are_not_those_around_it(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        """
def step(x, args):
    if args.quick:
        dist.barrier()

if __name__ == "__main__":
    args = argparse.ArgumentParser().parse_args()
    if args.train:
        for x in args.data:
            if x:
                step(x, args)
""",
    )
    (call,) = (call for call in run.calls if call.method == "barrier")
    (loop,) = call.loops
    assert [one.text for one in call.conditions_in(loop)] == ["x", "args.quick"]
    assert [one.text for one in call.conditions] == ["args.train", "x", "args.quick"]
    assert [one.starts_script for one in call.guards] == [True, False, False, False]
