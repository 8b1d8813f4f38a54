"""Which rule a failure is put down to; tests/verify/hazards has the programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpify.rules.base import Finding, Severity
from ddpify.source import Site, Span
from ddpify.verify.evidence import CheckpointPair, Evidence, Text
from ddpify.verify.recording import (
    Backward,
    CollectiveRecord,
    EndRecord,
    EventRecord,
    Fetch,
    ForwardRecord,
    Loaded,
    NoiseRecord,
    Optimizer,
    Parameter,
    RunRecord,
)
from tests.verify.factories import (
    BEFORE,
    NAMES,
    PARAMETERS,
    PerRank,
    batches,
    causes,
    change,
    collective,
    evidence,
    job,
    probe,
    ranks,
    reference,
    rules,
    split,
    spoiled,
)


def _adding(run: RunRecord, *events: EventRecord) -> RunRecord:
    return replace(run, events=(*run.events, *events))


def _apart(run: RunRecord, *names: str, start: bool = False) -> RunRecord:
    """Its parameters are none of another rank's."""

    def own(digests: Sequence[str]) -> tuple[str, ...]:
        pairs = zip(NAMES, digests, strict=True)
        return tuple(f"{d} of {run.rank}" if n in (names or NAMES) else d for n, d in pairs)

    steps = tuple(replace(step, digests=own(step.digests)) for step in run.steps)
    first = run.optimizers[0]
    optimizers = (replace(first, initial_digests=own(first.initial_digests)),)
    return replace(run, steps=steps, optimizers=optimizers if start else run.optimizers)


def test_nothing_is_the_cause_of_nothing() -> None:
    assert causes(evidence()) == ()


def test_what_is_not_recognised_has_no_cause() -> None:
    runs = spoiled(ranks(), 0, stdout="another program\n")
    assert causes(evidence(spoiled(runs, 1, status="ValueError: odd", exit_code=1))) == ()


def test_a_cause_has_the_rules_words_and_the_sites_of_check() -> None:
    site = Site("train.py", Span(7, 4, 7, 9))
    findings = (
        Finding("DDP401", site, "the loss is a sum", Severity.ERROR),
        Finding("DDP501", site, "prints", Severity.WARNING),
    )
    (cause,) = causes(evidence(ranks(gradient=0.5), findings=findings))
    assert (cause.rule, cause.title) == ("DDP401", "Loss no mean")
    assert "averages the ranks" in cause.why
    assert "0.5 times that of one process" in cause.evidence
    assert cause.sites == ("train.py:7: the loss is a sum",)


def _finding(rule: str, line: int) -> Finding:
    return Finding(rule, Site("train.py", Span(line, 4, line, 9)), "…", Severity.ERROR)


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        ((), "DDP404"),
        ((_finding("DDP501", 3),), "DDP404"),
        ((_finding("DDP801", 30),), "DDP801"),
        ((_finding("DDP801", 9), _finding("DDP803", 30)), "DDP803"),  # the place that was measured
        ((_finding("DDP801", 9), _finding("DDP404", 8)), "DDP404"),
        ((_finding("DDP808", 30),), "DDP808"),  # any of collectives, at that place
        ((_finding("DDP808", 3),), "DDP404"),  # and not elsewhere
    ],
)
def test_a_cause_has_the_name_that_check_has_for_it(found: tuple[Finding, ...], rule: str) -> None:
    call = CollectiveRecord(6, 1.0, "barrier", "train.py:30", 0, False)
    runs = [replace(run, status="running", exit_code=None) for run in ranks()]
    apart = job((_adding(runs[0], call), runs[1]), hung=True)
    assert rules(evidence(apart, findings=found)) == [rule]


def test_ranks_that_meet_in_other_collectives_of_one_name() -> None:
    """Rank 0 reads what is no answer to it, and fails in a way of its own."""
    runs = spoiled(ranks(), 0, status="TypeError: 'bool' object is not iterable", exit_code=1)
    runs = spoiled(runs, 1, status="RuntimeError: [gloo] Connection closed by peer", exit_code=1)
    assert rules(evidence(job(runs, returncode=1))) == []
    found = evidence(job(runs, returncode=1), findings=(_finding("DDP801", 30),))
    assert rules(found) == ["DDP801"]


