"""Ask in a real browser, and see the answer and a source to open.

python integrations/chat_ui/check.py [--chromium PATH] [options of start.py]
"""

import argparse
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from langchain_core.documents import Document
from playwright.sync_api import Page, expect, sync_playwright

from selfcorrect_rag.search import Index

START = Path(__file__).with_name("start.py")
QUESTION = "Who discovered penicillin?"
GRAPHS = ("self_rag", "chat_agent")
SOURCE = "https://example.org/fleming"
PAGE = Document(
    "Alexander Fleming, a Scottish physician, discovered penicillin in 1928.",
    metadata={"title": "Alexander Fleming", "source": SOURCE},
)
TIMEOUT = 120_000
"""Milliseconds for an answer on a busy machine."""


def ask(page: Page, address: str, screenshot: Path) -> str:
    """Ask in the chat; the text of the sources once the answer is there, cited and linked."""
    page.goto(address)
    page.get_by_placeholder("Type your message...").fill(QUESTION)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Alexander Fleming").first).to_be_visible(timeout=TIMEOUT)
    expect(page.get_by_text("[1]").first).to_be_visible(timeout=TIMEOUT)
    expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=TIMEOUT)
    sources = page.get_by_role("list", name="Sources").last
    expect(sources.get_by_role("link", name="Alexander Fleming")).to_have_attribute("href", SOURCE)
    page.screenshot(path=screenshot)
    return sources.inner_text()


def free_port() -> int:
    """A port where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--screenshots", type=Path, default=Path("build"))
    args, further = parser.parse_known_args()
    folder = args.screenshots / "chat_ui_index"
    shutil.rmtree(folder, ignore_errors=True)
    Index(folder, "bm25").add([PAGE])
    ports = ["--port", str(free_port()), "--server-port", str(free_port())]
    command = [sys.executable, START, "--index", folder, *ports, *further]
    chat = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        lines = iter(chat.stdout or [])
        address = next((x.split()[1] for x in lines if x.startswith("ready:")), None)
        if address is None:
            raise SystemExit("the chat did not start: see above")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=args.chromium, args=["--no-sandbox"]
            )
            for graph in GRAPHS:
                screenshot = args.screenshots / f"chat_ui_{graph}.png"
                sources = ask(browser.new_page(), address.replace(GRAPHS[0], graph), screenshot)
                print(f"{graph}: {sources} ({screenshot})")
            browser.close()
    finally:
        chat.terminate()
        chat.wait(timeout=60)


if __name__ == "__main__":
    main()
