"""Ask a question in a real browser, and see a cited answer: `make check-chat-ui`.

python integrations/chat_ui/check.py [--chromium PATH] [options of start.py]
"""

import argparse
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

START = Path(__file__).with_name("start.py")
QUESTION = "Who discovered penicillin?"
TIMEOUT = 120_000
"""Milliseconds for an answer on a busy machine."""


def ask(page: Page, address: str, screenshot: Path) -> str:
    """Ask in the chat; the text of the page once the answer is there, cited."""
    page.goto(address)
    page.get_by_placeholder("Type your message...").fill(QUESTION)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Alexander Fleming").first).to_be_visible(timeout=TIMEOUT)
    expect(page.get_by_text("[1]").first).to_be_visible(timeout=TIMEOUT)
    expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=TIMEOUT)
    page.screenshot(path=screenshot)
    return page.inner_text("body")


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
    parser.add_argument("--screenshot", type=Path, default=Path("build/chat_ui.png"))
    args, further = parser.parse_known_args()
    args.screenshot.parent.mkdir(parents=True, exist_ok=True)
    ports = ["--port", str(free_port()), "--server-port", str(free_port())]
    command = [sys.executable, START, *ports, *further]
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
            text = ask(browser.new_page(), address, args.screenshot)
            browser.close()
        answer = next(line for line in text.splitlines() if "[1]" in line)
        print(f"answered: {answer} ({args.screenshot})")
    finally:
        chat.terminate()
        chat.wait(timeout=60)


if __name__ == "__main__":
    main()