def test_lines_that_two_ranks_write_are_no_wrong_numbers() -> None:
    runs = tuple(_adding(run, change("log.csv")) for run in ranks())
    text = Text("log.csv", "epoch,loss\n0,0.5\n1,0.25\n", "epoch,loss\n0,0.5\n0,0.5\n1,0.25\n")
    left = {"left_by_reference": ("log.csv",), "left_by_distributed": ("log.csv",)}
    assert rules(evidence(runs, texts=(text,), **left)) == ["DDP502"]


@pytest.mark.parametrize(
    ("status", "rule"),
    [
        ("AttributeError: 'DistributedDataParallel' object has no attribute 'fc'", "DDP303"),
        ("AttributeError: 'NoneType' object has no attribute 'folder'", "DDP504"),
        ("RuntimeError: Expected to have finished reduction in the prior iteration", "DDP301"),
        ("ValueError: sampler option is mutually exclusive with shuffle", "DDP202"),
        ("ValueError: Expected more than 1 value per channel when training", "DDP206"),
        ("RuntimeError: shape '[16, 8]' is invalid for input of size 64", "DDP206"),
        ("ValueError: Expected input batch_size (8) to match target batch_size (16).", "DDP206"),
        ("ZeroDivisionError: integer modulo by zero", "DDP203"),
        ("StopIteration: ", "DDP203"),
        ("FileExistsError: [Errno 17] File exists: 'out'", "DDP503"),
        ('RuntimeError: Error(s): Unexpected key(s) in state_dict: "module.a"', "DDP602"),
        ('RuntimeError: Error(s): Missing key(s) in state_dict: "module.a"', "DDP603"),
    ],
)
def test_crashes_by_their_text(status: str, rule: str) -> None:
    assert rules(_crashed(ranks(), status)) == [rule]


def _crashed(runs: tuple[RunRecord, ...], status: str) -> Evidence:
    return evidence(job(spoiled(runs, 1, status=status, exit_code=1), returncode=1))


@pytest.mark.parametrize(
    ("path", "others", "original", "rule"),
    [
        ("final.pt", (), change("final.pt", "torch.save"), "DDP604"),
        ("runs/17001/x.pt", (change("runs/16999/x.pt", "torch.save"),), None, "DDP506"),
        ("data.bin", (change("data.bin"),), None, "DDP502"),
        ("out/log.txt", (change("out", "os.mkdir"),), None, "DDP503"),
    ],
)
def test_missing_files_by_who_makes_them(
    path: str, others: tuple[EventRecord, ...], original: EventRecord | None, rule: str
) -> None:
    runs = (_adding(ranks()[0], *others), ranks()[1])
    status = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    found = _crashed(runs, status)
    if original:
        found = replace(found, reference=job((_adding(reference(), original),)))
    assert rules(found)[0] == rule


def test_what_another_rank_is_still_downloading() -> None:
    first = _adding(ranks()[0], change("data.bin", steps=0))
    second = replace(ranks()[1], steps=(), events=())
    status = "RuntimeError: unable to mmap 4096 bytes from file <data.bin>"
    assert rules(_crashed((first, second), status))[0] == "DDP204"


def _hung(*runs: RunRecord) -> Evidence:
    waiting = (replace(run, status="running", exit_code=None) for run in runs)
    return evidence(job(tuple(waiting), hung=True))


def test_a_hang_in_which_one_rank_left_the_pass_early() -> None:
    first, second = (_until(run, 2) for run in ranks())
    reduced = collective("all_reduce", done=False)
    left = replace(_adding(first, reduced), waiting="all_reduce at train.py:30")
    more = replace(_until(ranks()[1], 2, between=True), waiting="backward of D at train.py:20")
    assert rules(_hung(left, more)) == ["DDP404"]
    assert rules(_hung(first, second)) == []


def _until(run: RunRecord, steps: int, between: bool = False) -> RunRecord:
    """Killed after ``steps``; ``between`` it had begun the next one."""
    events = [event for event in run.events if event.steps < steps]
    if between:
        events += [e for e in run.events if e.steps == steps and not isinstance(e, EndRecord)][:3]
    return replace(run, steps=run.steps[:steps], events=tuple(events))


