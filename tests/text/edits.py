"""Address code in tests by its text: the span of the one node that reads like it."""

from __future__ import annotations

import ast
from pathlib import Path

from ddpify.plan import Change, Plan
from ddpify.rewrite import Style, render
from ddpify.rules.base import Edit, Finding, How, Import, Severity
from ddpify.source import Site, Source, Span

START = Span(1, 0, 1, 0)
SHORT = {
    "replace": How.REPLACE,
    "argument": How.ARGUMENT,
    "entry": How.ENTRY,
    "before": How.BEFORE,
    "after": How.AFTER,
    "gate": How.GATE,
    "indent": How.INDENT,
    "delete": How.DELETE,
    "body": How.BODY,
}


def source_of(text: str | bytes, path: str = "main.py") -> Source:
    raw = text.encode() if isinstance(text, str) else text
    return Source.from_bytes(raw, Path(path), path)


def edit(
    source: Source,
    how: How | str,
    code_at: str,
    code: str = "",
    name: str = "",
    imports: str = "",
    nth: int = 0,
) -> Edit:
    """An edit of the nth statement or expression that starts with or is ``code_at``.

    ``imports`` is ``"module.name module.other"``. Text ending in ``…`` is the start of a
    statement.
    """
    how = SHORT[how] if isinstance(how, str) else how
    needs_value = how in (How.REPLACE, How.ARGUMENT, How.ENTRY)
    kinds = (ast.expr, ast.stmt) if needs_value else (ast.stmt,)
    spans = []
    for node in ast.walk(source.parse()):
        if isinstance(node, kinds):
            span = source.span(node)
            text = source.segment(span)
            wanted = code_at.removesuffix("…")
            if text == code_at or (code_at.endswith("…") and text.startswith(wanted)):
                spans.append(span)
    found = sorted(set(spans))
    assert found, f"{code_at!r} is not in the text"
    names = tuple(Import(*one.rpartition(".")[::2]) for one in imports.split())
    return Edit(how, Site(source.path, found[nth]), code, name, names)


def finding(*edits: Edit, rule: str = "R1") -> Finding:
    site = edits[0].site if edits else Site("main.py", START)
    return Finding(rule, site, f"because of {rule}", Severity.ERROR, tuple(edits))


def changes(source: Source, edits: list[Edit], style: Style | None = None) -> tuple[Change, ...]:
    plan = Plan.of([finding(one, rule=f"R{number}") for number, one in enumerate(edits)])
    assert not plan.clashes
    return render(plan, {source.path: source}, style)


def rewritten(text: str | bytes, *specs: tuple[str, ...], style: Style | None = None) -> str:
    """The text after the edits; each is ``(how, code_at, code, name, imports)``."""
    source = source_of(text)
    made = changes(source, [edit(source, *spec) for spec in specs], style)
    if not made:
        return source.text
    after = source_of(made[0].after)
    assert (after.encoding, after.bom) == (source.encoding, source.bom)
    return after.text
