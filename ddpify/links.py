"""Where the project is, and its documentation: two addresses, and a page for each rule."""

from __future__ import annotations

from typing import Final

# Placeholders until the project has a public place. pyproject.toml names the same, which a test
# sees to; the site is built with them.
REPOSITORY: Final = "https://github.com/OWNER/ddpify"
SITE: Final = "https://OWNER.github.io/ddpify/"


def rule_page(code: str) -> str:
    """The address of the page that explains a rule."""
    return f"{SITE}rules/{code}/"


def hyperlink(text: str, code: str) -> str:
    """The text, which a terminal opens as that page (OSC 8; others print the text alone)."""
    return f"\033]8;;{rule_page(code)}\033\\{text}\033]8;;\033\\"