def test_a_hang_in_which_one_rank_stopped_after_an_epoch() -> None:
    first = _adding(
        _until(ranks()[0], 3), EndRecord(3, 3.0, 0, 0), collective("destroy_process_group")
    )
    second = _adding(_until(ranks()[1], 3), EndRecord(3, 3.0, 0, 0))
    second = _adding(second, *_until(ranks()[1], 3, between=True).events[-3:])
    assert rules(_hung(first, second)) == ["DDP703"]


def test_a_hang_in_evaluation_through_a_wrapper_with_buffers() -> None:
    seen = ForwardRecord(6, 9.0, 0, False, False, True)
    assert rules(_hung(_adding(ranks()[0], seen), ranks()[1])) == ["DDP304"]
    silent = replace(seen, buffers=False)
    assert rules(_hung(_adding(ranks()[0], silent), ranks()[1])) == []


def test_without_gradients_only_the_first_forward_of_an_evaluation_waits() -> None:
    seen = ForwardRecord(6, 9.0, 0, False, False, True)
    uneven = _hung(_adding(ranks()[0], seen, seen, seen), _adding(ranks()[1], seen))
    assert rules(uneven) == []


def test_what_a_rank_says_when_another_is_gone_is_not_its_own_failure() -> None:
    seen = ForwardRecord(6, 9.0, 0, False, False, True)
    runs = (_adding(ranks()[0], seen), ranks()[1])
    gone = "RuntimeError: [../gloo/pair.cc:5] Connection closed by peer [127.0.0.1]:5"
    assert rules(_crashed(runs, gone)) == ["DDP304"]


def test_learning_rates_of_their_own() -> None:
    own = PerRank(lambda rank: lambda step: 0.05 if rank and step > 2 else 0.1)
    assert rules(evidence(ranks(rate=own)))[0] == "DDP703"
    schedule = ranks(rate=lambda step: 0.1 / (step + 1))
    assert rules(evidence(schedule))[0] == "DDP203"


def test_a_line_search() -> None:
    def searching(run: RunRecord) -> RunRecord:
        return replace(run, optimizers=(replace(run.optimizers[0], kind="LBFGS"),))

    runs = tuple(searching(run) for run in ranks(gradient=1.1))
    assert rules(evidence(runs, searching(reference()))) == ["DDP405"]


@pytest.mark.parametrize(
    ("shares", "rule"),
    [
        ([[b, b] for b in batches()], "DDP202"),
        ([[b[:2], b[:2]] for b in batches()], "DDP202"),
        (split(2)[:3] * 2, "DDP201"),
        ([[a, b] for a, b in zip(batches()[0::2], batches()[1::2], strict=True)], "DDP203"),
        ([[[90, 91], share[1]] for share in split(2)], "DDP202"),
        ([[[90, 91], [91, 90]] for _ in split(2)], "DDP111"),
    ],
)
def test_wrong_samples(shares: list[list[list[int]]], rule: str) -> None:
    assert rules(evidence(ranks(shares=shares))) == [rule]


def test_contents_of_their_own() -> None:
    def other(run: RunRecord) -> RunRecord:
        events = (
            replace(e, contents=tuple(f"{c}!" for c in e.contents)) if isinstance(e, Fetch) else e
            for e in run.events
        )
        return replace(run, events=tuple(events))

    assert rules(evidence((ranks()[0], other(ranks()[1])))) == ["DDP111"]


def test_noise_from_one_stream() -> None:
    def drawing(run: RunRecord) -> RunRecord:
        steps = (replace(s, random={"torch": f"at {n}"}) for n, s in enumerate(run.steps))
        return replace(run, noise=NoiseRecord(dropout=4), steps=tuple(steps))

    assert rules(evidence(tuple(map(drawing, ranks())))) == ["DDP111"]


