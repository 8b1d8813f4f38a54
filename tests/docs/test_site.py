"""The site is built strictly, asks nothing of other hosts, and a browser has no complaints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ddpify import links
from ddpify.checking.codes import known
from ddpify.settings import tomllib
from tests.docs.blocks import ROOT
from tests.verify.browser import browser

WIDTHS = (1280, 390)
OPENED = ("", "tutorial/", "rules/", "rules/DDP801/", "runtime/", "plan/")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once; strictly, so that a link to a page, heading or file that is not there ends it.

    Not with --quiet: what is not shown does not count.
    """
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    return folder


class Asked(HTMLParser):
    """What a page loads, which its links are not."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = tag != "link" or given.get("rel") not in ("canonical", "prev", "next")
        name = "href" if tag == "link" else "src"
        if loads and given.get(name):
            self.urls.append(given[name] or "")


def test_no_page_loads_from_another_host(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > len(known())
    for page in pages:
        asked = Asked()
        asked.feed(page.read_text("utf-8"))
        assert asked.urls
        assert not [url for url in asked.urls if re.match(r"(https?:)?//", url)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text("utf-8")), style


def test_each_rule_has_its_page_where_links_lead(site: Path) -> None:
    for code in known():
        path = links.rule_page(code).removeprefix(links.SITE)
        assert code in (site / path / "index.html").read_text("utf-8")


def test_the_addresses_are_those_of_the_package(site: Path) -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert (urls["Documentation"], urls["Repository"]) == (links.SITE, links.REPOSITORY)
    assert f'href="{links.SITE}"' in (site / "index.html").read_text("utf-8")


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what is asked."""

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_browser_shows_it_wide_and_narrow_and_has_nothing_to_say(address: str) -> None:
    said: list[str] = []
    asked: list[str] = []
    with browser() as one:
        for width in WIDTHS:
            page = one.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            for path in OPENED:
                page.goto(address + path)
                wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert wide <= 0, f"{path} is {wide} pixels wider than {width}"
            page.wait_for_load_state("networkidle")
            page.close()
    assert said == []
    assert not [url for url in asked if not url.startswith((address, "data:"))]
