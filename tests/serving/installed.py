"""Whether a wheel starts Studio's server where there is no checkout: `make check-studio`.

python tests/serving/installed.py WHEEL [--constraint FILE]

Installs it into an environment of its own, in a folder that it removes again, starts
``selfcorrect-rag studio`` in an empty one, and asks a question.
"""

import argparse
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

START = 120
"""Seconds that the server may take on a busy machine."""
QUESTION = "Who discovered penicillin?"
ASK = """
import sys, selfcorrect_rag
from langgraph_sdk import get_sync_client

client = get_sync_client(url=sys.argv[1])
print(sorted(assistant["graph_id"] for assistant in client.assistants.search()))
result = client.runs.wait(None, "self_rag", input={"question": sys.argv[2]})
print(result["cited_answer"], [citation["title"] for citation in result["citations"]])
assert "Alexander Fleming" in result["cited_answer"] and result["citations"]
assert "site-packages" in selfcorrect_rag.__file__, selfcorrect_rag.__file__
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraint", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="studio-") as made:
        folder = Path(made)
        environment = folder / "environment"
        print(f"installing {args.wheel.name} into {environment}", flush=True)
        venv.create(environment, with_pip=True)
        pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet"]
        pip += ["--constraint", args.constraint.resolve()] if args.constraint else []
        subprocess.run([*pip, f"{args.wheel.resolve()}[demo,studio]"], check=True)
        empty = folder / "empty"
        empty.mkdir()
        ask(environment / "bin", empty, folder / "server.log")


def ask(programs: Path, folder: Path, log: Path) -> None:
    """Start the server in ``folder``, ask it, and end it.

    Raises:
        SystemExit: it did not start; the message is the end of its log.
        CalledProcessError: it gave no cited answer.
    """
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SELFCORRECT_"))}
    command = [programs / "selfcorrect-rag", "studio"]
    subprocess.run([*command, "--help"], check=True, env=outside, stdout=subprocess.DEVNULL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--no-browser", "--port", port],
            cwd=folder,
            env=outside,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        if not answers(server, f"{url}/ok"):
            raise SystemExit(f"the server did not start:\n{log.read_text()[-4000:]}")
        subprocess.run(
            [programs / "python", "-c", ASK, url, QUESTION], check=True, cwd=folder, env=outside
        )
    finally:
        server.terminate()
        server.wait(timeout=30)


def answers(server: "subprocess.Popen[bytes]", address: str) -> bool:
    """Whether something answers at ``address``, before the server ends or is too late."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    return False


if __name__ == "__main__":
    main()
