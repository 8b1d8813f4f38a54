"""One line for each finding, as editors and other programs read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from ddpify.checking.causes import FindingCause
from ddpify.checking.model import Checked
from ddpify.links import hyperlink
from ddpify.notebooks import cell_of
from ddpify.rules.base import Finding, Severity

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}

_THEM = ("it", "them")
_FEW = 8  # further places that one line names


def render(checked: Checked, *, color: bool = False, quiet: bool = False) -> str:
    """The lines, then the counts unless ``quiet``."""
    lines = [headline(one.first, checked, color) + _also(one) for one in checked.causes]
    return "".join(f"{line}\n" for line in (*lines, *([] if quiet else summary(checked))))


def headline(found: Finding, checked: Checked, color: bool) -> str:
    """``path:line:column: severity CODE [*] message``; the star: there is a safe fix."""
    span = found.site.span
    rule = f"{found.severity.value} {found.rule}"
    if color:
        rule = hyperlink(click.style(rule, fg=_COLORS[found.severity], bold=True), found.rule)
    star = "[*] " if checked.safe(found) else ""
    path = click.style(found.site.path, bold=True) if color else found.site.path
    return f"{path}:{span.line}:{span.column + 1}: {rule} {star}{found.message}"


def _also(cause: FindingCause) -> str:
    """Further places, on the same line."""
    if not cause.others:
        return ""
    if len(cause.others) > _FEW or cause.others[-1].site.path != cause.first.site.path:
        return f" (and in {plural(len(cause.others), 'more place')})"
    return f" (also in {cause.elsewhere})"


def summary(checked: Checked) -> Sequence[str]:
    """How many there are, what --fix did and can do."""
    done = [f"Fixed {plural(checked.fixed, 'finding')}."] if checked.fixed else []
    if not checked.findings:
        return [*done, _nothing(checked)]
    return [*done, _counts(checked), *_fixable(checked)]


def _nothing(checked: Checked) -> str:
    if not checked.files:
        return f"No findings.{_left_out(checked)}"
    read, begun = len(checked.programs), sum(bool(one.opener) for one in checked.programs)
    if read or checked.fixed:
        some = f"; {begun or 'none'} of {_THEM[read != 1]} seen to start its processes"
        told = f"{plural(read, 'program')} read as several ranks run {_THEM[read != 1]}"
        return f"No findings: {told}{some if begun < read else ''}.{_left_out(checked)}"
    none = "nothing here trains with several processes" + (
        " (`ddpify diff` shows what it would take; --assume-distributed finds only what is wrong"
        " already, not what is missing yet)"
    )
    if checked.applies:
        none = "no program here was seen to train with several processes"
    return f"No findings: {none}.{_left_out(checked)}"


def _left_out(checked: Checked) -> str:
    """What was not read: how much of it."""
    kinds = Counter(one.kind for one in checked.skipped)
    parts = [plural(kinds[kind], kind) for kind in ("file", "notebook", "folder") if kinds[kind]]
    if checked.unread:
        parts.insert(0, f"{plural(len(checked.unread), 'program')} to the end")
    return f" Not read: {', '.join(parts)} (-v lists them)." if parts else ""


def _counts(checked: Checked) -> str:
    found = [one.first for one in checked.causes]
    by_severity = Counter(one.severity for one in found)
    parts = (plural(by_severity[kind], kind.value) for kind in Severity if by_severity[kind])
    files = plural(len({cell_of(one.site.path)[0] for one in checked.findings}), "file")
    more = len(checked.findings) > len(found)
    places = f" at {len(checked.findings)} places" if more else ""
    return f"{plural(len(found), 'finding')} ({', '.join(parts)}){places} in {files}."


def _fixable(checked: Checked) -> list[str]:
    found = [one.first for one in checked.causes]
    safe = sum(checked.safe(one) for one in found)
    unsafe = sum(bool(one.fix) for one in found) - safe
    lines = [f"[*] {safe} fixable with --fix."] if safe else []
    if unsafe:
        lines.append(f"{unsafe} fixable with --fix --unsafe-fixes.")
    return lines


def plural(count: int, noun: str) -> str:
    """The noun, with an s where there are several."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
