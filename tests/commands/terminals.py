"""A command as a person sees it: a real process on a pseudo-terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-m", "selfcorrect_rag.cli"]


class OnTerminal:
    """A process on a terminal, and all that it has shown."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.master, slave = pty.openpty()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": os.getcwd()},
            # A test run in the background ignores interrupts, and its children would too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        self.shown = ""

    def until(self, text: str, seconds: float = 60) -> float:
        """The seconds from the process's start until ``text`` is shown, or until its end."""
        while text not in self.shown or not text:
            assert time.monotonic() - self.started < seconds, self.shown
            if select.select([self.master], [], [], 1)[0]:
                try:
                    read = os.read(self.master, 65536)
                except OSError:  # Linux says so at the end
                    break
                if not read:
                    break
                self.shown += read.decode(errors="replace")
        return time.monotonic() - self.started

    def type(self, text: str) -> None:
        """Type a text; what it leads to stands in ``shown`` alone."""
        self.shown = ""
        os.write(self.master, text.encode())

    def end(self) -> int:
        self.until("")
        return self.process.wait(60)
