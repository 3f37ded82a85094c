"""agent-chat-ui on the graphs: a chat in the browser, all on this machine.

    python integrations/chat_ui/start.py [--graph self_rag] [options of `selfcorrect-rag studio`]

Takes the user interface from the npm package create-agent-chat-app and builds it once (node 18 and
npm, two minutes and 1 GB); then starts the server of `selfcorrect-rag studio` and the interface.
Ctrl-C ends both.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).parents[2]
PACKAGE, PNPM = "create-agent-chat-app@0.1.6", "pnpm@10"
"""Plain npm refuses the interface's own dependencies."""
SOURCES = Path(__file__).with_name("sources.tsx")
START = 300
"""Seconds that a server may take on a busy machine."""


def built(folder: Path) -> Path:
    """The folder of the built interface; made at the first call.

    Raises:
        SystemExit: node is not installed, or a step fails; the message says which.
    """
    app = folder / "app"
    if (app / ".next" / "BUILD_ID").exists():
        return app
    if shutil.which("npm") is None:
        raise SystemExit("npm is not installed: https://nodejs.org (18 or newer)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(["npm", "pack", PACKAGE], folder)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / "package" / "templates" / "nextjs").rename(app)
    _without_remote_font(app / "src" / "app" / "layout.tsx")
    _with_sources(app / "src" / "components" / "thread" / "messages")
    _run(["npx", "--yes", PNPM, "install", "--ignore-scripts"], app)
    _run(["npx", "--yes", PNPM, "exec", "next", "build"], app)
    return app


def _without_remote_font(layout: Path) -> None:
    """Its font would be fetched from Google at every build."""
    text = layout.read_text(encoding="utf-8")
    text = re.sub(r'import \{ Inter \} from "next/font/google";\n', "", text)
    text = re.sub(r"const inter = Inter\(\{.*?\}\);\n", "", text, flags=re.DOTALL)
    layout.write_text(text.replace(" className={inter.className}", ""), encoding="utf-8")


def _with_sources(messages: Path) -> None:
    """Below a message, of which it shows the text alone, goes what its annotations cite."""
    shutil.copy(SOURCES, messages)
    path, after = messages / "ai.tsx", "          {!hideToolCalls && (\n"
    text = path.read_text(encoding="utf-8")
    text = text.replace(after, f"          <Sources content={{content}} />\n{after}")
    path.write_text(f'import {{ Sources }} from "./{SOURCES.stem}";\n{text}', encoding="utf-8")


def _run(command: Sequence[str], folder: Path) -> None:
    print(f"{' '.join(command)} ...", flush=True)
    run = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NEXT_TELEMETRY_DISABLED": "1", "CI": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(run.stdout + run.stderr)[-2000:]}")


def started(
    stack: ExitStack, command: Sequence[str], folder: Path, log: Path, address: str
) -> None:
    """Start a server in ``folder`` that ends with ``stack``; wait until ``address`` answers.

    Raises:
        SystemExit: it ended, or did not answer in time; the message is the end of its log.
    """
    output = stack.enter_context(log.open("w"))
    server = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "NEXT_TELEMETRY_DISABLED": "1"},
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    stack.callback(server.wait)
    stack.callback(server.terminate)
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"no answer at {address}:\n{log.read_text()[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, default, text in (
        ("graph", "self_rag", "The server's graph that the chat talks to."),
        ("port", 3000, "Port of the interface."),
        ("server-port", 2024, "Port of the LangGraph server."),
        ("folder", ROOT / "build" / "chat_ui", "Where the interface is built."),
    ):
        kind, text = type(default), f"{text} Default: %(default)s."
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    args, further = parser.parse_known_args()
    # A job of a shell has no Ctrl-C: whatever ends it should end its servers too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = args.folder.resolve()
    app = built(folder)
    server = f"http://localhost:{args.server_port}"
    page = f"http://localhost:{args.port}"
    studio = [sys.executable, "-m", "selfcorrect_rag.cli.main", "studio", "--no-browser"]
    studio += ["--port", str(args.server_port), *further]
    interface = ["node", "node_modules/next/dist/bin/next", "start", "--port", str(args.port)]
    try:
        with ExitStack() as stack:
            started(stack, studio, Path.cwd(), folder / "server.log", f"{server}/ok")
            started(stack, interface, app, folder / "interface.log", page)
            chosen = urlencode({"apiUrl": server, "assistantId": args.graph})
            print(f"ready: {page}/?{chosen}", flush=True)
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
