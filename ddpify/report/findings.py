"""Findings for people: the line, what proves it, what to do, and the source on demand."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from ddpify.checking.causes import FindingCause
from ddpify.checking.model import Checked
from ddpify.report.concise import headline, summary
from ddpify.terminal import width


def render(
    checked: Checked, *, color: bool = False, quiet: bool = False, source: bool = False
) -> str:
    """All findings in order, then the counts unless ``quiet``."""
    told = _sourced(checked, color) if source else _plain(checked, color)
    lines = [*told, *([] if quiet else summary(checked))]
    return "".join(f"{line}\n" for line in lines)


def _plain(checked: Checked, color: bool) -> Iterator[str]:
    for cause in checked.causes:
        found = cause.first
        yield headline(found, checked, color)
        yield from (f"    {site}: {why}" for site, why in (*found.way, *found.because))
        yield from also(cause, "    ")
        if found.advice:
            yield f"    {found.advice}"


def _sourced(checked: Checked, color: bool) -> Iterator[str]:
    from ddpify.report.frames import Lines, frame

    lines = Lines(checked.texts or {})
    for cause in checked.causes:
        found = cause.first
        yield headline(found, checked, color)
        yield from frame(found.site.span, lines.of(found.site.path), color)
        for site, why in (*found.way, *found.because):
            yield f"  {site}: {why}"
            yield from frame(site.span, lines.of(site.path), color, around=0)
        yield from also(cause, "  ")
        if found.advice:
            yield f"  = {found.advice}"
        yield ""


def also(cause: FindingCause, indent: str) -> Iterator[str]:
    """The further places of a finding."""
    if cause.others:
        text = f"also in {cause.elsewhere}"
        yield from wrap(
            text,
            width(),
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
