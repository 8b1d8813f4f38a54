"""The reason why ranks end early is theirs, short, and each once."""

from __future__ import annotations

from dataclasses import replace

from ddpify.verify.checks.endings import endings
from ddpify.verify.verdict import Ending
from tests.verify.factories import job, ranks, spoiled

TRACE = """Traceback (most recent call last):
  File "/copy/n/train.py", line 90, in <module>
    main()
  File "/copy/n/train.py", line 38, in main
    size = per_rank_batch_size(33)
  File "/copy/n/ddp_utils.py", line 152, in _share
    raise SystemExit(sentence)
"""


def test_a_job_that_ends_well_has_none() -> None:
    assert endings(job(ranks())) == ()


def test_the_sentence_of_one_speaks_for_those_that_end_with_a_number() -> None:
    sentence = "batch size 33 cannot be split over 2 ranks: use 32 or 34"
    runs = spoiled(ranks(), 0, status="exited", exit_code=1, stderr="noise\n")
    runs = spoiled(runs, 1, status=f"SystemExit: {sentence}", exit_code=1, traceback=TRACE)
    found = endings(job(runs, returncode=1))
    assert found == (Ending(1, sentence, "train.py:38 in main"),), "not in the helper"


def test_who_fails_because_of_another_is_not_the_reason() -> None:
    closed = "RuntimeError: Connection closed by peer [127.0.0.1]:1234"
    runs = spoiled(ranks(), 0, status=closed, exit_code=1)
    runs = spoiled(runs, 1, status="ValueError: shapes\nand more", exit_code=1)
    assert endings(job(runs, returncode=1)) == (Ending(1, "ValueError: shapes"),)
    assert endings(job(runs[:1], returncode=1)) == (Ending(0, closed),), "nobody else says more"


def test_what_the_program_raises_itself_is_the_reason_in_whatever_words() -> None:
    closed = "RuntimeError: Connection closed by peer [127.0.0.1]:1234"
    own = "ValueError: timeout must be positive"
    trace = f"{TRACE.rpartition('    raise')[0]}    raise ValueError(text)\n{own}\n"
    runs = spoiled(ranks(), 0, status=closed, exit_code=1)
    runs = spoiled(runs, 1, status=own, exit_code=1, traceback=trace)
    assert endings(job(runs, returncode=1)) == (Ending(1, own, "train.py:38 in main"),)
    hung = spoiled(runs, 0, status="running", exit_code=None)
    assert endings(job(hung, returncode=1, hung=True))[0].reason == own
    lost = [
        f"{trace}\nThe above exception was the direct cause of the following:\n\n{trace}",
        trace.replace("/copy/n/ddp_utils.py", "/lib/site-packages/torch/distributed/run.py"),
        trace.replace("raise ValueError(text)", "handle.wait()"),
    ]
    for text in lost:
        both = spoiled(runs, 1, status=own, exit_code=1, traceback=text)
        assert len(endings(job(both, returncode=1))) == 2, "as far as one can see, of others"


def test_a_hang_says_where_each_rank_is() -> None:
    stack = '  File "/copy/n/train.py", line 12, in main\n    wait()'
    runs = tuple(replace(run, status="running", exit_code=None, stack=stack) for run in ranks())
    runs = spoiled(runs, 0, waiting="barrier at train.py:9")
    found = [str(one) for one in endings(job(runs, returncode=1, hung=True))]
    assert found == ["rank 0: waits in barrier at train.py:9", "rank 1: runs (train.py:12 in main)"]


def test_one_that_says_nothing_has_its_exit_code() -> None:
    runs = tuple(replace(run, status="running", exit_code=None) for run in ranks())
    assert endings(job(runs, returncode=-6)) == (Ending(0, "ended with exit code -6"),)
