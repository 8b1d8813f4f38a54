"""The terminal summary and the comment: answer, numbers, cause, and nothing that acts."""

from __future__ import annotations

import re
from dataclasses import replace

import click
import pytest

from ddpify.links import rule_page
from ddpify.verify.report import markdown, text, words
from ddpify.verify.verdict import Check, Ending, Verdict
from tests.verify import samples

HOSTILE = "a|b `c` <script>alert(1)</script>\n\x1b[2J\x1b]0;title\x07# *d* @team"


def lines(verification: samples.Verification) -> list[str]:
    return text.render(verification, color=False).splitlines()


def test_the_summary_says_what_was_compared_and_ends_with_the_answer() -> None:
    shown = lines(samples.passing())
    assert shown[0] == "ddpify verify train.py: the working tree in 1 process against 2 ranks"
    assert shown[1].split() == "1 process python train.py --epochs 4 --batch-size 16".split()
    assert "torchrun --standalone --nproc_per_node=2 train.py" in shown[2]
    assert all(any(line.endswith(one) for line in shown) for one in samples.SETUP)
    assert shown[-1] == "2 processes train the same model."


def test_every_check_has_a_line_with_verdict_title_and_number() -> None:
    shown = lines(samples.failing())
    marks = {
        Verdict.PASS: "pass",
        Verdict.FAIL: "FAIL",
        Verdict.UNDECIDED: "????",
        Verdict.SKIPPED: "skip",
        Verdict.INFO: "info",
    }
    for check in samples.FAILED:
        start = f"{marks[check.verdict]}  {check.title}"
        place = next(n for n, line in enumerate(shown) if line.startswith(start))
        assert check.measured in shown[place] + shown[place + 1]


def test_failures_show_their_first_details_and_count_the_rest() -> None:
    shown = lines(samples.failing())
    details = next(one for one in samples.FAILED if one.name == "trajectory").details
    assert all(f"        {detail}" in shown for detail in details[:6])
    assert "        ... and 6 more lines" in shown
    assert not any("median step 24.0 ms" in line for line in shown), "it passed: no details"


def test_a_likely_cause_has_rule_evidence_reason_and_place() -> None:
    shown = "\n".join(lines(samples.failing()))
    for cause in samples.CAUSES:
        assert f"{cause.rule} {cause.title}" in shown
        for part in (cause.evidence, cause.why, *cause.sites):
            assert part.split() == re.findall(r"\S+", part)
            assert " ".join(part.split()) in " ".join(shown.split())
    assert shown.endswith("NOT the same: 3 checks failed, 1 not decided.")


def test_undecided_and_unchecked_are_not_called_the_same() -> None:
    noisy = samples.judged(samples.CHECKS, trajectory=(Verdict.UNDECIDED, "dropout", ()))
    assert lines(replace(samples.passing(), checks=noisy))[-1] == "Not decided: Same trajectory."
    nothing = replace(samples.passing(), checks=samples.CHECKS[-2:])
    assert lines(nothing)[-1] == "Not decided: no check could be made."


def test_what_the_answer_is_limited_to_is_said() -> None:
    options = replace(
        samples.options(), neutralise=frozenset({"batchnorm", "dropout"}), steps=20, overfit=8
    )
    said = words.limits(replace(samples.passing(), options=options))
    assert said == (
        "Compared with dropout and batchnorm neutralised, over the first 20 optimizer steps, "
        "on 8 samples only."
    )
    shown = " ".join(lines(replace(samples.passing(), options=options)))
    assert shown.endswith(said)
    assert not words.limits(samples.passing())


def test_why_the_ranks_ended_is_said_first_and_last() -> None:
    sentence = "batch size 33 cannot be split over 2 ranks: use 32 or 34"
    stopped = (Ending(0, sentence, "train.py:38 in main"),)
    shown = lines(replace(samples.failing(), stopped=stopped))
    reason = f"rank 0: {sentence} (train.py:38 in main)"
    first_check = next(n for n, line in enumerate(shown) if line.startswith("pass"))
    assert shown.index(reason) < first_check
    skipped = [line for line in shown if line.startswith("skip")]
    assert [line.split()[1:3] for line in skipped] == [["1", "check"]], "all in one line"
    assert shown[-2:] == ["NOT the same: the ranks end early.", f"  {reason}"]
    shown = markdown.render(replace(samples.failing(), stopped=stopped)).splitlines()
    assert f"- **{markdown.escaped(reason)}**" in shown[:6]
    hung = samples.hung()
    assert words.verdict(replace(hung, stopped=stopped)) == "NOT the same: the ranks hang."


