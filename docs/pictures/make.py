"""`make pictures`: the report of the tutorial's `verify`, in a real browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
VERIFY = "verify main_classification.py --nproc 4 --steps 12 --html report.html -- --norm none"


def main() -> None:
    """Run it, open the page, keep its first screen."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch, "classification")
        shutil.copytree(ROOT / "fixtures" / "classification", project)
        command = [sys.executable, "-m", "ddpify", *VERIFY.split()]
        subprocess.run(command, cwd=project, check=True)
        with sync_playwright() as playwright:
            options = {"executable_path": chromium, "args": ["--no-sandbox"]}
            browser = playwright.chromium.launch(**options)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto((project / "report.html").as_uri())
            page.screenshot(path=Path(__file__).with_name("report.png"))
            browser.close()


if __name__ == "__main__":
    main()