def test_weights_that_differ_from_the_start() -> None:
    def streams(run: RunRecord, own: bool) -> RunRecord:
        key = {"torch": f"of {run.rank}"} if own else {"torch": "shared"}
        return replace(run, steps=tuple(replace(step, random=key) for step in run.steps))

    def loading(run: RunRecord) -> RunRecord:
        """Rank 0 alone, before the first step."""
        return replace(run, events=(*[Loaded(0, 0.0)] * (run.rank == 0), *run.events))

    drawn = tuple(_apart(streams(run, True), start=True) for run in ranks())
    assert rules(evidence(drawn)) == ["DDP111"]
    loaded = tuple(_apart(streams(run, False), start=True) for run in ranks())
    assert rules(evidence(loaded)) == ["DDP603"]
    assert rules(evidence(tuple(map(loading, drawn)))) == ["DDP603"]
    alone = tuple(replace(run, wrapped=()) for run in drawn)
    assert rules(evidence(alone)) == ["DDP301"]


def _without(run: RunRecord, kind: type[EventRecord]) -> RunRecord:
    return replace(run, events=tuple(e for e in run.events if not isinstance(e, kind)))


def _twice(run: RunRecord) -> RunRecord:
    """Two forwards, then two backwards."""
    events: list[EventRecord] = []
    for event in run.events:
        events += [event] * (2 if isinstance(event, (ForwardRecord, Backward)) else 1)
    return replace(run, events=tuple(events))


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda run: _apart(replace(_without(run, ForwardRecord), wrapped=())), "DDP301"),
        (lambda run: _apart(_without(run, ForwardRecord)), "DDP403"),
        (lambda run: _apart(_twice(run)), "DDP405"),
        (lambda run: _apart(run, "head.bias"), "DDP301"),
        (lambda run: _apart(replace(run, wrapped=("x",))), "DDP301"),
    ],
)
def test_ranks_that_drift_apart(spoil: Callable[[RunRecord], RunRecord], rule: str) -> None:
    assert rules(evidence(tuple(map(spoil, ranks())))) == [rule]


@pytest.mark.parametrize(("factor", "rule"), [(0.5, "DDP401"), (2.0, "DDP401"), (4.0, "DDP401")])
def test_gradients_off_by_a_number(factor: float, rule: str) -> None:
    assert rules(evidence(ranks(gradient=factor)))[0] == rule


@pytest.mark.parametrize(("factor", "said"), [(1 + 1e-8, False), (1.01, True)])
def test_a_gradient_that_is_rounded_is_off_by_no_number(factor: float, said: bool) -> None:
    cause, *_ = causes(evidence(ranks(gradient=factor)))
    assert ("times that of one process" in cause.evidence) is said


def _bent(step: int, losses: tuple[float, float], by: float = 1.0) -> tuple[RunRecord, ...]:
    """From ``step`` on another gradient on all ranks, and ``losses`` on each."""
    runs = []
    for run in ranks():
        steps = [
            (
                replace(
                    each,
                    gradients=(np.array([by, 0, 0, 0]) + each.gradients[0], each.gradients[1]),
                    losses=(each.losses[0] + losses[run.rank],),
                )
                if number >= step
                else each
            )
            for number, each in enumerate(run.steps)
        ]
        runs.append(replace(run, steps=tuple(steps)))
    return tuple(runs)


@pytest.mark.parametrize(
    ("step", "losses", "by", "rule"),
    [
        (0, (-0.5, 1.0), 1.0, "DDP401"),  # the original's loss lies between the ranks'
        (0, (1.0, 1.5), 1.0, "DDP406"),
        (2, (0.0, 1.0), 1.0, "DDP404"),  # a rank has a term more
        (2, (0.0, 1e-3), 1e-3, "DDP701"),  # a number of the rank's own was carried over
    ],
)
def test_gradients_that_are_off_by_no_number(
    step: int, losses: tuple[float, float], by: float, rule: str
) -> None:
    assert rules(evidence(_bent(step, losses, by)))[0] == rule


