"""The README's picture of a run: ``python docs/pictures.py [FILE]``, with Chromium."""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from selfcorrect_rag.cli import main

ASSETS = Path(__file__).parent / "assets"
ASKED = ["ask", "Where was Harper Lee born?", "--graph", "self-crag", "--passages", "5"]
WIDTH, HEIGHT = 1280, 900


def picture_of_a_run(to: Path) -> None:
    """Write the top of a run's page as a PNG."""
    with tempfile.TemporaryDirectory() as folder:
        page_of_run = Path(folder) / "run.html"
        main([*ASKED, "--html", str(page_of_run)])
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(page_of_run.as_uri())
            page.screenshot(path=to)
            browser.close()


if __name__ == "__main__":
    picture_of_a_run(Path(sys.argv[1]) if sys.argv[1:] else ASSETS / "run-page.png")
