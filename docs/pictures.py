"""The pictures of a run and the local page: ``python docs/pictures.py [FOLDER]``, with Chromium."""

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
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


WEIGHED = "played=1&weight_isrel=0&weight_isuse=1.5"


def picture_of_the_page(to: Path) -> None:
    """Write a run on the local page, weighed differently, as a PNG."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "selfcorrect_rag.cli", "ui", "--port", "0", "--no-open"]
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().split()[0]  # type: ignore[union-attr]
            run = _asked(address)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.goto(f"{run}?{WEIGHED}")
                page.screenshot(path=to)
                browser.close()
        finally:
            server.terminate()
            server.wait()


def _asked(address: str) -> str:
    """The address of a finished run, once the server can answer."""
    form = urllib.parse.urlencode({"question": "Who discovered penicillin?", "graph": "self_rag"})
    while True:
        try:
            with urllib.request.urlopen(f"{address}ask", form.encode()) as answer:
                return str(answer.url)
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(1)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else ASSETS
    picture_of_a_run(folder / "run-page.png")
    picture_of_the_page(folder / "ui.png")