def test_evaluation_of_padded_shares_and_of_own_buffers() -> None:
    def looking(run: RunRecord, *samples: int) -> RunRecord:
        look = Fetch(6, 9.0, 1, 0, samples, ("",) * len(samples), False)
        return _adding(run, look, EndRecord(6, 9.0, 1, 0))

    one = looking(reference(), 0, 1, 2)
    padded = (looking(ranks()[0], 0, 2), looking(ranks()[1], 1, 0))
    assert rules(evidence(padded, one)) == ["DDP205"]
    shared = (looking(ranks()[0], 0, 2), looking(ranks()[1], 1))
    buffers = spoiled(shared, 1, probe=probe(np.ones(2)))
    assert rules(evidence(buffers, one)) == ["DDP305"]


def test_numbers_that_were_not_reduced() -> None:
    log = Text("log.txt", "accuracy 0.8000\n", "accuracy 0.4000\n")
    assert rules(evidence(texts=(log,))) == ["DDP701"]
    own = ranks()[0].steps[0].losses[0]
    printed = spoiled(ranks(), 0, stdout=f"epoch 0: loss {own:.4f}\n")
    assert rules(evidence(printed)) == ["DDP702"]


@pytest.mark.parametrize(
    ("event", "kept", "rule"),
    [
        (change("out", "os.mkdir"), (), "DDP503"),
        (change("a.pt", "torch.save"), (), "DDP601"),
        (change("copy.pth"), (), "DDP601"),
        (change("log.txt"), ("log.txt",), "DDP502"),
        (change("data.bin", steps=0), ("data.bin",), "DDP204"),
        (change("runs/events.out.tfevents.1.2"), (), "DDP504"),
    ],
)
def test_paths_that_several_ranks_change(event: Any, kept: tuple[str, ...], rule: str) -> None:
    runs = tuple(_adding(run, event) for run in ranks())
    found = evidence(runs, left_by_reference=kept, left_by_distributed=kept)
    assert rules(found) == [rule]


def test_a_folder_for_each_rank() -> None:
    left = {"left_by_reference": ("runs/100",), "left_by_distributed": ("runs/101", "runs/102")}
    assert rules(evidence(**left)) == ["DDP506"]


def test_checkpoints_console_and_the_group() -> None:
    pair = CheckpointPair("a.pt", "the ranks' keys have a `module.` prefix", 0.0)
    assert rules(evidence(checkpoints=(pair,))) == ["DDP602"]
    loud = spoiled(ranks(), 1, stdout="hello\n", stderr=" 50%|##| 1/2 [00:01<00:01, 1.0it/s]\n")
    assert rules(evidence(loud)) == ["DDP501", "DDP505"]
    left = tuple(replace(run, group_left_open=True) for run in ranks())
    assert rules(evidence(job(left, returncode=1))) == ["DDP102"]


def test_a_model_that_begins_elsewhere_on_all_ranks_is_put_down_to_no_rule() -> None:
    assert rules(evidence(ranks(before=(BEFORE[0] * 2, BEFORE[1])))) == []


def test_two_optimizers_of_which_one_is_right() -> None:
    """The parameters of the first are left alone by the second, whose gradient is a half."""

    def second(run: RunRecord, factor: float) -> RunRecord:
        extra = Parameter("d.weight", (2,), "float64")
        late = Optimizer(1, "SGD", (extra,), (np.ones(2),), ("same",))
        step = replace(
            run.steps[-1],
            optimizer=1,
            number=6,
            losses=(1.0,),
            gradients=(factor * np.ones(2),),
            gradient_digests=("",),
            parameters=(np.ones(2),),
            digests=("same",),
        )
        return replace(run, optimizers=(*run.optimizers, late), steps=(*run.steps, step))

    assert PARAMETERS[0].name != "d.weight"
    runs = tuple(second(run, 0.5) for run in ranks())
    assert rules(evidence(runs, second(reference(), 1.0)))[0] == "DDP401"


def test_ranks_that_gloo_ends_without_an_exception() -> None:
    call = CollectiveRecord(6, 1.0, "all_reduce", "train.py:25", 8, False)
    runs = [replace(run, status="running", exit_code=None) for run in ranks()]
    found = evidence(job((_adding(runs[0], call), runs[1]), returncode=1))
    assert rules(found) == ["DDP404"]
    assert causes(found)[0].evidence.endswith("the job ends with exit code 1")