def test_the_comment_has_the_command_that_decides() -> None:
    undecided = replace(samples.CHECKS[2], verdict=Verdict.UNDECIDED, noises=("dropout",))
    command = ("ddpify", "verify", "train.py", "--", "--epochs", "2")
    options = replace(samples.options(), command=command)
    shown = markdown.render(replace(samples.passing(), checks=(undecided,), options=options))
    assert "`ddpify verify train.py --neutralise=dropout -- --epochs 2`" in shown


def test_what_holds_for_several_checks_is_said_once() -> None:
    again = "not the same in one process and several, by right: dropout"
    checks = samples.judged(
        samples.CHECKS,
        trajectory=(Verdict.UNDECIDED, "1", (again,)),
        metrics=(Verdict.UNDECIDED, "2", (again, "log.csv:2 differs")),
    )
    shown = lines(replace(samples.passing(), checks=checks))
    assert shown.count(f"        {again}") == 1
    assert "        log.csv:2 differs" in shown


def test_color_changes_nothing_but_color() -> None:
    verification = samples.failing()
    colored = text.render(verification, color=True)
    assert click.unstyle(colored) == text.render(verification, color=False) != colored


def test_lines_are_as_wide_as_a_terminal_and_words_stay_whole() -> None:
    path = "checkpoints/" + "x" * 130 + ".pt"
    check = Check("files", "word " * 12, Verdict.FAIL, "number " * 30, (path, "detail " * 40))
    shown = lines(replace(samples.passing(), checks=(check,)))
    assert all(len(line) <= 100 or path in line for line in shown)
    assert any(path in line for line in shown)
    narrow = text.render(samples.failing(), color=False, width=60).splitlines()
    assert max(map(len, narrow)) <= 60


@pytest.mark.parametrize("color", [True, False])
def test_what_a_program_printed_does_not_steer_the_terminal(color: bool) -> None:
    check = Check("console", HOSTILE, Verdict.FAIL, HOSTILE, (HOSTILE,))
    verification = replace(samples.passing(), checks=(check,), baseline=HOSTILE)
    shown = click.unstyle(text.render(verification, color=color))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", shown)
    assert "title" not in shown


def test_the_comment_holds_verdict_checks_causes_and_setup() -> None:
    shown = markdown.render(samples.failing())
    assert shown.startswith("## ❌ NOT the same: 3 checks failed, 1 not decided.\n")
    rows = [line for line in shown.splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(samples.FAILED)
    for row, check in zip(rows, samples.FAILED, strict=True):
        assert check.title in row
        assert markdown.escaped(check.measured) in row
    assert [rows[n].split("|")[1].split()[-1].strip("*") for n in (0, 2, 5, 9, 10)] == [
        "pass",
        "fail",
        "undecided",
        "skipped",
        "info",
    ]
    assert (
        f"### Likely cause: [DDP401]({rule_page('DDP401')}) The loss is a sum over the batch"
        in shown
    )
    assert "- `` train.py:38: the loss is reduced with 'sum' | see `reduction` ``" in shown
    assert "<summary>What was run</summary>" in shown
    assert markdown.render(samples.passing()).startswith("## ✅ 2 processes train the same model.")


def test_text_in_the_comment_is_inert() -> None:
    check = Check("console", HOSTILE, Verdict.FAIL, HOSTILE, (HOSTILE,))
    shown = markdown.render(replace(samples.passing(), checks=(check,), baseline=HOSTILE))
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", shown)
    said = [line for line in shown.splitlines() if "<summary>" not in line]
    assert not re.search(r"(?<!\\)`c", "\n".join(said))
    assert "@team" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("| ❌"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 4


def test_a_long_text_does_not_fill_the_comment() -> None:
    check = Check("console", "Console", Verdict.FAIL, "x" * 70_000, ("y" * 70_000,) * 99)
    assert len(markdown.render(replace(samples.passing(), checks=(check,)))) < 20_000
