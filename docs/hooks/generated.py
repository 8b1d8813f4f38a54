"""What the site says of rules, commands and helpers, written as it is built: a hook of MkDocs."""

from __future__ import annotations

import posixpath
import re

import commands_page
import rule_pages
import runtime_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ddpify import __version__
from ddpify.checking.catalogue import catalogue
from ddpify.links import REPOSITORY, SITE

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The addresses are in one place."""
    config.site_url = SITE
    config.copyright = f"ddpify {__version__}"
    # not `repo_url`: the theme's script would ask GitHub for the number of its stars
    config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": REPOSITORY}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages that nobody wrote."""
    rules = catalogue()
    pages = {
        "rules/index.md": rule_pages.index(rules),
        **{f"rules/{rule.id}.md": rule_pages.page(rule) for rule in rules},
        "commands.md": commands_page.page(),
        "runtime.md": runtime_page.page(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What a page links to outside of docs/ is in the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        known = path.startswith("../")
        return f"{REPOSITORY}/blob/main/{path.removeprefix('../')}" if known else link[1]

    return _LINK.sub(outside, markdown)
