"""Console, texts, files, checkpoints, collectives, ends, measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpify.verify.checks import run_checks
from ddpify.verify.checks.check_files import without_ids
from ddpify.verify.checks.lines import differences, lines
from ddpify.verify.evidence import CheckpointPair, Scalars, Text
from ddpify.verify.recording import (
    Backward,
    EventRecord,
    ForwardRecord,
    HeldRecord,
    LoaderRecord,
    RunRecord,
)
from ddpify.verify.verdict import Verdict
from tests.verify.factories import (
    change,
    checked,
    collective,
    evidence,
    job,
    ranks,
    reference,
    spoiled,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("loss 0.1234", "loss 0.1235"),  # the last digit shown
        ('"devices": 1, "epochs": 2', '"devices": 2, "epochs": 2'),  # as it was started
        ("loss 0.1234 (12.3s)", "loss 0.1234 (45.6s)"),
        ("epoch 1 took 3.25", "epoch 1 took 9.75"),
        ("Time 0.123 (0.456) loss 0.5", "Time 0.223 (0.356) loss 0.5"),
        ("elapsed: 0:01:23, acc 0.5", "elapsed: 0:00:59, acc 0.5"),
        ('"total_time_sec": 3.02, "acc": 0.5', '"total_time_sec": 4.01, "acc": 0.5'),
        ("2024-01-02 10:11:12,345 INFO loss 1.5", "2025-11-21 13:03:10,001 INFO loss 1.5"),
        ("[2024-01-02T10:11:12.345Z] done", "[2025-01-02T11:11:12.345Z] done"),
        ("Sat Nov 21 13:03:10 2026 acc 1.0", "Sun Nov 22 03:13:10 2026 acc 1.0"),
        ("12.5 it/s, loss 2.0", "99.1 it/s, loss 2.0"),
        ("| ms/batch 12.50 | loss 2.0", "| ms/batch 99.13 | loss 2.0"),
        ("throughput: 1234.5 samples/s", "throughput: 234.5 samples/s"),
        ("1m 3s, loss 2.0", "2m 5s, loss 2.0"),
        ("3.4 ms/batch 5.19", "9.4 ms/batch 5.19"),
        ("Step: 3s119ms | Tot: 2h5m", "Step: 38ms | Tot: 1m12s"),
        ("wandb: run-1795269700881737924", "wandb: run-1795269799881000001"),
        ("max memory 123 MB, loss 2.0", "max memory 456 MB, loss 2.0"),
        ('{"loss": 0.5, "time": 3.1}', '{"loss": 0.5, "time": 4.2}'),
        ("\x1b[32mloss 0.5\x1b[0m", "loss 0.5"),
        ("10%|#  |\r100%|###| loss 0.5", "30%|#  |\r100%|###| loss 0.5"),
        ("loss 1.0e-05", "loss 1.1e-05"),
        ("<X at 0x7f1234>", "<X at 0x7f5678>"),
        ("saved to /copy/1/out", "saved to /copy/n/out"),
        ("epoch,loss,seconds\n0,0.5,1.25", "epoch,loss,seconds\n0,0.5,9.75"),
        ("a   1", "a 1"),
    ],
)
def test_lines_that_say_the_same(one: str, other: str) -> None:
    both = lines(one, folder="/copy/1"), lines(other, folder="/copy/n")
    assert list(differences(*both, 1e-9)) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("loss 0.1234", "loss 0.1237"),
        ("97/100 right", "96/100 right"),  # counts are exact
        ("acc 0.5", "accuracy 0.5"),
        ("loss 0.5 (12.3s)", "loss 0.6 (12.3s)"),
        ("12.5 it/s, loss 2.0", "12.5 it/s, loss 2.5"),
        ("Time 0.1 loss 0.5", "Time 0.1 loss 0.7"),
        ("loss 0.5", "loss nan"),
        ("loss -0.5", "loss 0.5"),
        ("epoch,loss,seconds\n0,0.5,1.25", "epoch,loss,seconds\n0,0.7,1.25"),
        ("step 3 loss 2.0", "step 4 loss 2.0"),
        ("devices: 1, width: 1", "devices: 2, width: 2"),
        ("devices: 2", "devices: 1"),
        ("loss 1.0e-05", "loss 1.0e-04"),
        ("acc 0.5", "acc 0.6"),
    ],
)
def test_lines_that_do_not(one: str, other: str) -> None:
    assert len(list(differences(lines(one), lines(other), 1e-9))) == 1


DECIMALS = (
    "1630487860427237",
    "1712345678901234",
    "1712345678",
    "1812345678901",
    "201234567890",
    "20231112101112",
    "1612345678901234567",
    "20240102",
    "1234",
)


@pytest.mark.parametrize("before", ["loss ", "loss:", "a=", "0,", "[", "(", "x;", "-"])
@pytest.mark.parametrize("decimals", DECIMALS)
def test_a_numbers_own_digits_are_no_clock(before: str, decimals: str) -> None:
    """0.1630487860427237 failed a right run, 0.1712345678901234 passed a wrong one."""
    one, other = (f"{before}{whole}.{decimals}" for whole in (0, 2))
    assert [line.clocks for line in lines(one)] == [0]
    assert len(list(differences(lines(one), lines(other), 1e-9))) == 1
    nearly = f"{before}0.{decimals}3"
    assert not list(differences(lines(one), lines(nearly), 1e-9))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class 3:45.6", "class 3:97.5"),
        ("size 2048-16-10", "size 2048-16-12"),
        ("lr 0.1 speed_loss 0.5", "lr 0.1 speed_loss 0.7"),
    ],
)
def test_numbers_that_only_resemble_times(one: str, other: str) -> None:
    assert len(list(differences(lines(one), lines(other), 1e-9))) == 1


def test_what_is_nearly_nothing_is_measured_by_the_largest_of_its_kind() -> None:
    one = "drift 1.0\ndrift 1.21e-17\n"
    assert not list(differences(lines(one), lines("drift 1.0\ndrift -3.32e-17\n"), 1e-9))
    assert list(differences(lines(one), lines("drift 1.0\ndrift 1.21e-3\n"), 1e-9))


def test_a_missing_line_is_named_alone() -> None:
    one, other = "a 1\nb 2\nc 3\nd 4", "a 1\nc 3\nd 4\ne 5"
    found = [str(each) for each in differences(lines(one), lines(other), 0)]
    assert found == ["missing: b 2", "extra: e 5"]


def _printing(text: str) -> tuple[RunRecord, ...]:
    return spoiled(ranks(), 0, stdout=text)


def test_metrics_compare_the_original_with_rank_0() -> None:
    check = checked(evidence(_printing("epoch 0: loss 0.7000\n")), "metrics")
    assert (check.verdict, check.measured) == (
        Verdict.FAIL,
        "1 line differs, of 2 numbers in 1 line",
    )
    assert "'epoch 0: loss 0.7000' instead of 'epoch 0: loss 0.5000'" in check.details[0]


def test_metrics_in_texts_are_compared_and_what_is_ignored_is_not() -> None:
    text = Text("log.csv", "loss\n0.5\n", "loss\n0.25\n")
    check = checked(evidence(texts=(text,)), "metrics")
    assert check.verdict is Verdict.FAIL
    assert check.details[0].startswith("log.csv: ")
    assert "all numbers that differ are 1/2 of those of one process" in check.details
    ignoring = evidence(texts=(text,), options={"ignore_output": (r"^[\d.]+$",)})
    assert checked(ignoring, "metrics").verdict is Verdict.PASS


def test_what_is_logged_to_stderr_is_compared_and_progress_bars_are_not() -> None:
    def logging(loss: float, bar: str) -> str:
        warning = "train.py:3: UserWarning: odd\n  warnings.warn(\n" if loss == 0.25 else ""
        return f"{warning}2026-01-01 10:00:00,1 INFO loss {loss:.4f}\n 50%|# |\r{bar}\n"

    one = replace(reference(), stderr=logging(0.5, "100%|##| 4/4 [00:01<00:00, loss=0.5]"))
    same = spoiled(ranks(), 0, stderr=logging(0.5, "100%|##| 2/2 [00:02<00:00, loss=0.7]"))
    check = checked(evidence(same, one), "metrics")
    assert (check.verdict, check.measured) == (
        Verdict.PASS,
        "3 numbers in 2 lines; not compared: 1 time; 1 progress bar",
    )
    other = checked(evidence(spoiled(ranks(), 0, stderr=logging(0.25, "")), one), "metrics")
    assert other.verdict is Verdict.FAIL
    assert other.details[0].startswith("stderr: ")
    assert "1/2 of those of one process" in other.details[1]


def test_what_is_logged_while_a_bar_stands_there_is_compared() -> None:
    bar, warning = " 50%|#  | 1/2 [00:00<?, ?it/s]", "train.py:3: UserWarning: no source line\n"
    one = replace(reference(), stderr=f"{warning}INFO loss 0.5\n\r3it [00:01, 1.2it/s]\n")
    same = spoiled(ranks(), 0, stderr=f"{bar}INFO loss 0.5\n\r100%|###|\n")
    assert checked(evidence(same, one), "metrics").verdict is Verdict.PASS
    other = spoiled(ranks(), 0, stderr=f"{bar}INFO loss 0.7\n\r100%|###|\n")
    assert checked(evidence(other, one), "metrics").details[0].startswith("stderr: 'INFO loss 0.7'")


def test_what_nothing_compares_is_said() -> None:
    check = checked(evidence(unread=("a.png", "b.npy (the ranks leave none)")), "metrics")
    assert check.verdict is Verdict.PASS
    assert check.measured.endswith("; not compared: a.png, b.npy (the ranks leave none)")


def test_scalars_of_tensorboard_are_compared() -> None:
    found = Scalars("runs/a", {"loss": [(0, 0.5), (1, 0.25)], "time/step": [(0, 3.0)]}, {})
    same = replace(found, distributed={"loss": [(0, 0.5), (1, 0.25 + 1e-8)], "time/step": [(0, 9)]})
    check = checked(evidence(scalars=(same,)), "metrics")
    assert check.verdict is Verdict.PASS
    assert "not compared: 1 time" in check.measured
    half = replace(found, distributed={"loss": [(1, 0.125)], "time/step": [(0, 9)]})
    check = checked(evidence(scalars=(half,)), "metrics")
    assert check.details[:2] == (
        "TensorBoard, runs/a: missing: loss, step 0: 0.5",
        "TensorBoard, runs/a: 'loss, step 1: 0.125' instead of 'loss, step 1: 0.25'",
    )


def test_console_is_rank_0s_but_for_torchs_own_logs() -> None:
    logs = "[rank1]:[W1121 10:00:00.0 ProcessGroup.cpp:1] x\n[Gloo] Rank 1 is connected\n"
    warning = "/v/lib/python3/site-packages/torch/x.py:3: UserWarning: odd\n  warnings.warn(\n"
    quiet = spoiled(ranks(), 1, stderr=logs + warning)
    assert checked(evidence(quiet), "console-once").verdict is Verdict.PASS
    loud = checked(evidence(spoiled(ranks(), 1, stderr=logs + "100%|###|\n")), "console-once")
    assert loud.verdict is Verdict.FAIL
    assert loud.details == ("rank 1 writes 1 line to stderr, first: '100%|###|'",)
    printed = checked(evidence(spoiled(ranks(), 1, stdout="hello\n")), "console-once")
    assert "rank 1 writes 1 line to stdout" in printed.details[0]


def test_what_a_rank_that_failed_says_is_no_output() -> None:
    text = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    runs = spoiled(ranks(), 1, stderr=text, status="ValueError: no", exit_code=1)
    assert checked(evidence(runs), "console-once").verdict is Verdict.SKIPPED


def _writing(run: RunRecord, *events: EventRecord) -> RunRecord:
    return replace(run, events=run.events + events)


def test_a_file_written_by_two_ranks_is_named() -> None:
    runs = tuple(_writing(run, change("log.txt"), change("out", "os.mkdir")) for run in ranks())
    check = checked(evidence(runs), "files-once")
    assert check.measured == "2 of 2 paths changed by several ranks"
    assert check.details[0] == "log.txt is changed by rank 0 and by rank 1 (open after 6 steps)"


def test_a_folder_that_was_there_already_is_nobodys() -> None:
    first, later = change("out", "os.mkdir"), change("out", "os.mkdir", existed=True)
    runs = (_writing(ranks()[0], first), _writing(ranks()[1], later))
    assert checked(evidence(runs), "files-once").verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("one", "many", "verdict"),
    [
        (("a.pt",), ("a.pt",), Verdict.PASS),
        (("run/1700000000.log",), ("run/1700000099.log",), Verdict.PASS),
        (("runs/3fa9c1de/x",), ("runs/77b0aa91/x",), Verdict.PASS),
        (("run/1700000000",), ("run/1700000099", "run/1700000100"), Verdict.FAIL),
        (("a.pt", "b.pt"), ("a.pt",), Verdict.FAIL),
        (("a.pt",), ("a.pt", "rank1.txt"), Verdict.FAIL),
    ],
)
def test_the_same_files_are_left_but_for_dates(
    one: tuple[str, ...], many: tuple[str, ...], verdict: Verdict
) -> None:
    found = evidence(left_by_reference=one, left_by_distributed=many)
    assert checked(found, "files-once").verdict is verdict


def test_a_log_for_each_rank_is_one_log() -> None:
    runs = tuple(_writing(run, change(f"log_rank{run.rank}.txt")) for run in ranks())
    left = ("log_rank0.txt", "log_rank1.txt")
    found = evidence(runs, left_by_reference=left[:1], left_by_distributed=left)
    assert checked(found, "files-once").verdict is Verdict.PASS


def test_words_are_no_random_ids() -> None:
    assert without_ids("deadbeef/decade.txt") == "deadbeef/decade.txt"
    assert without_ids("run-3fa9c1/e12") == "run-#/e#"


def test_checkpoints_allow_the_optimizers_state_more() -> None:
    def verdict(difference: float, state: float = 0.0, problem: str = "") -> Verdict:
        pair = CheckpointPair("a.pt", problem, difference, state)
        return checked(evidence(checkpoints=(pair,)), "checkpoints").verdict

    assert verdict(1e-10) is Verdict.PASS
    assert verdict(1e-7) is Verdict.FAIL
    assert verdict(0.0, 1e-7) is Verdict.PASS
    assert verdict(0.0, 1e-5) is Verdict.FAIL
    assert verdict(0.0, 0.0, "keys differ") is Verdict.FAIL


def test_the_prefix_that_data_parallel_wrote_may_go() -> None:
    pair = CheckpointPair("a.pt", "", 0.0, unprefixed=True)
    one = replace(reference(), data_parallel=True)
    check = checked(evidence(one=one, checkpoints=(pair,)), "checkpoints")
    assert check.verdict is Verdict.PASS
    assert check.measured.endswith("without DataParallel's `module.`")
    other = checked(evidence(checkpoints=(pair,)), "checkpoints")  # a `module.` of the model's own
    assert other.verdict is Verdict.FAIL


def test_collectives_are_paired_by_number_name_and_size() -> None:
    both = (collective("barrier", 0), collective("all_reduce"))
    right = tuple(_writing(run, *both) for run in ranks())
    assert checked(evidence(right), "collectives").verdict is Verdict.PASS
    other_site = (right[0], _writing(ranks()[1], collective("barrier", 0, "b.py:1"), both[1]))
    assert checked(evidence(other_site), "collectives").verdict is Verdict.PASS
    fewer = checked(evidence((right[0], _writing(ranks()[1], both[0]))), "collectives")
    assert fewer.measured == "differ from call 1 on"
    assert "rank 1: none" in fewer.details
    larger = (right[0], _writing(ranks()[1], both[0], collective("all_reduce", 16)))
    assert checked(evidence(larger), "collectives").verdict is Verdict.FAIL


def test_collectives_say_whether_accumulation_skipped_the_others() -> None:
    def accumulated(run: RunRecord, sync: bool) -> RunRecord:
        """Three more backwards before each step."""
        events: list[EventRecord] = []
        for event in run.events:
            if isinstance(event, Backward):
                for _ in range(3):
                    events += [Backward(0, 0.0, 1.0), ForwardRecord(0, 0.0, 0, True, sync, False)]
            events.append(event)
        return replace(run, events=tuple(events))

    skipping = checked(evidence(tuple(accumulated(r, False) for r in ranks())), "collectives")
    assert skipping.details == (
        "4 backwards per optimizer step, 1 all-reduced: accumulation skips the others",
    )
    all_reduced = checked(evidence(tuple(accumulated(r, True) for r in ranks())), "collectives")
    assert "4 all-reduced: none is skipped" in all_reduced.details[0]


def _sharded(run: RunRecord, often: int = 1) -> RunRecord:
    """Two groups, each reduced so often before each of the six steps."""
    names = ("all_gather_single", "reduce_scatter_single")
    own = [replace(collective(name), fsdp=True) for name in names for _ in range(2 * 6 * often)]
    events = [e for e in run.events if not isinstance(e, ForwardRecord)]
    events += [Backward(0, 0.0, 1.0) for _ in range(6 * 3)]
    held = HeldRecord(parameters=60, gradients=30, states=120, groups=2)
    return replace(_writing(replace(run, events=tuple(events)), *own), held=held)


def test_collectives_are_counted_for_each_sharded_group() -> None:
    check = checked(evidence(tuple(map(_sharded, ranks()))), "collectives")
    each = "per optimizer step 0 of the script's, and for each of 2 sharded groups"
    assert check.measured == f"24 calls; {each} 1 all-gather, 1 reduce-scatter"
    assert check.details == (
        "4 backwards per optimizer step, 1 reduced: accumulation skips the others",
    )
    often = checked(evidence(tuple(_sharded(run, 4) for run in ranks())), "collectives")
    assert often.verdict is Verdict.PASS
    assert often.measured.endswith("4 reduce-scatters; none of 4 backwards is skipped")


def test_hybrid_sharding_names_how_many_ranks_take_part() -> None:
    of_a_node = replace(collective("reduce_scatter_tensor"), fsdp=True, ranks=2)
    runs = tuple(_writing(_sharded(run), of_a_node) for run in ranks())
    assert "0.0833 reduce-scatters of 2 ranks" in checked(evidence(runs), "collectives").measured


def test_what_a_rank_keeps_is_a_share_of_what_one_process_keeps() -> None:
    whole = replace(reference(), held=HeldRecord(100, 50, 200, groups=0))
    check = checked(evidence(tuple(map(_sharded, ranks())), whole), "sharding")
    shares = "0.600 (parameters 0.600, gradients 0.600, optimizer 0.600)"
    assert (check.verdict, check.measured) == (
        Verdict.INFO,
        f"at most {shares} of one process; 1/2 is 0.500",
    )
    assert checked(evidence(tuple(map(_sharded, ranks()))), "sharding").verdict is Verdict.SKIPPED
    assert "sharding" not in [check.name for check in run_checks(evidence())]


def test_a_crash_is_named_with_the_users_line() -> None:
    trace = 'Traceback\n  File "/copy/n/train.py", line 12, in main\n    x()\nValueError: no'
    runs = spoiled(ranks(), 1, status="ValueError: no", exit_code=1, traceback=trace)
    check = checked(evidence(job(runs, returncode=1)), "completed")
    assert (check.verdict, check.measured) == (Verdict.FAIL, "rank 1: ValueError: no")
    assert check.details[0] == "rank 1 fails after 6 steps at train.py:12 in main: ValueError: no"


def test_the_sentence_of_an_exit_is_kept() -> None:
    sentence = "batch size 33 cannot be split over 2 ranks: use 32 or 34"
    status = f"SystemExit: {sentence}"
    runs = tuple(replace(run, status=status, exit_code=1, steps=()) for run in ranks())
    check = checked(evidence(job(runs, returncode=1)), "completed")
    assert check.measured.startswith(f"rank 0: {sentence}")
    assert check.details[0] == f"rank 0 fails after 0 steps: {sentence}"
    said = {"stderr": "usage: train.py\nerror: no such option\n", "traceback": "SystemExit: 2"}
    runs = tuple(replace(run, status="exited", exit_code=2, steps=(), **said) for run in ranks())
    check = checked(evidence(job(runs, returncode=1)), "completed")
    assert check.measured.startswith("rank 0: exit code 2: error: no such option")
    assert check.details[1:3] == ("usage: train.py", "error: no such option")


def test_a_hang_is_named_with_what_each_rank_waits_in() -> None:
    stack = '  File "train.py", line 30, in main\n    dist.barrier()'
    waiting = {"status": "running", "exit_code": None, "stack": stack}
    runs = tuple(replace(r, **waiting, waiting="barrier at train.py:30") for r in ranks())
    check = checked(evidence(job(runs, hung=True)), "completed")
    assert check.measured == "hangs after 6 optimizer steps"
    assert check.details[0] == "rank 0 waits in barrier at train.py:30 after 6 steps"
    assert check.details[1] == "rank 0 stack: train.py:30 in main"


def test_a_reference_that_fails_is_said_first() -> None:
    one = replace(reference(), status="ValueError: no", exit_code=1)
    check = checked(evidence(one=one), "completed")
    assert check.measured.startswith("the original itself does not come to its end")


def test_overfitting_needs_the_loss_to_halve_on_both_sides() -> None:
    def falling(run: RunRecord, to: float) -> RunRecord:
        count = len(run.steps) - 1
        steps = tuple(
            replace(s, losses=(1 + (to - 1) * n / count,)) for n, s in enumerate(run.steps)
        )
        return replace(run, steps=steps)

    options = {"overfit": 4}
    assert checked(evidence(), "overfit").verdict is Verdict.SKIPPED
    down = tuple(falling(run, 0.1) for run in ranks())
    right = evidence(down, falling(reference(), 0.1), options)
    assert checked(right, "overfit").verdict is Verdict.PASS
    stuck = tuple(falling(run, 0.9) for run in ranks())
    wrong = evidence(stuck, falling(reference(), 0.1), options)
    assert checked(wrong, "overfit").verdict is Verdict.FAIL


def test_speed_is_that_of_the_slowest_rank_without_the_first_steps() -> None:
    def taking(run: RunRecord, seconds: float) -> RunRecord:
        steps = [replace(step, seconds=seconds) for step in run.steps]
        return replace(run, steps=(replace(steps[0], seconds=99.0), *steps[1:]))

    runs = (taking(ranks()[0], 0.04), taking(ranks()[1], 0.05))
    check = checked(evidence(runs, taking(reference(), 0.08)), "speed")
    measured = "80 ms per step, 50 ms on 2 ranks: speed-up 1.60, efficiency 80%"
    assert (check.verdict, check.measured) == (Verdict.INFO, measured)


def test_a_batch_size_that_verify_multiplied_is_no_difference() -> None:
    one = replace(reference(), loaders=(LoaderRecord(0, "Data", "Sampler", 96, 64),))
    runs = tuple(replace(run, loaders=(replace(one.loaders[0], batch=32),)) for run in ranks())
    one = replace(one, stdout="Batchsize: 64 | Steps: 32\n")
    runs = spoiled(runs, 0, stdout="Batchsize: 32 | Steps: 32\n")
    assert checked(evidence(runs, one), "metrics").verdict is Verdict.FAIL
    assert checked(evidence(runs, one, batch_factor=2), "metrics").verdict is Verdict.PASS
    runs = spoiled(runs, 0, stdout="Batchsize: 32 | Steps: 16\n")
    assert checked(evidence(runs, one, batch_factor=2), "metrics").verdict is Verdict.FAIL
