"""The page, opened in a real browser: complete, alone, inert, and readable on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from ddpify.verify.report import html
from ddpify.verify.verdict import Verification
from tests.projects import put_fixture
from tests.verify import odd, samples
from tests.verify.browser import Opened, browser, opened


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def migration(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    entry = put_fixture("classification", tmp_path_factory.mktemp("page") / "project")
    outcome = migrate([entry], Settings())
    assert outcome.changes
    return outcome


@pytest.fixture(scope="module")
def failing(migration: Outcome) -> Verification:
    return replace(samples.failing(4), migration=migration)


@pytest.fixture
def show(chromium: Browser, tmp_path: Path) -> Iterator[Callable[[Verification, int], Opened]]:
    """Open a report; whatever it shows, it must be alone and quiet, and fit the window."""
    contexts = []

    def open_page(verification: Verification, width: int = 1280) -> Opened:
        file = tmp_path / f"report-{len(contexts)}.html"
        file.write_text(html.render(verification), encoding="utf-8")
        contexts.append(opened(chromium, file, width=width))
        result = contexts[-1].__enter__()
        assert result.requests == [file.as_uri()]
        assert result.complaints == []
        assert result.overflow == 0
        return result

    yield open_page
    for context in reversed(contexts):
        context.__exit__(None, None, None)


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_on_the_page(
    show: Callable[[Verification, int], Opened], failing: Verification, width: int
) -> None:
    page = show(failing, width).page
    assert (
        page.locator("h1")
        .inner_text()
        .strip()
        .endswith("NOT the same: 3 checks failed, 1 not decided")
    )
    headings = [each.strip() for each in page.locator("h2").all_inner_texts()]
    assert headings == [
        "Likely cause",
        "Checks",
        "Curves",
        "Who was where when",
        "What each rank did",
        "Speed",
        "Collectives",
        "Who wrote which file",
        "Output",
        "What ddpify changed, and why",
        "What was run",
    ]
    for check in failing.checks:
        row = page.locator(f"[data-check={check.name}]")
        assert row.is_visible()
        shown = row.inner_text()
        assert check.title in shown
        assert check.measured in shown
        assert check.verdict.value in shown, "the verdict is a word, not only a colour"
    for cause in failing.causes:
        assert page.get_by_text(cause.evidence).is_visible()
    detail = failing.checks[2].details[-1]
    assert page.get_by_text(detail).is_visible(), "details of a failure are open"


def test_charts_are_drawn_large_and_hold_their_curves(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    view = show(failing, 1280)
    kinds = ("loss", "difference", "gradients", "rate", "time", "logged-0")
    names = [f"chart-{kind}" for kind in kinds]
    assert view.page.locator("figure").evaluate_all("all => all.map(one => one.id)") == names
    for name in names:
        width, height = view.box(f"#{name} svg")
        assert width > 400
        assert height > 200
    curves = {"chart-loss-reference-0": 48, "chart-loss-mean-5": 48, "chart-difference-mean-0": 48}
    for curve, points in curves.items():
        width, height = view.box(f"#{curve} path")
        assert width > 300, f"{curve} spans the steps"
        data = view.page.locator(f"#{curve} path").first.get_attribute("d") or ""
        assert data.count("L") > points / 2, f"{curve} has its points"
    assert view.box("#chart-difference-level path")[0] > 300
    ranks = view.page.locator("#chart-loss [id^=chart-loss-rank-]")
    assert ranks.count() == 4


def test_a_right_run_lies_on_the_reference_and_a_wrong_one_does_not(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    def apart(verification: Verification) -> bool:
        page = show(verification, 1280).page
        paths = [
            page.locator(f"#chart-gradients-{line} path").first.get_attribute("d")
            for line in ("reference-0", "mean-1")
        ]
        assert all(paths)
        return paths[0] != paths[1]

    assert not apart(odd.identical())
    assert apart(failing)


def test_a_chart_tells_its_numbers_and_shows_a_part_of_itself(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    page = show(failing, 1280).page
    chart = page.locator("#chart-loss svg.chart")
    chart.scroll_into_view_if_needed()
    box = page.locator("#chart-loss .plot").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2

    def point(part: float) -> None:
        page.mouse.move(box["x"] + part * box["width"], middle)

    point(0)
    told = page.locator("#chart-loss .told")
    assert told.inner_text().startswith("optimizer step 0 · 1 process: 0.83195 · rank 0: ")
    whole = page.locator("#chart-loss .acrosses").inner_html()
    point(0.5)
    page.mouse.down()
    point(0.75)
    page.mouse.up()
    assert "zoomed" in (chart.get_attribute("class") or "")
    steps = [int(one) for one in page.locator("#chart-loss .acrosses text").all_text_contents()]
    assert 23 <= min(steps) < max(steps) <= 36
    point(0.5)
    assert told.inner_text().startswith("optimizer step 29 ·")
    chart.dblclick()
    assert page.locator("#chart-loss .acrosses").inner_html() == whole
    chart.focus()
    page.keyboard.press("ArrowLeft")
    page.mouse.move(0, 0)
    chart.focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text().startswith("optimizer step 0 ·")


def test_on_a_phone_nothing_lies_beyond_the_edge(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    for verification in (failing, samples.hung()):
        page = show(verification, 390).page
        page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        wide = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth)"
        kinds = page.locator("main :is(div, pre, table, section)")
        assert kinds.evaluate_all(f"{wide}.map(one => one.outerHTML.slice(0, 80))") == []


def test_when_where_and_of_what_it_was_made_is_said(
    show: Callable[[Verification, int], Opened],
) -> None:
    page = show(samples.passing(), 1280).page
    said = page.locator("header").inner_text()
    assert "2026-01-02 03:04 +0000 on box · commit abc1234 · ddpify" in said
    assert page.locator("#chart-logged-0 h3").inner_text() == "Logged: accuracy"
    assert page.get_by_role("figure", name="0.8 at 3.").is_visible()


def test_charts_speak_and_their_ids_are_unique(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    page = show(failing, 1280).page
    for svg in page.locator("figure > svg").all():
        assert svg.get_attribute("role") == "img"
        named = (svg.get_attribute("aria-labelledby") or "").split()
        texts = [page.locator(f"[id='{one}']").text_content() for one in named]
        assert len(texts) == 2
        assert all(texts)
    ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_tables_count_what_ranks_did(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    page = show(failing, 1280).page
    rows = page.locator("#ranks tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["1 process", *(f"rank {n}" for n in range(4))]
    assert "\t48\t192\t48\t64\t2\t4\t" in rows[1]
    files = page.locator("#files tbody tr").all_inner_texts()
    assert [row.split()[0] for row in files] == ["log.csv", "out/last.pt"]
    assert all("4 ranks" in row for row in files)
    assert "48\t48\t48\t48\t1\t256 B" in page.locator("#collectives tbody").inner_text()


def test_the_diff_stands_with_its_reasons_and_the_helpers_are_folded(
    show: Callable[[Verification, int], Opened], failing: Verification
) -> None:
    page = show(failing, 1280).page
    assert page.get_by_text("each rank would train on all samples").first.is_visible()
    assert page.get_by_text("train_sampler = distributed_sampler(train_set").is_visible()
    helpers = page.locator("#diff details", has_text="new: the helpers")
    assert helpers.count() == 2
    for copy in helpers.all():
        assert copy.get_attribute("open") is None
        assert not copy.locator("pre").first.is_visible()
        copy.locator("summary").click()
        assert copy.locator("pre").first.is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_what_a_program_printed_is_text(
    show: Callable[[Verification, int], Opened], width: int
) -> None:
    view = show(odd.markup(), width)
    assert view.page.title() != "taken"
    assert view.page.locator("img").count() == 0
    assert view.page.locator("script").count() == 1, "the page's own"
    assert view.page.locator("#output pre").first.text_content() == odd.SCRIPT


def test_a_hang_shows_every_rank_s_stack(show: Callable[[Verification, int], Opened]) -> None:
    page = show(samples.hung(), 390).page
    assert page.get_by_text("hung in all_reduce at train.py:67").first.is_visible()
    assert page.get_by_text("Loss at step 6").is_visible(), "the last step both took"
    reasons = page.locator("header .reason").all_inner_texts()
    assert reasons == [
        "rank 0: waits in all_reduce at train.py:67",
        "rank 1: runs (train.py:67 in evaluate)",
    ]
    lanes = page.locator(".lane").all_inner_texts()
    assert [lane.split("\n")[0] for lane in lanes] == ["rank 0", "rank 1"]
    assert page.locator(".lane i.stuck").count() == 2
    assert page.locator(".last tr").last.inner_text().endswith("and is still in it")
    stacks = page.locator("#stopped pre").all_inner_texts()
    assert len(stacks) == 2
    assert all("in evaluate" in stack for stack in stacks)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (odd.one_step_in_nan, "not finite (NaN or infinite)"),
        (odd.exploded, "not finite (NaN or infinite)"),
        (odd.identical, "Largest: 0 after step 0. Never above the tolerance."),
        (odd.three_optimizers, "Loss, optimizer 2 (Adagrad)"),
        (odd.never_started, "No process took an optimizer step"),
        (odd.crashed, "RuntimeError: shapes differ"),
        (lambda: samples.passing(8, 24), "rank 7"),
    ],
)
def test_odd_runs_have_a_page(
    show: Callable[[Verification, int], Opened], make: Callable[[], Verification], text: str
) -> None:
    page = show(make(), 390).page
    assert page.get_by_text(text).locator("visible=true").first.is_visible()


def test_exact_zeros_are_drawn_on_a_log_scale(
    show: Callable[[Verification, int], Opened],
) -> None:
    page = show(odd.identical(), 1280).page
    labels = page.locator("#chart-difference svg text").all_text_contents()
    assert "0" in [label.strip() for label in labels]
    dots = page.locator("#chart-difference-mean-0 .dots").get_attribute("d") or ""
    assert dots.count("M") == 5


def test_losses_that_are_not_finite_are_marked_where_they_are(
    show: Callable[[Verification, int], Opened],
) -> None:
    wrong = samples.job(2, 12, samples.Spoiled(nan_from=5))
    page = show(replace(samples.passing(2, 12), distributed=wrong), 1280).page
    assert page.locator("#chart-loss-bad-mean-3 path").count() == 7
    assert page.locator("#chart-loss-bad-reference-0").count() == 0
    assert page.get_by_text("not finite from step 5").locator("visible=true").count() == 1


def test_a_long_run_keeps_the_page_small(show: Callable[[Verification, int], Opened]) -> None:
    verification = samples.passing(2, 5000)
    page = show(verification, 1280).page
    assert len(page.content()) < 400_000
    assert page.get_by_text("each point is the average of a few").is_visible()
    width = page.locator("#chart-loss-mean-3 path").first.bounding_box()
    assert width is not None
    assert width["width"] > 300


def test_dark_mode_and_print_keep_text_and_ground_apart(
    chromium: Browser, tmp_path: Path, failing: Verification
) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.render(failing), encoding="utf-8")
    look = "one => [getComputedStyle(one).color, getComputedStyle(document.body).backgroundColor]"

    def colors(view: Opened) -> tuple[int, int]:
        ink, ground = view.page.locator("h2").first.evaluate(look)
        return tuple(sum(map(int, one[4:-1].split(","))) for one in (ink, ground))  # type: ignore[return-value]

    with opened(chromium, file) as view:
        ink, ground = colors(view)
        assert ink < 200 < 600 < ground
    with opened(chromium, file, dark=True) as view:
        ink, ground = colors(view)
        assert ground < 150 < 500 < ink
        view.page.emulate_media(media="print", color_scheme="dark")
        ink, ground = colors(view)
        assert ink < 200 < 600 < ground
