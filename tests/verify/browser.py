"""A page in a real, headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Opened:
    """A page, and what it did while it was opened."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return max(int(wide), 0)

    def box(self, selector: str) -> tuple[float, float]:
        """Width and height of the first such element."""
        found = self.page.locator(selector).first.bounding_box()
        assert found is not None, f"{selector} is not shown"
        return found["width"], found["height"]


def chromium() -> str:
    """The browser that is installed; without one the test fails, for it would prove nothing."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail("no Chromium on the PATH: `make browser` installs it (apt install chromium)")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Without its sandbox, which needs rights that containers do not have."""
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            yield one
        finally:
            one.close()


@contextmanager
def opened(one: Browser, file: Path, *, width: int = 1280, dark: bool = False) -> Iterator[Opened]:
    """A file in a window of its own."""
    scheme = "dark" if dark else "light"
    page = one.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    result = Opened(page)
    page.on("request", lambda request: result.requests.append(request.url))
    page.on("console", lambda message: result.complaints.append(message.text))
    page.on("pageerror", lambda error: result.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (result.complaints.append("a dialog"), dialog.dismiss()))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    try:
        yield result
    finally:
        page.close()
